"""Probes on the push channel of a real controller over real WebSockets: lists out, reports in, a bad link named.

The agents are stand-ins that draw from a seed what their probes have lost.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from sopa_ryu.channel import protocol
from sopa_ryu.channel.probes import Assignment, Counts, Report, Stream, read_assignment, report_text
from tests.helpers.fabrics import Fabric, running
from tests.helpers.relay import Agent, agent
from tests.helpers.waiting import eventually
from topologies import Host

pytestmark = pytest.mark.switch


class Hosts:
    """Agents of all hosts, which report every second.

    ``losing`` is the share that each directed link loses: ``a0_0-c0_1`` upwards, ``c0_1-a0_0`` downwards.
    """

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self.tree = fabric.tree
        self.losing: dict[str, float] = {}
        self.lists: dict[Host, Assignment] = {}
        self._random = random.Random(seed)

    def report(self, host: Host) -> str:
        number, streams = self.lists[host].number, self.lists[host].streams
        counts = tuple(self._counts(host, stream, 2 * streams.count(stream)) for stream in dict.fromkeys(streams))
        return report_text(Report(number, counts))

    def _counts(self, host: Host, stream: Stream, probes: int) -> Counts:
        hops = tuple(hop for hop in stream[1:] if hop != 255)
        switches = [self.tree.name(one) for one in self.tree.hops(host, self.tree.host_by_ip(stream.destination), hops)]
        lost = [0, 0]
        for _ in range(probes):
            for way, names in enumerate((switches, switches[::-1])):
                shares = [self.losing.get(f"{a}-{b}", 0.0) for a, b in itertools.pairwise(names)]
                if any(self._random.random() < share for share in shares):
                    lost[way] += 1
                    break
        return Counts(stream, probes, *lost, 0, 40, 50 if sum(lost) < probes else 0)


def follow(its: Agent, message: dict[str, Any]) -> None:
    its.view = protocol.receive(json.dumps(message), its.view, its.address)
    its.acknowledge()


@contextmanager
def hosts(fabric: Fabric, seed: int = 1) -> Iterator[Hosts]:
    """Have agents of all hosts connected, each of which has a list."""
    its, ended = Hosts(fabric, seed), Event()
    token = fabric.controller.agent_token_file.read_text().strip()
    channels: dict[Host, Agent] = {}

    def listed(host: Host, channel: Agent, message: dict[str, Any]) -> None:
        its.lists[host] = read_assignment(message) or its.lists[host]
        channel.acknowledge()

    def work() -> None:
        while not ended.wait(1.0):  # how often agents report
            for host in list(its.lists):
                channels[host].channel.send(its.report(host))

    with ExitStack() as stack:
        for host in its.tree.hosts():
            answers = {"snapshot": follow, "delta": follow, "probes": lambda *its, host=host: listed(host, *its)}
            opened = agent(fabric.controller.url, str(its.tree.ip(host)), token, "probes=1", answers)
            channels[host] = stack.enter_context(opened)
        reporting = Thread(target=work)
        reporting.start()
        stack.callback(reporting.join)
        stack.callback(ended.set)
        eventually(lambda: len(its.lists) == its.tree.host_count and all(its.lists[host].streams for host in its.lists))
        yield its


def health(fabric: Fabric, **query: str) -> dict[str, Any]:
    return fabric.controller.get("/health", **query).json()


def suspects(fabric: Fabric) -> list[str]:
    return [link["name"] for link in health(fabric, suspects="1")["links"]]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(4, tmp_path_factory.mktemp("fabric")) as its:
        yield its


def test_a_link_that_loses_packets_is_named_and_no_other_also_by_the_next_estimator(fabric: Fabric) -> None:
    with hosts(fabric) as its:
        eventually(lambda: health(fabric)["running"], True)
        assert suspects(fabric) == []
        its.losing = {"c0_1-a2_0": 0.05}
        eventually(lambda: suspects(fabric), ["a2_0-c0_1"], seconds=120)
        link = health(fabric, suspects="1")["links"][0]
        assert link["confidence"] > 0.95
        assert link["hosts"] >= 3
        assert link["loss"]["down"] == pytest.approx(0.05, rel=0.9)
        assert link["loss"]["up"] < 0.005
        assert link["action"] is None
        log = fabric.controller.log.read_text()
        assert "link a2_0-c0_1 loses" in log
        assert "downwards" in log
        assert "--sopa-suspect warn" in log
        os.kill(int(log.rpartition("runs as process ")[2].split()[0]), signal.SIGKILL)
        eventually(lambda: fabric.controller.log.read_text().count("runs as process "), 2, seconds=120)
        fabric.controller.change("PUT", "/drains/c1_1").raise_for_status()
        eventually(lambda: fabric.controller.get("/agents").json()["behind"], 0)
        its.losing = {"a1_1-c1_0": 0.1}
        eventually(lambda: suspects(fabric), ["a1_1-c1_0"], seconds=120)
