"""Probes of agents that are connected to relays: what the leader takes from a relay, and what it gives (docs/cluster.md)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import relayed
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.probe_lists import HEADER, ProbeLists
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Forged, Given, RelayedError
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


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "[]",
        '{"type": "lists"}',
        '{"type": "hosts", "hosts": [16]}',
        '{"type": "hosts", "hosts": [-1]}',
        '{"type": "hosts", "hosts": [true]}',
        '{"type": "hosts", "hosts": "0"}',
        report(0)[:-1],
        report(0)[:5],
    ],
)
def test_malformed_messages_of_relays_change_nothing(message: str | bytes) -> None:
    its, lists = desk()
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, relayed.hosts({0}))
    with pytest.raises(RelayedError):
        its.received(relay, message)
    assert lists.hosts() == [HOSTS[0]]
    assert lists.take_waiting() == b""


@pytest.mark.parametrize(
    "message",
    [
        "no JSON",
        "{}",
        '{"type": "lists", "lists": [[0, 1]]}',
        '{"type": "lists", "lists": [[99, 1, "x"]]}',
        '{"type": "forged", "hosts": [[0, "1"]]}',
        '{"type": "forged", "hosts": {}}',
    ],
)
def test_malformed_messages_of_a_leader_are_rejected(message: str) -> None:
    with pytest.raises(RelayedError):
        list(relayed.read_down(message, len(HOSTS)))


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
