"""WebSockets (RFC 6455, version 13) of agents and pages: the websockets library's protocol on eventlet's sockets.

The rules for every connection: a message is bounded in bytes, however many fragments it has; frames of all kinds are read at a
bounded rate, and what comes faster waits in the kernel; reading lets other green threads have their turn; a green thread that waits
for a slow peer delays no other connection.
"""

from __future__ import annotations

import contextlib
import logging
import socket as sockets
import time
from collections.abc import Iterable, Iterator
from typing import Any

import eventlet
import eventlet.wsgi
from eventlet.event import Event
from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.frames import CloseCode, Opcode
from websockets.http11 import Request
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from sopa_ryu.channel.frames import CLOSE_SECONDS, FRAMES_AT_ONCE, LEAVES, PARSE_BYTES, Pace, text_frame

SOCKET = "sopa.socket"
"""Key of the WSGI environment: a function that returns the socket, and the bytes that were read from it behind the request."""
READ_BYTES = 4096
# It would log each connection; its errors are logged here.
_LOG = logging.getLogger("sopa.websocket")
_LOG.setLevel(logging.ERROR)


class HandshakeError(Exception):
    """A request that does not open a WebSocket of version 13.

    Args:
        status: The HTTP status of the answer.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Handshake:
    """A WebSocket request that may be accepted.

    Args:
        environ: The WSGI environment of a request on `sopa_ryu.rest.http_protocol.Protocol`.
        max_bytes: The maximum of a message.

    Raises:
        HandshakeError: If it is no WebSocket request of version 13.
    """

    def __init__(self, environ: dict[str, Any], max_bytes: int, pace: Pace) -> None:
        try:
            headers = Headers((name, value) for name, value in environ["headers_raw"])
        except InvalidHeader as error:  # a control character (RFC 9110, section 5.5)
            raise HandshakeError(400, str(error)) from error
        # Compression would need memory and processor time for each connection; without it all agents share one frame.
        request = Request(environ["PATH_INFO"], headers, environ["REQUEST_METHOD"], environ["SERVER_PROTOCOL"])
        self._response = ServerProtocol(extensions=None, logger=_LOG).accept(request)
        if self._response.status_code != 101:
            detail = bytes(self._response.body).decode(errors="replace").partition("\n")[0]
            raise HandshakeError(self._response.status_code, detail)
        self._environ = environ
        self._max_bytes = max_bytes
        self._pace = pace

    def accept(self) -> WebSocket:
        """Open the connection."""
        socket, early = self._environ[SOCKET]()
        # another than for the handshake, whose parser would wait for a request
        opened = WebSocket(socket, ServerProtocol(state=OPEN, max_size=self._max_bytes, logger=_LOG), self._pace)
        opened.start(self._response.serialize(), early)
        return opened


def served() -> Iterable[bytes]:
    """Return what a WSGI application returns after it has served a WebSocket: the server writes nothing and closes."""
    eventlet.wsgi.WSGI_LOCAL.already_handled = True
    return []


class WebSocket:
    """An open WebSocket.

    Args:
        protocol: After its handshake.
    """

    __slots__ = ("_allowed", "_binary", "_free", "_pace", "_protocol", "_raw", "_since", "_socket", "_text", "_unread", "_writing")

    def __init__(self, socket: Any, protocol: ServerProtocol, pace: Pace) -> None:
        self._socket = socket
        self._protocol = protocol
        self._pace = pace
        self._allowed = float(pace.burst)
        self._since = time.monotonic()
        self._writing = False
        self._free: Event | None = None
        self._text: bytearray | None = None
        self._binary = False
        self._raw = b""
        self._unread: Iterator[Any] = iter(())

    def start(self, answer: bytes, early: bytes) -> None:
        """Send the answer to the handshake, and take what followed the request."""
        self._raw = early
        with contextlib.suppress(OSError):  # reading then finds that the peer has gone
            self._write(answer)

    @property
    def left(self) -> bool:
        """True if the peer has said that it leaves; a connection that breaks off has said nothing."""
        said = self._protocol.close_rcvd
        return said is not None and said.code in LEAVES

    # -- to the peer --------------------------------------------------------------------------------------------------

    def send(self, text: str) -> None:
        """Send a message; wait while the peer is slow. Raises `OSError` if the connection is closed."""
        if self._protocol.state is not OPEN:
            raise ConnectionError("the WebSocket is closed")
        self._write(text_frame(text))

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and end the connection."""
        if self._protocol.state is OPEN:
            self._protocol.fail(code, reason)
            with contextlib.suppress(OSError):
                self._flush()
        self.cut()

    def cut(self) -> None:
        """End the connection immediately; readers and writers that wait are woken."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(sockets.SHUT_RDWR)

    def _flush(self) -> None:
        """Write what the protocol answers by itself: pongs and closes."""
        data = b"".join(self._protocol.data_to_send())
        if data:
            with eventlet.Timeout(CLOSE_SECONDS, TimeoutError("the peer does not read")):
                self._write(data)

    def _write(self, data: bytes) -> None:
        while self._writing:  # a frame must not be cut by another
            if self._free is None:
                self._free = Event()
            self._free.wait()
        self._writing = True
        try:
            self._socket.sendall(data)
        finally:
            self._writing = False
            if self._free is not None:
                free, self._free = self._free, None
                free.send()

    # -- from the peer ------------------------------------------------------------------------------------------------

    def receive(self) -> str | bytes | None:
        """Return the next message; None once the connection is closed, or broken off for a violation of the protocol."""
        while True:
            for frame in self._unread:
                message = self._take(frame)
                if message is not None:
                    return message
            if self._protocol.state is not OPEN:
                return None
            try:
                if not self._raw:
                    self._raw = self._socket.recv(READ_BYTES)
                data, self._raw = self._raw[:PARSE_BYTES], self._raw[PARSE_BYTES:]
                self._unread = self._feed(data)
            except OSError:
                return None

    def _feed(self, data: bytes) -> Iterator[Any]:
        """Parse what was read, answer pings and closes, and return the frames."""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        frames = self._protocol.events_received()
        self._wait(len(frames), len(data) == PARSE_BYTES)
        self._flush()
        return iter(frames)

    def _wait(self, frames: int, full: bool) -> None:
        """Let others have their turn after much data, and wait after too many frames."""
        now = time.monotonic()
        before, self._allowed = (self._allowed, min(float(self._pace.burst), self._allowed + (now - self._since) * self._pace.rate))
        self._since = now
        self._allowed -= frames
        if self._allowed < 0:
            eventlet.sleep(-self._allowed / self._pace.rate)
        elif full or before // FRAMES_AT_ONCE != self._allowed // FRAMES_AT_ONCE:
            eventlet.sleep(0)

    def _take(self, frame: Any) -> str | bytes | None:
        """Return a message if this frame completes one."""
        if frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return None
        if frame.opcode is not Opcode.CONT:
            self._text, self._binary = bytearray(), frame.opcode is Opcode.BINARY
        assert self._text is not None  # the protocol has checked the order of the frames
        self._text += frame.data
        if not frame.fin:
            return None
        whole, self._text = self._text, None
        try:
            return bytes(whole) if self._binary else whole.decode()
        except UnicodeDecodeError:
            self.close(CloseCode.INVALID_DATA, "the message is no UTF-8")
            return None
