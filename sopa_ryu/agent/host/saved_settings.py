"""The files of a host's saved settings while agents have changed them, and the locks that keep agents apart."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sopa_ryu.runtime.atomic_file import write_atomically

State = dict[str, Any]


class SettingsError(RuntimeError):
    """The host's settings cannot be changed safely; nothing has been changed."""


class InterfaceBusy(SettingsError):
    """Another agent works on the interface."""


class SavedSettings:
    """The state file of one network namespace, and the lock on one of its interfaces.

    Args:
        directory: Made by `state` if it is missing.
        namespace: The namespace's number.
        boot: The id of this boot: a file of another boot is ignored.
        ifname: The interface.
    """

    def __init__(self, directory: Path, namespace: str, boot: str, ifname: str) -> None:
        self._directory, self._base, self._boot, self._ifname = directory, f"netns-{namespace}", boot, ifname
        self._lock: int | None = None

    def take(self) -> None:
        """Lock the interface; `InterfaceBusy` if another agent has it, with its pid."""
        path = self._lock_path(self._ifname)
        try:
            self._lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text().strip() or "unknown"
            raise InterfaceBusy(
                f"another agent (pid {holder}) works on {self._ifname}: stop it first, or choose another interface"
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def is_locked(self, ifname: str) -> bool:
        """Return True if an agent that is alive has locked an interface."""
        try:
            fd = os.open(self._lock_path(ifname), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def release(self) -> None:
        """Unlock the interface. May be repeated."""
        if self._lock is not None:
            _unlocked(self._lock, self._lock_path(self._ifname))
            self._lock = None

    @contextmanager
    def state(self) -> Iterator[State]:
        """Give exclusive access to the namespace's state; it is durable when the block has ended without an exception."""
        self._directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        guard = self._directory / f"{self._base}.lock"
        fd = _locked(guard, fcntl.LOCK_EX)
        try:
            path = self._directory / f"{self._base}.json"
            state = self._read(path)
            before = json.dumps(state)
            yield state
            if not state["interfaces"]:
                path.unlink(missing_ok=True)
            elif json.dumps(state) != before:
                write_atomically(path, json.dumps(state, indent=1).encode())
        finally:
            _unlocked(fd, guard)

    def _read(self, path: Path) -> State:
        fresh: State = {"boot_id": self._boot, "interfaces": {}}
        try:
            state: State = json.loads(path.read_text())
        except FileNotFoundError:
            return fresh
        except ValueError as error:
            raise SettingsError(
                f"{path} is damaged ({error}): check tcp_reordering, tcp_min_rtt_wlen, gso_max_segs and the MTU, remove it"
            ) from error
        return state if state["boot_id"] == self._boot else fresh

    def _lock_path(self, ifname: str) -> Path:
        return self._directory / f"{self._base}-{ifname}.lock"


def _locked(path: Path, how: int) -> int:
    """Return a descriptor of the lock file, locked; `BlockingIOError` if it must not wait and another process has the lock."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, how)
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # removed while we waited: a lock on it excludes no other process


def _unlocked(fd: int, path: Path) -> None:
    path.unlink(missing_ok=True)  # while it is locked
    os.close(fd)
