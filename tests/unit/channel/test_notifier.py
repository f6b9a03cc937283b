"""The rules of the push channel on the controller's side, one by one, with a virtual clock."""

from __future__ import annotations

import json
import logging
import random
from typing import Any

import pytest

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import MAX_UNACKNOWLEDGED, AgentSession, Phase
from sopa_ryu.channel.claims import CLAIM_SECONDS, ForeignClaimError, TakenClaimError
from sopa_ryu.channel.effects import Wake
from sopa_ryu.channel.keepalive import CUT_SECONDS, PING_SECONDS, PINGS_A_SECOND, PINGS_AT_ONCE, ROUND_SECONDS
from sopa_ryu.channel.notifier import MAX_DELTA_VERSIONS, MAX_REFUSED, Notifier
from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, Claim, PushChannel
from topologies import Failures, FatTree

FIRST, SECOND, THIRD = list(TREE.hosts())[:3]


@pytest.fixture
def channel() -> PushChannel:
    """A controller that knows what has failed."""
    channel = PushChannel()
    channel.settle()
    return channel


def connected(channel: PushChannel, host: Any, *, reads: bool = True) -> Agent:
    agent = Agent(host)
    assert channel.claim(agent).accepted
    if reads:
        follow(channel, agent)
    return agent


def follow(channel: PushChannel, agent: Agent) -> None:
    """Let an agent read what is due, and its answers arrive."""
    while agent.read() | channel.hear(agent):
        channel.carry_out([])


def say(channel: PushChannel, agent: Agent, *texts: str | bytes) -> AgentSession:
    """Let messages of an agent arrive; return its session."""
    session = session_of(channel, agent)
    session.connection.to_controller.extend(texts)
    while channel.hear(agent):
        pass
    return session


def session_of(channel: PushChannel, agent: Agent) -> AgentSession:
    session = channel.session(agent)
    assert session is not None
    return session


def unread(agent: Agent) -> list[str]:
    assert agent.connection is not None
    return [json.loads(text)["type"] for text in agent.connection.to_agent]


# -- versions ---------------------------------------------------------------------------------------------------------


def test_an_agent_gets_a_snapshot_then_deltas(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    for reasons in ({"a0_0": "down"}, {"a0_0": "down", "c0_1": "silent"}, {}):
        channel.fail(reasons)
        follow(channel, agent)
        assert agent.view == channel.view
    assert agent.kinds == ["snapshot", "delta", "delta", "delta"]


def test_agents_at_the_same_version_share_one_text(channel: PushChannel) -> None:
    agents = [connected(channel, host) for host in (FIRST, SECOND)]
    channel.change(a0_0="down")
    first, second = (agent.connection.to_agent[0] for agent in agents if agent.connection)
    assert first is second


def test_a_slow_agent_delays_none_and_gets_one_merged_delta(channel: PushChannel) -> None:
    slow, quick = connected(channel, FIRST), connected(channel, SECOND)
    for name in ("a0_0", "a1_0", "a2_0", "a3_0"):
        channel.fail({name: "down"})
        follow(channel, quick)
        assert quick.view == channel.view
    slow.kinds.clear()
    follow(channel, slow)
    assert slow.view == channel.view
    # one was in the connection, one waited to be written, the third has everything after that
    assert slow.kinds == ["delta", "delta", "delta"]


@pytest.mark.parametrize(("versions", "kind"), [(MAX_DELTA_VERSIONS - 1, "delta"), (MAX_DELTA_VERSIONS, "snapshot")])
def test_an_agent_that_is_far_behind_gets_a_snapshot(channel: PushChannel, versions: int, kind: str) -> None:
    agent = connected(channel, FIRST)
    channel.change(a0_0="down")
    channel.change(a0_0="silent")
    for number in range(versions):
        channel.fail({"c0_0": f"{number}"})
    agent.kinds.clear()
    follow(channel, agent)
    assert agent.kinds == ["delta", "delta", kind]
    assert agent.view == channel.view


def test_nothing_is_sent_before_it_is_known_what_has_failed() -> None:
    channel = PushChannel()
    agent = connected(channel, FIRST)
    assert agent.kinds == []
    channel.advance(PING_SECONDS + 2)
    assert unread(agent) == ["ping"]
    follow(channel, agent)
    assert channel.settle() == 1
    follow(channel, agent)
    assert (agent.kinds, agent.view) == (["snapshot"], channel.view)


def test_a_request_for_a_snapshot_is_answered_by_one(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    say(channel, agent, protocol.RESYNC)
    assert unread(agent) == ["snapshot"]


# -- acknowledgements -------------------------------------------------------------------------------------------------


def test_a_version_is_completed_once_when_the_last_agent_acknowledges(channel: PushChannel) -> None:
    first, second = connected(channel, FIRST), connected(channel, SECOND)
    assert channel.change(a0_0="down") == 2
    follow(channel, first)
    assert (channel.completed, channel.notifier.behind(channel.view.version)) == ([], 1)
    follow(channel, second)
    assert (channel.completed, channel.notifier.behind(channel.view.version)) == ([channel.view.version], 0)
    say(channel, first, protocol.ack(first.view, 0))
    assert channel.completed == [channel.view.version]


def test_a_version_is_completed_when_the_last_agent_leaves(channel: PushChannel) -> None:
    first, second = connected(channel, FIRST), connected(channel, SECOND)
    channel.change(a0_0="down")
    follow(channel, first)
    channel.leave(second)
    assert channel.completed == [channel.view.version]


def test_a_version_that_no_agent_awaits_is_never_completed(channel: PushChannel) -> None:
    assert channel.change(a0_0="down") == 0
    connected(channel, FIRST)
    assert channel.completed == []


def test_an_acknowledgement_is_one_of_earlier_versions_too(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    versions = [channel.fail({name: "down"}) and channel.view.version for name in ("a0_0", "a1_0", "a2_0")]
    while agent.read():
        channel.carry_out([])
    say(channel, agent, protocol.ack(channel.view, 0))
    assert channel.completed == versions


def test_an_acknowledgement_of_another_epoch_does_not_count() -> None:
    channel = PushChannel()
    agent = connected(channel, FIRST)
    channel.settle()
    channel.change(a0_0="down")
    session = say(channel, agent, protocol.ack(View(0, 2, Failures(TREE)), 3))
    assert (session.acknowledged, session.refuses, session.refused) == (0, 3, 0)
    assert channel.completed == []


def test_an_acknowledgement_of_a_later_version_is_rejected(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    version = channel.view.version
    session = say(channel, agent, protocol.ack(channel.view._replace(version=version + 1), 0))
    assert (session.acknowledged, session.refused) == (version, 1)


def test_tell_has_the_lag_and_the_time_of_an_agent(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    channel.change(a0_0="down")
    channel.now += 0.5
    channel.change(a1_0="down")
    channel.now += 0.25
    session = session_of(channel, agent)
    assert channel.notifier.tell(session, channel.view.version, channel.now) == {
        "host": "h0_0_2",
        "address": "10.0.0.2",
        "peer": "10.0.0.2",
        "carrier": None,
        "policy": None,
        "version": 1,
        "lag": 2,
        "lag_seconds": 0.75,
        "acknowledged_ms": 0.0,
        "last_contact_seconds": 0.75,
        "refused": 0,
        "refuses": 0,
    }
    agent.read()
    channel.hear(agent)
    row = channel.notifier.tell(session, channel.view.version, channel.now)
    assert (row["lag"], row["lag_seconds"], row["acknowledged_ms"]) == (1, 0.25, 750.0)


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


# -- silence ----------------------------------------------------------------------------------------------------------


def test_a_silent_agent_is_pinged_and_stays_if_it_answers(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    for _ in range(10):
        channel.advance(PING_SECONDS - 1)
        assert unread(agent) == []
        channel.advance(1 + ROUND_SECONDS)
        assert unread(agent) == ["ping"]
        follow(channel, agent)
    assert agent.kinds == ["snapshot"]


def test_an_agent_that_stays_silent_is_cut_off(channel: PushChannel) -> None:
    silent, other = connected(channel, FIRST), connected(channel, SECOND)
    channel.change(a0_0="down")
    for _ in range(int(CUT_SECONDS)):
        assert silent.connection is not None
        channel.advance(1)
        follow(channel, other)
    channel.advance(ROUND_SECONDS)
    assert (silent.connection, channel.completed) == (None, [channel.view.version])
    assert list(channel.notifier.sessions) == [SECOND]


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
    assert {effect.session.host for effect in pings if isinstance(effect, Wake)} == set(tree.hosts())
    assert all(effect.session.ping_due for effect in pings if isinstance(effect, Wake))


# -- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["10.0.0.2", "192.168.0.1", "::1", ""])
def test_an_agent_may_connect_from_its_host_or_outside(channel: PushChannel, peer: str) -> None:
    assert channel.claim(Agent(FIRST), peer).accepted


def test_a_claim_from_another_host_is_rejected_and_counted(channel: PushChannel) -> None:
    claim = channel.claim(Agent(FIRST), "10.0.0.3")
    assert isinstance(claim.error, ForeignClaimError)
    assert str(claim.error) == "10.0.0.3 is h0_0_3: an agent may only ask for its own host"
    assert channel.notifier.refused == {"claims": 1, "messages": 0}


def test_a_claim_waits_until_the_holder_answers_and_is_rejected(channel: PushChannel) -> None:
    holder = connected(channel, FIRST)
    claim = channel.claim(Agent(FIRST), "192.168.0.1")
    assert not claim.decided
    assert unread(holder) == ["ping"]
    follow(channel, holder)
    assert isinstance(claim.error, TakenClaimError)
    assert str(claim.error) == "another agent of 10.0.0.2 is connected, from 10.0.0.2: end that one first"
    assert channel.notifier.refused == {"claims": 1, "messages": 0}
    assert channel.session(holder) is not None


def test_a_holder_that_does_not_answer_loses_its_place_in_time(channel: PushChannel) -> None:
    holder, heir = connected(channel, FIRST), Agent(FIRST)
    claim = channel.claim(heir)
    channel.advance(CLAIM_SECONDS - 0.01)
    assert not claim.decided
    channel.advance(0.01)
    assert claim.accepted
    assert holder.connection is None
    assert unread(heir) == ["snapshot"]


def test_a_claim_is_accepted_as_soon_as_the_holder_leaves(channel: PushChannel) -> None:
    holder, heir = connected(channel, FIRST), Agent(FIRST)
    claim = channel.claim(heir)
    channel.leave(holder)
    assert claim.accepted


def test_of_two_that_claim_the_place_of_a_dead_agent_one_stays(channel: PushChannel) -> None:
    connected(channel, FIRST)
    first, second = Agent(FIRST), Agent(FIRST)
    claims = [channel.claim(agent) for agent in (first, second)]
    channel.advance(CLAIM_SECONDS)
    assert all(claim.accepted for claim in claims)
    assert first.connection is None
    assert unread(second) == ["snapshot"]
    assert len(channel.notifier.sessions) == 1


def test_a_holder_that_is_cut_off_by_its_answer_loses_its_place(channel: PushChannel) -> None:
    holder = connected(channel, FIRST)
    say(channel, holder, *["{}"] * (MAX_REFUSED - 1))
    claim: Claim = channel.claim(Agent(FIRST))
    say(channel, holder, "{}")
    assert claim.accepted


# -- what is rejected -------------------------------------------------------------------------------------------------


def test_rejected_messages_are_counted_and_the_first_is_logged(
    channel: PushChannel, caplog: pytest.LogCaptureFixture
) -> None:
    agent = connected(channel, FIRST)
    session = say(channel, agent, "", "{", b"\x00\xff")
    assert (session.refused, channel.notifier.refused) == (3, {"claims": 0, "messages": 3})
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_an_agent_that_sends_nothing_but_rejected_messages_is_cut_off(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    session = say(channel, agent, *["{}"] * (MAX_REFUSED - 1))
    assert session.phase is not Phase.CLOSED
    say(channel, agent, "{}")
    assert session.phase is Phase.CLOSED
    assert channel.notifier.sessions == {}


def test_no_bytes_from_an_agent_raise_or_change_what_others_get(channel: PushChannel) -> None:
    draw = random.Random("fuzz")
    bad, good = connected(channel, FIRST), connected(channel, SECOND)
    for _ in range(1000):
        text = bytearray(draw.choice([protocol.ack(channel.view, 0), protocol.RESYNC]).encode())
        text[draw.randrange(len(text))] = draw.randrange(256)
        if bad.connection is None:
            bad = connected(channel, FIRST)
        say(channel, bad, bytes(text))
    channel.change(a0_0="down")
    follow(channel, good)
    assert good.view == channel.view


def test_a_closed_session_sends_and_receives_nothing(channel: PushChannel) -> None:
    agent = connected(channel, FIRST)
    session = session_of(channel, agent)
    channel.leave(agent)
    channel.change(a0_0="down")
    assert channel.notifier.due(session, channel.now) is None
    assert channel.notifier.received(session, protocol.ack(channel.view, 0), channel.now) == []
    assert channel.notifier.closed(session) == []
    assert (session.phase, session.acknowledged) == (Phase.CLOSED, 1)


@pytest.mark.parametrize(("carrier", "warnings"), [("mac", 0), (None, 0), ("option", 1)])
def test_an_agent_of_another_carrier_is_a_warning(
    carrier: str | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier(TREE, lambda: None).connected(FIRST, "peer", carrier, None, 0.0)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == warnings
