"""The arbiter's decisions, with a virtual clock: what is granted to whom, what is rejected, and what heals."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from ipaddress import IPv4Address
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.arbiter.budgets import Budgets
from sopa_ryu.arbiter.schedule import AHEAD, DATAGRAMS_A_LEASE, SLOTS, Load, RejectedError, Schedule, Timing
from sopa_ryu.channel.slots import Demand, Grant, Wanted
from tests.models.memory_allocator import MemoryAllocator
from topologies import Failures, FatTree

TREE = FatTree(4)
HOSTS = [TREE.ip(host) for host in TREE.hosts()]
TIMING = Timing.of(3.2)
BATCH_NS = TIMING.batch_ns
CELL = 1520  # of 3.2 ms at 4 Mbit/s
START = 1_000_000 * BATCH_NS


def schedule(timing: Timing = TIMING, term: int = 1) -> Schedule:
    its = Schedule(timing, MemoryAllocator)
    its.follow(Budgets(Failures(TREE), 4.0, timing.slot_ns))
    if term:
        its.accept(term)
    return its


def demand(source: int, entries: dict[int, tuple[int, int]], sequence: int = 1, **more: int) -> Demand:
    wanted = tuple(Wanted(HOSTS[index], *its) for index, its in entries.items())
    fields = {"term": 0, "run": 1, "sent_at": 5, "through": 0, **more}
    return Demand(HOSTS[source], sequence, fields["term"], fields["run"], fields["sent_at"], fields["through"], wanted)


def turns(its: Schedule, count: int, start: int = START) -> list[Grant]:
    return [grant for turn in range(count) for _, grant in its.turn(start + turn * BATCH_NS)]


def granted(grants: list[Grant]) -> Counter[tuple[IPv4Address, IPv4Address]]:
    found: Counter[tuple[IPv4Address, IPv4Address]] = Counter()
    for grant in grants:
        for entry in grant.entries:
            found[grant.host, entry.destination] += entry.budget
    return found


def test_a_demand_is_granted_in_whole_cells_two_batches_ahead() -> None:
    its = schedule()
    assert its.receive(demand(0, {5: (2 * CELL + 1, 0)}), "peer", START) == 0
    assert its.turn(START) == []  # a former arbiter may have granted that batch
    ((host, grant),) = its.turn(START + BATCH_NS)
    assert host.peer == "peer"
    assert (grant.host, grant.term, grant.slot_ns, grant.slots) == (HOSTS[0], 1, 3_200_000, SLOTS)
    assert grant.first_slot == (START // BATCH_NS + 1 + AHEAD) * SLOTS
    assert [(entry.slot - grant.first_slot, entry.budget) for entry in grant.entries] == [
        (0, CELL),
        (1, CELL),
        (2, CELL),
    ]
    assert {entry.destination for entry in grant.entries} == {HOSTS[5]}
    assert (grant.demand_sent_at, grant.demand_received_at) == (5, START)
    assert granted(turns(its, 6, START + 2 * BATCH_NS)) == {}


def test_the_load_is_what_is_granted_of_all_hosts_slots_in_the_last_seconds() -> None:
    its = schedule()
    for turn in range(2000):
        its.receive(
            demand(0, {5: (turn * SLOTS * CELL + 10**9, turn * SLOTS * CELL)}, turn + 1), None, START + turn * BATCH_NS
        )
        its.turn(START + turn * BATCH_NS)
    assert round(its.granted_share, 2) == round(1 / len(HOSTS), 2)
    turns(its, 2500, START + 2000 * BATCH_NS)
    assert its.granted_share < 0.001


def test_what_was_granted_for_later_slots_is_not_granted_again() -> None:
    its = schedule()
    its.receive(demand(0, {5: (3 * CELL, 0)}), None, START)
    [grant] = turns(its, 2)
    last = grant.entries[-1].slot
    now = START + 3 * BATCH_NS
    its.receive(demand(0, {5: (3 * CELL, 0)}, 2, term=1, through=grant.first_slot - 1), None, now)
    assert granted(turns(its, 2, now)) == {}
    now = (last // SLOTS + 1) * BATCH_NS  # they are over, and nothing was sent: the datagram was lost
    its.receive(demand(0, {5: (3 * CELL, 0)}, 3, term=1, through=last), None, now)
    assert granted(turns(its, 2, now)) == {(HOSTS[0], HOSTS[5]): 3 * CELL}


def test_a_host_without_grants_gets_its_share_of_datagrams_a_lease() -> None:
    its = schedule()
    sent = []
    for turn in range(80):
        now = START + turn * BATCH_NS
        its.receive(demand(0, {}, turn + 1), None, now)
        sent += [now for _ in its.turn(now)]
    gaps = [after - before for before, after in pairwise(sent)]
    assert max(gaps) * DATAGRAMS_A_LEASE <= TIMING.lease_ns


def test_without_a_term_nothing_is_granted() -> None:
    its = schedule(term=0)
    its.receive(demand(0, {5: (CELL, 0)}), None, START)
    assert turns(its, 5) == []
    its.accept(7)
    grants = turns(its, 3, START + 5 * BATCH_NS)
    assert {grant.term for grant in grants} == {7}
    its.stop()
    its.receive(demand(0, {5: (9 * CELL, 0)}, 2), None, START + 9 * BATCH_NS)
    assert turns(its, 5, START + 9 * BATCH_NS) == []


def test_a_silent_host_is_forgotten_after_a_lease_and_old_demands_stay_old() -> None:
    its = schedule()
    its.receive(demand(0, {5: (10**9, 0)}, 4), None, START)
    assert granted(turns(its, 6))
    later = START + TIMING.lease_ns + 2 * BATCH_NS
    assert turns(its, 4, later) == []
    assert its.participants == 0
    assert its.counted["forgotten"] == 1
    with pytest.raises(RejectedError, match="after number 4") as rejected:
        its.receive(demand(0, {5: (10**9, 0)}, 4), None, later)
    assert rejected.value.reason == "replay"
    its.receive(demand(0, {5: (10**9, 0)}, 5), None, later)
    assert granted(turns(its, 1, later + 4 * BATCH_NS))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (demand(0, {5: (1, 0)})._replace(host=IPv4Address("192.0.2.1")), "foreign"),
        (demand(0, {0: (1, 0)}), "destination"),
        (demand(0, {})._replace(entries=(Wanted(IPv4Address("192.0.2.1"), 1, 0),)), "destination"),
        (demand(0, {5: (1, 0)}, term=9), "term"),
        (demand(0, {5: (1, 0)}, 1, run=5), "replay"),
        (demand(0, {5: (1, 0)}, 9, run=4), "replay"),
        (demand(0, {5: (1, 0)}, 2**31 + 1, run=5), "replay"),
    ],
)
def test_what_is_wrong_is_rejected_and_changes_nothing(wrong: Demand, reason: str) -> None:
    its = schedule(term=3)
    its.receive(demand(0, {5: (CELL, 0)}, 1, run=5), None, START)
    if reason in ("term", "destination"):
        wrong = wrong._replace(run=5, sequence=2)
    with pytest.raises(RejectedError) as rejected:
        its.receive(wrong, "other", START)
    assert rejected.value.reason == reason
    ((host, _),) = [sent for turn in range(2) for sent in its.turn(START + turn * BATCH_NS)]
    assert host.peer is None
    assert its.counted["cells"] == 1


def test_sequence_numbers_go_on_behind_the_last() -> None:
    its = schedule()
    its.receive(demand(0, {}, 2**32 - 1), None, START)
    its.receive(demand(0, {}, 0), None, START)
    with pytest.raises(RejectedError):
        its.receive(demand(0, {}, 2**32 - 1), None, START)


@pytest.mark.parametrize("off", [-10_000, -40, 5, 10_000])
def test_a_clock_that_is_off_is_said_and_does_not_change_what_is_granted(off: int) -> None:
    its = schedule()
    its.receive(demand(0, {5: (3 * CELL, 0)}), None, START)
    assert granted(turns(its, 2)) == {(HOSTS[0], HOSTS[5]): 3 * CELL}
    now = START + 2 * BATCH_NS
    present = now // TIMING.slot_ns
    assert its.receive(demand(0, {5: (3 * CELL, 0)}, 2, term=1, through=present + off), None, now) == off
    assert granted(turns(its, 2, now)) == {}
    for number, right in enumerate((present, present - 3, present + SLOTS, 0)):
        assert its.receive(demand(0, {}, 3 + number, term=1, through=right), None, now) == 0


def test_a_new_run_counts_from_zero() -> None:
    its = schedule()
    its.receive(demand(0, {5: (100 * CELL, 90 * CELL)}, 70), None, START)
    its.receive(demand(0, {6: (CELL, 0)}, 1, run=2), None, START)
    assert granted(turns(its, 4)) == {(HOSTS[0], HOSTS[6]): CELL}


def test_a_host_that_claims_more_than_its_link_gets_one_cell_a_slot() -> None:
    its = schedule()
    its.receive(demand(0, dict.fromkeys(range(1, 16), (2**64 - 1, 0))), None, START)
    its.receive(demand(1, {2: (CELL, 0)}), None, START)
    for grant in turns(its, 4):
        assert len({entry.slot for entry in grant.entries}) == len(grant.entries) <= SLOTS
    allocator = its._allocator
    assert isinstance(allocator, MemoryAllocator)
    assert max(allocator.demands.values()) <= 1_000_000_000 // TIMING.slot_ns


def test_a_batch_that_comes_too_late_is_left_out() -> None:
    its = schedule()
    its.receive(demand(0, {5: (10**6, 0)}), None, START)
    assert turns(its, 3)
    now = START + 12 * BATCH_NS + 1
    its.receive(demand(0, {5: (10**6, 0)}, 2), None, now)
    its.counted["late"] = 0
    firsts = [grant.first_slot for _, grant in its.turn(now)]
    assert firsts
    assert min(firsts) * TIMING.slot_ns - now >= 5_000_000
    assert its.counted["late"] == 8
    late = its.counted["late"]
    its.turn(now + 10**18)  # an hour or a century: no loop over what is missing
    assert its.counted["late"] > late


def test_a_clock_that_was_set_back_starts_anew() -> None:
    its = schedule()
    its.receive(demand(0, {5: (10**6, 0)}), None, START)
    turns(its, 3)
    early = START - 1000 * BATCH_NS
    its.turn(early)
    assert its.counted["clock"] == 1
    its.receive(demand(0, {5: (10**6, 0)}, 2), None, early)
    assert granted(turns(its, 2, early + BATCH_NS))


def test_hosts_that_do_not_take_part_have_cells_reserved() -> None:
    its = schedule()
    its.load({5: Load(0.0, 0.5), 6: Load(0.1, 2.0), 0: Load(1.0, 1.0)})
    its.receive(demand(0, {5: (10**6, 0)}), None, START)
    its.receive(demand(1, {6: (10**6, 0)}), None, START)
    grants = turns(its, 9)
    found = granted(grants)
    assert found[HOSTS[0], HOSTS[5]] == 8 * 2 * CELL
    assert found[HOSTS[1], HOSTS[6]] == 0


def test_a_failed_switch_takes_its_hosts_out_and_another_fabric_starts_anew() -> None:
    its = schedule()
    its.receive(demand(0, {5: (10**6, 0)}), None, START)
    its.follow(Budgets(Failures(TREE, {"e0_0": "down"}), 4.0, TIMING.slot_ns))
    assert granted(turns(its, 4)) == {}
    its.follow(Budgets(Failures(TREE), 4.0, TIMING.slot_ns))
    assert granted(turns(its, 1, START + 4 * BATCH_NS))
    its.follow(Budgets(Failures(FatTree(8)), 4.0, TIMING.slot_ns))
    assert its.participants == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.6), st.floats(0, 0.6))
def test_whatever_is_lost_doubled_or_late_every_byte_is_granted_in_the_end(
    seed: int, lost: float, doubled: float
) -> None:
    """Hosts that use each slot they hear of, over a network that loses, doubles and reorders, with a restart of the arbiter."""
    chance = random.Random(seed)
    its, now = schedule(), START
    wanted = {
        source: {(source + 3 + step) % 16: chance.randrange(1, 30 * CELL) for step in range(3)} for source in range(4)
    }
    sent: Counter[tuple[int, int]] = Counter()
    slots: dict[tuple[int, int], tuple[int, int]] = {}  # (source, slot) to destination and budget
    terms: Counter[int] = Counter()
    on_the_way: list[tuple[Demand, int]] = []
    for turn in range(400):
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
            for entry in grant.entries:
                used[entry.slot, entry.destination] += 1
                used[entry.slot, grant.host] += 0
            assert len({entry.slot for entry in grant.entries}) == len(grant.entries)
            if quiet or chance.random() >= lost:
                terms[host.index] = grant.term
                for entry in grant.entries:
                    slots[host.index, entry.slot] = HOSTS.index(entry.destination), entry.budget
        assert max(used.values(), default=0) <= 1
    assert {(source, other): sent[source, other] for source in wanted for other in wanted[source]} == {
        (source, other): total for source, needs in wanted.items() for other, total in needs.items()
    }
    granted_before = its.counted["cells"]
    for turn in range(400, 420):
        now += BATCH_NS
        for source, needs in wanted.items():
            entries = {other: (total, total) for other, total in needs.items()}
            its.receive(demand(source, entries, turn + 1, term=2, through=now // TIMING.slot_ns - 1), None, now)
        its.turn(now)
    assert its.counted["cells"] == granted_before, "nothing is granted that is not needed"
