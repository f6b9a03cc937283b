"""The push channel over real WebSockets on eventlet, without switches: a server in a process of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

import httpx
import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from tests.helpers.waiting import eventually

SERVER = """
import eventlet
eventlet.monkey_patch()
import json
from sopa_ryu.channel import agent_channel, claims, notifier
from sopa_ryu.fabric.view import View
from sopa_ryu.rest import http_server
from topologies import Failures, FatTree

tree, failed, completed = FatTree(4), [{}], []

def view():
    return View(1, len(failed), Failures(tree, failed[-1]))

channel = agent_channel.AgentChannel(notifier.Notifier(tree, view), completed.append)

def answer(environ, start_response):
    path = environ["PATH_INFO"][1:]
    if path.startswith("claims="):
        claims.CLAIM_SECONDS = agent_channel.CLAIM_SECONDS = float(path.removeprefix("claims="))
        path = ""
    if environ.get("HTTP_UPGRADE"):
        try:
            return channel.serve({**environ, "REMOTE_ADDR": "192.168.0.1"}, start_response, tree.host(path))
        except notifier.ClaimError as error:
            start_response("409 Conflict", [])
            return [str(error).encode()]
    if path:
        failed.append({} if path == "nothing" else {path: "down"})
        channel.broadcast()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps({"completed": completed, "agents": len(channel.notifier.sessions)}).encode()]

eventlet.spawn(channel.watch)
listener = http_server.listen("127.0.0.1", 0)
print(listener.getsockname()[1], flush=True)
http_server.serve(listener, answer)
"""
TIMEOUT = 60


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.terminate()


def agent(port: int, host: str = "h0_0_2") -> ClientConnection:
    return connect(
        f"ws://127.0.0.1:{port}/{host}", proxy=None, ping_interval=None, compression=None, open_timeout=TIMEOUT
    )


def state(port: int, failed: str = "") -> dict[str, Any]:
    """Make a version, if an element is given; return the completed versions and the number of agents."""
    body: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/{failed}", timeout=TIMEOUT).raise_for_status().json()
    return body


def kind(text: str | bytes) -> str:
    return str(json.loads(text)["type"])


def test_versions_arrive_are_acknowledged_and_completed(port: int) -> None:
    with agent(port) as opened:
        view = protocol.receive(opened.recv(TIMEOUT), None, IPv4Address("10.0.0.2"))
        opened.send(protocol.ack(view, 0))
        before = state(port, "a0_0")["completed"]
        view = protocol.receive(opened.recv(TIMEOUT), view, IPv4Address("10.0.0.2"))
        assert view is not None
        assert dict(view.failures) == {"a0_0": "down"}
        assert view.version not in before
        opened.send(protocol.ack(view, 0))
        eventually(lambda: state(port), {"completed": [*before, view.version], "agents": 1})
    eventually(lambda: state(port)["agents"], 0)


def test_a_claim_waits_for_the_holder_and_is_rejected_if_it_answers(port: int) -> None:
    state(port, "claims=60")
    with agent(port) as holder:
        assert kind(holder.recv(TIMEOUT)) == "snapshot"
        rejected: list[websockets.InvalidStatus] = []

        def claim() -> None:
            with pytest.raises(websockets.InvalidStatus) as error:
                agent(port)
            rejected.append(error.value)

        thread = threading.Thread(target=claim)
        thread.start()
        assert kind(holder.recv(TIMEOUT)) == "ping"
        holder.send(protocol.ack(None, 0))
        thread.join(TIMEOUT)
        assert rejected[0].response.status_code == 409
        assert state(port)["agents"] == 1


def test_a_holder_that_does_not_answer_is_cut_off_for_the_next(port: int) -> None:
    state(port, "claims=0.2")
    with agent(port) as holder, agent(port) as heir:
        assert kind(heir.recv(TIMEOUT)) == "snapshot"
        assert [kind(holder.recv(TIMEOUT)) for _ in range(2)] == ["snapshot", "ping"]
        with pytest.raises(websockets.ConnectionClosed):
            holder.recv(TIMEOUT)


def test_an_agent_that_floods_and_reads_nothing_delays_no_other(port: int) -> None:
    with agent(port) as stuck, agent(port, "h0_0_3") as quick:
        assert kind(quick.recv(TIMEOUT)) == "snapshot"
        ended = threading.Event()

        def ask() -> None:
            with contextlib.suppress(websockets.ConnectionClosed):
                while not ended.is_set():
                    stuck.send(protocol.RESYNC)  # its answers fill the connection

        thread = threading.Thread(target=ask)
        thread.start()
        for failed in ("a0_0", "a1_0", "a2_0", "nothing"):
            state(port, failed)
            assert kind(quick.recv(TIMEOUT)) == "delta"
        ended.set()
        stuck.socket.shutdown(socket.SHUT_RDWR)  # its writer waits for room
        thread.join(TIMEOUT)
