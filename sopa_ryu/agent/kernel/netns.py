"""Network namespaces: a thread enters one for the length of a ``with`` block."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SYSCTLS = Path(os.environ.get("SOPA_PROC_SYS_NET", "/proc/sys/net"))
"""The settings of the calling thread's namespace. A container's own are read-only: it names a mount of the host's."""
_CLONE_NEWNET = 0x40000000
SO_NETNS_COOKIE = 71  # asm-generic/socket.h, Linux 5.14; the socket module has no name for it
_libc = ctypes.CDLL(None, use_errno=True)


class NetnsError(RuntimeError):
    """A network namespace that cannot be entered."""


@dataclass(frozen=True)
class Interface:
    """An interface: its name, and the path of its network namespace if that is not the process's own."""

    name: str
    netns: str | None = None

    @classmethod
    def parse(cls, text: str) -> Interface:
        """Return the interface of ``eth0``, or of ``eth0@/run/netns/blue`` in another network namespace."""
        name, at, netns = text.partition("@")
        if not name or (at and not netns):
            raise ValueError(f"{text!r} is no interface: write eth0, or eth0@/run/netns/NAME")
        return cls(name, netns or None)

    def __str__(self) -> str:
        return f"{self.name}@{self.netns}" if self.netns else self.name


@contextmanager
def inside(path: str | None) -> Iterator[None]:
    """Put the calling thread into the network namespace at ``path``, such as ``/run/netns/x`` or ``/proc/PID/ns/net``.

    Sockets that it opens and its accesses to ``/proc/sys/net`` belong to that namespace until the block ends; an open
    socket stays where it was opened. Mounts, and so ``/sys/class/net``, do not follow. None stays where the thread is.

    Raises:
        NetnsError: If there is no such namespace, or the process may not enter it (it needs CAP_SYS_ADMIN).
    """
    if path is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NetnsError(f"no network namespace at {path}: {error.strerror}") from error
        try:
            _setns(there, path)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _setns(home, "the thread's own")
    finally:
        os.close(home)


class Traveller:
    """The network namespaces that one thread goes through, which makes it: it stays where it went last.

    It asks the kernel only to go elsewhere, as a unit of systemd may not allow that.
    """

    def __init__(self) -> None:
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._open: dict[str, int] = {}
        self._at: int | None = self._home  # None: in one that was forgotten

    def enter(self, path: str | None) -> None:
        """Enter the namespace at a path; None is the one where the thread began.

        Raises:
            NetnsError, OSError: As `inside`.
        """
        if path is not None and path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        there = self._home if path is None else self._open[path]
        if there != self._at:
            _setns(there, path or "the thread's own")
            self._at = there

    def forget(self, path: str | None) -> None:
        """Close what `enter` has opened, as the path may lead elsewhere from now on. May be repeated."""
        fd = self._open.pop(path, None) if path else None
        if fd is not None:
            os.close(fd)
            if fd == self._at:
                self._at = None

    def close(self) -> None:
        """Close everything."""
        for fd in (self._home, *self._open.values()):
            os.close(fd)
        self._open.clear()


def _setns(fd: int, name: str) -> None:
    if _libc.setns(fd, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise NetnsError(f"cannot enter network namespace {name}: {os.strerror(number)} (run as root?)")


def cookie() -> int:
    """Return the number of the calling thread's network namespace: unlike its inode, never used again before the next boot."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8), sys.byteorder)
