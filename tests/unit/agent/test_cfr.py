"""The agent's part in CFR, without sockets and programs: the arbiter's clock, which grants hold, and what is demanded."""

import itertools
from ipaddress import IPv4Address
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.cfr_agent import MIN_READS, PASSES, READ_TOGETHER, CfrAgent
from sopa_ryu.agent.slots.cfr_clock import CONTRARY, Clock
from sopa_ryu.agent.slots.cfr_demand import REPEATS, Demands, Unsent
from sopa_ryu.agent.slots.cfr_grants import LATE_NS, Grants, Rejected, Rejection
from sopa_ryu.agent.slots.cfr_sender import MAX_BUSY
from sopa_ryu.agent.slots.send_buffers import BATCHES, SendBuffers
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.slots import MAX_ENTRIES, Grant, Granted, Wanted, read_demand
from tests.helpers.golden import Script, Step, each_script

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


def grant(sequence: int, now: int = BEGIN, ahead: int = 4, **changes: Any) -> Grant:
    """Return a grant that arrives at that time, for the slots so far ahead of it."""
    first = (now + OFFSET) // SLOT_NS + ahead
    entries = tuple(Granted(first + n, 0, 1, PEER, 1514) for n in range(BATCH))
    times = now - 300, now - 200 + OFFSET, now - 100 + OFFSET
    return Grant(HOST, sequence, 3, SLOT_NS, 100, first, BATCH, *times, entries)._replace(**changes)


def rejection(grants: Grants, its: Grant) -> Rejection | None:
    try:
        grants.receive(its, BEGIN)
    except Rejected as rejected:
        return rejected.reason
    return None


class Host:
    """The grants of a host. Times are in slots of 1 ms from the start, and so are the numbers of slots."""

    def __init__(self) -> None:
        self.its = Grants(HOST)

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(*step.words, **step.options))

    def do_grant(self, number: str, at: str = "0", ahead: str = "4", to: str = str(HOST), **changes: str) -> str:
        """Receive a grant of term 3, or one with changes; say from which slot on it holds, until when, and for which slots."""
        now, others = BEGIN + int(at) * SLOT_NS, {name: int(value) for name, value in changes.items()}
        try:
            orders = self.its.receive(grant(int(number), now, int(ahead), host=IPv4Address(to), **others), now)
        except Rejected as rejected:
            return f"rejected for {rejected.reason}"
        gate = orders.gate
        assert (gate.slot_ns, gate.offset_ns, gate.late_ns, gate.ahead_ns) == (SLOT_NS, OFFSET, LATE_NS, 0)
        first, lasts = (gate.begin_of(gate.first_slot) - BEGIN) // SLOT_NS, (gate.open_after - BEGIN) / SLOT_NS
        slots = " ".join(str(each.slot - gate.slot_at(BEGIN)) for each in orders.slots)
        forgets, closes = "forgets, " * orders.forget, "closes " * orders.closes
        return f"{forgets}{closes}from {first} until {lasts:g}, slots {slots}"

    def do_look(self, at: str) -> str:
        return "forgotten" if self.its.forget_silent(BEGIN + int(at) * SLOT_NS) else "kept"

    def do_state(self, at: str) -> str:
        its, rejected = self.its, [f"{reason} {count}" for reason, count in self.its.rejected.items()]
        is_closed = its.is_closed(BEGIN + int(float(at) * SLOT_NS))
        return f"{'closed' if is_closed else 'open'}, granted {its.granted}, late {its.late}, rejected {', '.join(rejected) or 0}"


@each_script(__file__, "grants")
def test_grants(script: Script) -> None:
    script.play(Host().handle)


@settings(max_examples=30)
@given(st.permutations(range(1, 40)), st.lists(st.integers(1, 39), max_size=80))
def test_each_grant_holds_once_in_whatever_order_they_come(order: list[int], again: list[int]) -> None:
    grants = Grants(HOST)
    assert [rejection(grants, grant(n)) for n in order] == [None] * len(order)
    assert [rejection(grants, grant(n)) for n in again] == [Rejection.REPEATED] * len(again)
    assert rejection(grants, grant(200)) is None
    assert [rejection(grants, grant(n)) for n in (136, 137, 137)] == [Rejection.REPEATED, None, Rejection.REPEATED]


def test_what_comes_in_the_arbiters_name_is_read_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loop, forged = [0], Mock(), Mock(receive=Mock(return_value=(b"forged", 0)))
    monkeypatch.setattr("sopa_ryu.agent.cfr_agent.time.monotonic_ns", lambda: now[0])
    monkeypatch.setattr("sopa_ryu.agent.cfr_agent.asyncio.get_running_loop", lambda: loop)
    agent = CfrAgent(HOST, ("192.0.2.1", 9160), str, Mock(unsent=list, sent=dict), Mock())
    agent._socket = forged
    for second, batch_ns, most in ((0, 0, MIN_READS), (1, 0, MIN_READS), (2, 400_000, 10_000)):
        now[0], agent.grants.batch_ns = second * 10**9, batch_ns
        while not loop.remove_reader.called:
            agent._read()
        assert most - READ_TOGETHER < forged.receive.call_count <= most
        loop.call_later.call_args[0][1]()
        loop.add_reader.assert_called_once_with(forged, agent._read)
        forged.reset_mock()
        loop.reset_mock()
    agent.grants.term = 7
    agent._tick(10**15)
    assert agent.grants.term == read_demand(forged.send.call_args[0][0], "").term == 0


def test_a_host_whose_iterations_are_too_long_for_slots_sends_without_them(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Single long ones are the processor's, and say nothing."""
    programs, sender = Mock(sent=Mock(return_value={}), used=Mock(return_value=0)), Mock()
    now, takes, numbers = [BEGIN], itertools.cycle([0]), itertools.count(1)

    def unsent() -> list[Unsent]:
        now[0] += next(takes)
        return [Unsent(int(PEER), 1514)]

    programs.unsent = unsent
    for clock in ("monotonic_ns", "thread_time_ns"):
        monkeypatch.setattr(f"sopa_ryu.agent.cfr_agent.time.{clock}", lambda: now[0])
    monkeypatch.setattr("sopa_ryu.agent.cfr_agent.read_grant", lambda _data, _key: grant(next(numbers), now[0]))
    agent = CfrAgent(HOST, ("192.0.2.1", 9160), str, programs, sender)
    agent._socket = Mock()

    def waits(*milliseconds: int) -> tuple[bool, int, bool]:
        """Let grants come with so long iterations in turn: does data wait at the end, how much is demanded, have slots begun?"""
        nonlocal takes
        takes = itertools.cycle(each * 10**6 for each in milliseconds)
        for _ in range(10 * PASSES):
            sender.follow.reset_mock()
            agent._follow(b"", now[0])
            agent._tick(now[0])
            now[0] += 10**8
        entries = read_demand(agent._socket.send.call_args[0][0], "").entries
        closed = programs.set_gate.call_args[0][1].open_after >= now[0]
        return closed, sum(entry.wanted - entry.sent for entry in entries), sender.follow.called

    assert 0.1 < MAX_BUSY < 1
    assert waits(0) == (True, 1514, True)
    waits(0, 9, 9)
    assert not [line for line in caplog.messages if "iteration" in line]
    programs.forget.reset_mock()
    assert waits(1) == (False, 0, False)
    assert [line for line in caplog.messages if "takes 1.0 ms, so that slots begin late" in line]
    sender.leave.assert_called_with(programs)
    assert waits(0) == (True, 1514, True)
    programs.forget.assert_called_once_with()


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


def test_send_buffers_that_begin_too_small_for_slots_are_said_once_with_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    grants, buffers = Grants(HOST), (4096, 16384, 4194304)
    its, sequence = SendBuffers(HOST, None, grants, lambda: buffers), itertools.count(1)
    its.look()
    assert not caplog.messages, "no slot was granted yet"
    for budgets, first in [([1514, 757], 16384), ([1514], 16384), ([15140], 484480), ([15141], 484480)]:  # 757: on a slow path
        buffers = (4096, first, 4194304)
        for budget in budgets:
            one = grant(next(sequence))
            grants.receive(one._replace(entries=[entry._replace(budget=budget) for entry in one.entries]), BEGIN)
        its.look()
    wanted = [BATCHES * BATCH * 1514, BATCHES * BATCH * 15141]
    assert [message.partition("tcp_wmem=")[2] for message in caplog.messages] == [f"'4096 {most} 4194304'" for most in wanted]


@pytest.mark.parametrize(("options", "asked"), [
    ({}, "policy=round-robin&spray=tcp"),
    ({"policy": "cfr", "arbiter": "127.0.0.1:9160"}, "policy=cfr&spray=tcp"),
    ({"policy": "mcs", "channels": 4, "channel_kind": ChannelKind.PORTS}, "policy=mcs&mcs=1&channel-kind=ports"),
])  # fmt: skip
def test_the_channels_url_says_the_policy(options: dict[str, Any], asked: str) -> None:
    target = AgentOptions((URL,), **options).channel(HOST)
    assert target.endswith(f"?carrier=mac&{asked}&probes=1")
    policy, variant = mcs.requested(parse_qs(urlsplit(target).query))
    assert policy == asked.partition("&")[0].partition("=")[2]
    assert variant == (Variant(1, "ports") if policy == "mcs" else None)
