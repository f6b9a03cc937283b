"""The controller against real Open vSwitch: a killed part, ports that are taken, a standstill.

A restart is in `tests/lab/test_sopa.py` and `tests/faults`. Other masters and second connections are in `tests/unit/fabric`, with
switches that `test_memory_switch.py` compares with Open vSwitch.
"""

import os
import signal
import subprocess
from typing import Any

import pytest

from experiments.emulation.processes import free_ports
from tests.helpers.fabrics import Fabric
from tests.helpers.memory import front_of
from tests.helpers.relay import Agent
from tests.helpers.waiting import Containing, eventually
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.switch


def test_after_an_estimator_that_is_killed_another_one_hands_out_lists_anew(shared: Fabric) -> None:
    """What it concludes from probes is in `tests/unit/health`, and with packets in `tests/lab/test_probes.py`."""
    lists: dict[object, int] = {}

    def listed(its: Agent, message: dict[str, Any]) -> None:
        lists[its.address] = message["number"]

    def running() -> bool:
        return shared.controller.get("/health").json()["running"]

    probing = "probes=1", {"probes": listed}
    with shared.agent("10.0.0.2", *probing) as one, shared.agent("10.2.0.2", *probing) as other:
        assert one.follow() == other.follow()
        eventually(lambda: len(lists) == 2 and running())
        said, former = shared.controller.log.read_text(), max(lists.values())
        os.kill(int(said.rpartition("losses runs as process ")[2].split()[0]), signal.SIGKILL)
        eventually(lambda: min(lists.values()) > former and running())


@pytest.mark.parametrize(("end", "why"), [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGSTOP, "not answered for 10 s")])
def test_without_a_front_failures_are_handled_and_another_one_serves_agents_with_them(
    shared: Fabric, end: signal.Signals, why: str
) -> None:
    known = shared.controller.fabric()["version"]
    before, log = front_of(shared.controller.pid), len(shared.controller.log.read_text())
    with shared.agent() as its:
        its.follow()
        os.kill(before, end)
        shared.set_link("a0_0-c0_0", False)
        eventually(lambda: why in shared.controller.log.read_text()[log:])
    eventually(lambda: "front runs as process " in shared.controller.log.read_text()[log:])
    shared.fails({"a0_0-c0_0": "down"})
    with shared.agent() as its:
        its.follow()
        assert its.view.failures == {"a0_0-c0_0": "down"}
        eventually(lambda: shared.controller.get("/agents").json()["behind"] == 0)
        assert shared.controller.get("/agents").json()["total"] == 1
    shared.set_link("a0_0-c0_0", True)
    shared.fails({})
    said = shared.controller.log.read_text()[log:]
    assert said.index("front ended: ") < said.index("front runs as process ")
    assert shared.controller.fabric()["version"] > known


def test_the_front_of_a_controller_that_stands_still_answers_nobody(shared: Fabric) -> None:
    """Or agents would stay with it in place of finding the next leader."""
    with shared.agent() as its:
        its.follow()
        with standing_still(shared.controller.pid):
            eventually(lambda: not its.channel.ping().wait(0.5))
        assert its.channel.ping().wait(60)
        assert shared.controller.get("/agents").json()["total"] == 1


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
