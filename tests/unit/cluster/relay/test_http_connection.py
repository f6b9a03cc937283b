"""HTTP of a relay over real sockets: what a request is, and the bounds of every part of it."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
import uvloop
from webob import Request, Response

from sopa_ryu.cluster.relay import door, http_connection
from sopa_ryu.cluster.relay.http_connection import Answer, HttpConnection
from sopa_ryu.rest.operations import PROBLEM, Problem
from tests.helpers.golden import Step, octets, play, scripts
from tests.helpers.waiting import eventually


def answer(request: Request, connection: HttpConnection) -> Answer:
    if request.path_info == "/long":
        return Response(b"x" * (1 << 24))
    if request.path_info == "/crash":
        raise RuntimeError("on purpose")
    if request.path_info == "/later":
        return later(request)
    body = {"method": request.method, "path": request.path_info, "body": len(request.body), "query": request.query_string}
    return Response(json.dumps(body).encode(), content_type="application/json", charset="UTF-8")


async def later(request: Request) -> Response:
    await asyncio.sleep(0.01)
    if request.query_string:
        raise Problem(http_connection.HTTPStatus.CONFLICT, "later")
    return Response(b"later")


@pytest.fixture
def served() -> Iterator[door.RelayDoor]:
    """A door whose loop runs in a thread."""
    opened: Future[tuple[door.RelayDoor, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        its, ended = door.RelayDoor("127.0.0.1", 0, answer, share=20), asyncio.Event()
        its.open()
        opened.set_result((its, asyncio.get_running_loop(), ended))
        await ended.wait()
        its.close()

    thread = threading.Thread(target=lambda: uvloop.run(main()))
    thread.start()
    its, loop, ended = opened.result(60)
    yield its
    loop.call_soon_threadsafe(ended.set)
    thread.join()


@contextlib.contextmanager
def client(served: door.RelayDoor, *pieces: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as its:
        for piece in pieces:
            its.sendall(piece)
        yield its


def read(connection: socket.socket, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += connection.recv(1)
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if line)
    size, body = 0 if method == "HEAD" else int(headers["Content-Length"]), b""
    while len(body) < size:
        body += connection.recv(size - len(body))
    return int(lines[0].split()[1]), headers, body


def asked(served: door.RelayDoor, request: bytes) -> tuple[int, dict[str, str], bytes]:
    with client(served, request) as connection:
        return read(connection)


@pytest.mark.parametrize("script", scripts(__file__, "http"), ids=lambda path: path.stem)
def test_requests(served: door.RelayDoor, script: Path, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Send a request, and say what was read of it, or the status of its problem document."""
        with client(served) as connection:
            with contextlib.suppress(OSError):  # it may have answered before all was sent
                connection.sendall(octets(step.command))
            status, headers, body = read(connection)
        if status != 200:
            assert (headers["Content-Type"], json.loads(body)["status"]) == (PROBLEM, status)
        return f"{status} {body.decode() if status == 200 else ''}"

    play(script, handle, record=request.config.option.record)


def test_requests_of_a_connection_are_answered_in_order(served: door.RelayDoor) -> None:
    requests = [b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(50)]
    requests[7] = b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
    requests[9] = b"HEAD /9 HTTP/1.1\r\nHost: x\r\n\r\n"
    with client(served, b"".join(requests), b"GET /last HTTP/1.0\r\n\r\n") as connection:
        for number in range(50):
            status, _, body = read(connection, "HEAD" if number == 9 else "GET")
            assert status == 200
            assert body == b"later" if number == 7 else (b'"/%d"' % number in body) or number == 9
        assert b'"/last"' in read(connection)[2]
        assert connection.recv(1) == b""


def test_a_client_that_expects_to_be_told_to_go_on_is(served: door.RelayDoor) -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    with client(served, head) as connection:
        assert b"100" in connection.recv(100)
        connection.sendall(b"ab")
        assert json.loads(read(connection)[2])["body"] == 2


def test_slow_clients_have_their_time(served: door.RelayDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(http_connection, "ANSWER_SECONDS", 1.0)
    with client(served, b"GET / HTTP/1.1\r\nHo") as incomplete, client(served) as idle, client(served) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stuck.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read(incomplete)[0] == 408
        assert idle.recv(1) == b""  # without a word, which could be taken for an answer
        eventually(lambda: served.clients.total, 0)  # the one that does not read is cut off, too


def test_one_address_has_its_share_and_gets_it_back(served: door.RelayDoor) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(client(served))
        eventually(lambda: served.clients.total, 20)
        with client(served, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n") as late:
            assert read(late)[0] == 429
        assert served.rejected["share"] == 1
    eventually(lambda: served.clients.total, 0)
    assert asked(served, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")[0] == 200
