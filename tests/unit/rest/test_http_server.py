"""The HTTP server with bad clients: in a process of its own, with short time limits."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

import pytest

SERVER = """
import eventlet
eventlet.monkey_patch()
from sopa_ryu.rest import http_server as server
from eventlet import websocket
server.REQUEST_SECONDS = server.WRITE_SECONDS = 0.5

def answer(environ, start_response):
    if environ["PATH_INFO"] == "/socket":
        return websocket.WebSocketWSGI(lambda ws: ws.send(ws.wait()))(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"x" * (1 << 24 if environ["PATH_INFO"] == "/long" else 2)]

listener = server.listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
server.serve(listener, answer)
"""
GOOD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.terminate()


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


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nLong"])
def test_who_does_not_end_a_request_is_cut_off(client: socket.socket, begun: bytes) -> None:
    client.sendall(begun)
    assert rest(client) == b""


def test_who_ends_it_a_byte_at_a_time_is_cut_off_too(client: socket.socket) -> None:
    deadline = time.monotonic() + 10
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        while time.monotonic() < deadline:
            client.sendall(b"G")
            time.sleep(0.05)  # slow, but never silent: the rate is what is tested
    assert time.monotonic() < deadline


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
    client.sendall(
        b"GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with client.makefile("rb") as received:
        assert head(received).startswith(b"HTTP/1.1 101")
        time.sleep(1.5)  # longer than a connection without a request may be silent
        client.sendall(bytes([0x81, 0x85, 0, 0, 0, 0]) + b"hello")
        assert received.read(7) == b"\x81\x05hello"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"414"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 9_000 + b"\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"H%d: %s\r\n" % (n, b"x" * 4000) for n in range(20)) + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
)
def test_what_is_too_long_or_no_http_is_refused(client: socket.socket, request_: bytes, status: bytes) -> None:
    client.sendall(request_)
    assert status in rest(client).split(b"\r\n")[0]
