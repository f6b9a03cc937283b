"""The HTTP server as bad clients see it, in a process of its own in which time passes only when a test says so."""

import contextlib
import json
import select
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from tests.helpers.certificates import Authority
from tests.helpers.golden import Step, octets, play, scripts

SERVER = """
import eventlet
eventlet.monkey_patch()
import itertools, socket, sys, types
from sopa_ryu.channel import websocket
from sopa_ryu.rest import http_server as server
from sopa_ryu.rest.access import tls_context
now, looks = 0.0, itertools.count()
clock = lambda: now + 1e-9 * next(looks)  # never the same: the hub has no order for timers of the same time
eventlet.hubs.get_hub().clock = clock
websocket.time = types.SimpleNamespace(monotonic=clock)

def answer(environ, start_response):
    global now
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
    if path == "/later":
        now += float(environ["QUERY_STRING"])
    if path == "/trust":
        environ["sopa.trust"]()
    start_response("200 OK", [("Content-Type", "text/plain")])
    if path == "/body":
        return [environ["wsgi.input"].read()]
    if path == "/nodelay":
        return [b"%d" % environ["eventlet.input"].get_socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)]
    return [b"x" * (1 << 24 if path == "/long" else 2)]

plain, tls = server.listen("127.0.0.1", 0, None, share=20), server.listen("127.0.0.1", 0, tls_context(*sys.argv[1:3]), share=20)
print(plain.getsockname()[1], tls.getsockname()[1], flush=True)
eventlet.spawn(server.serve, tls, answer)
server.serve(plain, answer)
"""
Opened = tuple[socket.socket, BinaryIO]
GOOD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PUT = b"PUT /body HTTP/1.1\r\nHost: x\r\n"
CHUNKED = PUT + b"Transfer-Encoding: chunked\r\n\r\n"
REQUEST_SECONDS = 20  # for a request, and for the client to read its answer at all; a TLS handshake has less


class Server(NamedTuple):
    port: int
    tls_port: int
    authority: Path

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 60, (source, 0))

    def let_pass(self, seconds: float) -> None:
        """Let time pass in the server, after it has taken all that was sent before; asked from an address of its own."""
        with self.connect("127.0.0.2") as client:
            client.sendall(b"GET /later?%g HTTP/1.1\r\nHost: x\r\n\r\n" % seconds)
            assert client.recv(100).startswith(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("tls")
    own = Authority(directory).sign("controller", "127.0.0.1")
    command = [sys.executable, "-W", "ignore", "-c", SERVER, str(own.certificate), str(own.key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield Server(*map(int, process.stdout.readline().split()), directory / "ca.pem")
        process.terminate()


@pytest.fixture
def client(server: Server) -> Iterator[socket.socket]:
    with server.connect() as opened:
        yield opened


def rest(client: socket.socket) -> bytes:
    received = b""
    while chunk := client.recv(65536):
        received += chunk
    return received


def head(received: BinaryIO) -> bytes:
    lines = []
    while (line := received.readline()) not in (b"", b"\r\n"):
        lines.append(line)
    return b"".join(lines)


UPGRADE = (
    b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)
VERSION = b"Sec-WebSocket-Version: 13\r\n\r\n"


def frame(opcode: int, data: bytes = b"", last: bool = True) -> bytes:
    """A client's frame, with the mask 0."""
    length = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return bytes([opcode | (0x80 if last else 0)]) + length + bytes(4) + data


@pytest.mark.parametrize("script", scripts(__file__, "http"), ids=lambda path: path.stem)
def test_what_is_no_request_is_rejected(server: Server, script: Path, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Send octets; the headers of a PUT; some and then more of them slowly, or without end; or a WebSocket's frames."""
        with server.connect() as client:
            if step.command == "frames":
                return closed(client, step.words)
            first, *more = map(octets, step.words)
            before = {"put": PUT, "upgrade": UPGRADE}.get(step.command, b"")
            client.sendall(before + first + (b"\r\n\r\n" if before else b""))
            for _ in range(4 if step.command == "slowly" else 0):
                client.sendall(more[0])
                assert not select.select([client], [], [], 0)[0]
                server.let_pass(REQUEST_SECONDS / 4)
            if step.command == "endless":
                endless(client, more[0])
            if step.command in ("endless", "upgrade"):
                return client.recv(100).split()[1].decode()
            answer = rest(client)
        status = answer.split()[1].decode()
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == int(status)
        return status

    play(script, handle, record=request.config.option.record)


def endless(client: socket.socket, piece: bytes) -> None:
    """Send a piece again and again until the server says something, which has to be soon."""
    sent = 0
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while sent < 8 << 20 and not select.select([client], [], [], 0)[0]:
            sent += client.send(piece[sent % len(piece) :])
    assert sent < 8 << 20


def closed(client: socket.socket, frames: list[str]) -> str:
    """Send frames by opcode and data, or octets, on a new WebSocket, and return the code with which it is closed."""
    data = b""
    for opcode, its in ((opcode, octets(its)) for opcode, its in (each.split(":") for each in frames)):
        data += its if opcode == "octets" else frame(int(opcode[0]), its, last=opcode[1:] != "+")
    with client.makefile("rb") as received:
        client.sendall(UPGRADE + VERSION + data)
        assert head(received).startswith(b"HTTP/1.1 101")
        answer = received.read(4)
    assert answer[0] == 0x88
    return str(int.from_bytes(answer[2:], "big"))


def test_requests_on_one_connection_are_answered_and_bodies_within_their_bounds_read(client: socket.socket) -> None:
    with client.makefile("rb") as received:
        for request, body in (
            (GOOD, b"xx"),
            (PUT + b"Content-Length: 5\r\n\r\nhello", b"hello"),
            (CHUNKED + b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nT: u\r\n\r\n", b"hello"),
            (CHUNKED + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 2 + b"0\r\n\r\n", b"x" * 0x10000),
            (PUT + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        ):
            client.sendall(request)
            answer = head(received)
            if b"100-continue" in request:
                assert answer.startswith(b"HTTP/1.1 100")
                answer = head(received)
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert b"Content-Length: %d\r\n" % len(body) in answer
            assert received.read(len(body)) == body


@pytest.mark.parametrize("used", [False, True])
def test_a_silent_connection_is_closed_silently(server: Server, client: socket.socket, used: bool) -> None:
    with client.makefile("rb") as received:
        if used:
            client.sendall(GOOD)
            head(received)
            assert received.read(2) == b"xx"
        server.let_pass(REQUEST_SECONDS)
        assert received.read() == b""


def test_who_does_not_read_a_long_answer_is_cut_off(server: Server) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        server.let_pass(REQUEST_SECONDS)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while chunk := client.recv(1 << 20):
                received += len(chunk)
        assert received < 1 << 24


def test_the_end_of_a_long_answer_waits_for_no_acknowledgement(client: socket.socket) -> None:
    client.sendall(b"GET /nodelay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert rest(client).endswith(b"\r\n\r\n1")


def test_half_a_tls_handshake_is_cut_off_and_delays_no_other(server: Server) -> None:
    with contextlib.ExitStack() as stack:

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", server.tls_port), 60))

        halves = [opened() for _ in range(10)]
        for number, half in enumerate(halves):
            half.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:number])
        trusting = ssl.create_default_context(cafile=server.authority)
        with trusting.wrap_socket(opened(), server_hostname="127.0.0.1") as client:
            client.sendall(GOOD)
            assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
        server.let_pass(REQUEST_SECONDS / 2)
        assert [rest(half) for half in halves] == [b""] * 10


def test_an_address_has_a_share_of_connections_unless_they_have_a_token(server: Server) -> None:
    server.let_pass(REQUEST_SECONDS)  # closes what others have left open
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            trusted = stack.enter_context(server.connect())
            trusted.sendall(b"GET /trust HTTP/1.1\r\nHost: x\r\n\r\n")
            assert trusted.recv(100).startswith(b"HTTP/1.1 200")
        idle = [stack.enter_context(server.connect()) for _ in range(25)]
        assert all(rest(each).startswith(b"HTTP/1.1 429 ") for each in idle[20:])
        server.let_pass(REQUEST_SECONDS)
        assert [rest(each) for each in idle[:20]] == [b""] * 20
        last = stack.enter_context(server.connect())
        last.sendall(GOOD)
        assert last.recv(100).startswith(b"HTTP/1.1 200")


@pytest.fixture
def opened(client: socket.socket) -> Iterator[Opened]:
    with client.makefile("rb") as received:
        client.sendall(UPGRADE + VERSION + frame(1, b"early"))  # a message may follow the handshake immediately
        assert head(received).startswith(b"HTTP/1.1 101")
        assert received.read(7) == b"\x81\x05early"
        yield client, received


def test_fragments_are_one_message_and_pings_come_between(opened: Opened) -> None:
    client, received = opened
    client.sendall(frame(1, b"he", False) + frame(9, b"?") + frame(0, b"", False) + frame(0, b"llo"))
    assert received.read(3) == b"\x8a\x01?"
    assert received.read(7) == b"\x81\x05hello"


def test_a_websocket_may_be_silent_for_long(server: Server, opened: Opened) -> None:
    client, received = opened
    server.let_pass(10 * REQUEST_SECONDS)
    client.sendall(frame(1, b"hello"))
    assert received.read(7) == b"\x81\x05hello"


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", frame(9)),
        (b"", frame(10)),
        (b"", frame(9, b"x" * 125)),
        (b"", frame(1, b"x")),
        (frame(1, b"", False), frame(0, b"", False)),
    ],
    ids=["pings", "pongs", "long pings", "messages", "empty fragments"],
)
def test_a_flood_of_frames_delays_no_other(server: Server, opened: Opened, first: bytes, piece: bytes) -> None:
    client, _ = opened
    client.sendall(first)
    client.settimeout(0)
    flood, sent, stuck = piece * 1000, 0, 0
    while stuck < 3:
        try:
            sent += client.send(flood[sent % len(piece) :])
            stuck = 0
        except BlockingIOError:
            stuck += 1
            with server.connect() as other:
                other.sendall(GOOD)
                assert other.recv(100).startswith(b"HTTP/1.1 200")
        assert sent < 32 << 20
