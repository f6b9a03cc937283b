"""The kernel's notifications (rtnetlink) that interfaces, addresses, qdiscs or filters of a network namespace have changed.

A notification is a hint: what is so is read afterwards. The kernel queues it before the system call that made the change returns,
so an empty queue proves that nothing with notifications has changed since it was last read. Only the header of a message is
read, which every message has; hence a plain socket instead of pyroute2's, which decodes all attributes of every interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Collection
from enum import Flag, auto

from sopa_ryu.agent.kernel.netns import inside

_GROUPS = 1 << 0 | 1 << 3 | 1 << 4  # RTNLGRP_LINK, RTNLGRP_TC, RTNLGRP_IPV4_IFADDR
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_INDEX = struct.Struct("=i")
_INDEX_OFFSET = 20  # the same in struct ifinfomsg, tcmsg and ifaddrmsg
_MAX_MESSAGE_BYTES = 1 << 16
_NEWLINK, _DELLINK, _NEWADDR, _DELADDR = 16, 17, 20, 21


class InterfaceChange(Flag):
    """What has changed; of an unknown kind, or lost because too many came at once, is everything."""

    NOTHING = 0
    LINK = auto()
    ADDRESS = auto()
    TRAFFIC_CONTROL = auto()
    ANYTHING = LINK | ADDRESS | TRAFFIC_CONTROL


_KINDS = {
    _NEWLINK: InterfaceChange.LINK,
    _DELLINK: InterfaceChange.LINK,
    _NEWADDR: InterfaceChange.ADDRESS,
    _DELADDR: InterfaceChange.ADDRESS,
}


class Changes:
    """The notifications of a network namespace since they were last read. It keeps the namespace alive until `close`.

    Args:
        netns: Path of the namespace; the caller's own by default.

    Raises:
        NetnsError: If the namespace cannot be entered.
    """

    def __init__(self, netns: str | None = None) -> None:
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        self._socket.bind((0, _GROUPS))

    def close(self) -> None:
        """Close the socket. May be repeated."""
        self._socket.close()

    def take(self, *ifindexes: int) -> InterfaceChange:
        """Read all notifications; return what has changed at these interfaces, or at any if none is given."""
        changed = InterfaceChange.NOTHING
        while True:
            try:
                messages = self._socket.recv(_MAX_MESSAGE_BYTES)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                changed = InterfaceChange.ANYTHING
            else:
                changed |= _read(messages, ifindexes)

    async def wait(self, seconds: float) -> None:
        """Return when there is a notification, or after so many seconds."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._socket, arrived.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may swallow a cancellation
                    await arrived.wait()
        finally:
            loop.remove_reader(self._socket)


class Namespace:
    """The network namespace that a path leads to now, kept open: the path may lead to another one later, or nowhere.

    Args:
        path: The process's own namespace by default.

    Raises:
        OSError: If the path leads nowhere.
    """

    def __init__(self, path: str | None) -> None:
        self.given = path
        self._fd = None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def path(self) -> str | None:
        """A path that leads to this namespace until `close`."""
        return None if self._fd is None else f"/proc/self/fd/{self._fd}"

    def is_current(self) -> bool:
        """Return True if the path that was given still leads to it."""
        if self.given is None or self._fd is None:
            return True
        try:
            return os.path.samestat(os.stat(self.given), os.fstat(self._fd))
        except OSError:
            return False

    def close(self) -> None:
        """Let the namespace go. May be repeated."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _read(messages: bytes, ifindexes: Collection[int]) -> InterfaceChange:
    changed, at = InterfaceChange.NOTHING, 0
    while at + _INDEX_OFFSET + _INDEX.size <= len(messages):
        length, kind, *_ = _HEADER.unpack_from(messages, at)
        if not ifindexes or _INDEX.unpack_from(messages, at + _INDEX_OFFSET)[0] in ifindexes:
            changed |= _KINDS.get(kind, InterfaceChange.TRAFFIC_CONTROL)
        if length < _HEADER.size:
            return InterfaceChange.ANYTHING
        at += (length + 3) & ~3
    return changed
