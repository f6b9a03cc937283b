"""The HTTP server of REST, page, metrics and the agents' channel: eventlet's, with limits for each client."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import eventlet
import eventlet.wsgi

LOG = logging.getLogger("sopa.http")

# Every agent keeps a connection open: the pool needs room for all of them and the requests (k=24 has 3,456 hosts).
MAX_CONNECTIONS = 16_384
BACKLOG = 4096  # pending connections: after a controller's restart all agents connect at the same time
REQUEST_SECONDS = 20.0
"""Timeout from a connection's start or last answer until a request's headers are complete; also that of idle connections."""
WRITE_SECONDS = 20.0
"""Timeout for a client that does not read its answer."""
MAX_LINE_BYTES = 1 << 16


class CertificateError(RuntimeError):
    """A certificate or key cannot be used; the text says which and why."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the server's TLS context, for TLS 1.2 or later.

    Parameters
    ----------
    certificate, key : Path
        In PEM; the file may contain intermediate certificates after the server's own.

    Raises
    ------
    CertificateError
        If they cannot be read, or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(f"{certificate} and {key} cannot be used for TLS: {error}") from error
    return context


def switch_tls_context(authorities: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return the client's TLS context for switches' databases, from the files of OpenFlow over TLS; None without authorities.

    Like Open vSwitch itself, it verifies who signed a switch's certificate but not the name in it.

    Raises
    ------
    CertificateError
        If they cannot be read, or do not belong together.
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


class Protocol(eventlet.wsgi.HttpProtocol):
    """HTTP/1.1 on one connection, closed if a request takes longer than `REQUEST_SECONDS`."""

    _timer: Any = None

    def handle_one_request(self) -> None:
        """Read a request within the timeout and answer it."""
        # a timer of the hub: cancelling a green thread leaves a cycle of its traceback and this connection
        self._timer = eventlet.hubs.get_hub().schedule_call_global(REQUEST_SECONDS, self._give_up)
        try:
            super().handle_one_request()
        except ssl.SSLError as error:
            LOG.debug("TLS with %s failed: %s", self.client_address[0], error)
            self.close_connection = True
        finally:
            self._timer.cancel()

    def handle_one_response(self) -> None:
        """Answer; WebSockets have timeouts of their own."""
        self._timer.cancel()
        if self.environ.get("HTTP_UPGRADE", "").lower() == "websocket":
            self.connection.settimeout(None)
        try:
            super().handle_one_response()
        finally:
            self.environ.clear()  # it refers to itself, by way of webob's parameters and eventlet's `set_idle`

    def _give_up(self) -> None:
        eventlet.greenio.shutdown_safe(self.connection)


def listen(host: str, port: int, context: ssl.SSLContext | None = None) -> Any:
    """Return a listening socket, for TLS if a context is given. Each connection does its own handshake, so none delays others."""
    listener = eventlet.listen((host, port), backlog=BACKLOG)
    return listener if context is None else context.wrap_socket(listener, server_side=True)


def serve(listener: Any, application: Any) -> None:
    """Answer requests until killed."""
    eventlet.wsgi.server(
        listener,
        application,
        max_size=MAX_CONNECTIONS,
        protocol=Protocol,
        socket_timeout=WRITE_SECONDS,
        url_length_limit=MAX_LINE_BYTES,
        log=LOG,
        log_output=False,
        debug=False,
    )
