"""The estimator's process: a socket to the controller is given. It ends with the controller."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import sys

from sopa_ryu.health import wire
from sopa_ryu.health.judge import Judge

NICE = 5
"""Forwarding comes first."""
MAX_MEMORY = 4 << 30
READ_BYTES = 1 << 18


def serve(sock: socket.socket) -> None:
    """Answer messages until the controller closes the socket."""
    messages, judge = wire.Messages(), None
    while data := sock.recv(READ_BYTES):
        for kind, payload in messages.take(data):
            if kind == wire.CONFIG:
                judge = Judge(json.loads(payload))
            elif judge is not None:
                for answer in judge.take(kind, payload):
                    sock.sendall(answer)


def main() -> None:
    """Serve the socket whose number is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the controller's end is ours, too
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.RLIM_INFINITY))
    os.nice(NICE)
    with socket.socket(fileno=int(sys.argv[1])) as sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        sock.setblocking(True)  # the controller's green threads made it otherwise
        serve(sock)


if __name__ == "__main__":
    main()
