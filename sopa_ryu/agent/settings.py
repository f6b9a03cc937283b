"""What the agent changes on its host besides the program: saved before the change, and put back afterwards.

- ``net.ipv4.tcp_reordering`` of the network namespace: TCP's fast-retransmit threshold, 3 by default, 10 for
  SOPA (the paper, section 3.4), since packets on several paths overtake each other.
- ``gso_max_segs`` 1 of the interface: tc egress sees a burst before it is cut into packets, so TCP must hand over
  one at a time. Connections that are open already keep their burst size until they look up their route again.

The originals are in one state file per network namespace, ``netns-<cookie>.json``, since the threshold is the
namespace's and several agents may work in it: the last one to leave puts it back. Each holds a lock on its interface;
an entry whose lock is free was left by a killed agent, and its originals are taken over, never replaced by what that
agent had set. A value that somebody else has changed meanwhile is theirs, and stays. Files of another boot, and
entries of an interface that has gone, are ignored.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from .netns import cookie, inside

STATE_DIR = Path("/run/sopa")
DEFAULT_THRESHOLD = 10
SEGMENTS = 1
_REORDERING = Path("/proc/sys/net/ipv4/tcp_reordering")
_MAX_REORDERING = Path("/proc/sys/net/ipv4/tcp_max_reordering")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

State = dict[str, Any]


class SettingsError(RuntimeError):
    """The host's settings cannot be changed safely; nothing has been changed."""


class InterfaceBusy(SettingsError):
    """Another agent works on the interface."""


class HostSettings:
    """The settings of one interface and its namespace, for the time that an agent needs them.

    Parameters
    ----------
    ifname : str
        The interface.
    fr_threshold : int
        TCP's fast-retransmit threshold in duplicate ACKs (or packets SACKed above a hole), 1 to 300 and at most the
        namespace's ``tcp_max_reordering``.
    state_dir : Path
        Where originals are kept; made if it is missing. It should not outlive a boot.
    netns : str, optional
        Path of the interface's network namespace; the caller's own by default.
    """

    def __init__(
        self,
        ifname: str,
        *,
        fr_threshold: int = DEFAULT_THRESHOLD,
        state_dir: Path = STATE_DIR,
        netns: str | None = None,
    ) -> None:
        self.ifname, self.fr_threshold = ifname, fr_threshold
        self.state_dir, self.netns = state_dir, netns
        self._lock: int | None = None
        self._base = ""
        self._ifindex = 0
        self._boot = ""

    def __enter__(self) -> HostSettings:
        self.apply()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def apply(self) -> None:
        """Take the interface, save the originals, then change the settings.

        Raises
        ------
        SettingsError
            For a threshold out of range, an unknown interface, a state directory that cannot be written, or a refusal.
        InterfaceBusy
            If another agent has the interface; the message has its pid.
        """
        with inside(self.netns):
            try:
                self._ifindex = socket.if_nametoindex(self.ifname)
            except OSError as error:
                raise SettingsError(
                    f"no interface {self.ifname} in {self.netns or 'this network namespace'}"
                ) from error
            most = min(300, int(_MAX_REORDERING.read_text()))
            if not 1 <= self.fr_threshold <= most:
                raise SettingsError(
                    f"the fast-retransmit threshold must be 1 to {most} (300, and net.ipv4.tcp_max_reordering), "
                    f"not {self.fr_threshold}"
                )
            self._boot = _BOOT_ID.read_text().strip()
            self._base = f"netns-{cookie()}"
            try:
                self.state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
                with self._state() as state:
                    self._take_interface()
                    self._save_originals(state)
            except OSError as error:
                self._release()
                raise SettingsError(
                    f"cannot keep the original settings in {self.state_dir}: {error.strerror}. Nothing was changed; "
                    "make room there, or name another directory."
                ) from error
            except BaseException:
                self._release()
                raise
            try:
                _write_reordering(self.fr_threshold)
                _write_segments(self._ifindex, SEGMENTS)
            except (OSError, NetlinkError) as error:
                self.restore()
                raise SettingsError(f"cannot change the settings of {self.ifname}: {error} (run as root?)") from error

    def restore(self) -> None:
        """Put the interface's settings back, the namespace's too if this is its last agent, and let go. May be repeated."""
        if self._lock is None:
            return
        try:
            with inside(self.netns), self._state() as state:
                mine = state["interfaces"].pop(self.ifname, None)
                if mine and _alive(mine["ifindex"]) and _segments(mine["ifindex"]) == SEGMENTS:
                    _write_segments(mine["ifindex"], mine["gso_max_segs"])
                saved = state["tcp_reordering"]
                if saved and not any(self._is_held(name) for name in state["interfaces"]):
                    if _read_reordering() in saved["written"]:
                        _write_reordering(saved["original"])
                    state["tcp_reordering"] = None
        finally:
            self._release()

    @property
    def clsact_added(self) -> bool:
        """Whether this agent, or a killed predecessor, added the interface's clsact qdisc."""
        with inside(self.netns), self._state() as state:
            return bool(state["interfaces"][self.ifname]["clsact_added"])

    def note_clsact(self, added: bool) -> None:
        """Keep whether the clsact qdisc is ours: call it before adding it, and after removing it."""
        with inside(self.netns), self._state() as state:
            state["interfaces"][self.ifname]["clsact_added"] = added

    def _save_originals(self, state: State) -> None:
        # What is not a value of ours is an original, even where a killed agent has left another.
        now, saved = _read_reordering(), state["tcp_reordering"] or {"written": []}
        state["tcp_reordering"] = {
            "original": saved["original"] if now in saved["written"] else now,
            "written": sorted({*saved["written"], self.fr_threshold}),
        }
        now, mine = _segments(self._ifindex), state["interfaces"].get(self.ifname)
        if mine is None or mine["ifindex"] != self._ifindex:  # none, or of an interface that had this name before
            mine = {"gso_max_segs": now, "clsact_added": False}
        if now != SEGMENTS:
            mine["gso_max_segs"] = now
        state["interfaces"][self.ifname] = {**mine, "ifindex": self._ifindex, "pid": os.getpid()}

    # -- locks ------------------------------------------------------------------------------------------------------

    def _lock_path(self, ifname: str) -> Path:
        return self.state_dir / f"{self._base}-{ifname}.lock"

    def _take_interface(self) -> None:
        path = self._lock_path(self.ifname)
        try:
            self._lock = _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text().strip() or "unknown"
            raise InterfaceBusy(
                f"another agent (pid {holder}) works on {self.ifname}: stop it first, or choose another interface"
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f"{os.getpid()}\n".encode())

    def _is_held(self, ifname: str) -> bool:
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

    def _release(self) -> None:
        if self._lock is not None:
            _unlocked(self._lock, self._lock_path(self.ifname))
            self._lock = None

    # -- the state file ---------------------------------------------------------------------------------------------

    @contextmanager
    def _state(self) -> Iterator[State]:
        """The namespace's state, alone with it; written when the block ends well, and durable before anything follows."""
        guard = self.state_dir / f"{self._base}.lock"
        fd = _locked(guard, fcntl.LOCK_EX)
        try:
            path = self.state_dir / f"{self._base}.json"
            state = self._read(path)
            before = json.dumps(state)
            yield state
            if not state["interfaces"]:
                path.unlink(missing_ok=True)
            elif json.dumps(state) != before:
                _write_atomically(path, json.dumps(state, indent=1))
        finally:
            _unlocked(fd, guard)

    def _read(self, path: Path) -> State:
        fresh: State = {"boot_id": self._boot, "tcp_reordering": None, "interfaces": {}}
        try:
            state: State = json.loads(path.read_text())
        except FileNotFoundError:
            return fresh
        except ValueError as error:
            raise SettingsError(
                f"{path} is damaged ({error}): check tcp_reordering and gso_max_segs, remove it"
            ) from error
        return state if state["boot_id"] == self._boot else fresh


def _locked(path: Path, how: int) -> int:
    """A descriptor of the lock file, locked; `BlockingIOError` if it must not wait and is held."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, how)
            if path.exists() and os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its holder removed it while we waited: a lock on it excludes nobody


def _unlocked(fd: int, path: Path) -> None:
    path.unlink(missing_ok=True)  # while it is locked
    os.close(fd)


def _write_atomically(path: Path, text: str) -> None:
    fresh = path.with_suffix(".tmp")
    try:
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _read_reordering() -> int:
    return int(_REORDERING.read_text())


def _write_reordering(value: int) -> None:
    _REORDERING.write_text(str(value))


def _alive(ifindex: int) -> bool:
    try:
        socket.if_indextoname(ifindex)
    except OSError:
        return False
    return True


def _segments(ifindex: int) -> int:
    with IPRoute() as route:
        return int(route.get_links(ifindex)[0].get_attr("IFLA_GSO_MAX_SEGS"))


def _write_segments(ifindex: int, segments: int) -> None:
    with IPRoute() as route:
        route.link("set", index=ifindex, gso_max_segs=segments)
