"""The push channel of a real controller over real WebSockets; its rules one by one are in `tests/unit/channel`."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from typing import Any

import pytest

from experiments.emulation.processes import ControllerProcess
from sopa_ryu.channel import protocol
from sopa_ryu.fabric.view import View
from tests.helpers import relay
from tests.helpers.fabrics import Fabric
from tests.helpers.relay import Agent
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.switch


def agent(controller: ControllerProcess, address: str) -> AbstractContextManager[Agent]:
    return relay.agent(controller.url, address, controller.agent_token_file.read_text().strip())


def followed(its: Agent) -> View | None:
    its.follow()
    return its.view


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
        view = [followed(first) for _ in range(3)][-1]
        assert first.kinds == ["snapshot", "delta", "delta", "delta"]
        assert dict(view.failures) == dict.fromkeys(("c0_0", "a1_0-c0_1", "e2_0-a2_0"), "drained")
        with agent(controller, "10.1.0.2") as late:
            assert followed(late) == view
            # one that has acknowledged the version before this one lags
            eventually(lambda: reported(shared, "10.1.0.2")["lag"], 0)
            version = drain(shared, "c0_0", "DELETE")
            first.follow()
            eventually(lambda: reported(shared, "10.0.0.2")["version"], version)
            behind = reported(shared, "10.1.0.2")
            assert (behind["lag"], behind["version"]) == (1, version - 1)
            assert behind["lag_seconds"] > 0
            assert controller.get("/changes").json()["changes"][0]["acknowledged_ms"] is None
            view = followed(late)
            eventually(lambda: controller.get("/changes").json()["changes"][0]["acknowledged_ms"])
            assert controller.get("/changes").json()["changes"][0]["agents"] == 2
        first.channel.send(protocol.RESYNC)
        assert followed(first) == view
        assert first.kinds[-1] == "snapshot"
    for name in ("a1_0-c0_1", "e2_0-a2_0"):
        drain(shared, name, "DELETE")
    eventually(lambda: controller.get("/agents").json()["agents"], [])


def test_drains_and_failures_survive_a_controller_restart_without_a_gap(shared: Fabric) -> None:
    drain(shared, "c0_0")
    shared.set_link("a1_0-c0_1", False)
    expected = {"c0_0": "drained", "a1_0-c0_1": "down"}
    shared.fails(expected)
    shared.controller.stop(signal.SIGKILL)
    shared.controller.start()
    with agent(shared.controller, "10.0.0.2") as its:  # before the switches are back
        view = followed(its)
        assert dict(view.failures) == expected
        assert view.epoch == shared.controller.fabric()["epoch"]
    drain(shared, "c0_0", "DELETE")
    shared.set_link("a1_0-c0_1", True)
