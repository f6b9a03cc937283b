"""What the reaction does with fates and with what the program has seen: tables, streams to probe, log lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.follower import LOAD_RETRY_SECONDS, Follower, Load
from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.own_traffic import SentAgain
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section
from sopa_ryu.agent.paths.path_table import Label, Policy
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import Change
from sopa_ryu.agent.reaction import BUSY_SECONDS, LOG_LINES, Reaction
from sopa_ryu.channel import protocol
from sopa_ryu.channel.probes import MAX_STREAMS, Stream
from sopa_ryu.fabric.view import View
from tests.models.virtual_clock import VirtualLoop
from topologies import Clos, Failures, FatTree

ADDRESS, FAR = IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3")
UPS = [(0, 0), (1, 0), (0, 1), (1, 1)]


class Host:
    """What the reaction works with, in memory."""

    def __init__(self) -> None:
        self.tables: list[Avoided] = []
        self.refusals = self.drops = 0
        self.again: list[SentAgain] = []
        self.racks: list[tuple[int, int]] = []
        self.packets: dict[Label, int] = dict.fromkeys(UPS, 0)
        self.broken = False
        self.numbers = [3]

    async def avoid(self, avoided: Avoided) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.tables.append(avoided)
        return True

    def sent_again(self) -> list[SentAgain]:
        if self.broken:
            raise BpfMapError("cannot read a ring buffer: Input/output error")
        found, self.again = self.again, []
        return found

    def busy(self) -> list[tuple[int, int]]:
        return self.racks

    def by_path(self, tree: Clos) -> dict[Label, int]:
        return dict(self.packets)

    def answering(self, pod: int, edge: int) -> tuple[IPv4Address, ...]:
        return tuple(IPv4Address(f"10.{pod}.{edge}.{number}") for number in self.numbers)

    def dropped(self) -> int:
        return self.drops


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    tasks = asyncio.all_tasks(made)
    for task in tasks:
        task.cancel()
    if tasks:
        made.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    made.close()


def follower(k: int = 4, policy: Policy = Policy.ROUND_ROBIN) -> Follower:
    made = Follower(ADDRESS, ("http://192.0.2.1:8080",), policy=policy)
    made.start(inherited=False)
    todo = made.receive(protocol.snapshot(View(7, 3, Failures(FatTree(k))), ADDRESS))
    assert isinstance(todo, Load)
    made.loaded(todo)
    return made


def reaction(host: Host, its: Follower, keep: bool = False) -> Reaction:
    return Reaction(its, host, host, host, host, host.dropped, keep=keep)


def probe(its: Reaction, loop: VirtualLoop, seconds: float, bad: tuple[tuple[int, int], ...] = ()) -> None:
    """Probe all four paths to a rack, 200 times a second in all."""
    for n in range(round(seconds * 200)):
        up = UPS[n % 4]
        its.decided(Fate(Stream(FAR, *up), up not in bad), loop.time())
        loop.advance(0.005)


def test_a_dead_path_is_out_of_the_table_before_the_next_look_and_in_it_again_when_probes_come_through(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    its = reaction(host, follower())
    loop.create_task(its.run())
    probe(its, loop, 1.0)
    assert host.tables == []
    with caplog.at_level(logging.INFO, logger="sopa.agent"):
        probe(its, loop, 0.2, bad=((0, 1),))
        assert host.tables == [Avoided(frozenset({Section(0, 1, 2, 1)}))]
        probe(its, loop, 4.0)
    assert host.tables[1:] == [NOTHING]
    assert its.left == {"row": 1}
    assert its.returned == 1
    left, taken = caplog.messages
    assert left.startswith("h0_0_2: leaves path (0, 1) to rack e2_1: 3 probes in a row lost; left for 2 s at least")
    assert taken.startswith("h0_0_2: takes path (0, 1) to rack e2_1 again: ")


def test_paths_are_kept_if_the_operator_wants_so_and_the_log_says_what_would_be_left(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    its = reaction(host, follower(), keep=True)
    loop.create_task(its.run())
    probe(its, loop, 1.0, bad=((0, 0), (0, 1)))
    assert host.tables == []
    assert "h0_0_2: would leave the paths over link e0_0-a0_0" in caplog.messages[0]


def test_a_table_that_the_kernel_refuses_is_tried_again(loop: VirtualLoop) -> None:
    host = Host()
    its = reaction(host, follower())
    loop.create_task(its.run())
    host.refusals = 1
    probe(its, loop, 0.5, bad=((0, 1),))
    assert (host.tables, host.refusals) == ([], 0)
    probe(its, loop, LOAD_RETRY_SECONDS, bad=((0, 1),))
    assert host.tables == [Avoided(frozenset({Section(0, 1, 2, 1)}))]


@pytest.mark.parametrize(("policy", "leaves"), [(Policy.ROUND_ROBIN, True), (Policy.HASH, False)])
def test_retransmissions_leave_a_path_with_policies_that_choose_for_each_packet(
    loop: VirtualLoop, policy: Policy, leaves: bool
) -> None:
    host = Host()
    its = reaction(host, follower(policy=policy))
    loop.create_task(its.run())
    host.racks = [(2, 1)]
    for _ in range(60):
        for up in UPS:
            host.packets[up] += 25
        host.again = [SentAgain((2, 1), (0, 1))] * 2
        loop.advance(0.05)
    assert its.retransmissions == 120
    assert bool(host.tables) is leaves


def test_retransmissions_of_a_host_that_drops_packets_itself_leave_none(loop: VirtualLoop) -> None:
    host = Host()
    its = reaction(host, follower())
    loop.create_task(its.run())
    host.racks = [(2, 1)]
    for _ in range(200):
        for up in UPS:
            host.packets[up] += 25
        host.again = [SentAgain((2, 1), (0, 1))] * 2
        host.drops += 1
        loop.advance(0.05)
    assert host.tables == []


def test_racks_that_packets_go_to_are_probed_on_all_their_paths_until_they_are_idle(loop: VirtualLoop) -> None:
    host = Host()
    its = reaction(host, follower())
    host.racks = [(2, 1), (0, 1)]
    its.look(10.0)
    assert its.busy(10.0) == [
        *(Stream(IPv4Address("10.0.1.3"), up1) for up1 in range(2)),
        *(Stream(IPv4Address("10.2.1.3"), *up) for up in UPS),
    ]
    host.racks = []
    its.look(10.5)
    assert len(its.busy(10.5)) == 6
    assert its.busy(10.0 + BUSY_SECONDS + 0.1) == []


def test_a_used_rack_is_probed_by_a_host_that_answers(loop: VirtualLoop) -> None:
    host = Host()
    host.racks, host.numbers = [(2, 1)], [2, 3]
    its = reaction(host, follower())
    loop.create_task(its.run())
    living, asked = IPv4Address("10.2.1.3"), []
    loop.advance(0.1)
    for _ in range(400):
        loop.advance(0.01)
        partner = its.busy(loop.time())[0].destination
        asked.append(partner)
        its.decided(Fate(Stream(partner, 0, 0), partner == living), loop.time())
    assert set(asked[-200:]) == {living}
    host.numbers = [2]
    loop.advance(0.3)
    assert its.busy(loop.time())[0].destination == IPv4Address("10.2.1.2")


def test_more_paths_than_there_is_room_for_are_probed_by_turns() -> None:
    host = Host()
    its = reaction(host, follower(k=48))
    host.racks = [(40, 1)]
    its.look(0.0)
    seen = set()
    for second in range(10):
        its.look(float(second))
        streams = its.busy(float(second))
        assert len(streams) == MAX_STREAMS
        seen.update(streams)
    assert len(seen) == 576


def test_what_is_avoided_is_probed_though_nothing_is_sent_there(loop: VirtualLoop) -> None:
    host = Host()
    its = reaction(host, follower())
    loop.create_task(its.run())
    probe(its, loop, 0.5, bad=((0, 1),))
    assert its.busy(loop.time()) == [Stream(FAR, 0, 1)]


def test_many_changes_are_a_few_log_lines(loop: VirtualLoop, caplog: pytest.LogCaptureFixture) -> None:
    its = reaction(Host(), follower())
    its.look(0.0)
    for n in range(60):
        its._health.changes.append(Change(Section(n % 2, 0), True, "row", "3 probes in a row lost"))
        its.look(0.1 * n)
    assert len(caplog.messages) == LOG_LINES
    its._health.changes.append(Change(Section(0), True, "row", "3 probes in a row lost"))
    its.look(30.0)
    assert "(54 such lines left out before)" in caplog.messages[-1]


def test_a_program_that_cannot_be_read_leaves_the_judgement_to_probes(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    its = reaction(host, follower())
    loop.create_task(its.run())
    host.broken = True
    probe(its, loop, 1.0, bad=((0, 1),))
    assert host.tables == [Avoided(frozenset({Section(0, 1, 2, 1)}))]
    assert sum("cannot be watched" in line for line in caplog.messages) == 1


def test_another_fabric_begins_with_nothing_avoided(loop: VirtualLoop) -> None:
    host, its_follower = Host(), follower()
    its = reaction(host, its_follower)
    loop.create_task(its.run())
    probe(its, loop, 0.5, bad=((0, 1),))
    todo = its_follower.receive(protocol.snapshot(View(8, 1, Failures(FatTree(6))), ADDRESS))
    assert isinstance(todo, Load)
    its_follower.loaded(todo)
    loop.advance(0.2)
    assert host.tables[-1] == NOTHING
