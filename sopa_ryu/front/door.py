"""The listening socket of a front: who is let in, TLS, and what happens when no file is left.

The rules are those of `sopa_ryu.southbound.listener`: an address has a share of the connections without a token,
and all have a total, counted before a TLS handshake; a connection for which no file is left waits in the kernel's queue.

What is accepted costs little until it is served, and addresses are served in turn: whoever connects without end, and closes at
once, delays others by one connection of its own each time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from itertools import chain, islice
from typing import Any

from sopa_ryu.front.http_connection import HttpConnection
from sopa_ryu.rest.operations import PROBLEM, Problem, problem_body
from sopa_ryu.runtime.clients import Clients, ExcessClient, Network, client_of, plain
from sopa_ryu.runtime.listeners import NO_ROOM, RECOVERED_SECONDS, RETRY_SECONDS, SparingLog, file_share, listening

LOG = logging.getLogger("sopa.http")

MAX_CONNECTIONS = 16_384
SHARE = 128
"""The connections without a token that one client address may have."""
BACKLOG = 4096  # pending connections: when another relay dies, its agents connect at the same time
ACCEPTS_AT_ONCE = 64
"""After so many, everything else has its turn."""
SERVED_AT_ONCE = 64
"""So many addresses have a connection of theirs served in one turn."""
HANDSHAKE_SECONDS = 10.0


class FrontDoor:
    """A listening socket, on an event loop.

    Args:
        listener: What listens, or the address and port to listen on.
        answer: Answers the requests of all connections (`HttpConnection`).
        tls: Returns the context for a connection, for TLS.
        share: The maximum number of connections without a token from one address.
        shared: Addresses of proxies, which have no share.
        share_option: What sets the share, for those who are turned away.

    Attributes:
        rejected: Connections that were turned away, by reason: ``share``, ``total``, ``files``, ``tls``.
    """

    def __init__(
        self,
        listener: socket.socket | tuple[str, int],
        answer: Callable[..., Any],
        tls: Callable[[], ssl.SSLContext] | None = None,
        share: int = SHARE,
        shared: Iterable[Network] = (),
        share_option: str = "--client-connections",
    ) -> None:
        self.rejected: Counter[str] = Counter(dict.fromkeys((*map(str, ExcessClient), "files", "tls"), 0))
        self.clients = Clients(share, file_share(MAX_CONNECTIONS), shared)
        self._answer = answer
        self._tls = tls
        self._share_option = share_option
        self._listener: socket.socket = listening(*listener, BACKLOG) if isinstance(listener, tuple) else listener
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._say = SparingLog(LOG).warning
        self._waiting: dict[str, deque[tuple[socket.socket, str]]] = {}
        self._turn: asyncio.Handle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._recovery: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None

    @property
    def scheme(self) -> str:
        """``http`` or ``https``."""
        return "http" if self._tls is None else "https"

    def open(self) -> None:
        """Accept connections from now on."""
        self._retry = None
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def hold(self, is_held: bool) -> None:
        """Let new connections wait in the kernel's queue, or accept them again."""
        if is_held:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
        elif self._retry is None:
            self.open()

    def close(self) -> None:
        """Accept no more."""
        for handle in (self._recovery, self._retry, self._turn):
            if handle is not None:
                handle.cancel()
        for connection, _ in chain.from_iterable(self._waiting.values()):
            connection.close()
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot(error)
                return
            connection.setblocking(False)
            peer = plain(address[0])
            excess = self.clients.enter(peer)
            if excess is not None:
                self._turn_away(connection, peer, excess)
                continue
            self._waiting.setdefault(client_of(peer), deque()).append((connection, peer))
            self._schedule()

    def _schedule(self) -> None:
        if self._turn is None and self._waiting:
            self._turn = asyncio.get_running_loop().call_soon(self._serve_each)

    def _serve_each(self) -> None:
        """Begin to serve the oldest connection of each address; addresses that have more go to the end of the queue."""
        self._turn = None
        for client in [*islice(self._waiting, SERVED_AT_ONCE)]:
            connections = self._waiting.pop(client)
            task = asyncio.get_running_loop().create_task(self._serve(*connections.popleft()))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            if connections:
                self._waiting[client] = connections
        self._schedule()

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        http_connection = HttpConnection(self._answer, peer, self.scheme, lambda: self.clients.leave(peer), self._count)
        try:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: http_connection,
                connection,
                ssl=None if self._tls is None else self._tls(),
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
            )
        except (OSError, RuntimeError) as error:  # it has left, or its TLS is not what TLS is
            if self._tls is not None:
                self._count("timeout" if isinstance(error, ConnectionAbortedError) else "tls")
            LOG.debug("connection from %s ended: %s", peer, error)
            http_connection.trust()
            connection.close()

    def _count(self, reason: str) -> None:
        self.rejected[reason] += 1

    def _cannot(self, error: OSError) -> None:
        """Wait if there is no room for a connection; any other error is that of one connection, which is gone (accept(2))."""
        if error.errno not in NO_ROOM:
            LOG.debug("a connection was lost before it was accepted: %s", error)
            return
        loop = asyncio.get_running_loop()
        if self._recovery is None:
            self.rejected["files"] += 1
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            LOG.error(
                "no file is left for new connections (%s). They wait, established ones continue. Raise the limit of %d open files "
                "(LimitNOFILE of the unit, ulimit -n)",
                error.strerror,
                soft,
            )
        else:
            self._recovery.cancel()
        self._recovery = loop.call_later(RECOVERED_SECONDS, self._say_recovered)
        loop.remove_reader(self._listener.fileno())
        self._retry = loop.call_later(RETRY_SECONDS, self.open)

    def _say_recovered(self) -> None:
        self._recovery = None
        LOG.warning("files are free again, new connections are accepted")

    def _turn_away(self, connection: socket.socket, peer: str, excess: ExcessClient) -> None:
        """Say why, if that is possible without waiting, and close."""
        self.rejected[excess] += 1
        if excess is ExcessClient.SHARE:
            why = f"it has {self.clients.share} connections, the most for one address. See {self._share_option}"
        else:
            why = f"there are {self.clients.most} connections without a token, the most in all"
        self._say(excess, "connection from %s rejected: %s", peer, why)
        if self._tls is None:
            with contextlib.suppress(OSError):
                connection.send(_document(excess, self._share_option))
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 16)  # a socket that is closed while bytes are unread is reset, and the answer is lost
        connection.close()


@cache
def _document(excess: ExcessClient, share_option: str) -> bytes:
    if excess is ExcessClient.SHARE:
        status = HTTPStatus.TOO_MANY_REQUESTS
        text = f"this address has as many connections as one address may have: close some, or see {share_option}"
    else:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        text = "there are as many connections as can be served: try again later"
    body = problem_body(Problem(status, text))
    return (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(body)}\r\n"
        "Retry-After: 5\r\nConnection: close\r\n\r\n"
    ).encode() + body
