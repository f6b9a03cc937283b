"""What one token is good for: the channels that it opens, and no connection more; what an agent says there."""

import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from sopa_ryu.front.door import SHARE
from sopa_ryu.front.relay_channel import MAX_RELAYS
from tests.web.stub import Stub

HEAD = (
    "GET /sopa/v1/{} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer {}\r\n\r\n"
)


def test_what_an_agent_says_of_itself_is_printable_and_short(tmp_path: Path) -> None:
    with Stub(tmp_path) as stub:
        its = stub.serve(4, tmp_path)
        with socket.create_connection(("127.0.0.1", int(its.where.partition(":")[2]))) as client:
            said = "&".join(f"{name}=m%0A%1B[2J%C3%BC{'x' * 999}" for name in ("carrier", "policy", "spray", "first"))
            client.sendall(HEAD.format(f"agents/10.0.0.2?{said}", its.token).encode())
            assert client.recv(12) == b"HTTP/1.1 101"
            [agent] = httpx.get(f"{its.url}/sopa/v1/agents").json()["agents"]
        assert [agent[name] for name in ("carrier", "policy", "spray")] == [f"m??[2J?{'x' * 999}"[:most] for most in (20, 20, 120)]


@pytest.mark.parametrize(("path", "channels"), [("agents/10.0.0.2", 1), ("arbiter", 1), ("relays/r{}", MAX_RELAYS)])
def test_what_a_token_asks_in_vain_counts_as_without_one(path: str, channels: int, tmp_path: Path) -> None:
    with Stub(tmp_path) as stub, ExitStack() as stack:
        its = stub.serve(4, tmp_path, leader="c1")

        def claim(number: int) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", int(its.where.partition(":")[2])), 60))
            client.sendall(HEAD.format(path.format(number), its.token).encode())
            return client

        assert {claim(number).recv(12) for number in range(channels)} == {b"HTTP/1.1 101"}
        in_vain = [claim(channels + number) for number in range(SHARE)]
        assert {each.recv(12) for each in in_vain[:-1]} == {b"HTTP/1.1 409"}  # of one host, the last one waits
        assert claim(channels + SHARE).recv(12) == b"HTTP/1.1 429"
