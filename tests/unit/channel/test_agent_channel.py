"""The push channel over real WebSockets, without switches: a server in a process of its own."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from sopa_ryu.channel.client import ControllerAddress
from tests.helpers.channel_server import ChannelServer, channel_server

TIMEOUT = 60


@pytest.fixture(scope="module")
def server() -> Iterator[ChannelServer]:
    with channel_server(claim_seconds=0.2) as its:
        yield its


@contextmanager
def agent(server: ChannelServer, host: str) -> Iterator[ClientConnection]:
    url = f"{server.url.replace('http', 'ws')}/{host}"
    with connect(url, proxy=None, ping_interval=None, compression=None, open_timeout=TIMEOUT) as opened:
        assert kind(opened) == "snapshot"
        yield opened


def kind(opened: ClientConnection) -> str:
    return str(json.loads(opened.recv(TIMEOUT))["type"])


def test_a_holder_that_does_not_answer_is_cut_off_for_the_next(server: ChannelServer) -> None:
    with agent(server, "10.0.0.2") as holder, agent(server, "10.0.0.2"):
        assert kind(holder) == "ping"
        with pytest.raises(websockets.ConnectionClosed):
            holder.recv(TIMEOUT)


def test_an_agent_that_floods_and_reads_nothing_delays_no_other(server: ChannelServer) -> None:
    with agent(server, "10.0.0.2") as stuck, agent(server, "10.0.0.3") as quick:
        ended = threading.Event()

        def ask() -> None:
            with contextlib.suppress(websockets.ConnectionClosed):
                while not ended.is_set():
                    stuck.send(protocol.RESYNC)  # its answers fill the connection

        thread = threading.Thread(target=ask)
        thread.start()
        for failed in ("a0_0", "a1_0", "a2_0"):
            server.fail(failed)
            assert kind(quick) == "delta"
        ended.set()
        stuck.socket.shutdown(socket.SHUT_RDWR)  # its writer waits for room
        thread.join(TIMEOUT)


def test_a_channel_with_its_token_follows_no_redirect() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            with server.accept()[0] as taken:
                taken.recv(4096)
                taken.sendall(b"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:%d/\r\n\r\n" % other.getsockname()[1])

        threading.Thread(target=answer).start()
        address = ControllerAddress(f"http://127.0.0.1:{server.getsockname()[1]}", lambda: "token")
        assert "307" in asyncio.run(address.attend("/", lambda channel: asyncio.sleep(0, ""), 5.0)).problem
