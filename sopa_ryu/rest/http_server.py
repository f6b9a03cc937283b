"""The HTTP server of REST, page, metrics and the agents' channel: eventlet's, with bounds on what a client may take."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import eventlet
import eventlet.wsgi

LOG = logging.getLogger("sopa.http")

# Every agent keeps a connection open: the pool has to hold them all beside the requests (k=24 has 3,456 hosts).
MAX_CONNECTIONS = 16_384
BACKLOG = 4096  # connections that wait to be taken: after a controller's restart all agents come at once
REQUEST_SECONDS = 20.0
"""From a connection's start, or the last answer, until a request's headers are there: also how long an idle connection is kept."""
WRITE_SECONDS = 20.0
"""How long a client may take nothing of an answer."""
MAX_LINE_BYTES = 1 << 16


class CertificateError(RuntimeError):
    """A certificate or key cannot be used; the text says which, and why."""


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """The server's side of TLS 1.2 or later.

    Parameters
    ----------
    certificate, key : Path
        In PEM; behind the certificate those of the authorities between it and the root.

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
    """The client's side of TLS towards switches' databases, by the files that OpenFlow over TLS is set up with; None without.

    As Open vSwitch itself does, it asks who signed a switch's certificate, and not for which name.

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
    """HTTP/1.1 on one connection; whoever does not get on with it is cut off."""

    _timer: Any = None

    def handle_one_request(self) -> None:
        """Read a request, in time, and answer it."""
        self._timer = eventlet.spawn_after(REQUEST_SECONDS, self._give_up)
        try:
            super().handle_one_request()
        except ssl.SSLError as error:
            LOG.debug("%s: no TLS: %s", self.client_address[0], error)
            self.close_connection = True
        finally:
            self._timer.cancel()

    def handle_one_response(self) -> None:
        """Answer; a WebSocket may then be silent for as long as its own rules allow."""
        self._timer.cancel()
        if self.environ.get("HTTP_UPGRADE", "").lower() == "websocket":
            self.connection.settimeout(None)
        super().handle_one_response()

    def _give_up(self) -> None:
        eventlet.greenio.shutdown_safe(self.connection)


def listen(host: str, port: int, context: ssl.SSLContext | None = None) -> Any:
    """A listening socket; with a context, for TLS. The handshake is each connection's own affair: a slow one delays nobody."""
    listener = eventlet.listen((host, port), backlog=BACKLOG)
    return listener if context is None else context.wrap_socket(listener, server_side=True)


def serve(listener: Any, application: Any) -> None:
    """Answer requests for ever."""
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
