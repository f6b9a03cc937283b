"""Connections to the engine's nodes, by Python's own HTTP client.

Not by httpx, which cannot be imported where trio is installed and eventlet has patched the sockets.
"""

from __future__ import annotations

import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple

from sopa_ryu.cluster.address import Endpoint
from sopa_ryu.cluster.gateway import Request
from sopa_ryu.cluster.stream import broken
from sopa_ryu.cluster.troubles import Kind, Trouble

MAX_IDLE = 4
"""Connections to a node that are kept for further requests."""


class Response(NamedTuple):
    """What a node answers."""

    status: int
    content: bytes


class Connections:
    """Connections to nodes, kept for further requests. Several threads may use them."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        self._idle: dict[Endpoint, list[HTTPConnection]] = {}
        self._closed = False

    def post(self, node: Endpoint, request: Request, headers: dict[str, str], seconds: float) -> Response | Trouble:
        """Ask a node.

        Args:
            request: One that may not be repeated gets a connection of its own: if one that was kept breaks, it is not known
                whether the node had received the request.
            seconds: Limit for the connection, and for each part of the answer.
        """
        if request.repeatable:
            try:
                connection = self._idle.get(node, []).pop()
            except IndexError:
                pass
            else:
                connection.sock.settimeout(seconds)
                answer = self._ask(node, connection, request, headers)
                if isinstance(answer, Response) or answer.late or self._closed:
                    return answer
        connection = self._new(node, seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            return broken(error)
        answer = self._ask(node, connection, request, headers)
        # a handshake of TLS that the node refuses ends after the request was sent, but it was not read
        return answer._replace(perhaps_done=answer.kind != Kind.REFUSED) if isinstance(answer, Trouble) else answer

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._closed = True
        for kept in self._idle.values():
            while kept:
                kept.pop().close()

    def _new(self, node: Endpoint, seconds: float) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(node.host, node.port, timeout=seconds)
        return HTTPSConnection(node.host, node.port, timeout=seconds, context=self._tls)

    def _ask(
        self, node: Endpoint, connection: HTTPConnection, request: Request, headers: dict[str, str]
    ) -> Response | Trouble:
        try:
            try:
                connection.request("POST", request.path, request.content(), headers)
            except (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                connection.sock.recv(
                    1
                )  # what the node has said before it closed the connection: that of TLS is an error
                raise
            response = connection.getresponse()
            answer = Response(response.status, response.read())
        except (OSError, HTTPException) as error:
            connection.close()
            return broken(error)
        kept = self._idle.setdefault(node, [])
        if response.will_close or self._closed or len(kept) >= MAX_IDLE:
            connection.close()
        else:
            kept.append(connection)
        return answer
