"""The agent's part in CFR, without sockets and programs: the arbiter's clock, which grants hold, and what is demanded."""

from ipaddress import IPv4Address
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import AgentError, Options
from sopa_ryu.agent.cfr_clock import CONTRARY, Clock
from sopa_ryu.agent.cfr_demand import REPEATS, Demands
from sopa_ryu.agent.cfr_grants import KEPT, LATE_NS, MAX_LEASE_MS, Grants, Orders, Rejected, Rejection
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.slots import MAX_ENTRIES, Grant, Granted, Wanted

HOST, PEER, URL = IPv4Address("10.0.0.2"), IPv4Address("10.1.0.2"), "http://127.0.0.1:8080"
SLOT_NS, BATCH = 1_000_000, 4
BEGIN = 10**12
"""A time of the host's clock."""
OFFSET = 77 * 10**9


def answer(clock: Clock, now: int, offset: int, there: int = 10**5, back: int = 10**5, waited: int = 5 * 10**6) -> bool:
    """Let an answer arrive that took so long there, at the arbiter, and back."""
    asked, arrived = now - there - waited - back, now - waited - back + offset
    return clock.note(asked_at=asked, received_at=arrived, answered_at=arrived + waited, now=now)


DELAYS = st.tuples(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**9))


@given(st.integers(-(10**18), 10**18), st.lists(DELAYS, min_size=1, max_size=100))
def test_the_offset_is_known_to_half_of_the_best_round_trip(offset: int, delays: list[tuple[int, int, int]]) -> None:
    clock = Clock()
    for n, (there, back, waited) in enumerate(delays):
        assert answer(clock, BEGIN + n * 10_000_000, offset, there, back, waited)
    assert clock.offset is not None
    assert clock.round_trip is not None
    assert abs(clock.offset - offset) <= clock.round_trip / 2 + 1
    assert clock.round_trip <= min(there + back for there, back, _ in delays[-64:]) + 2 * 100 * 1_000
    assert clock.jumps == 0


def test_single_contrary_answers_are_ignored_and_a_jump_is_believed_after_some() -> None:
    clock = Clock()
    for n in range(10):
        answer(clock, BEGIN + n, OFFSET)
    for n in range(20):
        assert not answer(clock, BEGIN + 100 + 2 * n, OFFSET + 10**9)
        assert answer(clock, BEGIN + 101 + 2 * n, OFFSET)
    assert (clock.offset, clock.jumps) == (OFFSET, 0)
    believed = [answer(clock, BEGIN + 1000 + n, OFFSET - 10**9) for n in range(CONTRARY + 1)]
    assert believed == [False] * (CONTRARY - 1) + [True, True]
    assert (clock.offset, clock.jumps) == (OFFSET - 10**9, 1)


@pytest.mark.parametrize("times", [(BEGIN + 1, 5, 6), (BEGIN - 5, 7, 6), (BEGIN - 5, 0, 10)])
def test_impossible_times_are_ignored(times: tuple[int, int, int]) -> None:
    clock = Clock()
    assert not clock.note(**dict(zip(("asked_at", "received_at", "answered_at"), times, strict=True)), now=BEGIN)
    assert clock.offset is None


def grant(sequence: int = 1, term: int = 3, now: int = BEGIN, ahead: int = 4, **changes: Any) -> Grant:
    """Return a grant that arrives at that time, for the slots so far ahead of it."""
    first = (now + OFFSET) // SLOT_NS + ahead
    entries = tuple(Granted(first + n, 0, 1, PEER, 1514) for n in range(BATCH))
    times = now - 300, now - 200 + OFFSET, now - 100 + OFFSET
    return Grant(HOST, sequence, term, SLOT_NS, 100, first, BATCH, *times, entries)._replace(**changes)


def rejection(grants: Grants, its: Grant, now: int = BEGIN) -> Rejection | None:
    try:
        grants.receive(its, now)
    except Rejected as rejected:
        return rejected.reason
    return None


def test_the_first_grant_closes_the_gate_from_its_first_slot_on_for_a_lease() -> None:
    grants = Grants(HOST)
    assert not grants.is_closed(BEGIN)
    its = grant()
    orders = grants.receive(its, BEGIN)
    assert orders == Orders(orders.gate, list(its.entries), forget=True, closes=True)
    assert orders.gate == (SLOT_NS, OFFSET, BEGIN + 100_000_000, its.first_slot, LATE_NS, 0)
    assert orders.gate.slot_at(orders.gate.begin_of(its.first_slot)) == its.first_slot
    assert [grants.is_closed(BEGIN + lease) for lease in (99_999_999, 100_000_000)] == [True, False]
    following = grants.receive(grant(2, now=BEGIN + 4_000_000), BEGIN + 4_000_000)
    assert (following.forget, following.closes, following.gate.first_slot) == (False, False, its.first_slot)
    later = BEGIN + 10**9
    back = grants.receive(grant(3, now=later), later)
    assert (back.forget, back.closes, back.gate.first_slot) == (False, True, grant(3, now=later).first_slot)


def test_numbers_begin_again_after_the_last_one() -> None:
    grants = Grants(HOST)
    for number in ((1 << 32) - 2, (1 << 32) - 1, 0, 1):
        assert rejection(grants, grant(number)) is None
    assert rejection(grants, grant((1 << 32) - 1)) is Rejection.REPEATED
    assert rejection(grants, grant(2)) is None


@pytest.mark.parametrize(("changes", "reason"), [
    ({"host": PEER}, Rejection.HOST),
    ({"slot_ns": 99_999}, Rejection.SLOT_LENGTH),
    ({"slot_ns": 60_000_000_001}, Rejection.SLOT_LENGTH),
    ({"demand_sent_at": 0}, Rejection.CLOCK),
    ({"first_slot": (BEGIN + OFFSET) // SLOT_NS + KEPT - BATCH + 1, "entries": ()}, Rejection.TOO_FAR),
    ({"slots": 65_535}, Rejection.TOO_FAR),
])  # fmt: skip
def test_what_a_host_cannot_keep_is_rejected_and_counted(changes: dict[str, Any], reason: Rejection) -> None:
    grants = Grants(HOST)
    assert rejection(grants, grant(**changes)) is reason
    assert grants.rejected == {reason: 1}
    assert grants.gate is None


def test_an_arbiter_that_another_one_has_replaced_is_fenced() -> None:
    grants = Grants(HOST)
    assert rejection(grants, grant(9, term=3)) is None
    assert rejection(grants, grant(1, term=5)) is None
    assert [rejection(grants, grant(n, term=4)) for n in (10, 11)] == [Rejection.TERM] * 2
    assert rejection(grants, grant(1, term=5)) is Rejection.REPEATED
    assert grants.receive(grant(1, term=6), BEGIN)[-2:] == (True, True)  # it forgets, and closes


def test_slots_that_have_begun_are_not_written() -> None:
    grants = Grants(HOST)
    its = grant(ahead=-1)
    orders = grants.receive(its, BEGIN)
    assert [entry.slot for entry in orders.slots] == [its.first_slot + 2, its.first_slot + 3]
    assert (grants.granted, grants.late) == (4, 2)


def test_a_lease_has_an_end() -> None:
    grants = Grants(HOST)
    grants.receive(grant(lease_ms=2**32 - 1), BEGIN)
    assert not grants.is_closed(BEGIN + MAX_LEASE_MS * 1_000_000)


@settings(max_examples=30)
@given(st.permutations(range(1, 40)), st.lists(st.integers(1, 39), max_size=80))
def test_each_grant_holds_once_in_whatever_order_they_come(order: list[int], again: list[int]) -> None:
    grants = Grants(HOST)
    assert [rejection(grants, grant(n)) for n in order] == [None] * len(order)
    assert [rejection(grants, grant(n)) for n in again] == [Rejection.REPEATED] * len(again)
    assert rejection(grants, grant(200)) is None
    assert [rejection(grants, grant(n)) for n in (136, 137, 137)] == [Rejection.REPEATED, None, Rejection.REPEATED]


PEERS = [IPv4Address("10.1.0.0") + n for n in range(200)]


STEPS = st.tuples(st.sampled_from(PEERS[:3]), st.integers(0, 10_000), st.integers(0, 3_000), st.booleans())


@given(st.lists(STEPS, max_size=60))
def test_counters_only_rise_and_say_what_waits(steps: list[tuple[IPv4Address, int, int, bool]]) -> None:
    demands, known = Demands(), dict[IPv4Address, Wanted]()
    unsent, sent = dict.fromkeys(PEERS[:3], 0), dict.fromkeys(PEERS[:3], 0)
    for peer, written, left, is_reset in steps:
        unsent[peer] += written
        gone = min(left, unsent[peer])
        unsent[peer] -= gone
        sent[peer] += gone
        if is_reset:
            unsent[peer] = 0
        demands.note({its: count for its, count in unsent.items() if count}, sent)
        for entries in demands.datagrams():
            for entry in entries:
                before = known.get(entry.destination, entry)
                assert (entry.wanted >= before.wanted, entry.sent >= before.sent) == (True, True)
                known[entry.destination] = entry
        for its, count in unsent.items():
            assert its in known or not count
            assert its not in known or known[its].wanted - known[its].sent == count


@given(st.lists(st.booleans(), min_size=1, max_size=REPEATS - 1))
def test_lost_demands_heal(lost: list[bool]) -> None:
    demands = Demands()
    demands.note({PEER: 5000}, {})
    for _ in lost:
        next(demands.datagrams())
    demands.note({}, {PEER: 5000})
    assert demands.outstanding
    for _ in lost:
        next(demands.datagrams())
    assert next(demands.datagrams()) == [Wanted(PEER, 5000, 5000)]
    for _ in range(REPEATS):
        list(demands.datagrams())
    assert not demands.outstanding
    assert next(demands.datagrams()) == [Wanted(PEER, 5000, 5000)]  # in turn with all others


def test_many_destinations_take_several_datagrams_and_those_at_rest_come_in_turn() -> None:
    demands = Demands()
    demands.note(dict.fromkeys(PEERS, 100), {})
    assert [len(its) for its in demands.datagrams()] == [MAX_ENTRIES] * 3 + [len(PEERS) - 3 * MAX_ENTRIES]
    demands.note({}, dict.fromkeys(PEERS, 100))
    for _ in range(REPEATS):
        list(demands.datagrams())
    seen = {entry.destination for _ in range(4) for its in demands.datagrams() for entry in its}
    assert seen == set(PEERS)
    assert list(Demands().datagrams()) == [[]]


def test_options_that_contradict_cfr_are_refused() -> None:
    contradictions: list[dict[str, Any]] = [{"mcs": McsOptions()}, {"carrier": Carrier.OPTION}, {"segments": 4}]
    for options in contradictions:
        with pytest.raises(AgentError):
            Options((URL,), arbiter=("127.0.0.1", 9160), **options)


@pytest.mark.parametrize(("options", "asked"), [
    ({}, "policy=round-robin"),
    ({"arbiter": ("127.0.0.1", 9160)}, "policy=cfr"),
    ({"mcs": McsOptions(4, ChannelKind.PORTS)}, "policy=mcs&mcs=1&channel-kind=ports"),
])  # fmt: skip
def test_the_channels_url_says_the_policy(options: dict[str, Any], asked: str) -> None:
    url = Options((URL,), **options).channel(HOST, URL)
    assert url.endswith(f"?carrier=mac&{asked}&probes=1")
    policy, variant = mcs.requested(parse_qs(urlsplit(url).query))
    assert policy == asked.partition("&")[0].partition("=")[2]
    assert variant == (Variant(1, "ports") if "mcs" in options else None)
