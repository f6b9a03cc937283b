"""The HTTP server of REST, page, metrics and the agents' channel: eventlet's WSGI server behind a `Door`.

Every connection is bounded in bytes and in time, whatever it does: a TLS handshake by `HANDSHAKE_SECONDS`, a request with its body
and trailers by `REQUEST_SECONDS`, its answer by `ANSWER_SECONDS`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable
from http import HTTPStatus
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any

import eventlet
import eventlet.green.socket
import eventlet.wsgi

from sopa_ryu.rest.access import CertificateError
from sopa_ryu.rest.http_protocol import WRITE_SECONDS, Protocol, turn_away
from sopa_ryu.rest.operations import Problem
from sopa_ryu.runtime.clients import Clients, ExcessClient, Network
from sopa_ryu.runtime.doors import Door, Visit, count, deadline, listening
from sopa_ryu.runtime.listeners import file_share

LOG = logging.getLogger("sopa.http")

# Connections without a token; agents count no longer once they have shown theirs.
MAX_CONNECTIONS = 16_384
SHARE = 128
"""The connections without a token that one client address may have."""
BACKLOG = 4096  # pending connections: after a controller's restart all agents connect at the same time
HANDSHAKE_SECONDS = 10.0
MAX_TURNING_AWAY = 64
"""So many rejected clients at a time get an answer; others are only closed."""


def switch_tls_context(authorities: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the client's TLS context for switches' databases, from the files of OpenFlow over TLS; None without authorities.

    Like Open vSwitch itself, it verifies who signed a switch's certificate but not the name in it.

    Raises:
        CertificateError: If they cannot be read, or do not belong together.
    """
    if authorities is None:
        return None
    try:
        context = ssl.create_default_context(cafile=authorities)
        context.check_hostname = False
        if certificate is not None and key is not None:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{authorities}, {certificate} and {key} cannot be used for TLS: {error}") from error
    return context


class HttpDoor(Door):
    """The listening socket of the HTTP server, with its TLS context."""

    def __init__(self, listener: Any, clients: Clients, context: ssl.SSLContext | None) -> None:
        super().__init__("rest", listener, clients)
        self.context = context


def listen(
    host: str, port: int, context: ssl.SSLContext | None = None, share: int = SHARE, shared: Iterable[Network] = ()
) -> HttpDoor:
    """Return a listening socket.

    Args:
        host: An IPv4 or IPv6 address, or a name.
        context: For TLS. Each connection does its own handshake, so none delays others.
        share: The maximum number of connections without a token from one address.
        shared: Addresses of proxies, which have no share.
    """
    clients = Clients(share, file_share(MAX_CONNECTIONS), shared)
    return HttpDoor(listening(host, port, BACKLOG), clients, context)


def serve(door: HttpDoor, application: Any) -> None:
    """Answer requests until killed."""
    scheme = {} if door.context is None else {"wsgi.url_scheme": "https", "HTTPS": "on"}
    server = eventlet.wsgi.Server(
        door.listener,
        door.getsockname(),
        application,
        LOG,
        environ=scheme,
        max_http_version="HTTP/1.1",
        protocol=Protocol,
        log_output=False,
        debug=False,
        socket_timeout=WRITE_SECONDS,
    )
    turning_away = 0

    def reject(visit: Visit) -> None:
        nonlocal turning_away
        turning_away += 1
        try:
            turn_away(visit.socket, _problem(visit.excess))
        finally:
            turning_away -= 1
            visit.socket.close()

    for visit in door.visits():
        if visit.excess is None:
            eventlet.spawn_n(_attend, door, server, visit)
        elif door.context is None and turning_away < MAX_TURNING_AWAY:
            eventlet.spawn_n(reject, visit)
        else:
            visit.socket.close()


def _problem(excess: ExcessClient | None) -> Problem:
    if excess is ExcessClient.SHARE:
        return Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            "this address has as many connections as one address may have: close some, or see --sopa-client-connections",
            {"Retry-After": "5"},
        )
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "the controller has as many connections as it can serve: try again later",
        {"Retry-After": "5"},
    )


def _attend(door: HttpDoor, server: Any, visit: Visit) -> None:
    """Serve one connection to its end."""
    socket = visit.socket
    try:
        socket.settimeout(WRITE_SECONDS)
        socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)  # the end of a long answer waits for no acknowledgement of its beginning
        if door.context is not None:
            with deadline(HANDSHAKE_SECONDS, TimeoutError("no TLS handshake in time")):
                socket = door.context.wrap_socket(socket, server_side=True)
        Protocol(visit, socket, server)
    except TimeoutError as error:
        count(door.name, "timeout")
        LOG.debug("connection from %s: %s", visit.address[0], error)
    except OSError as error:  # the client has left, or its TLS is not what TLS is
        LOG.debug("connection from %s ended: %s", visit.address[0], error)
    finally:
        visit.trust()
        eventlet.greenio.shutdown_safe(socket)
        socket.close()
