"""Probes of agents that are connected to relays: what the leader takes from a relay, and what it gives (docs/cluster.md)."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import relayed
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.connected import ConnectedAgents
from sopa_ryu.channel.handed_traces import HandedTraces
from sopa_ryu.channel.mcs_hosts import McsHosts
from sopa_ryu.channel.messages import RECORD_BYTES, Stream, TraceRequest, encode, trace_answers
from sopa_ryu.channel.probe_lists import HEADER, ProbeLists
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import AnsweringHosts, Forged, Handed, McsBegun, McsEvents, Relayed, TraceAnswers
from sopa_ryu.channel.trace_desk import Asked, UnableError
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

TREE = FatTree(4)
HOSTS = list(TREE.hosts())


def report(place: int, records: bytes = b"abc", dropped: int = 0) -> bytes:
    records = records.ljust(RECORD_BYTES * bool(records))
    return HEADER.pack(place, dropped, len(records)) + records


class Desk:
    """A leader's desk, and the channels of relays by their names: ``r1`` and, in its place later, ``r1b``; hosts are numbers."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self.log = log
        self.do_desk()

    def handle(self, step: Step) -> str:
        self.log.clear()
        said = getattr(self, "do_" + step.command.replace("-", "_"))(*step.words, **step.options) or ""
        return "\n".join([said, *(line.getMessage() for line in self.log.records if line.levelno == logging.WARNING)])

    def do_desk(self) -> None:
        self.lists, self.mcs = ProbeLists(), McsHosts()
        self.now = 1.0
        self.its = RelayDesk(TREE, self.lists, mcs=self.mcs, now=lambda: self.now)
        self.channels: dict[str, Relayed] = {}

    def do_enter(self, name: str) -> str:
        self.channels[name], former = self.its.entered(name[:2], "192.0.2.1", object())
        return f"in place of {self._name(former)}" if former is not None else ""

    def do_wait(self, seconds: str) -> None:
        self.now += float(seconds)
        self.its.bring()

    def do_mcs(self, name: str, what: str, place: str) -> str:
        """Let a relay say that a host runs MCS, or none of it; return who holds hosts that run it."""
        lists = ((McsBegun(1, (int(place),)),), ()) if what == "here" else ((), (int(place),))
        self.its.received(self.channels[name], encode(McsEvents(1, lists[0], (), (), lists[1])))
        return self.do_mcs_hosts()

    def do_mcs_hosts(self) -> str:
        [listed] = self.mcs._listed.values()
        return ", ".join(f"{HOSTS.index(host)} by {self._name(its.holder)}" for host, its in listed.items()) or "none"

    def do_leave(self, name: str) -> None:
        self.its.left(self.channels[name])

    def do_has(self, name: str, *places: str) -> str:
        """Let a relay name the hosts that it has."""
        before = self.lists.changes
        again = self.its.received(self.channels[name], encode(AnsweringHosts(tuple(map(int, places)), True, True)))
        plan = "another plan is needed" if self.lists.changes != before else "the plan stays"
        return f"{plan}; {'lists are sent again' if again else 'nothing is sent again'}"

    def do_connect(self, place: str) -> str:
        """Let an agent that probes connect to the leader itself; say how often hosts are named."""
        session = AgentSession(HOSTS[int(place)], "", "10.0.0.2", None, None, 0.0, 0.0)
        session.probes = True
        self.lists.connected(session)
        self.lists.acknowledged(session)
        self.lists.closed(session, left=False)
        self.lists.acknowledged(session)  # it is back from another relay
        return f"named {self.lists.changes} times"

    def do_assign(self, number: str, text: str, *places: str) -> str:
        relays = {place: self.its.assign(HOSTS[int(place)], int(number), text) for place in places}
        return "\n".join(f"{place}: {self._name(relay)}" for place, relay in relays.items())

    def do_forged(self, place: str, count: str) -> str:
        return self._name(self.its.forged(HOSTS[int(place)], int(count)))

    def do_due(self, name: str) -> str:
        said = [f"message {json.loads(text)['type']}\n" + "\n".join(map(str, relayed.from_leader(text, len(HOSTS))))
                for text in iter(self.channels[name].due, None)]  # fmt: skip
        return "\n".join(said) or "nothing"

    def do_report(self, name: str, *parts: str) -> str:
        """Let a relay hand on reports: a host's number and its records."""
        each = [(int(place), records.encode()) for place, _, records in (part.partition(":") for part in parts)]
        self.its.received(self.channels[name], b"".join(report(*its) for its in each))
        waiting = self.lists.take_waiting()
        handed = ", ".join(f"{place}:{its.decode()}" for place, its in each if report(place, its) in waiting)
        counts = ", ".join(f"{name} {count}" for name, count in self.its.counts.items() if count)
        return f"handed on {handed or 'nothing'}; {counts}"

    def do_answering(self) -> str:
        by = self.lists.answering
        hosts = ", ".join(f"{HOSTS.index(host)} by {self._name(by.get(host))}" for host in sorted(self.lists.hosts()))
        return f"{hosts}; relays {' '.join(map(self._name, self.its.relays.values())) or 'none'}"

    def _name(self, relay: object) -> str:
        return next((name for name, its in self.channels.items() if its is relay), "nobody")


@each_script(__file__, "relay_desk")
def test_relay_desk(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    script.play(Desk(caplog).handle)


@given(st.lists(st.tuples(st.integers(0, 15), st.binary(max_size=RECORD_BYTES)), max_size=30), st.integers(0, 40))
def test_reports_keep_their_order_and_bytes(given_reports: list[tuple[int, bytes]], most: int) -> None:
    each = [(place, report(place, records)) for place, records in given_reports]
    assert relayed.reports(b"".join(its for _, its in each), most) == each[:most]


def test_what_a_host_of_another_relay_traced_is_dropped_and_a_malformed_answer_is_told_to_the_relay() -> None:
    leader = ConnectedAgents(TREE)
    its = RelayDesk(TREE, leader.probe_lists, lambda host, text: leader.traced(host, text, 1.0))
    relay, _ = its.entered("r1", "192.0.2.1", object())
    its.received(relay, json.dumps({"type": "hosts", "hosts": [0]}))  # of an earlier release
    with pytest.raises(UnableError, match="older version"):
        leader.begin_trace((HOSTS[0], HOSTS[-1]), Asked(((0, 0), (1, 0)), 3, 10.0), 1, 0.0)
    for place in (5, 0):
        assert its.received(relay, encode(TraceAnswers((Handed(place, "{}"),)))) == (place == 0), "its relay has to count this"
    assert its.counts["foreign"] == 1
    assert list(relayed.from_leader(relay.due() or "", len(HOSTS))) == [Forged(0, 1)]


def test_a_trace_ends_with_its_agents_session_at_a_relay() -> None:
    below = HandedTraces()
    below.ask(HOSTS[0], encode(TraceRequest(3, count=3, interval_ms=10.0, streams=(Stream(TREE.ip(HOSTS[1]), 0, 0),))))
    below.left(HOSTS[0])
    problem = "the agent has left its relay, or its channel is lost"
    assert below.take() == [(HOSTS[0], encode(*trace_answers(3, (), True, problem)))]
