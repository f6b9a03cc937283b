"""The HTTP server with bad clients: in a process of its own, with short time limits."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.helpers.certificates import Authority

SERVER = """
import eventlet
eventlet.monkey_patch()
import json, sys
from sopa_ryu.channel import websocket
from sopa_ryu.rest import http_protocol, http_server as server
from sopa_ryu.rest.tls import tls_context
from sopa_ryu.runtime.doors import turned_away
http_protocol.REQUEST_SECONDS = http_protocol.WRITE_SECONDS = server.WRITE_SECONDS = server.HANDSHAKE_SECONDS = 0.5
http_protocol.LINGER_SECONDS = 0.3
http_protocol.ANSWER_SECONDS = 2

def answer(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/socket":
        try:
            opened = websocket.Handshake(environ, 1000, websocket.Pace(100, 50)).accept()
        except websocket.HandshakeError as error:
            start_response(f"{error.status} No", [])
            return [str(error).encode()]
        for text in iter(opened.receive, None):
            opened.send(text)
        return websocket.served()
    if path == "/trust":
        environ["sopa.trust"]()
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/away":
        return [json.dumps({f"{name} {why}": number for (name, why), number in turned_away.items()}).encode()]
    if path == "/body":
        return [environ["wsgi.input"].read()]
    return [b"x" * (1 << 24 if path == "/long" else 2)]

context = tls_context(*sys.argv[1:3]) if sys.argv[1:] else None
listener = server.listen("127.0.0.1", 0, context, share=20)
print(listener.getsockname()[1], flush=True)
server.serve(listener, answer)
"""
GOOD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[int]:
    """A server in a process of its own: its port."""
    command = [sys.executable, "-W", "ignore", "-c", SERVER, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.terminate()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as its:
        yield its


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), 10) as opened:
        yield opened


def rest(client: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    received = b""
    while chunk := client.recv(65536):
        received += chunk
    return received


def head(received: BinaryIO) -> bytes:
    """The lines of one answer's head."""
    lines = []
    while (line := received.readline()) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join(lines)


def test_requests_on_one_connection_are_answered_one_after_the_other(client: socket.socket) -> None:
    with client.makefile("rb") as received:
        for _ in range(3):
            client.sendall(GOOD)
            answer = head(received)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"Content-Length: 2\r\n" in answer
            assert received.read(2) == b"xx"


@pytest.mark.parametrize(
    "begun",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\nLong",
        b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3",
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: ",
    ],
)
def test_a_request_that_is_not_completed_in_time_is_answered_408(client: socket.socket, begun: bytes) -> None:
    client.sendall(begun)
    answer = rest(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 408


def test_a_connection_without_a_request_is_closed_without_a_word(client: socket.socket) -> None:
    assert rest(client) == b""


CHUNKED = b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"", b"G"),
        (b"GET / HTTP/1.1\r\n", b"A: b\r\n"),
        (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", b"x"),
        (CHUNKED, b"0"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"a: b\r\n"),
    ],
    ids=["line", "header", "body", "chunk size", "chunks", "trailer"],
)
def test_a_request_that_drips_is_answered_408_and_closed(client: socket.socket, begun: bytes, more: bytes) -> None:
    client.sendall(begun)
    began = time.monotonic()
    received = b""
    client.settimeout(0.05)  # slow, but never silent: the rate is what is tested
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while time.monotonic() < began + 30:
            client.sendall(more)
            with contextlib.suppress(TimeoutError):
                received += client.recv(65536)
    assert time.monotonic() - began < 20
    assert received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("begun", "more", "statuses"),
    [
        (b"", b"A" * 4096, {b"414"}),
        (b"GET / HTTP/1.1\r\n", b"A: " + b"b" * 4000 + b"\r\n", {b"431"}),
        (b"GET / HTTP/1.1\r\n", b"A: b\r\n" * 100, {b"431"}),
        (CHUNKED, b"1" * 4096, {b"400"}),
        (CHUNKED, b"1;" + b"x" * 200 + b"\r\nx\r\n", {b"413"}),
        (CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n", {b"413"}),
        (CHUNKED + b"0\r\n", b"a: b\r\n" * 100, {b"431"}),
        (CHUNKED + b"0\r\n", b"a" * 4096, {b"431"}),
    ],
    ids=["line", "header", "headers", "chunk size", "chunk extensions", "chunks", "trailers", "trailer"],
)
def test_a_request_without_end_is_rejected_after_some_bytes(
    client: socket.socket, begun: bytes, more: bytes, statuses: set[bytes]
) -> None:
    client.sendall(begun)
    sent, received = 0, b""
    client.settimeout(0)
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while sent < 64 << 20 and not received:
            with contextlib.suppress(BlockingIOError):
                sent += client.send(more[sent % len(more) :])
            with contextlib.suppress(BlockingIOError):
                received += client.recv(65536)
    assert sent < 8 << 20
    assert received.split()[1] in statuses


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Content-Length: 65537", b"413"),
        (b"Content-Length: 99999999999999999999", b"400"),
        (b"Content-Length: 1\r\nContent-Length: 2", b"400"),
        (b"Content-Length: abc", b"400"),
        (b"Content-Length: 0\x1d", b"400"),
        (b"Content-Length: \x1c0", b"400"),
        (b"Content-Length: 0\x0b", b"400"),
        (b"Content-Length: 0\xa0", b"400"),
        (b"Transfer-Encoding: chunked\x1f", b"501"),
        (b"Content-Length: 1\r\nTransfer-Encoding: chunked", b"400"),
        (b"Transfer-Encoding: gzip", b"501"),
        (b"Transfer-Encoding: gzip, chunked", b"501"),
    ],
)
def test_a_body_of_unclear_or_forbidden_length_is_rejected(client: socket.socket, head: bytes, status: bytes) -> None:
    client.sendall(b"PUT / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n")
    answer = rest(client)
    assert answer.split()[1] == status
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == int(status)


def test_a_body_within_its_bounds_is_read_and_the_connection_goes_on(client: socket.socket) -> None:
    put = b"PUT /body HTTP/1.1\r\nHost: x\r\n"
    with client.makefile("rb") as received:
        for request in (
            put + b"Content-Length: 5\r\n\r\nhello",
            put + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nT: u\r\n\r\n",
            put + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        ):
            client.sendall(request)
            answer = head(received)
            if answer.startswith(b"HTTP/1.1 100"):
                answer = head(received)
            assert answer.startswith(b"HTTP/1.1 200")
            assert received.read(5) == b"hello"


def test_an_address_has_a_share_of_connections_unless_they_have_a_token(port: int) -> None:
    with contextlib.ExitStack() as stack:

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))

        trusted = [opened() for _ in range(30)]
        for each in trusted:
            with each.makefile("rb") as received:
                each.sendall(b"GET /trust HTTP/1.1\r\nHost: x\r\n\r\n")
                head(received)
        idle = [opened() for _ in range(25)]
        answers = [rest(each) for each in idle]
        assert sum(answer == b"" for answer in answers) <= 20
        rejected = [answer for answer in answers if answer]
        assert len(rejected) >= 5
        assert all(answer.startswith(b"HTTP/1.1 429 ") for answer in rejected)
        last = opened()  # the others were idle for too long
        last.sendall(GOOD)
        assert rest(last).startswith(b"HTTP/1.1 200")


def test_half_a_tls_handshake_is_cut_off_and_delays_no_other(tmp_path: Path) -> None:
    own = Authority(tmp_path).sign("controller", "127.0.0.1")
    with serving(str(own.certificate), str(own.key)) as port, contextlib.ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(10)]
        for number, half in enumerate(halves):
            half.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:number])
        trusting = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(GOOD)
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        assert [rest(half) for half in halves] == [b""] * 10


# -- WebSockets ---------------------------------------------------------------------------------------------------------

UPGRADE = (
    b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
VERSION = b"Sec-WebSocket-Version: 13\r\n\r\n"


def frame(opcode: int, data: bytes = b"", last: bool = True) -> bytes:
    """A client's frame, with the mask 0."""
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([opcode | (0x80 if last else 0)]) + length + bytes(4) + data


@pytest.fixture
def opened(client: socket.socket) -> Iterator[tuple[socket.socket, BinaryIO]]:
    with client.makefile("rb") as received:
        client.sendall(UPGRADE + VERSION)
        assert head(received).startswith(b"HTTP/1.1 101")
        yield client, received


@pytest.mark.parametrize("end", [b"\r\n", b"Sec-WebSocket-Version: 8\r\n\r\n", b"Origin: null\r\n\r\n"])
def test_a_websocket_of_another_version_is_rejected(client: socket.socket, end: bytes) -> None:
    client.sendall(UPGRADE + end + b"\0" + b"A" * 4096)
    assert rest(client).startswith(b"HTTP/1.1 400 ")


def test_a_message_may_follow_the_handshake_immediately(client: socket.socket) -> None:
    with client.makefile("rb") as received:
        client.sendall(UPGRADE + VERSION + frame(1, b"hello"))
        assert head(received).startswith(b"HTTP/1.1 101")
        assert received.read(7) == b"\x81\x05hello"


def test_fragments_are_one_message_and_pings_come_between(opened: tuple[socket.socket, BinaryIO]) -> None:
    client, received = opened
    client.sendall(frame(1, b"he", False) + frame(9, b"?") + frame(0, b"", False) + frame(0, b"llo"))
    assert received.read(3) == b"\x8a\x01?"
    assert received.read(7) == b"\x81\x05hello"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(1, b"A" * 1001), 1009),
        (frame(1, b"A", False) + frame(0, b"A" * 500, False) * 4, 1009),
        (b"\x81\xff" + b"\x7f" + b"\xff" * 7, 1009),
        (frame(1, b"\xff\xfe"), 1007),
        (frame(0, b"A"), 1002),
        (frame(9, b"A" * 126), 1002),
        (frame(3), 1002),
        (b"\x81\x01A", 1002),
    ],
    ids=["long", "fragments", "announced", "no text", "no beginning", "long ping", "unknown", "unmasked"],
)
def test_what_is_no_message_ends_the_connection(opened: tuple[socket.socket, BinaryIO], sent: bytes, code: int) -> None:
    client, received = opened
    client.sendall(sent)
    answer = received.read(4)
    assert answer[0] == 0x88
    assert int.from_bytes(answer[2:], "big") == code


@pytest.mark.parametrize(
    "piece",
    [frame(9), frame(10), frame(9, b"x" * 125), frame(1, b"x"), frame(1, b"", False) + frame(0, b"", False) * 9],
    ids=["pings", "pongs", "long pings", "messages", "empty fragments"],
)
def test_a_flood_of_frames_waits_in_the_kernel(opened: tuple[socket.socket, BinaryIO], port: int, piece: bytes) -> None:
    client, _ = opened
    client.settimeout(0)
    if piece == frame(1, b"", False) + frame(0, b"", False) * 9:
        client.send(frame(1, b"", False))
        piece = frame(0, b"", False) * 10
    until, waited, sent = time.monotonic() + 3, list[float](), 0
    flood = piece * 1000
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            sent += client.send(flood[sent % len(piece) :])
        asked = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), 10) as other:
            other.sendall(GOOD)
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        waited.append(time.monotonic() - asked)
    assert sorted(waited)[len(waited) // 2] < 0.5  # a pause of this machine is in one or two
    assert sent < 32 << 20


def test_an_idle_connection_is_closed(client: socket.socket) -> None:
    client.sendall(GOOD)
    assert rest(client).startswith(b"HTTP/1.1 200 OK")


def test_who_does_not_read_a_long_answer_is_cut_off(port: int) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", port))
        client.settimeout(10)
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(2)  # longer than the server waits for a client that does not read
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(1 << 20):
                received += len(chunk)
        assert received < 1 << 24


def test_a_websocket_may_be_silent_for_longer(client: socket.socket) -> None:
    client.sendall(UPGRADE + VERSION)
    with client.makefile("rb") as received:
        assert head(received).startswith(b"HTTP/1.1 101")
        time.sleep(1.5)  # longer than a connection without a request may be silent
        client.sendall(bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello")
        assert received.read(7) == b"\x81\x05hello"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 9_000 + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: %s\r\n" % (n, b"x" * 4000) for n in range(20)) + b"\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_what_is_too_long_or_no_http_is_refused(client: socket.socket, request_: bytes, status: bytes) -> None:
    client.sendall(request_)
    assert status in rest(client).split(b"\r\n")[0]
