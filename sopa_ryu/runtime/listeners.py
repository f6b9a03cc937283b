"""Listening sockets, and how many connections fit into this process' files: what servers on eventlet and on asyncio share."""

from __future__ import annotations

import errno
import logging
import resource
import socket as sockets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

OWN_FILES = 64
"""Files that the process needs besides connections: logs, listeners, databases, the state directory."""
RETRY_SECONDS = 0.2
RECOVERED_SECONDS = 2.0
"""Out of files is over when nothing had to wait for so long: two lines of the log for each time, however often it alternates."""
SAY_SECONDS = 60.0
"""Rejected connections are at most one line of the log in this time, for each listener and reason."""
NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

turned_away: Counter[tuple[str, str]] = Counter()
"""What was rejected before it was a request or a switch, by listener (``rest``, ``openflow``) and reason, for the metrics."""


class SparingLog:
    """Warnings of which the first of a kind is logged in `SAY_SECONDS`; the next one has the number of those left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: dict[str, tuple[float, int]] = {}

    def warning(self, kind: str, text: str, *values: object) -> None:
        """Log a warning, unless one of its kind was logged shortly before."""
        last, missed = self._said.get(kind, (float("-inf"), 0))
        now = time.monotonic()
        if now - last < SAY_SECONDS:
            self._said[kind] = last, missed + 1
            return
        self._said[kind] = now, 0
        self._log.warning(text + (f" ({missed} more since the last such line)" if missed else ""), *values)


def file_share(wanted: int) -> int:
    """Return how many connections without a token a listener may have: what is wanted, or half of the files that are there.

    So neither REST nor OpenFlow can take the files that the other, and what has a token, needs.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, min(wanted, (soft - OWN_FILES) // 2))


def bound(host: str, port: int, make: Callable[..., Any] = sockets.socket) -> Any:
    """Return a socket bound to an IPv4 or IPv6 address, or a name; ``::`` is every address of both.

    Raises `OSError` (EADDRINUSE) where another socket listens, and refuses clients: only `listening` has them wait.
    """
    host = host.strip("[]")
    family = sockets.AF_INET6 if ":" in host else sockets.AF_INET
    # without the port, which getaddrinfo would take modulo 65536
    found = sockets.getaddrinfo(host or None, 0, family, sockets.SOCK_STREAM, flags=sockets.AI_PASSIVE)[0][4]
    address = (found[0], port, *found[2:])
    listener: Any = make(family, sockets.SOCK_STREAM)
    try:
        listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
        if family == sockets.AF_INET6:
            listener.setsockopt(sockets.IPPROTO_IPV6, sockets.IPV6_V6ONLY, 0)
        listener.bind(address)
    except (OSError, OverflowError):
        listener.close()
        raise
    return listener


def listening(host: str, port: int, backlog: int, make: Callable[..., Any] = sockets.socket) -> Any:
    """Return a listening socket (`bound`)."""
    listener = bound(host, port, make)
    try:
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener
