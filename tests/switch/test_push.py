"""The push channel of a real controller over real WebSockets; its rules one by one are in `tests/unit/channel`."""

from __future__ import annotations

import json
import signal
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

pytestmark = pytest.mark.switch


class Agent:
    """An agent that only follows the channel; it acknowledges what it reads, unless a test does not want that."""

    def __init__(self, channel: ClientConnection, address: str) -> None:
        self.channel = channel
        self.address = IPv4Address(address)
        self.view: View | None = None
        self.kinds: list[str] = []

    def follow(self) -> View:
        """Read messages until one is not a ping, and return the view after it."""
        kind = "ping"
        while kind == "ping":
            text = self.channel.recv(PATIENCE_SECONDS)
            kind = json.loads(text)["type"]
            if kind != "ping":
                self.view = protocol.receive(text, self.view, self.address)
            self.channel.send(protocol.ack(self.view, 0))
        self.kinds.append(kind)
        assert self.view is not None
        return self.view


@contextmanager
def agent(controller: ControllerProcess, address: str) -> Iterator[Agent]:
    url = f"{controller.url.replace('http', 'ws')}/sopa/v1/agents/{address}"
    token = {"Authorization": f"Bearer {controller.agent_token_file.read_text().strip()}"}
    with connect(
        url, additional_headers=token, proxy=None, ping_interval=None, open_timeout=PATIENCE_SECONDS
    ) as channel:
        yield Agent(channel, address)


def drain(fabric: Fabric, name: str, method: str = "PUT") -> int:
    return int(fabric.controller.change(method, f"/drains/{name}").raise_for_status().json()["version"])


def reported(fabric: Fabric, address: str) -> dict[str, Any]:
    body = fabric.controller.get("/agents").json()
    return next((each for each in body["agents"] if each["address"] == address), {})


def test_agents_get_a_snapshot_and_then_a_delta_for_every_version(shared: Fabric) -> None:
    controller = shared.controller
    with agent(controller, "10.0.0.2") as first:
        first.follow()
        for name in ("c0_0", "a1_0-c0_1", "e2_0-a2_0"):
            drain(shared, name)
        view = [first.follow() for _ in range(3)][-1]
        assert first.kinds == ["snapshot", "delta", "delta", "delta"]
        assert dict(view.failures) == dict.fromkeys(("c0_0", "a1_0-c0_1", "e2_0-a2_0"), "drained")
        with agent(controller, "10.1.0.2") as late:
            assert late.follow() == view
            # one that has acknowledged the version before this one lags
            eventually(lambda: reported(shared, "10.1.0.2")["lag"], 0)
            version = drain(shared, "c0_0", "DELETE")
            first.follow()
            eventually(lambda: reported(shared, "10.0.0.2")["version"], version)
            behind = reported(shared, "10.1.0.2")
            assert (behind["lag"], behind["version"]) == (1, version - 1)
            assert behind["lag_seconds"] > 0
            assert controller.get("/changes").json()["changes"][0]["acknowledged_ms"] is None
            view = late.follow()
            eventually(lambda: controller.get("/changes").json()["changes"][0]["acknowledged_ms"])
            assert controller.get("/changes").json()["changes"][0]["agents"] == 2
        first.channel.send(protocol.RESYNC)
        assert first.follow() == view
        assert first.kinds[-1] == "snapshot"
    for name in ("a1_0-c0_1", "e2_0-a2_0"):
        drain(shared, name, "DELETE")
    eventually(lambda: controller.get("/agents").json()["agents"], [])


def test_what_an_agent_may_not_send_is_counted_or_closes_its_connection_only(shared: Fabric) -> None:
    before = shared.controller.get("/agents").json()["refused"]["messages"]
    with agent(shared.controller, "10.0.0.2") as bad, agent(shared.controller, "10.0.0.3") as good:
        bad.follow()
        good.follow()
        for message in ("{", b"\x00\xff"):
            bad.channel.send(message)
        eventually(lambda: reported(shared, "10.0.0.2")["refused"], 2)
        assert shared.controller.get("/agents").json()["refused"]["messages"] == before + 2
        drain(shared, "c0_0")
        assert dict(bad.follow().failures) == dict(good.follow().failures) == {"c0_0": "drained"}
        bad.channel.send("x" * (protocol.MAX_ANSWER_BYTES + 1))
        with pytest.raises(websockets.ConnectionClosed):
            list(bad.channel)
        drain(shared, "c0_0", "DELETE")
        assert dict(good.follow().failures) == {}


def test_drains_and_failures_survive_a_controller_restart_without_a_gap(shared: Fabric) -> None:
    drain(shared, "c0_0")
    shared.set_link("a1_0-c0_1", False)
    expected = {"c0_0": "drained", "a1_0-c0_1": "down"}
    shared.fails(expected)
    shared.controller.stop(signal.SIGKILL)
    shared.controller.start()
    with agent(shared.controller, "10.0.0.2") as its:  # before the switches are back
        view = its.follow()
        assert dict(view.failures) == expected
        assert view.epoch == shared.controller.fabric()["epoch"]
    drain(shared, "c0_0", "DELETE")
    shared.set_link("a1_0-c0_1", True)


def test_a_controller_for_agents_alone_waits_for_no_switch(tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    options = ["--sopa-no-switches"]
    with (
        ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=options) as controller,
        agent(controller, "10.0.0.2") as its,
    ):
        assert not dict(its.follow().failures)
        eventually(lambda: controller.agents_know(1))
