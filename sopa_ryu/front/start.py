"""How a controller starts its front: early, as the process needs a moment before it can serve."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any, NamedTuple

import eventlet.patcher

_sockets = eventlet.patcher.original("socket")  # green ones pass no files


class Started(NamedTuple):
    """A process that waits for its listening socket, and the controller's end of the socket pair."""

    sock: Any
    process: subprocess.Popen[bytes]

    def give(self, listener: Any) -> None:
        """Have it serve a listening socket; `OSError` if it has ended."""
        _sockets.send_fds(self.sock.fd, [b"l"], [listener.fileno()])


_early: list[Started] = []


def start() -> Started:
    """Return a new process, or the one that `prepare` has started."""
    if _early:
        return _early.pop()
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "sopa_ryu.front.child", str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return Started(ours, process)


def prepare() -> None:
    """Start a process for the first `start`."""
    _early.append(start())
