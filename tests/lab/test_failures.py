"""Failures under traffic: their losses, the agents that receive them, and that the end of a controller costs nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from tests.helpers.sopa_lab import agent_of, datagrams, hits, in_lab, lost
from tests.helpers.waiting import Containing, eventually
from topologies.lab.faults import set_silent

pytestmark = pytest.mark.lab

QUICK = ["--sopa-hold-down=0.1", "--sopa-hold-down-max=0.1"]


def carried(lab: SopaLab, core: str) -> int:
    """Return how many packets of hosts a core switch has sent down; BFD's and probes are not among them."""
    return hits(lab, core, r"table=1,.*priority=40")


@pytest.mark.parametrize("agents", [True, False], ids=["labelled", "unlabelled"])
def test_a_controller_restart_during_a_failure_costs_no_packet(agents: bool) -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")
        lab.lab.set_link("a2_0-c0_1", up=False)
        lab.lab.set_link("e0_0-a0_1", up=False)
        eventually(lambda: len(lab.controller.fabric()["failures"]), 2)
        eventually(
            lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"], lambda value: value is not None
        )
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
        with UdpStream(lab.lab, src, dst, per_second=500) as stream:
            eventually(lambda: len(stream.arrived), lambda value: value > SENT)
            lab.controller.stop(signal.SIGKILL)
            enough = len(stream.sent_at) + SENT
            eventually(lambda: len(stream.sent_at), lambda value: value > enough)
            lab.controller.start()
            lab.controller.wait_connected(lab.tree.switch_count)
            if agents:
                lab.controller.wait_agents(lab.tree.host_count)
            last = len(stream.sent_at) + SENT
            eventually(lambda: len(stream.sent_at), lambda value: value > last)
        assert len(lab.controller.fabric()["failures"]) == 2
        assert stream.lost() == []

    in_lab(body, agents=agents, controller_options=QUICK)


SENT = 300
"""Datagrams before a cut, and after all know of it: so many that every path has had some."""


def cut_under_traffic(lab: SopaLab, link: str) -> list[float] | None:
    """Return the losses after the last acknowledgement; None if BFD lost other links, too, because this machine stood still."""
    before = lab.controller.fabric()["version"]
    with UdpStream(lab.lab, lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")) as stream:
        eventually(lambda: len(stream.arrived), lambda value: value > SENT)
        lab.lab.set_link(link, up=False)
        eventually(lambda: lab.controller.fabric()["failures"])
        eventually(
            lambda: lab.controller.get("/changes").json()["changes"][0]["acknowledged_ms"],
            lambda value: value is not None,
        )
        change = lab.controller.get("/changes").json()["changes"][0]
        told = change["at"] + change["acknowledged_ms"] / 1000
        enough = len(stream.sent_at) + SENT
        eventually(lambda: len(stream.sent_at), lambda value: value > enough)
        end = time.time()
    since = [one for one in lab.controller.get("/changes").json()["changes"] if one["version"] > before]
    alone = {name for one in since for name in (*one["failed"], *one["healed"])} == {link}
    lab.lab.set_link(link, up=True)
    eventually(lambda: lab.controller.fabric()["failures"], [])
    return stream.lost(first=told, last=end) if alone else None


def test_no_packet_is_lost_to_a_cut_link_after_the_last_acknowledgement() -> None:
    def body(lab: SopaLab) -> None:
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
        for link in ("e0_0-a0_0", "a0_1-c1_0", "a2_0-c0_1", "e2_0-a2_1"):
            trials = (cut_under_traffic(lab, link) for _ in range(4))
            assert next((its for its in trials if its is not None), "no trial of one link alone") == []

    in_lab(body, controller_options=QUICK)


def test_a_host_whose_agent_was_killed_survives_a_failure() -> None:
    def body(lab: SopaLab) -> None:
        host = lab.tree.host("h0_0_2")
        agent = agent_of(lab, host)
        agent.start()
        lab.controller.wait_agents(1)
        agent.stop(signal.SIGKILL)
        lab.lab.set_link("a2_0-c0_1", up=False)
        eventually(lambda: lab.controller.fabric()["failures"])
        eventually(
            lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"], lambda value: value is not None
        )
        # it still names the dead path, and a switch that knows better takes another
        assert (0, 1) in datagrams(lab, "h0_0_2", "h2_0_2", 8, 7001)
        assert lost(lab, "h0_0_2", "h2_0_2", 12) == 0

    in_lab(body, agents=False)


def test_packets_to_a_rack_without_any_path_go_unlabelled() -> None:
    def body(lab: SopaLab) -> None:
        assert lab.agent is not None
        for link in ("e2_0-a2_0", "e2_0-a2_1"):
            lab.lab.set_link(link, up=False)
        lab.agent.wait_until(
            lambda: "no path is left to 1 racks; packets for them go unlabelled" in lab.agent.log.read_text(),
            "it said so",
        )
        lab.controller.wait_agents(lab.tree.host_count)  # one of them has said so
        assert set(datagrams(lab, "h0_0_2", "h2_0_2", 4, 7001)) == {None}
        assert None not in datagrams(lab, "h0_0_2", "h2_1_2", 4, 7001)
        for link in ("e2_0-a2_0", "e2_0-a2_1"):
            lab.lab.set_link(link, up=True)
        eventually(lambda: lab.controller.fabric()["failures"], [])
        lab.controller.wait_agents(lab.tree.host_count)
        assert "there are paths to every rack again" in lab.agent.log.read_text()
        assert None not in datagrams(lab, "h0_0_2", "h2_0_2", 4, 7001)

    in_lab(body, controller_options=QUICK)


def test_a_drained_switch_carries_nothing_and_cuts_nobody_off() -> None:
    def body(lab: SopaLab) -> None:
        for name in ("c0_0", "e2_0"):
            lab.controller.change("PUT", f"/drains/{name}").raise_for_status()
        eventually(
            lambda: lab.controller.get("/changes").json()["changes"][0]["acknowledged_ms"],
            lambda value: value is not None,
        )
        eventually(
            lambda: lab.controller.get("/changes").json()["changes"][0]["installed_ms"], lambda value: value is not None
        )
        before = carried(lab, "c0_0")
        assert lost(lab, "h0_0_2", "h1_0_2", 12) == 0
        assert carried(lab, "c0_0") == before
        assert lost(lab, "h0_0_2", "h2_0_2", 4) == 0  # its only edge switch is drained
        for name in ("c0_0", "e2_0"):
            lab.controller.change("DELETE", f"/drains/{name}").raise_for_status()
        assert lab.controller.fabric()["failures"] == []

    in_lab(body)


def test_enabling_bfd_never_takes_a_switchs_last_uplink() -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
        with UdpStream(lab.lab, src, dst) as stream:
            eventually(
                lambda: lab.controller.fabric()["bfd"]["detail"],
                Containing("on at 64 of 64 ends"),
                seconds=150,
            )
            eventually(lambda: lab.controller.fabric()["failures"], [])
        assert lab.controller.fabric()["bfd"]["enabled"] is True
        assert len(lab.lab.bfd_up()) == 64
        # fast failover and the agents go around each link in turn
        assert len(stream.lost()) < 0.02 * len(stream.sent_at)
        set_silent(lab.lab, "a0_0-c0_1", "c0_1", True)
        eventually(lambda: dict(name_and_reason(lab)), {"a0_0-c0_1": "silent"})
        set_silent(lab.lab, "a0_0-c0_1", "c0_1", False)
        eventually(lambda: lab.controller.fabric()["failures"], [])

    in_lab(body, bfd=False, controller_options=QUICK)


def name_and_reason(lab: SopaLab) -> list[tuple[str, str]]:
    return [(failure["name"], failure["reason"]) for failure in lab.controller.fabric()["failures"]]


def test_without_ovsdb_the_controller_says_that_silent_loss_is_not_found(tmp_path: Path) -> None:
    openflow, rest = free_ports(2)
    with ControllerProcess(4, tmp_path / "controller.log", openflow, rest) as controller:
        assert controller.fabric()["bfd"]["enabled"] is False
        assert "--sopa-ovsdb" in controller.fabric()["bfd"]["detail"]
        assert "BFD is off: silent and one-way loss is not found" in controller.log_tail()
