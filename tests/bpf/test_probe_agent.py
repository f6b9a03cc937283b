"""An agent that probes: what the controller gives it, what it reports, and what it leaves behind."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from experiments.emulation.processes import AgentProcess, free_ports
from sopa_ryu.agent.filters import PROBE_PRIORITY
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen
from sopa_ryu.channel.probes import Assignment, assignment_text
from tests.helpers.agent_controller import AgentController, agent_controller
from tests.helpers.frames import table
from tests.helpers.probe_frames import GATEWAY, HERE, PATHS, THERE, ends, probe
from tests.helpers.veth import ALL, Pair, raw_socket
from tests.helpers.waiting import Containing, eventually

ANSWER_SECONDS = 2.0
ASSIGNED = assignment_text(Assignment(7, 20.0, PATHS))


class Far:
    """The host that is probed, and the agent that probes it."""

    def __init__(self, pair: Pair, controller: AgentController, directory: Path, program: ProbeProgram) -> None:
        self.pair, self.controller, self._directory, self.program = pair, controller, directory, program
        self.log = directory / "agent.log"
        self.log.touch()

    def agent(self, *options: str) -> AgentProcess:
        """An agent of the near host, which has not been started."""
        state = f"--state-dir={self._directory / 'state'}"
        return AgentProcess([f"host0@{self.pair.host}"], self.controller.url, self.log, [state, "--wait", *options])

    def at_work(self) -> None:
        """Wait until the version that there is now is in force."""
        eventually(lambda: self.controller.acknowledged, self.controller.view.version)

    def filters(self) -> str:
        return self.pair.on_host("tc filter show dev host0 ingress")

    def answers(self) -> bool:
        """Probe the near host; return whether it answers."""
        with raw_socket(self.pair.peer, "peer0", ALL) as wire:
            frame = probe(PATHS[0]._replace(destination=HERE), source=THERE)
            wire.send(GATEWAY + frame[6:])
            while select.select([wire], [], [], ANSWER_SECONDS)[0]:
                got, address = wire.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING and got[30:34] == THERE.packed and len(got) == len(frame):
                    return True
            return False


@pytest.fixture
def far(pair: Pair, tmp_path: Path) -> Iterator[Far]:
    with agent_controller() as controller, Labeller("peer0", netns=pair.peer, probes=ends(THERE)) as labeller:
        labeller.swap(table())
        labeller.attach()
        assert labeller.probes is not None
        yield Far(pair, controller, tmp_path, labeller.probes)


def test_an_agent_probes_what_it_is_given_and_reports_it(far: Far) -> None:
    [port] = free_ports(1)
    before = far.pair.on_host("tc qdisc show dev host0")
    with far.agent(f"--metrics-port={port}") as agent:
        far.at_work()
        assert "probes=1" in far.controller.asked[0]
        assert far.answers()
        far.controller.send(ASSIGNED)
        eventually(lambda: {one.stream for one in far.controller.reports}, set(PATHS))
        assert not any(one.lost_out or one.lost_back or one.lost for one in far.controller.reports)
        assert far.controller.refused == 0
        reported = sum(one.probes for one in far.controller.reports)  # before metrics: probes go on
        metrics = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert f'sopa_agent_probe_answers_total{{interface="host0@{far.pair.host}"}} 1.0' in metrics
        [back] = [
            line
            for line in metrics.splitlines()
            if line.startswith("sopa_agent_probes_total") and '"came_back"' in line
        ]
        assert float(back.split()[-1]) >= reported
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert far.program.seen()[Seen.ANSWERED] > 0
    assert far.pair.on_host("tc qdisc show dev host0") == before


def test_a_malformed_assignment_is_refused(far: Far) -> None:
    with far.agent() as agent:
        far.at_work()
        far.controller.send(ASSIGNED.replace("20.0", "0.1"))
        eventually(lambda: far.controller.refused, 1)
        eventually(
            far.log.read_text, Containing("message of the controller refused (1 so far): interval_ms is no number")
        )
        assert far.controller.reports == []
        agent.stop(signal.SIGTERM)


def test_a_killed_agents_host_answers_until_its_successor_takes_over_and_ends(far: Far) -> None:
    before = far.pair.on_host("tc qdisc show dev host0")
    with far.agent() as agent:
        far.at_work()
        agent.stop(signal.SIGKILL)
    assert far.answers()
    with far.agent() as agent:
        far.controller.fail("a0_0-c0_0")  # the version in force is the successor's
        far.at_work()
        assert far.controller.connections == 2
        assert far.answers()
        assert far.filters().count("sopa_probe:[") == 1
        agent.stop(signal.SIGTERM)
    assert far.pair.on_host("tc qdisc show dev host0") == before
    assert not far.answers()


def test_the_program_is_put_back_where_another_one_has_removed_it_and_labels_stay(far: Far) -> None:
    with far.agent() as agent:
        far.at_work()
        far.pair.on_host(f"tc filter del dev host0 ingress prio {PROBE_PRIORITY}")
        eventually(far.filters, Containing("sopa_probe"))
        eventually(far.log.read_text, Containing("the program that answers probes was removed from host0"))
        assert far.answers()
        assert far.controller.connections == 1
        assert "labelling program was removed" not in far.log.read_text()
        agent.stop(signal.SIGTERM)


def test_an_agent_without_probes_neither_asks_nor_answers(far: Far) -> None:
    with far.agent("--no-probes") as agent:
        far.at_work()
        assert "probes" not in far.controller.asked[0]
        assert "sopa_probe" not in far.filters()
        assert not far.answers()
        far.controller.send(ASSIGNED)
        version = far.controller.fail("a0_0-c0_0")
        eventually(lambda: far.controller.acknowledged, version)
        assert far.controller.refused == 0
        agent.stop(signal.SIGTERM)
    assert far.program.seen()[Seen.ANSWERED] == 0
