"""Probes on the push channel of a real controller over real WebSockets: lists out, reports in, a bad link named.

The agents are stand-ins that draw from a seed what their probes have lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from threading import Thread
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from sopa_ryu.channel import protocol
from sopa_ryu.channel.probes import Counts, Report, Stream, read_assignment, report_text
from sopa_ryu.fabric.view import View
from tests.helpers.fabrics import Fabric, running
from tests.helpers.waiting import eventually
from topologies import Host

pytestmark = pytest.mark.switch


class Hosts:
    """Agents of all hosts, in a thread of their own."""

    def __init__(self, fabric: Fabric, seed: int) -> None:
        self.fabric, self.tree = fabric, fabric.tree
        self.losing: dict[str, float] = {}
        self.slow: dict[str, int] = {}
        self.lists: dict[Host, tuple[Stream, ...]] = {}
        self.numbers: dict[Host, int] = {}
        self.forge: str | None = None
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(timeout=60)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._all())
        finally:
            self._loop.close()

    async def _all(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(self._agent(host) for host in self.tree.hosts()), return_exceptions=True)

    async def _agent(self, host: Host) -> None:
        address = self.tree.ip(host)
        url = f"{self.fabric.controller.url.replace('http', 'ws')}/sopa/v1/agents/{address}?probes=1"
        token = {"Authorization": f"Bearer {self.fabric.controller.agent_token_file.read_text().strip()}"}
        async with connect(url, additional_headers=token, proxy=None, ping_interval=None) as channel:
            await self._attend(host, address, channel)

    async def _attend(self, host: Host, address: IPv4Address, channel: ClientConnection) -> None:
        view: View | None = None
        reporting = None
        async for text in channel:
            assignment = read_assignment(json.loads(text))
            if assignment is not None:
                self.numbers[host], self.lists[host] = assignment.number, assignment.streams
                if reporting is None:
                    reporting = asyncio.create_task(self._report(host, channel))
            else:
                view = protocol.receive(text, view, address)
            await channel.send(protocol.ack(view, 0))

    async def _report(self, host: Host, channel: ClientConnection) -> None:
        while True:
            await asyncio.sleep(1.0)
            counts = tuple(self._counts(host, stream) for stream in dict.fromkeys(self.lists[host]))
            report = Report(self.numbers[host], counts)
            if host == Host(0, 0, 2) and self.forge is not None:
                report = self._forged(report)
            await channel.send(report_text(report))

    def _forged(self, report: Report) -> Report:
        match self.forge:
            case "list":
                return report._replace(number=report.number + 1)
            case "rack":
                return Report(report.number, (Counts(Stream(IPv4Address("10.9.0.2"), 0, 0), 2),))
            case "flood":
                return Report(report.number, tuple(one._replace(probes=60_000) for one in report.counts))
        raise AssertionError(self.forge)

    def _counts(self, host: Host, stream: Stream) -> Counts:
        probes = 2 * self.lists[host].count(stream)
        hops = [hop for hop in stream[1:] if hop != 255]
        switches = [
            self.tree.name(one) for one in self.tree.hops(host, self.tree.host_by_ip(stream.destination), tuple(hops))
        ]
        lost = [0, 0]
        for _ in range(probes):
            for way, names in enumerate((switches, switches[::-1])):
                shares = [self.losing.get(f"{a}-{b}", 0.0) for a, b in itertools.pairwise(names)]
                if any(self._random.random() < share for share in shares):
                    lost[way] += 1
                    break
        ends = itertools.pairwise(switches)
        more = sum(self.slow.get(f"{a}-{b}", 0) + self.slow.get(f"{b}-{a}", 0) for a, b in ends)
        return Counts(stream, probes, *lost, 0, 40 + more, 50 + more if sum(lost) < probes else 0)


@contextmanager
def hosts(fabric: Fabric, seed: int = 1) -> Iterator[Hosts]:
    its = Hosts(fabric, seed)
    its.start()
    try:
        yield its
    finally:
        its.stop()


def health(fabric: Fabric, **query: str) -> dict[str, Any]:
    body: dict[str, Any] = fabric.controller.get("/health", **query).json()
    return body


def suspects(fabric: Fabric) -> list[str]:
    return [link["name"] for link in health(fabric, suspects="1")["links"]]


def everyone_has_a_list(its: Hosts) -> bool:
    return len(its.lists) == its.tree.host_count and all(its.lists.values())


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(4, tmp_path_factory.mktemp("fabric")) as its:
        yield its


def test_lists_follow_failures_and_forged_reports_are_refused_and_counted(fabric: Fabric) -> None:
    def probed() -> set[tuple[int, ...]]:
        return {stream[1:] for streams in its.lists.values() for stream in streams}

    def refused() -> int:
        agents = fabric.controller.get("/agents").json()["agents"]
        return next((int(each["refused"]) for each in agents if each["address"] == "10.0.0.2"), 0)

    with hosts(fabric) as its:
        eventually(lambda: everyone_has_a_list(its), True)
        fabric.controller.change("PUT", "/drains/c0_1").raise_for_status()
        eventually(lambda: (0, 1) in probed(), False)
        assert {(0, 0), (1, 0), (1, 1)} <= probed()
        fabric.controller.change("DELETE", "/drains/c0_1").raise_for_status()
        eventually(lambda: (0, 1) in probed(), True)
        for forge in ("list", "rack", "flood"):
            before = refused()
            its.forge = forge
            eventually(lambda before=before: refused() > before, True)
            its.forge = None
        assert suspects(fabric) == []


def test_a_link_that_loses_packets_is_named_and_no_other_also_by_the_next_estimator(fabric: Fabric) -> None:
    with hosts(fabric) as its:
        eventually(lambda: everyone_has_a_list(its), True)
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
