"""The push channel over real WebSockets on eventlet, without switches: a server in a process of its own.

What tests/switch/test_push.py and tests/contract show with a real controller is not shown again.
"""

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import protocol

SERVER = """
import eventlet
eventlet.monkey_patch()
from sopa_ryu.channel import agent_channel, claims, notifier
from sopa_ryu.fabric.view import View
from sopa_ryu.rest import http_server
from topologies import Failures, FatTree

tree, failed = FatTree(4), [{}]
claims.CLAIM_SECONDS = agent_channel.CLAIM_SECONDS = 0.2
channel = agent_channel.AgentChannel(notifier.Notifier(tree, lambda: View(1, len(failed), Failures(tree, failed[-1]))), print)

def answer(environ, start_response):
    path = environ["PATH_INFO"][1:]
    if environ.get("HTTP_UPGRADE"):
        return channel.serve({**environ, "REMOTE_ADDR": "192.168.0.1"}, start_response, tree.host(path))
    failed.append({path: "down"})
    channel.broadcast()
    start_response("204 No Content", [])
    return []

eventlet.spawn(channel.watch)
listener = http_server.listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
http_server.serve(listener, answer)
"""
TIMEOUT = 60


@pytest.fixture(scope="module")
def where() -> Iterator[str]:
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"127.0.0.1:{int(process.stdout.readline())}"
        process.terminate()


@contextmanager
def agent(where: str, host: str) -> Iterator[ClientConnection]:
    url = f"ws://{where}/{host}"
    with connect(url, proxy=None, ping_interval=None, compression=None, open_timeout=TIMEOUT) as opened:
        assert kind(opened) == "snapshot"
        yield opened


def kind(opened: ClientConnection) -> str:
    return str(json.loads(opened.recv(TIMEOUT))["type"])


def test_a_holder_that_does_not_answer_is_cut_off_for_the_next(where: str) -> None:
    with agent(where, "h0_0_2") as holder, agent(where, "h0_0_2"):
        assert kind(holder) == "ping"
        with pytest.raises(websockets.ConnectionClosed):
            holder.recv(TIMEOUT)


def test_an_agent_that_floods_and_reads_nothing_delays_no_other(where: str) -> None:
    with agent(where, "h0_0_2") as stuck, agent(where, "h0_0_3") as quick:
        ended = threading.Event()

        def ask() -> None:
            with contextlib.suppress(websockets.ConnectionClosed):
                while not ended.is_set():
                    stuck.send(protocol.RESYNC)  # its answers fill the connection

        thread = threading.Thread(target=ask)
        thread.start()
        for failed in ("a0_0", "a1_0", "a2_0"):
            httpx.get(f"http://{where}/{failed}", timeout=TIMEOUT).raise_for_status()
            assert kind(quick) == "delta"
        ended.set()
        stuck.socket.shutdown(socket.SHUT_RDWR)  # its writer waits for room
        thread.join(TIMEOUT)
