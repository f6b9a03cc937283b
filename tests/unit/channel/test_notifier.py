"""What scripts of the push channel (test_push_channel.py) do not show: many agents, bounds, and log lines."""

import logging

import pytest

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import (
    MAX_UNACKNOWLEDGED,
    PING_SECONDS,
    PINGS_A_SECOND,
    PINGS_AT_ONCE,
    ROUND_SECONDS,
    AgentSession,
    Phase,
)
from sopa_ryu.channel.effects import Cut, Wake
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.notifier import MAX_REFUSED, Notifier
from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, PushChannel
from tests.models.relayed_channels import follow
from topologies import Failures, FatTree, Host

FIRST, SECOND = list(TREE.hosts())[:2]


@pytest.fixture
def channel() -> PushChannel:
    channel = PushChannel()
    channel.settle()
    return channel


def connected(channel: PushChannel, host: Host) -> Agent:
    agent = Agent(host)
    assert channel.claim(agent).accepted
    follow(channel, agent)
    return agent


def session_of(channel: PushChannel, agent: Agent) -> AgentSession:
    session = channel.session(agent)
    assert session is not None
    return session


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.levelno == logging.WARNING for record in caplog.records)


def test_pings_to_many_agents_are_spread() -> None:
    tree = FatTree(8)
    notifier = Notifier(tree, lambda: None)
    for host in tree.hosts():
        session, _ = notifier.connected(host, "peer", None, None, 0.0)
        assert notifier.due(session, 0.0) is None
    pings, moments = [], [PING_SECONDS + 1]
    while len(pings) < tree.host_count:
        effects = notifier.tick(moments[-1])
        assert len(effects) == PINGS_AT_ONCE
        assert notifier.tick(moments[-1]) == []  # not yet
        pings += effects
        moments.append(notifier.next_tick)
    assert moments[-2] - moments[0] == pytest.approx((tree.host_count - PINGS_AT_ONCE) / PINGS_A_SECOND)
    assert moments[-1] - moments[-2] == pytest.approx(ROUND_SECONDS)
    sessions = [effect.session for effect in pings if isinstance(effect, Wake)]
    assert {session.host for session in sessions if session.ping_due} == set(tree.hosts())


def test_times_of_sending_are_kept_for_a_bounded_number_of_versions(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    session = session_of(channel, agent)
    for number in range(3 * MAX_UNACKNOWLEDGED):
        channel.fail({"a0_0": f"{number}"})
        agent.read()  # and its acknowledgements are late
        channel.carry_out([])
    assert len(session._sent_at) == MAX_UNACKNOWLEDGED
    follow(channel, agent)
    assert session.behind_since() is None


def test_the_first_messages_that_are_none_are_logged(channel: PushChannel, caplog: pytest.LogCaptureFixture) -> None:
    session = session_of(channel, connected(channel, FIRST))
    for _ in range(MAX_REFUSED):
        channel.notifier.received(session, "{", channel.now)
    assert 1 <= warnings(caplog) <= 10


def test_a_closed_session_sends_and_receives_nothing(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    session = session_of(channel, agent)
    channel.leave(agent)
    channel.fail({"a0_0": "down"})
    assert channel.notifier.due(session, channel.now) is None
    assert channel.notifier.received(session, protocol.ack(channel.view, 0), channel.now) == []
    assert channel.notifier.closed(session) == []
    assert (session.phase, session.acknowledged) == (Phase.CLOSED, 1)


def test_an_agent_whose_claim_was_accepted_just_before_a_controller_stands_by_is_sent_away() -> None:
    notifier = Notifier(TREE, lambda: None)
    notifier.claim(FIRST, "192.0.2.1", "claimant", 0.0)
    notifier.depose(True, "c2 leads")
    session, effects = notifier.connected(FIRST, "192.0.2.1", None, None, 0.1)
    assert effects == [Cut(session)]
    assert not notifier.sessions


@pytest.mark.parametrize(("carrier", "said"), [("mac", 0), (None, 0), ("option", 1)])
def test_an_agent_of_another_carrier_is_a_warning(carrier: str | None, said: int, caplog: pytest.LogCaptureFixture) -> None:
    Notifier(TREE, lambda: None).connected(FIRST, "peer", carrier, None, 0.0)
    assert warnings(caplog) == said


@pytest.mark.parametrize("kind", ChannelKind)
@pytest.mark.parametrize("relays", [False, True])
def test_an_agent_that_comes_as_ever_another_variant_of_mcs_leaves_no_lists(kind: ChannelKind, relays: bool) -> None:
    view = View(1, 1, Failures(TREE))
    notifier = Notifier(TREE, lambda: view, relays=relays)
    for number in range(100):
        variant = Variant(number, kind)
        for host in (FIRST, SECOND)[: 1 + (number < 50)]:
            session, _ = notifier.connected(host, "peer", None, None, number, "mcs", variant)
            notifier.due(session, number)
            notifier.received(session, protocol.ack(view, 0, 0), number)
        notifier.tick(number if number % 7 else 2 * number)
        lists = notifier.mcs_hosts.lists(kind)
        assert lists is None or len(lists) <= 2
    assert all(len(its) <= 3 for its in vars(notifier.mcs_hosts).values() if isinstance(its, dict) and FIRST not in its)


def test_a_host_whose_labels_switches_ignore_is_neither_given_streams_nor_probed() -> None:
    lists = ProbeLists()
    lists.unlabelled = frozenset({FIRST})
    lists.relays(object(), {FIRST, SECOND})
    assert lists.hosts() == [SECOND]
