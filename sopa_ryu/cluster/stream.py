"""The connection of a watch: HTTP on a socket, because a client has to look after the node whenever the watch is quiet."""

from __future__ import annotations

import contextlib
import socket
import ssl

import h11

from sopa_ryu.cluster.address import Endpoint
from sopa_ryu.cluster.gateway import Answer, Request, answer
from sopa_ryu.cluster.troubles import LATE, LATE_HINT, Kind, Trouble, TroubleError, shortened, trouble

_CHUNK = 1 << 16
_MAX_ERROR = 1 << 16  # bytes of an answer that is an error
_OK = 200


class Stream:
    """A request whose answer goes on.

    Args:
        timeout: Seconds for the connection.

    Raises:
        TroubleError: If the node cannot be reached.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        request: Request,
        headers: dict[str, str],
        tls: ssl.SSLContext | None,
        timeout: float,
    ) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._status = 0
        self._error = b""
        try:
            self._socket = socket.create_connection(endpoint, timeout)
        except OSError as error:
            raise TroubleError(broken(error)) from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=endpoint.host)
            content = request.content()
            head = h11.Request(
                method="POST",
                target=request.path,
                headers=[("Host", str(endpoint)), ("Content-Length", str(len(content))), *headers.items()],
            )
            for event in (head, h11.Data(data=content), h11.EndOfMessage()):
                self._socket.sendall(self._http.send(event) or b"")
        except OSError as error:
            self.close()
            raise TroubleError(broken(error)) from error

    def receive(self, seconds: float) -> bytes | None:
        """Return what comes next of the answer; None if nothing comes within some seconds.

        Raises:
            TroubleError: If the answer is an error, or the connection ends.
        """
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._socket.settimeout(seconds)
                    try:
                        self._http.receive_data(self._socket.recv(_CHUNK))
                    except TimeoutError:
                        return None
                elif isinstance(event, h11.Response):
                    self._status = event.status_code
                elif isinstance(event, h11.Data):
                    if self._status == _OK:
                        return bytes(event.data)
                    self._error = (self._error + bytes(event.data))[:_MAX_ERROR]
                else:
                    raise self._ended()
        except OSError as error:
            raise TroubleError(broken(error)) from error
        except h11.RemoteProtocolError as error:
            said = Trouble(Kind.UNREACHABLE, f"the connection ended, or it is no HTTP ({error})")
            raise TroubleError(said) from error

    def close(self) -> None:
        """Close the connection; a `receive` of another thread ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _ended(self) -> TroubleError:
        if self._status in (0, _OK):
            return TroubleError(Trouble(Kind.UNREACHABLE, "the node closed the connection"))
        said = answer(self._status, self._error)
        if isinstance(said, Answer):
            said = trouble(self._status, self._error.decode(errors="replace"), 0, "no error")
        return TroubleError(said)


def broken(error: Exception) -> Trouble:
    """Return what a failed connection means."""
    text = shortened(str(error) or type(error).__name__)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return Trouble(Kind.REFUSED, f"the node's certificate cannot be trusted: {text}")
    if "alert" in text.lower():
        return Trouble(Kind.REFUSED, f"the node does not accept this client's certificate, or requires one: {text}")
    if "SSL" in text:
        return Trouble(Kind.UNREACHABLE, f"the node ended the TLS handshake, or does not use TLS: {text}")
    if isinstance(error, TimeoutError) or "timed out" in text:
        return Trouble(Kind.UNREACHABLE, LATE, late=True, hint=LATE_HINT)
    if isinstance(error, ConnectionResetError | BrokenPipeError):  # RemoteDisconnected is one of them
        return Trouble(
            Kind.UNREACHABLE,
            "the node closed the connection without an answer (it uses TLS and no CA file is given, or a CA file is given and it "
            "does not use TLS?)",
        )
    return Trouble(Kind.UNREACHABLE, text)
