"""The HTTP server as bad clients see it, in a process of its own in which time passes only when a test says so."""

import contextlib
import json
import select
import socket
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pytest

from tests.helpers.certificates import Authority
from tests.helpers.golden import Script, Step, each_script, octets

SERVER = """
import asyncio, itertools, json, socket, sys, types
from webob import Response
from sopa_ryu.channel.frames import Pace, text_frame
from sopa_ryu.front import application, door, websocket
from sopa_ryu.runtime import certificates
from sopa_ryu.rest.operations import HTTPStatus, Problem
now, looks = 0.0, itertools.count()
clock = lambda: now + 1e-9 * next(looks)
websocket.time = types.SimpleNamespace(monotonic=clock)

class Echo:
    def received(self, opened, message):
        opened.send(text_frame(message))
    writable = ended = lambda self, opened: None

async def later(request):
    await asyncio.sleep(0)
    if request.query_string:
        raise Problem(HTTPStatus.CONFLICT, "later")
    return Response(b"later")

async def passed(request):
    global now
    for _ in range(100):  # another address has waited in turn
        await asyncio.sleep(0)
    now += float(request.query_string)
    return Response(b"xx")

def answer(request, connection):
    path = request.path_info
    if path == "/socket":
        transport, early = application.opened(connection, application.handshake(request))
        connection.trust()
        opened = websocket.WebSocket(transport, Echo(), Pace(100, 50), 1000)
        transport.set_protocol(opened)
        opened.begin(early)
        return None
    if path == "/pass":
        return passed(request)
    if path == "/trust":
        connection.trust()
    if path == "/later":
        return later(request)
    if path == "/nodelay":
        option = socket.IPPROTO_TCP, socket.TCP_NODELAY
        return Response(b"%d" % connection._transport.get_extra_info("socket").getsockopt(*option))
    if path == "/long":
        return Response(b"x" * (1 << 25))
    if path == "/rejected":
        return Response(json.dumps(doors[0].rejected + doors[1].rejected).encode())
    if path == "/asked":
        return Response(json.dumps([request.method, request.path_info, request.query_string]).encode())
    return Response(request.body if path == "/body" else 1 / 0 if path == "/crash" else b"xx")

async def main():
    global doors
    asyncio.get_running_loop().time = clock
    doors = [door.FrontDoor(("127.0.0.1", 0), answer, context, share=20) for context in (None, certificates.server(*sys.argv[1:3]))]
    for each in doors:
        each.open()
    print(*(each.port for each in doors), flush=True)
    await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""
GOOD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
PUT = b"PUT /body HTTP/1.1\r\nHost: x\r\n"
CHUNKED = PUT + b"Transfer-Encoding: chunked\r\n\r\n"
REQUEST_SECONDS = 20  # for a request, and for the client to read its answer at all; a TLS handshake has less


class Server(NamedTuple):
    port: int
    tls_port: int
    authority: Path

    def connect(self, source: str = "127.0.0.1", tls: bool = False, buffer: int | None = None) -> socket.socket:
        client = socket.socket()
        client.settimeout(60)
        client.bind((source, 0))
        if buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.connect(("127.0.0.1", self.tls_port if tls else self.port))
        if not tls:
            return client
        return ssl.create_default_context(cafile=self.authority).wrap_socket(client, server_hostname="127.0.0.1")

    def let_pass(self, seconds: float) -> None:
        """Let time pass in the server, after it has taken all that was sent before; asked from an address of its own."""
        with self.connect("127.0.0.2") as client:
            client.sendall(b"GET /pass?%g HTTP/1.1\r\nHost: x\r\n\r\n" % seconds)
            assert client.recv(100).startswith(b"HTTP/1.1 200")

    def rejected(self) -> Counter[str]:
        """Return how many clients it has counted as rejected, by reason."""
        with self.connect("127.0.0.2") as client:
            client.sendall(b"GET /rejected HTTP/1.0\r\n\r\n")
            return Counter(json.loads(rest(client).partition(b"\r\n\r\n")[2]))


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


@each_script(__file__, "http")
def test_what_is_no_request_is_rejected(server: Server, script: Script) -> None:
    def handle(step: Step) -> str:
        """Send octets; the headers of a PUT; some and then more of them slowly, or without end; or a WebSocket's frames."""
        with server.connect() as client:
            if step.command == "frames":
                return closed(client, step.words)
            first, *more = map(octets, step.words)
            counted = server.rejected()
            before = {"put": PUT, "upgrade": UPGRADE}.get(step.command, b"")
            client.sendall(before + first + (b"\r\n\r\n" if before else b""))
            for _ in range(4 if step.command == "slowly" else 0):
                client.sendall(more[0])
                assert not select.select([client], [], [], 0)[0]
                server.let_pass(REQUEST_SECONDS / 4)
            if step.command == "endless":
                endless(client, more[0])
            answer = client.recv(100) if step.command in ("endless", "upgrade") else rest(client)
        status = answer.split()[1].decode()
        if step.command == "upgrade":  # a request, which the application rejects
            return status
        assert step.command == "endless" or json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == int(status)
        assert server.rejected() - counted == Counter({status: 1})
        return status

    script.play(handle)


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
            (CHUNKED + b"1\r\nx\r\n" * 256 + b"0\r\n\r\n", b"x" * 256),
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


def test_requests_that_come_together_are_answered_in_order_also_when_no_more_follows(client: socket.socket) -> None:
    requests = [b"GET /asked?%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(50)]
    requests[7] = b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
    requests[9] = b"HEAD /asked HTTP/1.1\r\nHost: x\r\n\r\n"
    client.sendall(b"".join(requests))
    client.shutdown(socket.SHUT_WR)
    with client.makefile("rb") as received:
        for number in range(50):
            length = int(head(received).partition(b"Content-Length: ")[2].split()[0])
            body = b"" if number == 9 else received.read(length)
            assert number == 9 or body == (b"later" if number == 7 else b'["GET", "/asked", "%d"]' % number)
        assert received.read() == b""


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [("/asked?a=b%20c", 200, ["GET", "/asked", "a=b%20c"]), ("/crash", 500, None), ("/later?x", 409, None)],
)
def test_answers(client: socket.socket, target: str, status: int, body: object) -> None:
    client.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
    lines, _, text = rest(client).partition(b"\r\n\r\n")
    assert int(lines.split()[1]) == status
    assert body is None or json.loads(text) == body


@pytest.mark.parametrize("used", [False, True])
def test_a_silent_connection_is_closed_silently(server: Server, client: socket.socket, used: bool) -> None:
    with client.makefile("rb") as received:
        if used:
            client.sendall(GOOD)
            head(received)
            assert received.read(2) == b"xx"
        server.let_pass(REQUEST_SECONDS)
        assert received.read() == b""


def test_a_silent_tls_connection_is_closed_although_its_client_does_not_close_it(server: Server) -> None:
    with server.connect(tls=True) as client:
        server.let_pass(REQUEST_SECONDS)
        assert client.recv(1) == b""
        server.let_pass(1)
        with socket.socket(fileno=client.detach()) as plain:
            plain.settimeout(60)
            assert plain.recv(1) == b""


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_who_has_read_a_long_answer_may_ask_again_as_after_any_other(server: Server, tls: bool) -> None:
    with server.connect(tls=tls) as client, client.makefile("rb") as received:
        for path, size in ((b"/long", 1 << 25), (b"/", 2), (b"/", 2)):
            client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"Content-Length: %d\r\n" % size in head(received)
            assert len(received.read(size)) == size
            server.let_pass(15)


def test_what_was_asked_together_with_a_long_answer_is_answered_once_that_is_read(client: socket.socket) -> None:
    client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n" + GOOD)
    with client.makefile("rb") as received:
        for size in (1 << 25, 2):
            assert b"Content-Length: %d\r\n" % size in head(received)
            assert len(received.read(size)) == size


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("reads", "turns"), [(0, 8), (1 << 21, 12)], ids=["not", "slowly"])
def test_who_reads_nothing_of_a_long_answer_or_not_all_in_a_minute_is_cut_off(
    server: Server, reads: int, turns: int, tls: bool
) -> None:
    received, before = 0, server.rejected()
    with server.connect(tls=tls, buffer=1 << 14) as client:
        client.sendall(b"GET /long HTTP/1.0\r\n\r\n")
        for turn in range(1, turns + 1):
            while received < turn * reads:
                chunk = client.recv(1 << 16)
                assert chunk  # it is not cut off before
                received += len(chunk)
            server.let_pass(5)  # the kernel's buffers may take a part of the answer late, but for less than 20 s
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            while chunk := client.recv(1 << 20):
                received += len(chunk)
    assert received < 1 << 25
    assert server.rejected() - before == Counter({"timeout": 1})


@pytest.mark.parametrize("late", [False, True])
def test_a_rejected_client_may_go_on_sending_for_a_moment(server: Server, client: socket.socket, late: bool) -> None:
    client.sendall(b"nonsense\r\n\r\n")
    assert rest(client).startswith(b"HTTP/1.1 400 ")
    if late:
        server.let_pass(1)
    sent = 0
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while sent < 1 << 26:
            sent += client.send(b"x" * 65536)
    assert sent < 1 << 22 if late else 1 << 24 < sent < 1 << 26


def test_the_end_of_a_long_answer_waits_for_no_acknowledgement(client: socket.socket) -> None:
    client.sendall(b"GET /nodelay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert rest(client).endswith(b"\r\n\r\n1")


def test_half_a_tls_handshake_is_cut_off_and_delays_no_other(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(("127.0.0.1", server.tls_port), 60)) for _ in range(10)]
        for number, half in enumerate(halves):
            half.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:number])
        with server.connect(tls=True) as client:
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


def test_a_websocket_may_be_silent_for_long(server: Server, client: socket.socket) -> None:
    with client.makefile("rb") as received:
        client.sendall(UPGRADE + VERSION + frame(1, b"early"))  # a message may follow the handshake immediately
        assert head(received).startswith(b"HTTP/1.1 101")
        assert received.read(7) == b"\x81\x05early"
        server.let_pass(10 * REQUEST_SECONDS)
        client.sendall(frame(1, b"hello"))
        assert received.read(7) == b"\x81\x05hello"
