"""The controller's side of the arbiter's channel: one place, a term for whoever has it, and its report."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.agent_session import CUT_SECONDS
from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier, asked_term
from sopa_ryu.channel.claims import CLAIM_SECONDS, TakenClaimError
from sopa_ryu.channel.effects import Accept, Cut, Reject, Wake
from sopa_ryu.channel.messages import REPORTED, ArbiterReport, ProtocolError, from_agent, from_controller
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

TREE = FatTree(4)
EPOCH = 1_795_000_000_000
HEALTHY, FAILED = View(EPOCH, 1, Failures(TREE)), View(EPOCH, 2, Failures(TREE, {"c0_0": "down"}))
REPORT = {"listen": "192.0.2.1:9160", "slot_ms": 3.2, "participants": 3, "batches": 9}


def notifier(views: Sequence[View] = (HEALTHY,), epoch: int = EPOCH) -> ArbiterNotifier:
    return ArbiterNotifier(TREE, lambda: views[-1], epoch, lambda: 1000.0)


def test_a_snapshot_has_the_term_and_no_host_and_deltas_follow() -> None:
    views = [HEALTHY]
    its = notifier(views, epoch=2)  # in a cluster the leader's term decides, which is the view's
    session, effects = its.enter("10.0.0.2", "connection", 0.0)  # on a host of the fabric, too
    assert effects == [Wake(session)]
    text = its.due(session, 0.0)
    assert text is not None
    message = from_controller(text)
    assert message.term == its.term == (EPOCH << 12) + 1
    assert protocol.follow(message, None, None) == HEALTHY
    assert its.due(session, 0.0) is None
    views.append(FAILED)
    assert its.broadcast() == (1, [Wake(session)])
    assert protocol.follow(from_controller(its.due(session, 0.0) or ""), HEALTHY, None) == FAILED


def test_it_gets_the_links_of_hosts_that_it_asks_for_after_what_is_new() -> None:
    views = [HEALTHY]
    its = notifier(views)
    its.link = lambda link: messages.HostLink(link.upper.pod, None, TREE.port(link.upper, link.lower))
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    its.due(session, 0.0)
    assert its.due(session, 0.0) is None
    views.append(FAILED)
    assert its.received(session, protocol.ack(HEALTHY, 0, links=14), 1.0) == [Wake(session)]
    assert isinstance(from_controller(its.due(session, 1.0) or ""), messages.Delta)
    assert from_controller(its.due(session, 1.0) or "") == messages.HostLinks(14, ((3, None, 1), (3, None, 2)))
    assert its.due(session, 1.0) is None
    its.received(session, protocol.ack(FAILED, 0, links=1 << 32), 2.0)
    assert session.refused == 1
    its.received(session, protocol.ack(FAILED, 0, links=16), 2.0)
    assert from_controller(its.due(session, 2.0) or "") == messages.HostLinks(16, ())


def test_an_agents_snapshot_is_none_for_an_arbiter_and_the_other_way_round() -> None:
    address = TREE.ip(next(TREE.hosts()))
    with pytest.raises(ProtocolError, match="not for an arbiter"):
        protocol.follow(from_controller(protocol.snapshot(HEALTHY, address)), None, None)
    with pytest.raises(ProtocolError, match=r"not for 10\.0\.0\.2"):
        protocol.follow(from_controller(protocol.snapshot(HEALTHY, None, term=5)), None, address)


def test_a_second_arbiter_is_rejected_while_the_first_answers_and_takes_its_place_otherwise() -> None:
    its = notifier()
    assert its.claim(ARBITER, "192.0.2.1", "first", 0.0) == [Accept("first")]
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    first = its.term
    its.claim(ARBITER, "192.0.2.2", "second", 1.0)
    [rejected] = its.received(session, protocol.ack(None, 0), 1.1)
    assert isinstance(rejected, Reject)
    assert isinstance(rejected.error, TakenClaimError)
    its.claim(ARBITER, "192.0.2.2", "second", 2.0)
    assert its.tick(2.0 + CLAIM_SECONDS) == [Cut(session), Accept("second")]
    session, _ = its.enter("192.0.2.2", "connection", 4.0)
    assert its.term > first
    assert Cut(session) in its.tick(4.0 + CUT_SECONDS + 1)  # it has been silent
    assert (its.report() or {})["connected"] is False


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=40))
def test_terms_only_rise_whatever_the_controllers_clock_does(steps: list[tuple[int, bool]]) -> None:
    its, last = notifier(), 0
    for epoch, restarts in steps:
        if restarts:
            its = notifier(epoch=EPOCH - 25 + epoch)
            its.knows(asked_term({"term": [str(last)]}))
            its.knows(asked_term({"term": [str(2**63 - 2)]}))  # a liar
        its.enter("192.0.2.1", None, 0.0)
        assert its.term > last
        last = its.term
    assert last < 2**53


def test_what_it_reports_is_shown_and_nothing_else() -> None:
    its = notifier()
    assert its.report() is None
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    its.due(session, 0.0)
    right = protocol.ack(HEALTHY, 0, report=ArbiterReport(**REPORT))
    wrong = json.dumps(json.loads(right) | {"report": {"late_batches": -1}})
    for ack in (right.replace("{", '{"more": 1, '), protocol.ack(HEALTHY, 0), wrong):
        its.received(session, ack, 0.1)
        report = its.report() or {}
        shown = [report[field] for field in ("reports", "peer", "since", "version")]
        assert shown == [REPORT, "192.0.2.1", 1000.0, 1]
    assert session.refused == 1


@settings(max_examples=40)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(REPORTED)), inner)))  # fmt: skip
def test_no_report_can_do_harm(value: Any) -> None:
    with suppress(ProtocolError):
        ack = from_agent(json.dumps({"type": "ack", "epoch": 1, "version": 1, "report": value}))
        kept = msgspec.to_builtins(ack)["report"]
        assert all(isinstance(kept[name], REPORTED[name]) for name in kept)
