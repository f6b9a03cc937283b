"""An agent that probes: what the controller gives it, what it reports, and what it leaves behind."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.emulation.processes import free_ports
from sopa_ryu.agent.filters import PROBE_PRIORITY
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen
from sopa_ryu.channel.probes import Assignment, assignment_text
from tests.helpers.agent_controller import agent_controller
from tests.helpers.agent_host import AgentHost
from tests.helpers.frames import table
from tests.helpers.probe_frames import GATEWAY, HERE, PATHS, THERE, ends, probe
from tests.helpers.scrape import scrape
from tests.helpers.veth import ALL, Pair, arrives, raw_socket
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually

SILENT_SECONDS = 1.0
ASSIGNED = assignment_text(Assignment(7, 20.0, PATHS))


class Near(AgentHost):
    """The host that probes; ``far`` is the program at the other end of the pair, which answers."""

    far: ProbeProgram

    def answers(self, seconds: float = PATIENCE_SECONDS) -> bool:
        with raw_socket(self.pair.peer, "peer0", ALL) as wire:
            frame = probe(PATHS[0]._replace(destination=HERE), source=THERE)
            wire.send(GATEWAY + frame[6:])
            while arrives(wire, seconds):
                got, address = wire.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING and got[30:34] == THERE.packed and len(got) == len(frame):
                    return True
            return False


@pytest.fixture
def near(pair: Pair, tmp_path: Path) -> Iterator[Near]:
    with agent_controller() as controller, Labeller("peer0", netns=pair.peer, probes=ends(THERE)) as labeller:
        labeller.swap(table())
        labeller.attach()
        assert labeller.probes is not None
        made = Near(pair, controller, tmp_path)
        made.far = labeller.probes
        yield made


def test_an_agent_probes_what_it_is_given_and_reports_it(near: Near) -> None:
    [port] = free_ports(1)
    before = near.pair.on_host("tc qdisc show dev host0")
    with near.agent(f"--metrics-port={port}") as agent:
        near.acknowledge()
        assert "probes=1" in near.controller.asked[0]
        assert near.answers()
        near.controller.send(ASSIGNED)
        eventually(lambda: {one.stream for one in near.controller.reports}, set(PATHS))
        assert near.controller.refused == 0
        reported = sum(one.probes for one in near.controller.reports)  # before metrics: probes go on
        metrics = scrape(port)
        assert f'sopa_agent_probe_answers_total{{interface="host0@{near.pair.host}"}} 1.0' in metrics
        total = [line for line in metrics.splitlines() if line.startswith("sopa_agent_probes_total")]
        assert sum(float(line.split()[-1]) for line in total) >= reported
        near.pair.on_host(f"tc filter del dev host0 ingress prio {PROBE_PRIORITY}")
        eventually(near.said, Containing("the program that answers probes was removed from host0"))
        eventually(lambda: near.filters("ingress"), Containing("sopa_probe"))
        assert near.answers()
        assert near.controller.connections == 1
        assert "labelling program was removed" not in near.said()
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert near.far.seen()[Seen.ANSWERED] > 0
    assert near.pair.on_host("tc qdisc show dev host0") == before


def test_a_killed_agents_host_answers_until_its_successor_takes_over_and_ends(near: Near) -> None:
    before = near.pair.on_host("tc qdisc show dev host0")
    with near.agent() as agent:
        near.acknowledge()
        agent.stop(signal.SIGKILL)
    assert near.answers()
    with near.agent() as agent:
        near.controller.fail("a0_0-c0_0")  # the version in force is the successor's
        near.acknowledge()
        assert near.controller.connections == 2
        assert near.answers()
        assert near.filters("ingress").count("sopa_probe:[") == 1
        agent.stop(signal.SIGTERM)
    assert near.pair.on_host("tc qdisc show dev host0") == before
    assert not near.answers(SILENT_SECONDS)


def test_an_agent_without_probes_neither_asks_nor_answers(near: Near) -> None:
    with near.agent("--no-probes") as agent:
        near.acknowledge()
        assert "probes" not in near.controller.asked[0]
        assert "sopa_probe" not in near.filters("ingress")
        assert not near.answers(SILENT_SECONDS)
        near.controller.send(ASSIGNED)
        near.controller.fail("a0_0-c0_0")
        near.acknowledge()
        assert near.controller.refused == 0
        agent.stop(signal.SIGTERM)
    assert near.far.seen()[Seen.ANSWERED] == 0
