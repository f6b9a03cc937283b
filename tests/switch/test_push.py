"""The push channel of a real controller over real WebSockets; its rules one by one are in `tests/unit/channel`."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.channel import protocol
from sopa_ryu.fabric.view import View
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from topologies import Host

pytestmark = pytest.mark.switch


class Agent:
    """An agent that only follows the channel; it acknowledges what it reads, unless a test does not want that."""

    def __init__(self, channel: ClientConnection, address: str) -> None:
        self.channel = channel
        self.address = IPv4Address(address)
        self.view: View | None = None
        self.kinds: list[str] = []

    def follow(self, acknowledge: bool = True) -> View:
        """Read messages until one is not a ping, and return the view after it."""
        while True:
            text = self.channel.recv(PATIENCE_SECONDS)
            kind = json.loads(text)["type"]
            if kind == "ping":
                self.channel.send(protocol.ack(self.view, 0))
                continue
            self.kinds.append(kind)
            self.view = protocol.receive(text, self.view, self.address)
            assert self.view is not None
            if acknowledge:
                self.channel.send(protocol.ack(self.view, 0))
            return self.view


@contextmanager
def agent(fabric: Fabric, address: str) -> Iterator[Agent]:
    with connect(url(fabric, address), additional_headers=token(fabric), proxy=None, ping_interval=None) as channel:
        yield Agent(channel, address)


def url(fabric: Fabric, address: str) -> str:
    return f"{fabric.controller.url.replace('http', 'ws')}/sopa/v1/agents/{address}"


def token(fabric: Fabric) -> dict[str, str]:
    return {"Authorization": f"Bearer {fabric.controller.agent_token_file.read_text().strip()}"}


def drain(fabric: Fabric, name: str, method: str = "PUT") -> int:
    return int(fabric.controller.change(method, f"/drains/{name}").raise_for_status().json()["version"])


def reported(fabric: Fabric, address: str) -> dict[str, Any]:
    body = fabric.controller.get("/agents").json()
    return next((each for each in body["agents"] if each["address"] == address), {})


def test_an_agent_gets_a_snapshot_and_then_a_delta_for_every_version(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as its:
        its.follow()
        drain(fabric, "c0_0")
        drain(fabric, "a1_0-c0_1")
        its.follow()
        view = its.follow()
        drain(fabric, "c0_0", "DELETE")
        view = its.follow()
        assert its.kinds == ["snapshot", "delta", "delta", "delta"]
        assert dict(view.failures) == {"a1_0-c0_1": "drained"}
        eventually(lambda: reported(fabric, "10.0.0.2")["lag"], 0)
        latest = fabric.controller.get("/changes").json()["changes"][0]
        assert latest["agents"] == 1
        assert latest["acknowledged_ms"] > 0
    eventually(lambda: fabric.controller.get("/agents").json()["agents"], [])


def test_an_agent_that_connects_late_or_again_ends_in_the_same_state(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as first:
        first.follow()
        for name in ("c0_0", "a1_0-c0_1", "e2_0-a2_0"):
            drain(fabric, name)
        view = [first.follow() for _ in range(3)][-1]
        with agent(fabric, "10.1.0.2") as late:
            assert late.follow() == view
        first.channel.send(protocol.RESYNC)
        assert first.follow() == view
        assert first.kinds[-1] == "snapshot"


def test_an_agent_that_does_not_acknowledge_lags(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as slow, agent(fabric, "10.0.0.3") as quick:
        slow.follow()
        quick.follow()
        version = drain(fabric, "c0_0")
        quick.follow()
        eventually(lambda: reported(fabric, "10.0.0.3")["version"], version)
        behind = reported(fabric, "10.0.0.2")
        assert (behind["lag"], behind["version"]) == (1, version - 1)
        assert behind["lag_seconds"] > 0
        assert fabric.controller.get("/changes").json()["changes"][0]["acknowledged_ms"] is None


def test_an_agent_that_reads_nothing_delays_no_other(fabric: Fabric) -> None:
    stuck = socket.create_connection(("127.0.0.1", int(fabric.controller.url.rpartition(":")[2])))
    with stuck, agent(fabric, "10.0.0.3") as quick:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stuck.sendall(
            b"GET /sopa/v1/agents/10.0.0.2 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            + f"Authorization: {token(fabric)['Authorization']}\r\n\r\n".encode()
        )
        eventually(lambda: reported(fabric, "10.0.0.2"))
        quick.follow()
        ask = protocol.RESYNC.encode()
        frame = bytes([0x81, 0x80 | len(ask), 0, 0, 0, 0]) + ask
        names = [fabric.tree.name(link) for link in fabric.tree.links() if "h" not in fabric.tree.name(link)]
        for name in names:
            drain(fabric, name)
            quick.follow()
            stuck.sendall(frame)  # it is not silent, however long this takes
        # it asks for snapshots and reads none: the kernel's buffers fill, then its writer blocks
        stuck.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(20):
                stuck.sendall(frame * 1000)
                drain(fabric, "c0_0")
                drain(fabric, "c0_0", "DELETE")
                quick.follow()
                quick.follow()
        for name in names[:4]:
            drain(fabric, name, "DELETE")
            quick.follow()
        assert set(quick.kinds[1:]) == {"delta"}
        assert reported(fabric, "10.0.0.2")["lag"] >= len(names) + 4


def test_a_second_agent_for_the_same_host_is_rejected_and_counted(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as holder:
        holder.follow()

        def claim() -> None:
            with pytest.raises(websockets.InvalidStatus) as rejected:
                connect(
                    url(fabric, "10.0.0.2"), additional_headers=token(fabric), proxy=None, open_timeout=PATIENCE_SECONDS
                ).__enter__()
            assert rejected.value.response.status_code == 409
            assert b"another agent of 10.0.0.2 is connected" in rejected.value.response.body

        # the holder is pinged, and answers
        thread = threading.Thread(target=claim)
        thread.start()
        text = json.loads(holder.channel.recv(PATIENCE_SECONDS))
        assert text == {"type": "ping"}
        holder.channel.send(protocol.ack(holder.view, 0))
        thread.join(PATIENCE_SECONDS)
        assert fabric.controller.get("/agents").json()["refused"]["claims"] == 1
        drain(fabric, "c0_0")
        assert dict(holder.follow().failures) == {"c0_0": "drained"}


def test_a_holder_that_does_not_answer_loses_its_place(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as dead, agent(fabric, "10.0.0.2") as heir:
        heir.follow()
        eventually(lambda: reported(fabric, "10.0.0.2").get("lag"), 0)
        assert json.loads(dead.channel.recv(PATIENCE_SECONDS))["type"] == "snapshot"
        assert json.loads(dead.channel.recv(PATIENCE_SECONDS))["type"] == "ping"
        with pytest.raises(websockets.ConnectionClosed):
            dead.channel.recv(PATIENCE_SECONDS)


@pytest.mark.parametrize("message", ["{", b"\x00\xff"], ids=["text", "binary"])
def test_a_rejected_message_is_counted_and_affects_no_other_agent(fabric: Fabric, message: str | bytes) -> None:
    with agent(fabric, "10.0.0.2") as bad, agent(fabric, "10.0.0.3") as good:
        bad.follow()
        good.follow()
        bad.channel.send(message)
        eventually(lambda: reported(fabric, "10.0.0.2")["refused"], 1)
        drain(fabric, "c0_0")
        assert dict(bad.follow().failures) == dict(good.follow().failures) == {"c0_0": "drained"}
        assert fabric.controller.get("/agents").json()["refused"]["messages"] == 1


def test_an_acknowledgement_of_a_later_version_is_rejected(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as its:
        view = its.follow()
        eventually(lambda: reported(fabric, "10.0.0.2")["version"], view.version)
        its.channel.send(protocol.ack(view._replace(version=view.version + 1), 0))
        eventually(lambda: reported(fabric, "10.0.0.2")["refused"], 1)
        assert reported(fabric, "10.0.0.2")["version"] == view.version


def test_a_message_that_is_too_large_closes_only_its_connection(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as large, agent(fabric, "10.0.0.3") as other:
        other.follow()
        large.follow()
        large.channel.send("x" * (protocol.MAX_ANSWER_BYTES + 1))
        with pytest.raises(websockets.ConnectionClosed):
            large.channel.recv(PATIENCE_SECONDS)
        drain(fabric, "c0_0")
        assert dict(other.follow().failures) == {"c0_0": "drained"}


def test_an_agent_that_sends_only_rejected_messages_is_cut_off(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as bad:
        bad.follow()
        for _ in range(100):
            bad.channel.send("{}")
        with pytest.raises(websockets.ConnectionClosed):
            bad.channel.recv(PATIENCE_SECONDS)


def test_drains_and_failures_survive_a_controller_restart_without_a_gap(fabric: Fabric) -> None:
    drain(fabric, "c0_0")
    fabric.dummy.set_port(fabric.tree.switch("a1_0"), 4, up=False)
    expected = {"c0_0": "drained", "a1_0-c0_1": "down"}
    eventually(lambda: {its["name"]: its["reason"] for its in fabric.controller.fabric()["failures"]}, expected)
    with agent(fabric, "10.0.0.2") as before:
        view = before.follow()
        assert dict(view.failures) == expected
    fabric.controller.stop(signal.SIGKILL)
    fabric.controller.start()
    with agent(fabric, "10.0.0.2") as again:  # long before the switches are back
        view = again.follow()
        assert dict(view.failures) == expected
        assert view.epoch == fabric.controller.fabric()["epoch"]


def test_a_switch_absent_after_a_restart_counts_as_its_neighbours_see_it(fabric: Fabric) -> None:
    fabric.controller.stop(signal.SIGKILL)
    fabric.ovs.vsctl("set-controller", "c1_1", "tcp:127.0.0.1:9")
    fabric.controller.command.insert(-1, "--sopa-settle=2")
    fabric.controller.start()
    eventually(lambda: fabric.controller.fabric()["settled"])
    # a switch that is slower than two seconds may be absent, too, at first
    eventually(lambda: fabric.controller.fabric()["missing"], ["c1_1"])
    eventually(lambda: fabric.controller.fabric()["no_channel"], ["c1_1"])
    assert fabric.controller.fabric()["failures"] == []
    core = fabric.tree.switch("c1_1")
    for neighbour in fabric.tree.ports(core).values():
        assert not isinstance(neighbour, Host)
        fabric.dummy.set_port(neighbour, fabric.tree.port(neighbour, core), up=False)
    expected = [{"name": "c1_1", "kind": "switch", "reason": "not connected"}]
    eventually(lambda: fabric.controller.fabric()["failures"], expected)
    assert fabric.controller.fabric()["no_channel"] == []


def test_a_controller_for_agents_alone_waits_for_no_switch(tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    options = ["--sopa-no-switches"]
    with ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=options) as controller:
        authorization = {"Authorization": f"Bearer {controller.agent_token_file.read_text().strip()}"}
        channel = f"{controller.url.replace('http', 'ws')}/sopa/v1/agents/10.0.0.2"
        with connect(channel, additional_headers=authorization, proxy=None, ping_interval=None) as opened:
            assert not dict(Agent(opened, "10.0.0.2").follow().failures)
            eventually(lambda: controller.agents_know(1))
