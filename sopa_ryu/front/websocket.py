"""WebSockets (RFC 6455, version 13) of agents and pages on asyncio's transports.

The rules for every connection are those of `sopa_ryu.channel.websocket`: a message is bounded in bytes, however many fragments it
has; frames of all kinds are read at a bounded rate, and what comes faster waits in the kernel; after some frames everything else
has its turn; a slow peer delays no other. Nothing is queued for a peer that does not read but what its transport took last.

Plain frames are read by `plain_frames`. What is not plain makes the library's protocol, which reads everything from then on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Protocol

from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from sopa_ryu.channel.frames import CLOSE_SECONDS, FRAMES_AT_ONCE, LEAVES, PARSE_BYTES, Pace
from sopa_ryu.front import plain_frames
from sopa_ryu.front.plain_frames import PlainFrame, Unusual

# It would log each connection; its errors are logged here.
_LOG = logging.getLogger("sopa.websocket")
_LOG.setLevel(logging.ERROR)

READ_BYTES = 16_384
_shared = bytearray(READ_BYTES)
_BUFFER = memoryview(_shared)
"""What transports read into: all of them the same, as what was read is taken before another one reads."""


class Owner(Protocol):
    """What a WebSocket tells of itself."""

    def received(self, socket: WebSocket, message: str | bytes) -> None:
        """Take a message."""

    def writable(self, socket: WebSocket) -> None:
        """Go on with what is due: the peer has read."""

    def ended(self, socket: WebSocket) -> None:
        """Note that the connection is closed."""


class WebSocket(asyncio.BufferedProtocol):
    """An open WebSocket.

    Args:
        transport: After the answer to the handshake.
        max_bytes: The longest message.

    Attributes:
        session: The owner's; opaque here.
        is_full: True while the peer does not read: nothing should be sent.
        left: True if the peer has said that it leaves; a connection that breaks off has said nothing.
    """

    __slots__ = (
        "_allowed",
        "_binary",
        "_is_held",
        "_later",
        "_max_bytes",
        "_open",
        "_owner",
        "_pace",
        "_protocol",
        "_raw",
        "_since",
        "_text",
        "_told",
        "_transport",
        "is_full",
        "left",
        "session",
    )

    def __init__(self, transport: Any, owner: Owner, pace: Pace, max_bytes: int) -> None:
        self.session: Any = None
        self.is_full = False
        self.left = False
        self._transport = transport
        self._owner = owner
        self._pace = pace
        self._max_bytes = max_bytes
        self._allowed = float(pace.burst)
        self._since = time.monotonic()
        self._open = True
        self._is_held = False
        self._told = False
        self._raw = b""
        self._later: asyncio.Handle | None = None
        self._protocol: ServerProtocol | None = None
        self._text: bytearray | None = None
        self._binary = False

    def hold(self, is_held: bool) -> None:
        """Read nothing from the peer, not even its pings, or go on."""
        self._is_held = is_held
        if not self._open or self._transport.is_closing():
            return
        if is_held:
            self._transport.pause_reading()
        elif self._later is None:
            self._go_on()

    # -- to the peer --------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a frame, unless the connection is closed."""
        if self._open:
            self._transport.write(frame)

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and end the connection."""
        if not self._open:
            return
        self._transport.write(bytes(Frame(Opcode.CLOSE, Close(code, reason).serialize()).serialize(mask=False)))
        self._end()

    def cut(self) -> None:
        """End the connection immediately."""
        self._open = False
        self._transport.abort()

    def _end(self) -> None:
        """End the connection once the peer has read what was sent and closed, or `CLOSE_SECONDS` later.

        A socket that is closed while bytes are unread is reset, and the peer loses the close frame: they are read, and dropped.
        """
        self._open = False
        self._raw = b""
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._transport.resume_reading()
        else:
            self._transport.close()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._transport.abort)
        self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._owner.ended(self)

    # -- the transport's calls ----------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to read into."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        if not self._open:
            return
        data = bytes(_BUFFER[:nbytes])
        self._raw = self._raw + data if self._raw else data
        if self._later is None:  # otherwise reading is paused, and the transport had read before
            self._go_on()

    def begin(self, early: bytes) -> None:
        """Take what followed the request."""
        self._raw = early
        self._go_on()

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._open = False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        self._tell()

    def pause_writing(self) -> None:
        """Note that the peer does not read."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Tell the owner that the peer has read."""
        self.is_full = False
        if self._open:
            self._owner.writable(self)

    # -- from the peer ------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Take frames until more data is needed, others should have their turn, or too many have come."""
        self._later = None
        if self._is_held:
            return
        now = time.monotonic()
        allowed = self._allowed + (now - self._since) * self._pace.rate
        self._since = now
        more, frames = True, 0
        while more and self._open and frames < FRAMES_AT_ONCE:
            before = frames
            frames += self._take_plain(FRAMES_AT_ONCE - frames) if self._protocol is None else self._feed()
            more = bool(self._raw) and (frames > before or self._protocol is not None)
        self._allowed = min(float(self._pace.burst), allowed) - frames
        if not self._open or self._transport.is_closing():
            return
        if self._allowed < 0:
            self._wait(-self._allowed / self._pace.rate)
        elif more:
            self._wait(0.0)
        else:
            self._transport.resume_reading()

    def _wait(self, seconds: float) -> None:
        """Read nothing for some time."""
        self._transport.pause_reading()
        loop = asyncio.get_running_loop()
        self._later = loop.call_later(seconds, self._go_on) if seconds else loop.call_soon(self._go_on)

    def _take_plain(self, most: int) -> int:
        """Take plain frames; return how many. What is not plain is left to the library from then on."""
        data, at, taken = self._raw, 0, 0
        while self._open and taken < most:
            found = plain_frames.read(data, at, self._max_bytes)
            if not isinstance(found, PlainFrame):
                if isinstance(found, Unusual):
                    self._protocol = ServerProtocol(state=OPEN, max_size=self._max_bytes, logger=_LOG)
                break
            opcode, payload, at = found
            taken += 1
            if opcode is Opcode.PING:
                self._pong(payload)
            elif opcode is not Opcode.PONG:
                self._deliver(payload, opcode is Opcode.BINARY)
        self._raw = data[at:]
        return taken

    def _pong(self, payload: bytes) -> None:
        if not self.is_full:  # a peer that pings and does not read gets none, rather than a queue of them
            self._transport.write(bytes(Frame(Opcode.PONG, payload).serialize(mask=False)))

    def _feed(self) -> int:
        """Have the library parse a piece, answer pings and closes, and take its frames; return how many."""
        protocol = self._protocol
        assert protocol is not None
        data, self._raw = self._raw[:PARSE_BYTES], self._raw[PARSE_BYTES:]
        protocol.receive_data(data)
        frames = protocol.events_received()
        answers = b"".join(protocol.data_to_send())
        if answers and (not self.is_full or protocol.state is not OPEN):
            self._transport.write(answers)
        for frame in frames:
            assert isinstance(frame, Frame)
            if self._open:
                self._take(frame)
        if protocol.state is not OPEN and self._open:
            said = protocol.close_rcvd
            self.left = said is not None and said.code in LEAVES
            self._end()
        return len(frames)

    def _take(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return
        if frame.opcode is not Opcode.CONT:
            self._text, self._binary = bytearray(), frame.opcode is Opcode.BINARY
        assert self._text is not None  # the protocol has checked the order of the frames
        self._text += frame.data
        if frame.fin:
            whole, self._text = bytes(self._text), None
            self._deliver(whole, self._binary)

    def _deliver(self, payload: bytes, binary: bool) -> None:
        if binary:
            self._owner.received(self, payload)
            return
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            self.close(CloseCode.INVALID_DATA, "the message is no UTF-8")
            return
        self._owner.received(self, text)
