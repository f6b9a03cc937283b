"""Probes and answers between two hosts, as frames on a real wire, beside every program that labels, and an agent that probes."""

import asyncio
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from experiments.emulation.processes import free_ports
from flowrules.label import Carrier
from sopa_ryu.agent.host.filters import PROBE_PRIORITY
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.frames import Packet, read
from sopa_ryu.agent.probing.packet_socket import ProbeSocket
from sopa_ryu.agent.probing.prober import Prober, nothing_busy
from sopa_ryu.agent.probing.programs import ProbeProgram, Seen
from sopa_ryu.agent.probing.traces import TraceError
from sopa_ryu.agent.scatter.mcs import McsOptions
from sopa_ryu.channel.messages import Assignment, Stream, encode, unpacked
from tests.helpers.agent_controller import AgentHost, agent_controller
from tests.helpers.frames import table
from tests.helpers.probe_frames import GATEWAY, HERE, PATHS, THERE, ends, probe
from tests.helpers.scrape import scrape
from tests.helpers.veth import ALL, Pair, arrives, frames, raw_socket, transfer
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually

KINDS = {"mac": {}, "option": {"carrier": Carrier.OPTION}, "mcs": {"mcs": McsOptions()}, "cfr": {"cfr": True}}
ORDINARY = ("labelled", "forwarded", "unscattered", "stripped", "not_ipv4", "malformed")


class Hosts:
    """Two hosts with agents' programs, of which the first probes the second; a judge that remembers."""

    def __init__(self, prober: Prober, near: Labeller, far: Labeller) -> None:
        self.prober, self.near, self.far = prober, near, far
        self.fates: list[Fate] = []
        prober.judges.append(self)

    def decided(self, fate: Fate, now: float) -> None:
        self.fates.append(fate)

    def probe(self, wakes: int) -> None:
        """Let the prober wake so often, and then end all streams and decide about what is on its way."""
        self.wake(wakes)
        self.prober.follow(Assignment(2, 1000.0, ()))
        self.prober.busy = nothing_busy
        while self.prober.streams.is_undecided:
            self.wake(1)

    def wake(self, times: int) -> None:
        for _ in range(times):
            self.prober.wake()
            time.sleep(0.02)  # streams are due again

    def lost(self) -> list[Fate]:
        return [fate for fate in self.fates if not fate.came_back]


@contextmanager
def hosts(pair: Pair, directory: Path, kind: str = "mac", **far: Carrier) -> Iterator[Hosts]:
    """Both hosts, with a path table and the settings that labelling needs."""
    labellers = []
    with ExitStack() as stack:
        for ifname, netns, address, more in (("host0", pair.host, HERE, {}), ("peer0", pair.peer, THERE, far)):
            options = {**KINDS[kind], **more}
            carrier = options.get("carrier", Carrier.MAC)
            settings = stack.enter_context(
                HostSettings(ifname, state_dir=directory, netns=netns, overhead=carrier.overhead, changes=kind != "mcs")
            )
            its = {"fabric_mtu": settings.fabric_mtu, "cut_by": settings.cut_by, **options}
            made = stack.enter_context(Labeller(ifname, netns=netns, probes=ends(address, carrier, address.packed[3]), **its))
            made.swap(table()._replace(srv6=None))
            made.attach()
            labellers.append(made)
        socket = ProbeSocket("host0", pair.host)
        stack.callback(socket.close)
        near = labellers[0].probes
        assert near is not None
        yield Hosts(Prober(near.ends, near, socket), *labellers)


def of_probes(captured: list[bytes]) -> list[Packet]:
    return [packet for frame in captured if (packet := read(frame)) is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_probes_come_back_on_their_paths_and_no_labelling_program_touches_them(pair: Pair, tmp_path: Path, kind: str) -> None:
    with hosts(pair, tmp_path, kind) as both:
        before = [labeller.counters() for labeller in (both.near, both.far)]
        with raw_socket(pair.peer, "peer0", ALL) as out, raw_socket(pair.host, "host0", ALL) as back:
            both.prober.follow(Assignment(1, 20.0, PATHS))
            both.probe(12)
            probes, answers = of_probes(frames(out, 0.1)), of_probes(frames(back, 0.1))
        after = [labeller.counters() for labeller in (both.near, both.far)]
        report = both.prober.report()
        assert both.near.probes is not None
        assert both.far.probes is not None
        near, far = both.near.probes.seen(), both.far.probes.seen()
    count = len(probes)
    assert count >= 10
    assert [packet.carried for packet in probes] == [packet.label for packet in probes]
    assert [packet.carried for packet in answers] == [packet.label for packet in answers]
    assert Counter(packet.label for packet in probes) == Counter(packet.label for packet in answers)
    assert set(Counter(packet.label for packet in probes)) == {path[1:] for path in PATHS}
    assert near == {seen: count if seen is Seen.TAKEN else 0 for seen in Seen}
    assert far == {seen: count if seen is Seen.ANSWERED else 0 for seen in Seen}
    assert {fate.came_back for fate in both.fates} == {True}
    assert sum(one.probes for one in unpacked(report.streams)) == len(both.fates) == count
    assert all(0 < one.smallest_us <= one.mean_us for one in unpacked(report.streams))
    for name in ORDINARY:
        assert [counted[name] for counted in after] == [counted[name] for counted in before], name


def test_probes_of_one_carrier_are_answered_by_hosts_of_the_other_beside_bursts_that_are_cut(pair: Pair, tmp_path: Path) -> None:
    data = bytes(4_000_000)
    with hosts(pair, tmp_path, "mac", carrier=Carrier.OPTION) as both:
        both.prober.busy = lambda now: dict.fromkeys(PATHS, 1.0)
        assert both.prober.answering(2, 1) == ()
        both.prober.wake()
        assert transfer(pair, data) == data
        both.probe(6)
        assert both.near.counters()["cut"] > 0
        assert len(both.fates) >= 5
        assert all(fate.came_back for fate in both.fates)
        assert (both.prober.answering(2, 1), both.prober.answering(2, 0)) == ((THERE,), ())
        both.prober.follow(Assignment(3, 60_000.0, (Stream(IPv4Address("10.2.1.2"), 0, 0),)))
        assert both.prober.answering(2, 1) == (IPv4Address("10.2.1.2"), THERE)


@pytest.mark.parametrize(("way", "end"), [("out", "peer0"), ("back", "host0")])
def test_a_silent_direction_is_named(pair: Pair, tmp_path: Path, way: str, end: str) -> None:
    on_end = pair.on_peer if end == "peer0" else pair.on_host
    with hosts(pair, tmp_path) as both:
        labeller = both.far if way == "out" else both.near
        both.prober.follow(Assignment(1, 20.0, PATHS[:1]))
        both.wake(5)
        on_end(f"tc filter del dev {end} ingress prio {PROBE_PRIORITY}")  # what comes in there is lost
        eventually(lambda: both.wake(1) or len(both.lost()) >= 3)
        assert not labeller.answers_probes()
        labeller.attach_probes()
        assert labeller.answers_probes()
        both.prober.follow(Assignment(2, 20.0, PATHS[:1]))
        both.probe(5)
        [counts] = unpacked(both.prober.report().streams)
    assert {fate.lost_out for fate in both.lost()} <= {None, way == "out"}
    assert (counts.lost_out >= 3, counts.lost_back >= 3) == (way == "out", way == "back")
    assert counts.lost_out == 0 or counts.lost_back == 0


def test_a_trace_has_streams_of_its_own(pair: Pair, tmp_path: Path) -> None:
    async def traced(both: Hosts) -> None:
        running = asyncio.create_task(both.prober.run())
        both.prober.follow(Assignment(1, 20.0, PATHS[:1]))
        first = asyncio.create_task(both.prober.trace(PATHS, 3, 0.01))
        await asyncio.sleep(0)
        with pytest.raises(TraceError, match="tracing already"):
            await both.prober.trace(PATHS, 3, 0.01)
        found = await first
        while not all(one.came_back for one in found):  # this process stood still meanwhile
            found = await both.prober.trace(PATHS, 3, 0.01)
        assert [(one.stream, one.number) for one in found] == [(path, number) for number in range(3) for path in PATHS]
        assert all(one.delay_ns > 0 for one in found)
        pair.on_peer(f"tc filter del dev peer0 ingress prio {PROBE_PRIORITY}")
        lost = await both.prober.trace(PATHS[:2], 2, 0.01)
        assert [(one.came_back, one.lost_out, one.delay_ns) for one in lost] == [(False, None, 0)] * 4
        for paths, count, interval in ((PATHS, 0, 0.01), ((), 1, 0.01), (PATHS, 1, 0.0001), (PATHS, 10**6, 0.01)):
            with pytest.raises(TraceError):
                await both.prober.trace(paths, count, interval)
        pair.on_host("ip link set host0 down")
        with pytest.raises(TraceError, match="does not take probes"):
            await both.prober.trace(PATHS, 1, 0.01)
        assert len(both.prober.streams) == 1
        running.cancel()

    with hosts(pair, tmp_path) as both:
        asyncio.run(traced(both))
        assert {fate.stream for fate in both.fates} == {PATHS[0]}
        assert {one.stream for one in unpacked(both.prober.report().streams)} <= {PATHS[0]}


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
        near.controller.send(encode(Assignment(7, 20.0, PATHS)))
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
    assert not near.answers(1.0)


def test_an_agent_without_probes_neither_asks_nor_answers(near: Near) -> None:
    with near.agent("--no-probes") as agent:
        near.acknowledge()
        assert "probes" not in near.controller.asked[0]
        assert "sopa_probe" not in near.filters("ingress")
        assert not near.answers(1.0)
        near.controller.send(encode(Assignment(7, 20.0, PATHS)))
        near.controller.fail("a0_0-c0_0")
        near.acknowledge()
        assert near.controller.refused == 0
        agent.stop(signal.SIGTERM)
    assert near.far.seen()[Seen.ANSWERED] == 0
