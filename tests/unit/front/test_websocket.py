"""A relay's WebSockets read what the library reads: any frames, cut anywhere, have the same messages, answers and closes."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import OPEN
from websockets.server import ServerProtocol

from sopa_ryu.channel.frames import Pace
from sopa_ryu.front import websocket
from sopa_ryu.front.plain_frames import Incomplete, PlainFrame, Unusual, read, unmasked
from sopa_ryu.front.websocket import WebSocket

MAX_BYTES = 300
FAST = Pace(10_000, 10_000.0)


class Transport:
    def __init__(self) -> None:
        self.written = b""
        self.paused = self.closed = self.aborted = False
        self.is_closing, self.can_write_eof = (lambda: self.aborted), (lambda: True)
        self.pause_reading, self.resume_reading, self.write_eof, self.abort = (
            partial(setattr, self, name, value)
            for name, value in (("paused", True), ("paused", False), ("closed", True), ("aborted", True))
        )

    def write(self, data: bytes) -> None:
        self.written += data


class Owner:
    def __init__(self) -> None:
        self.messages: list[str | bytes] = []
        self.writable_calls = self.ends = 0

    def received(self, socket: WebSocket, message: str | bytes) -> None:
        self.messages.append(message)

    def writable(self, socket: WebSocket) -> None:
        self.writable_calls += 1

    def ended(self, socket: WebSocket) -> None:
        self.ends += 1


def feed(socket: WebSocket, data: bytes) -> None:
    while data:
        buffer = socket.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        socket.buffer_updated(size)
        data = data[size:]


def in_loop(test: Callable[[WebSocket, Transport, Owner], Awaitable[None]], pace: Pace = FAST) -> tuple[Transport, Owner]:
    """Run a test of a WebSocket."""

    async def run() -> tuple[Transport, Owner]:
        transport, owner = Transport(), Owner()
        await test(WebSocket(transport, owner, pace, MAX_BYTES), transport, owner)
        return transport, owner

    return asyncio.run(run())


def ours(pieces: list[bytes]) -> tuple[Transport, Owner]:
    async def test(socket: WebSocket, transport: Transport, owner: Owner) -> None:
        socket.begin(b"")
        for piece in pieces:
            feed(socket, piece)
            while transport.paused:
                await asyncio.sleep(0)

    return in_loop(test)


def theirs(pieces: list[bytes]) -> tuple[list[str | bytes], bytes]:
    """Feed the same to the library; return messages, and what it answers."""
    protocol = ServerProtocol(state=OPEN, max_size=MAX_BYTES, logger=websocket._LOG)
    messages: list[str | bytes] = []
    sent, text, binary = b"", bytearray(), False
    for piece in pieces:
        if protocol.state is not OPEN:
            break
        protocol.receive_data(piece)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
                continue
            if frame.opcode is not Opcode.CONT:
                text, binary = bytearray(), frame.opcode is Opcode.BINARY
            text += frame.data
            if frame.fin:
                try:
                    messages.append(bytes(text) if binary else bytes(text).decode())
                except UnicodeDecodeError:
                    protocol.fail(CloseCode.INVALID_DATA, "the message is no UTF-8")
        sent += b"".join(protocol.data_to_send())
    return messages, sent


def masked(opcode: int, payload: bytes, fin: bool = True, rsv: int = 0, mask: bytes = b"abcd", is_masked: bool = True) -> bytes:
    bit, size = 0x80 if is_masked else 0, len(payload)
    length = bytes([bit | size]) if size < 126 else bytes([bit | 126]) + size.to_bytes(2, "big")
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode]) + length
    return head + (mask + unmasked(payload, mask) if is_masked else payload)


MASKS = st.binary(min_size=4, max_size=4)
plain = st.builds(masked, st.sampled_from([1, 2, 9, 10]), st.text(max_size=30).map(str.encode), mask=MASKS)
any_frame = st.builds(
    masked,
    st.sampled_from([0, 0, 1, 1, 2, 8, 9, 10, 3]),
    st.text(max_size=20).map(str.encode) | st.sampled_from([b"\x03\xe8", b"x" * 200, b"x" * 301]),
    fin=st.booleans(),
    rsv=st.sampled_from([0, 0, 0, 0, 1]),
    mask=MASKS,
    is_masked=st.sampled_from([True, True, True, True, False]),
)
stream = st.tuples(st.lists(plain, max_size=40), st.lists(any_frame, max_size=8), st.binary(max_size=20)).map(
    lambda parts: b"".join([*parts[0], *parts[1], parts[2]])
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    ends = [0, *accumulate(sizes), len(data)]
    return [piece for begin, end in pairwise(ends) if (piece := data[begin:end])]


@given(stream, st.lists(st.integers(1, 40), max_size=30))
@example(masked(2, b"x" * 200), [1, 1, 1])
@example(masked(1, b"\xff") + masked(1, b"late"), [])
def test_any_stream_means_what_it_means_to_the_library(data: bytes, sizes: list[int]) -> None:
    transport, owner = ours(cut(data, sizes))
    # one piece a byte: the library stops where the stream breaks a rule, whatever follows
    messages, sent = theirs([bytes([byte]) for byte in data])
    assert owner.messages == messages
    assert transport.written == sent
    assert transport.closed is bool(owner.ends) is any_close(sent)


def any_close(sent: bytes) -> bool:
    at = 0
    while at < len(sent):
        if sent[at] == 0x88:
            return True
        at += 2 + sent[at + 1]
    return False


@given(st.binary(max_size=60), st.integers(0, 5))
def test_a_plain_frame_is_read_only_if_it_is_whole(data: bytes, begin: int) -> None:
    found = read(data, begin, MAX_BYTES)
    if isinstance(found, PlainFrame):
        assert begin < found.end <= len(data)
        for end in range(begin, found.end):
            assert isinstance(read(data[:end], begin, MAX_BYTES), Incomplete)
    else:
        assert isinstance(found, Incomplete | Unusual)
        assert found.begin == begin


@pytest.mark.parametrize(
    ("flood", "messages"),
    [
        (masked(1, b"x") * 100, 100),
        (masked(9, b"x" * 125) * 100, 0),
        (masked(10, b"") * 100, 0),
        (masked(1, b"", fin=False) + masked(0, b"", fin=False) * 99, 0),
    ],
    ids=["messages", "pings", "pongs", "empty fragments"],
)
def test_frames_faster_than_the_pace_wait_and_others_have_their_turn(flood: bytes, messages: int) -> None:
    async def test(socket: WebSocket, transport: Transport, owner: Owner) -> None:
        feed(socket, flood)
        assert len(owner.messages) == min(messages, websocket.FRAMES_AT_ONCE)  # then everything else has its turn
        assert transport.paused
        while transport.paused:
            await asyncio.sleep(0.01)
        assert len(owner.messages) == messages

    in_loop(test, Pace(40, 200.0))


def test_a_peer_that_pings_and_does_not_read_gets_no_queue_of_pongs() -> None:
    async def test(socket: WebSocket, transport: Transport, owner: Owner) -> None:
        feed(socket, masked(9, b"1"))
        socket.pause_writing()
        feed(socket, masked(9, b"2") * 10)
        assert transport.written == b"\x8a\x011"
        socket.resume_writing()
        assert owner.writable_calls == 1
        feed(socket, masked(9, b"3"))
        assert transport.written == b"\x8a\x011\x8a\x013"

    in_loop(test)


@pytest.mark.parametrize(("code", "left"), [(1000, True), (1001, True), (4000, True), (1011, False)])
def test_a_peer_that_says_that_it_leaves_has_left(code: int, left: bool) -> None:
    async def test(socket: WebSocket, transport: Transport, owner: Owner) -> None:
        feed(socket, masked(8, code.to_bytes(2, "big")))
        socket.connection_lost(None)
        assert (socket.left, owner.ends) == (left, 1)

    in_loop(test)
