"""Probes of agents that are connected to relays: what the leader takes from a relay, and what it gives (docs/cluster.md)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import relayed, trace_desk, traces
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.effects import Effect, Hand
from sopa_ryu.channel.handed_traces import HandedTraces
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.probe_lists import HEADER, ProbeLists
from sopa_ryu.channel.protocol import trace_asked
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Asked, Forged, Given
from sopa_ryu.channel.trace_desk import State, UnableError
from topologies import FatTree

TREE = FatTree(4)
HOSTS = list(TREE.hosts())


def report(place: int, records: bytes = b"abc", dropped: int = 0) -> bytes:
    return HEADER.pack(place, dropped, len(records)) + records


def desk() -> tuple[RelayDesk, ProbeLists]:
    lists = ProbeLists()
    return RelayDesk(TREE, lists), lists


def test_the_hosts_of_a_relay_are_given_streams_by_it_and_those_of_another_by_the_other() -> None:
    its, lists = desk()
    one, _ = its.entered("r1", "192.0.2.1", object())
    other, _ = its.entered("r2", "192.0.2.2", object())
    its.received(one, relayed.hosts({0, 1}))
    its.received(other, relayed.hosts({2}))
    assert sorted(lists.hosts()) == sorted(HOSTS[:3])
    assert its.assign(HOSTS[1], 7, "streams") is one
    assert its.assign(HOSTS[2], 7, "others") is other
    assert its.assign(HOSTS[5], 7, "nobody's") is None
    assert list(relayed.read_down(one.due() or "", len(HOSTS))) == [Given(1, 7, "streams")]
    assert list(relayed.read_down(other.due() or "", len(HOSTS))) == [Given(2, 7, "others")]
    assert one.due() is other.due() is None


def test_an_agent_that_moves_to_another_relay_is_sent_its_list_again() -> None:
    its, lists = desk()
    one, _ = its.entered("r1", "192.0.2.1", object())
    other, _ = its.entered("r2", "192.0.2.2", object())
    its.received(one, relayed.hosts({0}))
    its.assign(HOSTS[0], 3, "streams")
    one.due()
    before = lists.changes
    assert its.received(other, relayed.hosts({0}))
    its.received(one, relayed.hosts(set()))  # the former relay notices later
    assert lists.answering[HOSTS[0]] is other
    assert lists.changes == before, "the same hosts probe: no other plan is needed"
    assert list(relayed.read_down(other.due() or "", len(HOSTS))) == [Given(0, 3, "streams")]


def test_hosts_of_a_relay_that_leaves_go_on_answering() -> None:
    its, lists = desk()
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, relayed.hosts({0, 3}))
    its.left(relay)
    assert sorted(lists.hosts()) == [HOSTS[0], HOSTS[3]]
    assert its.assign(HOSTS[0], 1, "streams") is None
    assert its.relays == {}


def test_a_second_channel_of_a_relay_takes_the_place_of_the_first() -> None:
    its, lists = desk()
    first, none = its.entered("r1", "192.0.2.1", "first")
    assert none is None
    its.received(first, relayed.hosts({0}))
    second, former = its.entered("r1", "192.0.2.1", "second")
    assert former is first
    its.received(second, relayed.hosts({0}))
    its.left(first)
    assert its.relays == {"r1": second}
    assert lists.answering[HOSTS[0]] is second


def test_an_agent_at_the_leader_itself_is_none_of_a_relays() -> None:
    its, lists = desk()
    session = AgentSession(HOSTS[0], "h0_0_2", "10.0.0.2", None, None, 0.0, 0.0)
    session.probes = True
    lists.connected(session)
    lists.acknowledged(session)
    assert its.assign(HOSTS[0], 1, "streams") is None
    assert its.forged(HOSTS[0], 1) is None


def test_reports_of_own_hosts_are_handed_on_and_others_are_dropped_and_counted() -> None:
    its, lists = desk()
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, relayed.hosts({0, 1}))
    own = report(0) + report(1, b"")
    its.received(relay, report(0) + report(5, b"foreign") + report(1, b""))
    assert lists.take_waiting() == own
    assert its.counts["foreign"] == 1
    assert lists.counts["taken"] == 2


def test_forged_records_are_counted_by_the_relay() -> None:
    its, _ = desk()
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, relayed.hosts({4}))
    assert its.forged(HOSTS[4], 2) is relay
    assert its.forged(HOSTS[4], 1) is relay
    assert list(relayed.read_down(relay.due() or "", len(HOSTS))) == [Forged(4, 3)]


@given(st.lists(st.tuples(st.integers(0, 15), st.binary(max_size=40)), max_size=30), st.frozensets(st.integers(0, 15)))
def test_reports_keep_their_order_and_bytes(given_reports: list[tuple[int, bytes]], own: frozenset[int]) -> None:
    data = b"".join(report(place, records) for place, records in given_reports)
    kept, left_out = relayed.reports(data, own)
    assert kept == b"".join(report(place, records) for place, records in given_reports if place in own)
    assert left_out == sum(place not in own for place, _ in given_reports)
    assert relayed.count(kept) == len(given_reports) - left_out


def test_many_lists_are_several_messages() -> None:
    its, _ = desk()
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, relayed.hosts(range(16)))
    for number in (1, 2):
        for host in HOSTS:
            its.assign(host, number, f"list {number}")
    found = json.loads(relay.due() or "")["lists"]
    assert len(found) == 16
    assert {number for _, number, _ in found} == {2}, "only the latest list of a host is due"


def test_a_trace_of_a_host_whose_agent_a_relay_has_is_asked_and_answered_by_the_relay() -> None:
    leader = Notifier(TREE, lambda: None)
    its = RelayDesk(TREE, leader.probe_lists, lambda host, text: leader.tracing.relayed(host, text, 1.0))
    relay, _ = its.entered("r1", "192.0.2.1", object())
    below = HandedTraces()

    def handed(effects: list[Effect]) -> list[Asked]:
        for effect in effects:
            assert isinstance(effect, Hand)
            its.ask(effect.relay, effect.host, effect.text)
        asked = [each for each in relayed.read_down(relay.due() or "", len(HOSTS)) if isinstance(each, Asked)]
        for each in asked:
            below.ask(HOSTS[each.place], each.text)
        return asked

    wanted = trace_desk.Asked(((0, 0), (1, 0)), 3, 10.0)
    with pytest.raises(UnableError, match="no agent"):
        leader.begin_trace((HOSTS[0], HOSTS[-1]), wanted, 1, 0.0)
    its.received(relay, json.dumps({"type": "hosts", "hosts": [0]}))  # a relay of an earlier release
    with pytest.raises(UnableError, match="older version"):
        leader.begin_trace((HOSTS[0], HOSTS[-1]), wanted, 1, 0.0)
    its.received(relay, relayed.hosts({0}))
    trace, effects = leader.begin_trace((HOSTS[0], HOSTS[-1]), wanted, 1, 0.0)
    assert [each.place for each in handed(effects)] == [0]
    request = trace_asked(below.due(HOSTS[0]) or "")
    assert isinstance(request, traces.Request)
    assert below.due(HOSTS[0]) is None

    answer = traces.Answer(request.number, (traces.Outcome(0, traces.BACK, 500), traces.Outcome(1, traces.LOST)))
    with pytest.raises(ValueError, match="not asked"):
        below.answered(HOSTS[1], answer, 0.0)
    below.answered(HOSTS[0], answer, 0.0)
    assert not its.received(relay, relayed.traced((HOSTS.index(host), text) for host, text in below.take()))
    assert [found.sent for found in trace.found] == [1, 1]

    its.received(relay, relayed.traced([(5, traces.answer_text(answer))]))
    assert its.counts["foreign"] == 1
    assert its.received(relay, relayed.traced([(0, "{}")])), "its relay has to count this"
    assert list(relayed.read_down(relay.due() or "", len(HOSTS))) == [Forged(0, 1)]

    assert len(handed(leader.cancel_trace(trace, 2.0))) == 1
    assert isinstance(trace_asked(below.due(HOSTS[0]) or ""), traces.Cancel)
    second, effects = leader.begin_trace((HOSTS[0], HOSTS[-1]), wanted, 1, 3.0)
    handed(effects)
    below.left(HOSTS[0], 3.0)
    its.received(relay, relayed.traced((HOSTS.index(host), text) for host, text in below.take()))
    assert (second.state, second.problem) == (
        State.FAILED,
        "its agent: the agent has left its relay, or its channel is lost",
    )
