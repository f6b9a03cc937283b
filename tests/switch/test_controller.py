"""The controller against real Open vSwitch: dead uplinks, a killed part of it, ports that are taken, a process that stands still.

Restarts, other masters and second connections are in `tests/unit/fabric`, with switches that `test_memory_switch.py` compares with
Open vSwitch.
"""

import os
import signal
import subprocess
from contextlib import AbstractContextManager
from typing import Any

import pytest

from experiments.emulation.processes import free_ports
from tests.helpers import relay
from tests.helpers.fabrics import Fabric, packet
from tests.helpers.relay import Agent
from tests.helpers.waiting import Containing, eventually
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch


def agent(fabric: Fabric, address: str, *more: Any) -> AbstractContextManager[Agent]:
    return relay.agent(fabric.controller.url, address, fabric.controller.agent_token_file.read_text().strip(), *more)


def test_a_packet_in_flight_that_names_a_dead_uplink_takes_another_one(shared: Fabric) -> None:
    shared.set_link("a0_0-c0_1", False)
    shared.fails({"a0_0-c0_1": "down"})
    src, dst = shared.tree.host("h0_0_2"), shared.tree.host("h2_0_2")
    assert shared.walk("h0_0_2", packet(shared, src, dst, (0, 1))) == ["e0_0", "a0_0", "c0_0", "a2_0", "e2_0", "h2_0_2"]
    shared.set_link("a0_0-c0_1", True)
    shared.fails({})


def test_after_an_estimator_that_is_killed_another_one_hands_out_lists_anew(shared: Fabric) -> None:
    """What it concludes from probes is in `tests/unit/health`, and with packets in `tests/lab/test_probes.py`."""
    lists: dict[object, int] = {}

    def listed(its: Agent, message: dict[str, Any]) -> None:
        lists[its.address] = message["number"]

    def running() -> bool:
        return shared.controller.get("/health").json()["running"]

    probing = "probes=1", {"probes": listed}
    with agent(shared, "10.0.0.2", *probing) as one, agent(shared, "10.2.0.2", *probing) as other:
        assert one.follow() == other.follow()
        eventually(lambda: len(lists) == 2 and running())
        said, former = shared.controller.log.read_text(), max(lists.values())
        os.kill(int(said.rpartition("runs as process ")[2].split()[0]), signal.SIGKILL)
        eventually(lambda: min(lists.values()) > former and running())


def test_a_port_that_is_taken_is_said_clearly(shared: Fabric) -> None:
    command = shared.controller.command
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "already in use (another controller?)" in done.stderr
    (rest,) = (word for word in command if word.startswith("--wsapi-port="))
    other = [word for word in command if not word.startswith("--ofp")] + [f"--ofp-tcp-listen-port={free_ports(1)[0]}"]
    done = subprocess.run(other, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"port {rest.partition('=')[2]} on 127.0.0.1 is already in use" in done.stderr


def test_a_controller_that_was_stopped_and_continued_withdraws_nothing(shared: Fabric) -> None:
    before = shared.controller.fabric()
    eventually(shared.dummy.connected, 20)
    probe = {"op": "update", "table": "Controller", "where": [], "row": {"inactivity_probe": 5000}}
    shared.ovs.transact([probe])  # the switches close their channels meanwhile
    with standing_still(shared.controller.pid):
        eventually(shared.dummy.connected, 0)
    eventually(lambda: shared.controller.log.read_text(), Containing("this controller stood still for "))
    eventually(lambda: shared.controller.fabric()["management"]["fault"], False)
    eventually(lambda: shared.controller.fabric()["connected"], 20)
    after = shared.controller.fabric()
    assert after["version"] == before["version"]
    assert after["management"]["pauses_faults"] > before["management"]["pauses_faults"]
    probe["row"] = {"inactivity_probe": 0}
    shared.ovs.transact([probe])
