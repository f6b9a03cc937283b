"""The push channel of a real controller: what agents are told, and what becomes of agents that are slow, false or broken."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from sopa_ryu.fabric.view import View
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.switch


class Agent:
    """The controller's side of an agent: it follows the messages, and acknowledges if it is told to."""

    def __init__(self, channel: ClientConnection, address: str) -> None:
        self.channel = channel
        self.address = IPv4Address(address)
        self.view: View | None = None
        self.kinds: list[str] = []

    def follow(self, acknowledge: bool = True) -> View:
        """Take in one message that is not a ping."""
        while True:
            text = self.channel.recv(timeout=10)
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


def told(fabric: Fabric, address: str) -> dict[str, Any]:
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
        eventually(lambda: told(fabric, "10.0.0.2")["lag"], 0)
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


def test_an_agent_that_does_not_acknowledge_lags_and_a_silent_one_is_cut(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as slow, agent(fabric, "10.0.0.3") as quick:
        slow.follow()
        quick.follow()
        version = drain(fabric, "c0_0")
        quick.follow()
        eventually(lambda: told(fabric, "10.0.0.3")["version"], version)
        behind = told(fabric, "10.0.0.2")
        assert (behind["lag"], behind["version"]) == (1, version - 1)
        assert behind["lag_seconds"] > 0
        assert fabric.controller.get("/changes").json()["changes"][0]["acknowledged_ms"] is None


def test_a_stuck_agent_delays_no_other_and_then_gets_one_merged_delta(fabric: Fabric) -> None:
    stuck = socket.create_connection(("127.0.0.1", int(fabric.controller.url.rpartition(":")[2])))
    with stuck, agent(fabric, "10.0.0.3") as quick:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        stuck.sendall(
            b"GET /sopa/v1/agents/10.0.0.2 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            + f"Authorization: {token(fabric)['Authorization']}\r\n\r\n".encode()
        )
        eventually(lambda: told(fabric, "10.0.0.2"))
        quick.follow()
        names = [fabric.tree.name(link) for link in fabric.tree.links() if "h" not in fabric.tree.name(link)]
        for name in names:
            drain(fabric, name)
            quick.follow()
        # it asks for snapshots and reads none: first the kernel's buffers fill, then the controller waits for it
        ask = protocol.RESYNC.encode()
        frame = bytes([0x81, 0x80 | len(ask), 0, 0, 0, 0]) + ask
        stuck.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(20):
                stuck.sendall(frame * 1000)
                drain(fabric, "c0_0")
                drain(fabric, "c0_0", "DELETE")
                quick.follow()
                quick.follow()
        for name in names:
            drain(fabric, name, "DELETE")
            quick.follow()
        assert set(quick.kinds[1:]) == {"delta"}
        assert told(fabric, "10.0.0.2")["lag"] >= 2 * len(names)


def test_a_second_agent_for_the_same_host_is_rejected_and_counted(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as rightful:
        rightful.follow()

        def claim() -> None:
            with pytest.raises(websockets.InvalidStatus) as refused:
                connect(
                    url(fabric, "10.0.0.2"), additional_headers=token(fabric), proxy=None, open_timeout=5
                ).__enter__()
            assert refused.value.response.status_code == 409
            assert b"another agent of 10.0.0.2 is connected" in refused.value.response.body

        # it is asked whether it is still there
        thread = threading.Thread(target=claim)
        thread.start()
        text = json.loads(rightful.channel.recv(timeout=5))
        assert text == {"type": "ping"}
        rightful.channel.send(protocol.ack(rightful.view, 0))
        thread.join(10)
        assert fabric.controller.get("/agents").json()["refused"]["claims"] == 1
        drain(fabric, "c0_0")
        assert dict(rightful.follow().failures) == {"c0_0": "drained"}


def test_the_place_of_an_agent_that_no_longer_answers_goes_to_the_next(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as dead, agent(fabric, "10.0.0.2") as heir:
        heir.follow()
        eventually(lambda: told(fabric, "10.0.0.2").get("lag"), 0)
        assert json.loads(dead.channel.recv(timeout=5))["type"] == "snapshot"
        assert json.loads(dead.channel.recv(timeout=5))["type"] == "ping"
        with pytest.raises(websockets.ConnectionClosed):
            dead.channel.recv(timeout=5)


@pytest.mark.parametrize(
    "message",
    ["", "{", "[]", '{"type": "ack"}', '{"type": "ack", "epoch": 0, "version": -1}', '{"type": "attack"}', b"\x00\xff"],
)
def test_a_message_that_is_none_is_refused_counted_and_harms_nobody(fabric: Fabric, message: str | bytes) -> None:
    with agent(fabric, "10.0.0.2") as bad, agent(fabric, "10.0.0.3") as good:
        bad.follow()
        good.follow()
        bad.channel.send(message)
        eventually(lambda: told(fabric, "10.0.0.2")["refused"], 1)
        drain(fabric, "c0_0")
        assert dict(bad.follow().failures) == dict(good.follow().failures) == {"c0_0": "drained"}
        assert fabric.controller.get("/agents").json()["refused"]["messages"] == 1


def test_an_acknowledgement_from_the_future_is_refused(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as its:
        view = its.follow()
        eventually(lambda: told(fabric, "10.0.0.2")["version"], view.version)
        its.channel.send(protocol.ack(view._replace(version=view.version + 1), 0))
        eventually(lambda: told(fabric, "10.0.0.2")["refused"], 1)
        assert told(fabric, "10.0.0.2")["version"] == view.version


def test_a_message_that_is_too_large_ends_the_connection_and_only_that(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as large, agent(fabric, "10.0.0.3") as other:
        other.follow()
        large.follow()
        large.channel.send("x" * (protocol.MAX_ANSWER_BYTES + 1))
        with pytest.raises(websockets.ConnectionClosed):
            large.channel.recv(timeout=5)
        drain(fabric, "c0_0")
        assert dict(other.follow().failures) == {"c0_0": "drained"}


def test_who_sends_nothing_but_what_is_refused_is_cut_off(fabric: Fabric) -> None:
    with agent(fabric, "10.0.0.2") as bad:
        bad.follow()
        for _ in range(100):
            bad.channel.send("{}")
        with pytest.raises(websockets.ConnectionClosed):
            bad.channel.recv(timeout=5)


def test_drains_and_failures_survive_a_controller_restart_without_a_gap(
    fabric: Fabric,
) -> None:
    drain(fabric, "c0_0")
    fabric.dummy.set_port(fabric.tree.switch("a1_0"), 4, up=False)
    eventually(lambda: len(fabric.controller.fabric()["failures"]), 2)
    expected = {"c0_0": "drained", "a1_0-c0_1": "down"}
    with agent(fabric, "10.0.0.2") as before:
        view = before.follow()
        assert dict(view.failures) == expected
    fabric.controller.stop(signal.SIGKILL)
    fabric.controller.start()
    with agent(fabric, "10.0.0.2") as again:  # long before the switches are back
        view = again.follow()
        assert dict(view.failures) == expected
        assert view.epoch == fabric.controller.fabric()["epoch"]


def test_a_switch_absent_after_a_restart_has_failed_after_the_settle_time(fabric: Fabric) -> None:
    fabric.controller.stop(signal.SIGKILL)
    fabric.ovs.vsctl("del-controller", "c1_1")
    fabric.controller.command.insert(-1, "--sopa-settle=2")
    fabric.controller.start()
    eventually(fabric.controller.fabric, lambda body: body["connected"] == 0 or not body["settled"])
    eventually(lambda: fabric.controller.fabric()["settled"])
    assert fabric.controller.fabric()["failures"] == [{"name": "c1_1", "kind": "switch", "reason": "not connected"}]
