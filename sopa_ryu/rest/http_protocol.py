"""HTTP/1.1 on one connection, every part of which is bounded in bytes and in time.

A request's line, headers, body, chunk sizes and trailers together have `REQUEST_SECONDS`, from the connection's start or the answer
before, and `MAX_REQUEST_BYTES`; what is longer or slower is answered by a problem document (408, 413, 414, 431) and closed.
"""

from __future__ import annotations

import contextlib
import io
import re
import socket as sockets
import time
from http import HTTPStatus
from typing import Any

import eventlet
import eventlet.wsgi

from sopa_ryu.channel.websocket import SOCKET
from sopa_ryu.rest.operations import PROBLEM, Problem, problem_body
from sopa_ryu.runtime.doors import Visit, count, deadline

REQUEST_SECONDS = 20.0
"""Timeout from a connection's start or last answer until a request is complete; also that of idle connections."""
ANSWER_SECONDS = 60.0
"""Timeout of an answer, which a client reads too slowly."""
WRITE_SECONDS = 20.0
"""Timeout for a client that does not read its answer at all."""
LINGER_SECONDS = 1.0
"""How long a rejected client may go on sending, so that it can read why it was rejected (RFC 9112, section 9.6)."""
MAX_LINGER_BYTES = 1 << 24
MAX_LINE_BYTES = 1 << 16
MAX_BODY_BYTES = 1 << 16
MAX_CHUNK_LINE_BYTES = 256
MAX_TRAILER_BYTES = 1 << 12
MAX_REQUEST_BYTES = 1 << 18
SLICE_SECONDS = 0.002
"""Requests that arrive without a pause are answered for so long without a switch of green threads."""
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(;.*)?\r?\n")
_TOO_LONG = f"a body may have at most {MAX_BODY_BYTES} bytes"
OPTIONAL_WHITESPACE = " \t"
"""What may stand around a header's value (RFC 9110, section 5.6.3). Python's `str.strip` removes control characters, too."""

TRUST = "sopa.trust"
"""Key of the WSGI environment: a function to call when a request has shown a token."""


class _LateError(Exception):
    """A request took longer than `REQUEST_SECONDS`."""


class Protocol(eventlet.wsgi.HttpProtocol):
    """The server's end of one connection; constructing it serves the connection to its end."""

    def __init__(self, visit: Visit, socket: Any, server: Any) -> None:
        self._visit = visit
        self._busy = 0.0
        self._answering: Any = None
        super().__init__([visit.address, socket, eventlet.wsgi.STATE_IDLE], server)

    def setup(self) -> None:
        """Make the two files of the connection."""
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile: Any = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        """Read a request within its bounds and answer it."""
        self._incoming.received = 0
        try:
            with deadline(REQUEST_SECONDS, _LateError()):
                complete = self._read_request()
        except _LateError:
            self.close_connection = True
            if self._incoming.received:  # an idle connection is closed without a word: a client could take it for an answer
                text = f"the request was not complete after {REQUEST_SECONDS:g} s"
                self._reject(Problem(HTTPStatus.REQUEST_TIMEOUT, text))
            return
        except Problem as problem:
            self._reject(problem)
            return
        if not complete:
            return
        began = time.monotonic()
        self.handle_one_response()
        self._busy += time.monotonic() - began
        if self._busy > SLICE_SECONDS:
            self._busy = 0.0
            eventlet.sleep(0)

    def handle_one_response(self) -> None:
        """Answer within `ANSWER_SECONDS`; a WebSocket has its own timeouts once it has taken over."""
        with deadline(ANSWER_SECONDS, TimeoutError("the answer was not read in time")) as self._answering:
            try:
                super().handle_one_response()
            finally:
                self.environ.clear()  # it refers to itself, by way of webob's parameters and eventlet's `set_idle`

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is no HTTP."""
        self._reject(Problem(HTTPStatus(code), (message or explain or "")[:200]))

    def get_environ(self) -> dict[str, Any]:
        """Return the WSGI environment of the request."""
        environ: dict[str, Any] = super().get_environ()
        environ["SERVER_PROTOCOL"] = self.request_version
        environ[TRUST] = self._visit.trust
        environ[SOCKET] = self._take_over
        return environ

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read_request(self) -> bool:
        """Read a request; return False if none comes, or if it is no HTTP and was answered."""
        self.protocol_version = self.server.max_http_version
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(MAX_LINE_BYTES)
        if not self.raw_requestline:
            return False
        self.conn_state[2] = eventlet.wsgi.STATE_REQUEST
        if len(self.raw_requestline) >= MAX_LINE_BYTES:
            raise Problem(HTTPStatus.REQUEST_URI_TOO_LONG, f"a request line may have at most {MAX_LINE_BYTES} bytes")
        whole = self.rfile
        self.rfile = eventlet.wsgi.FileObjectForHeaders(whole)
        try:
            if not self.parse_request():
                return False
        except (eventlet.wsgi.HeaderLineTooLong, eventlet.wsgi.HeadersTooLarge):
            text = f"headers may have at most {eventlet.wsgi.MAX_TOTAL_HEADER_SIZE} bytes, each {eventlet.wsgi.MAX_HEADER_LINE}"
            raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text) from None
        finally:
            self.rfile = whole
        lengths, codings = (self.headers.get_all(name, []) for name in ("content-length", "transfer-encoding"))
        length = self._check_framing(lengths, codings)
        self.environ = self.get_environ()
        self.application = self.server.app
        body = self._read_body(length, bool(codings))
        # the length as a number: what has been read is all there is
        self.environ["wsgi.input"] = self.environ["eventlet.input"] = eventlet.wsgi.Input(
            io.BytesIO(body), len(body), self.connection
        )
        if body:
            self.environ["CONTENT_LENGTH"] = str(len(body))
        return True

    def _read_body(self, length: int | None, chunked: bool) -> bytes:
        if length is None and not chunked:
            return b""
        if self.environ.pop("HTTP_EXPECT", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        if length is not None:
            return self._read_exactly(length)
        del self.environ["HTTP_TRANSFER_ENCODING"]
        return self._read_chunks()

    def _check_framing(self, lengths: list[str], codings: list[str]) -> int | None:
        """Return the length of a body that is not chunked; `Problem` if it is not known where the request ends."""
        if codings and lengths:
            text = "Content-Length and Transfer-Encoding are not allowed together"
            raise Problem(HTTPStatus.BAD_REQUEST, text)
        if codings and [each.strip(OPTIONAL_WHITESPACE).lower() for each in codings] != ["chunked"]:
            raise Problem(HTTPStatus.NOT_IMPLEMENTED, "the only transfer coding of a body is chunked")
        if not lengths:
            return None
        length = lengths[0].strip(OPTIONAL_WHITESPACE)
        if len(lengths) > 1 or not re.fullmatch("[0-9]{1,18}", length):
            raise Problem(HTTPStatus.BAD_REQUEST, "Content-Length is not one number")
        if int(length) > MAX_BODY_BYTES:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LONG)
        return int(length)

    def _read_chunks(self) -> bytes:
        """Read a chunked body and its trailers (RFC 9112, section 7.1)."""
        body = bytearray()
        while True:
            line = self.rfile.readline(MAX_CHUNK_LINE_BYTES)
            if not _CHUNK_SIZE.fullmatch(line):
                raise Problem(HTTPStatus.BAD_REQUEST, "a chunk does not begin with its size")
            size = int(line.partition(b";")[0], 16)
            if not size:
                break
            if len(body) + size > MAX_BODY_BYTES:
                raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LONG)
            body += self._read_exactly(size)
            if self._read_exactly(2) != b"\r\n":
                raise Problem(HTTPStatus.BAD_REQUEST, "a chunk does not end after its size")
        trailers = 0
        while (line := self.rfile.readline(MAX_TRAILER_BYTES)) not in (b"\r\n", b"\n"):
            trailers += len(line)
            if not line.endswith(b"\n") or trailers > MAX_TRAILER_BYTES:
                text = f"trailers may have at most {MAX_TRAILER_BYTES} bytes"
                raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)
        return bytes(body)

    def _read_exactly(self, size: int) -> bytes:
        data: bytes = self.rfile.read(size)
        if len(data) < size:
            raise ConnectionError("the client closed the connection in the middle of a body")
        return data

    # -- others -------------------------------------------------------------------------------------------------------

    def _take_over(self) -> tuple[Any, bytes]:
        """Return the socket, for another protocol, and the bytes that follow the request and were read already."""
        self._answering.cancel()
        self._incoming.ended = True
        self.connection.settimeout(None)
        return self.connection, self.rfile.read()

    def _reject(self, problem: Problem) -> None:
        self.close_connection = True
        count("rest", str(problem.status.value))
        turn_away(self.connection, problem)


class _Incoming(io.RawIOBase):
    """The bytes of a connection as a file, counted.

    Attributes:
        received: Bytes of this request, and of later ones that came with it.
        ended: True if nothing more is to be read from the socket.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.received = 0
        self.ended = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there; let others have their turn before a second piece of the same request."""
        if self.ended:
            return 0
        if self.received:
            eventlet.sleep(0)
        if self.received > MAX_REQUEST_BYTES:
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have at most {MAX_REQUEST_BYTES} bytes")
        read = int(self._socket.recv_into(buffer))
        self.received += read
        return read


def turn_away(socket: Any, problem: Problem) -> None:
    """Answer a client that is not served further, and give it a moment to read that; the caller closes the socket."""
    body = problem_body(problem)
    headers = {"Content-Type": PROBLEM, "Content-Length": str(len(body)), **problem.headers, "Connection": "close"}
    head = f"HTTP/1.1 {problem.status.value} {problem.status.phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with contextlib.suppress(OSError), deadline(LINGER_SECONDS, TimeoutError()):
        socket.sendall(f"{head}\r\n".encode("latin-1") + body)
        socket.shutdown(sockets.SHUT_WR)
        # A socket that is closed while bytes are unread is reset, and the client loses the answer.
        unread = MAX_LINGER_BYTES
        while unread > 0 and (more := socket.recv(1 << 16)):
            unread -= len(more)
            eventlet.sleep(0)
