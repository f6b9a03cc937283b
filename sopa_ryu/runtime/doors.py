"""Listening sockets that stay open: what arrives is bounded, and what cannot be accepted waits.

The rule for every listener of the controller: a connection that cannot be accepted now, for want of files or memory, waits in the
kernel's queue and is accepted later; an address that has its share of connections is turned away; neither ends anything else.
"""

from __future__ import annotations

import errno
import logging
import resource
from collections import Counter
from collections.abc import Iterator
from typing import Any

import eventlet

from sopa_ryu.runtime import listeners
from sopa_ryu.runtime.clients import Clients, ExcessClient, plain
from sopa_ryu.runtime.listeners import NO_ROOM, RECOVERED_SECONDS, RETRY_SECONDS, SparingLog

LOG = logging.getLogger("sopa")

ACCEPTS_AT_ONCE = 16
"""After so many, other green threads have their turn."""
_CLOSED = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}

turned_away: Counter[tuple[str, str]] = Counter()
"""What was rejected before it was a request or a switch, by listener (``rest``, ``openflow``) and reason, for the metrics."""


def count(listener: str, reason: str) -> None:
    """Count what was rejected."""
    turned_away[listener, reason] += 1


def listening(host: str, port: int, backlog: int) -> Any:
    """Return a listening socket on an IPv4 or IPv6 address, or a name; ``::`` is every address of both."""
    return listeners.listening(host, port, backlog, eventlet.green.socket.socket)


class Visit:
    """An accepted connection.

    Attributes:
        address: IP address and port of the client; an IPv4 address is written as such.
        excess: Why it has to be turned away.
    """

    __slots__ = ("_clients", "address", "excess", "socket")

    def __init__(self, socket: Any, address: tuple[Any, ...], clients: Clients) -> None:
        self.socket = socket
        self.address: tuple[Any, ...] = (plain(address[0]), *address[1:2]) if address else ("", 0)
        self.excess: ExcessClient | None = clients.enter(self.address[0])
        self._clients: Clients | None = None if self.excess else clients

    def trust(self) -> None:
        """Count it no longer: it has shown a token. Also called at its end."""
        if self._clients is not None:
            self._clients.leave(self.address[0])
            self._clients = None


class Door:
    """A listening socket of the controller.

    Args:
        name: For logs and metrics.
    """

    def __init__(self, name: str, listener: Any, clients: Clients) -> None:
        self.name = name
        self.clients = clients
        self.listener = listener
        self.say = SparingLog(LOG).warning
        self._recovery: Any = None

    def getsockname(self) -> Any:
        """Return the address that it listens on."""
        return self.listener.getsockname()

    def visits(self) -> Iterator[Visit]:
        """Yield the connections that arrive, until killed."""
        number = 0
        while True:
            number += 1
            if not number % ACCEPTS_AT_ONCE:
                eventlet.sleep(0)
            try:
                socket, address = self.listener.accept()
            except OSError as error:
                if error.errno in _CLOSED:
                    raise
                self._cannot(error)
                continue
            visit = Visit(socket, address, self.clients)
            if visit.excess is not None:
                self._say_excess(visit)
            yield visit

    def _cannot(self, error: OSError) -> None:
        """Wait if there is no room for a connection; any other error is that of one connection, which is gone (accept(2))."""
        if error.errno not in NO_ROOM:
            LOG.debug("%s: a connection was lost before it was accepted: %s", self.name, error)
            eventlet.sleep(0)
            return
        if self._recovery is None:
            count(self.name, "files")
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            LOG.error(
                "%s: no file is left for new connections (%s): they wait, established ones continue; "
                "raise the limit of %d open files (LimitNOFILE of the unit, ulimit -n)",
                self.name,
                error.strerror,
                soft,
            )
        else:
            self._recovery.cancel()
        self._recovery = eventlet.hubs.get_hub().schedule_call_global(RECOVERED_SECONDS, self._say_recovered)
        eventlet.sleep(RETRY_SECONDS)

    def _say_recovered(self) -> None:
        self._recovery = None
        LOG.warning("%s: files are free again, new connections are accepted", self.name)

    def _say_excess(self, visit: Visit) -> None:
        assert visit.excess is not None
        count(self.name, visit.excess)
        if visit.excess is ExcessClient.SHARE:
            reason = f"it has {self.clients.share} connections, the most for one address; see --sopa-client-connections"
        else:
            reason = f"there are {self.clients.most} connections without a token, the most in all"
        self.say(visit.excess, "%s: connection from %s rejected: %s", self.name, visit.address[0], reason)


def deadline(seconds: float, error: BaseException) -> Any:
    """Return a context manager that raises an error in this green thread after some seconds.

    It needs the hub to run: what it guards has to be bounded in bytes as well, since data that flows is read without a pause.
    """
    return eventlet.Timeout(seconds, error)
