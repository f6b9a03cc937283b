"""The arbiter's decisions, with a virtual clock: what is granted to whom, what is rejected, and what heals."""

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv4Address
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.arbiter.allocation import Cell
from sopa_ryu.arbiter.budgets import Budgets, Capacities
from sopa_ryu.arbiter.schedule import AHEAD, DATAGRAMS_A_LEASE, SLOTS, HostLoad, RejectedError, Schedule, Timing
from sopa_ryu.channel.slots import Demand, Wanted
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, Failures, FatTree


class MemoryAllocator:
    """Implements `sopa_ryu.arbiter.schedule.Allocator`: a greedy matching of hosts, the largest demands first.

    It keeps the library's promises about hosts (``arbiter.h``), and knows nothing of links between switches.
    """

    def __init__(self, capacities: Capacities) -> None:
        self.capacities = capacities
        self.demands: dict[tuple[int, int], int] = {}  # cells left, by source and destination
        self.reserved: dict[int, tuple[int, int]] = {}  # of the next batch

    def follow(self, capacities: Capacities) -> None:
        self.capacities = capacities

    def demand(self, demands: Iterable[tuple[int, int, int]]) -> None:
        self.demands.update({(source, destination): cells for source, destination, cells in demands})

    def reserve(self, host: int, sending: int, receiving: int) -> None:
        self.reserved[host] = sending, receiving

    def batch(self) -> list[Cell]:
        out = []
        for slot in range(SLOTS):
            sending, receiving = ({host for host, used in self.reserved.items() if SLOTS - slot <= used[way]} for way in (0, 1))
            for (source, destination), left in sorted(self.demands.items(), key=lambda its: (-its[1], its[0])):
                up = self.capacities.host[source] and self.capacities.host[destination]
                if left and up and source not in sending and destination not in receiving:
                    sending.add(source)
                    receiving.add(destination)
                    self.demands[source, destination] -= 1
                    out.append(Cell(source, destination, slot, slot % 2, slot // 2 % 2))
        self.reserved.clear()
        return out

    def statistics(self) -> tuple[int, int, int]:
        return 0, 0, 0


TREE = FatTree(4)
HOSTS = [TREE.ip(host) for host in TREE.hosts()]
TIMING = Timing.of(3.2)
BATCH_NS = TIMING.batch_ns
CELL = 1520  # of 3.2 ms at 4 Mbit/s
START = 1_000_000 * BATCH_NS


def schedule(term: int = 1, timing: Timing = TIMING, tree: Clos = TREE) -> Schedule:
    its = Schedule(timing, MemoryAllocator, wall=lambda: 10**18)
    its.follow(Budgets(Failures(tree), 4.0, timing.slot_ns))
    if term:
        its.accept(term)
    return its


def demand(
    source: int, entries: dict[int, tuple[int, int]], sequence: int = 1, term: int = 0, run: int = 1, through: int = 0
) -> Demand:
    wanted = tuple(Wanted(HOSTS[index], *its) for index, its in entries.items())
    return Demand(HOSTS[source], sequence, term, run, 5, through, wanted)


class Arbiter:
    """An arbiter of a k=4 fat-tree whose hosts are numbered; bytes are said in cells, times and slots from the start in batches."""

    def __init__(self) -> None:
        self.its, self.now = schedule(), START
        self.counted: Counter[str] = Counter()

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command)(*step.words, **step.options) or ""
        counted = {name: count - self.counted[name] for name, count in self.its.counted.items()}
        self.counted = Counter(self.its.counted)
        others = [f"{name} {counted[name]}" for name in ("clock", "forgotten", "late", "reserved") if counted.get(name)]
        return "\n".join([said, *([f"counted: {', '.join(others)}"] if others else [])])

    def do_arbiter(self, term: str = "1") -> None:
        self.its, self.now, self.counted = schedule(int(term)), START, Counter()

    def do_accept(self, term: str) -> None:
        self.its.accept(int(term))

    def do_stop(self) -> None:
        self.its.stop()

    def do_follow(self, *down: str, k: str = "4") -> str:
        self.its.follow(Budgets(Failures(FatTree(int(k)), dict.fromkeys(down, "down")), 4.0, TIMING.slot_ns))
        return f"{self.its.participants} take part"

    def do_load(self, *loads: str) -> None:
        parts = [load.split(":") for load in loads]
        self.its.load({int(host): HostLoad(float(sends), float(receives)) for host, sends, receives in parts})

    def do_demand(self, source: str, *entries: str, through: str = "0", off: str = "", peer: str = "peer", **more: str) -> str:
        """Receive a demand, of entries such as 5:3.5, or 5:100-90 of which 90 cells are sent, in cells or bytes (1b)."""
        wanted = {}
        for entry in entries:
            to, _, cells = entry.partition(":")
            total, _, sent = cells.partition("-")
            wanted[int(to)] = self._bytes(total), self._bytes(sent or "0")
        slot = self.now // TIMING.slot_ns + int(off) if off else int(through) and START // TIMING.slot_ns + int(through)
        number = int(more.pop("number", "1"))
        its = demand(int(source), wanted, number, through=slot, **{name: int(value) for name, value in more.items()})
        try:
            said = self.its.receive(its, peer, self.now)
        except RejectedError as error:
            return f"rejected for {error.reason}"
        return f"its clock is off by {said} slots" if said else ""

    def do_turns(self, count: str = "1") -> str:
        """Let batches be granted, one after the other; say slots, destinations and cells of each."""
        said = []
        for _ in range(int(count)):
            for host, grant in self.its.turn(self.now):
                assert grant.first_slot % SLOTS == 0
                assert len({entry.slot for entry in grant.entries}) == len(grant.entries) <= SLOTS
                first = grant.first_slot // SLOTS - START // BATCH_NS
                slots: dict[int, list[int]] = {}
                for entry in grant.entries:
                    assert entry.budget == CELL
                    slots.setdefault(HOSTS.index(entry.destination), []).append(entry.slot - grant.first_slot)
                each = ", ".join(f"to {to}: {' '.join(map(str, its))}" for to, its in slots.items()) or "nothing"
                ahead = grant.first_slot * TIMING.slot_ns - self.now
                assert ahead >= 5_000_000
                said.append(f"to {host.index} at {host.peer} of term {grant.term}, batch {first}: {each}")
            self.now += BATCH_NS
        return "\n".join(said) or "nothing"

    def do_later(self, batches: str, leases: str = "0") -> None:
        self.now += round(float(batches) * BATCH_NS) + int(leases) * TIMING.lease_ns

    def do_participants(self) -> str:
        return str(self.its.participants)

    def _bytes(self, text: str) -> int:
        return int(text[:-1]) if text.endswith("b") else round(float(text) * CELL)


@each_script(__file__, "schedule")
def test_schedule(script: Script) -> None:
    script.play(Arbiter().handle)


def test_the_load_is_what_is_granted_of_all_hosts_slots_in_the_last_seconds() -> None:
    its = schedule()
    for turn in range(2000):
        sent = turn * SLOTS * CELL
        its.receive(demand(0, {5: (sent + 10**9, sent)}, turn + 1), None, START + turn * BATCH_NS)
        its.turn(START + turn * BATCH_NS)
    assert round(its.granted_share, 2) == round(1 / len(HOSTS), 2)
    for turn in range(2000, 4500):
        its.turn(START + turn * BATCH_NS)
    assert its.granted_share < 0.001


def test_a_host_without_grants_gets_its_share_of_datagrams_a_lease() -> None:
    its, sent = schedule(), []
    for turn in range(80):
        now = START + turn * BATCH_NS
        its.receive(demand(0, {}, turn + 1), None, now)
        sent += [now for _ in its.turn(now)]
    gaps = [after - before for before, after in pairwise(sent)]
    assert max(gaps) * DATAGRAMS_A_LEASE <= TIMING.lease_ns


def test_a_grant_says_which_demand_it_answers_and_what_a_claim_beyond_its_link_leads_to_is_bounded() -> None:
    its = schedule()
    its.receive(demand(0, dict.fromkeys(range(1, 16), (2**64 - 1, 0))), "peer", START)
    its.turn(START)
    ((_, grant),) = its.turn(START + BATCH_NS)
    assert (grant.host, grant.slot_ns, grant.slots) == (HOSTS[0], 3_200_000, SLOTS)
    assert (grant.demand_sent_at, grant.demand_received_at) == (5, START)
    assert max(its._allocator.demands.values()) <= 1_000_000_000 // TIMING.slot_ns


def test_an_address_outside_the_fabric_is_rejected() -> None:
    outside = IPv4Address("192.0.2.1")
    for wrong, reason in (({"host": outside}, "foreign"), ({"entries": (Wanted(outside, 1, 0),)}, "destination")):
        with pytest.raises(RejectedError) as rejected:
            schedule().receive(demand(0, {})._replace(**wrong), "other", START)
        assert rejected.value.reason == reason


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.6), st.floats(0, 0.6))
def test_whatever_is_lost_doubled_or_late_every_byte_is_granted_in_the_end(seed: int, lost: float, doubled: float) -> None:
    """Hosts that use each slot they hear of, over a network that loses, doubles and reorders, with a restart of the arbiter."""
    chance, its, now = random.Random(seed), schedule(), START
    wanted = {source: {source + 3 + step: chance.randrange(1, 30 * CELL) for step in range(3)} for source in range(4)}
    slots: dict[tuple[int, int], tuple[int, int]] = {}  # (source, slot) to destination and budget
    sent, terms, on_the_way = Counter[tuple[int, int]](), Counter[int](), list[tuple[Demand, int]]()
    for turn in range(420):
        if turn == 400:
            assert sent == {(source, to): total for source, needs in wanted.items() for to, total in needs.items()}
            granted = its.counted["cells"]
        now += BATCH_NS
        slot = now // TIMING.slot_ns
        quiet = turn >= 300  # the network is mended
        if turn == 40:
            its = schedule(term=2)
        for (source, at), (destination, budget) in list(slots.items()):
            if at < slot:
                room = wanted[source][destination] - sent[source, destination]
                sent[source, destination] += min(budget, room)
                del slots[source, at]
        for source, needs in wanted.items():
            entries = {other: (total, sent[source, other]) for other, total in needs.items()}
            told = demand(source, entries, turn + 1, term=terms[source], through=slot - 1)
            on_the_way += [(told, turn + (0 if quiet else chance.randrange(3)))] * (1 + (chance.random() < doubled))
        for told, due in on_the_way:
            if due <= turn and (quiet or chance.random() >= lost):
                with suppress(RejectedError):  # of those that were doubled or overtaken
                    its.receive(told, None, now)
        on_the_way = [(told, due) for told, due in on_the_way if due > turn]
        used: Counter[tuple[int, IPv4Address]] = Counter()
        for host, grant in its.turn(now):
            assert grant.first_slot * TIMING.slot_ns - now >= 5_000_000
            used.update((entry.slot, entry.destination) for entry in grant.entries)
            assert len({entry.slot for entry in grant.entries}) == len(grant.entries)
            if quiet or chance.random() >= lost:
                terms[host.index] = grant.term
                for entry in grant.entries:
                    slots[host.index, entry.slot] = HOSTS.index(entry.destination), entry.budget
        assert max(used.values(), default=0) <= 1
    assert its.counted["cells"] == granted, "nothing is granted that is not needed"


def test_of_long_slots_as_many_are_asked_for_as_the_batches_ahead_have() -> None:
    its = schedule(timing=(timing := Timing.of(400)))
    its.receive(demand(0, {5: (1 << 40, 0)}), None, START)
    grants = [grant for turn in range(6) for _, grant in its.turn(START + turn * timing.batch_ns)]
    assert sum(len(grant.entries) for grant in grants) == (AHEAD + 2) * SLOTS


def test_a_cell_has_the_budget_of_its_own_path() -> None:
    rates = {"links": {"e0_0-a0_1": 2}, "mbit": {"host": 4, "edge": 4, "aggregation": 4}}
    its = schedule(tree=Clos.from_document({**TREE.document(), **rates}))
    its.receive(demand(0, {5: (4 * CELL, 0)}), None, START)
    grants = [grant for turn in range(3) for _, grant in its.turn(START + turn * BATCH_NS)]
    budgets = {(entry.up1, entry.up2): entry.budget for grant in grants for entry in grant.entries}
    assert budgets == {(0, 0): CELL, (1, 0): CELL // 2, (0, 1): CELL, (1, 1): CELL // 2}
