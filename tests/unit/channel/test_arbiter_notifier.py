"""The controller's side of the arbiter's channel: one place, a term for whoever has it, and its report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.channel import arbiter, protocol
from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier
from sopa_ryu.channel.claims import CLAIM_SECONDS, TakenClaimError
from sopa_ryu.channel.effects import Accept, Cut, Reject, Wake
from sopa_ryu.channel.keepalive import CUT_SECONDS
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

TREE = FatTree(4)
EPOCH = 1_795_000_000_000
REPORT = {"listen": "192.0.2.1:9160", "slot_ms": 3.2, "participants": 3, "batches": 9}


class Controller:
    """A notifier whose fabric can change."""

    def __init__(self, epoch: int = EPOCH) -> None:
        self.view = View(epoch, 1, Failures(TREE))
        self.its = ArbiterNotifier(TREE, lambda: self.view, epoch, lambda: 1000.0)

    def message(self, session: Any) -> dict[str, Any]:
        text = self.its.due(session, 0.0)
        assert text is not None
        body: dict[str, Any] = json.loads(text)
        return body


def test_a_snapshot_has_the_term_and_no_host_and_deltas_follow() -> None:
    controller = Controller()
    session, effects = controller.its.enter("10.0.0.2", "connection", 0.0)  # on a host of the fabric, too
    assert effects == [Wake(session)]
    text = controller.its.due(session, 0.0)
    assert text is not None
    assert arbiter.term_of(text) == controller.its.term == (EPOCH << 12) + 1
    assert protocol.receive(text, None, None) == controller.view
    assert controller.its.due(session, 0.0) is None
    controller.view = View(EPOCH, 2, Failures(TREE, {"c0_0": "down"}))
    assert controller.its.broadcast() == (1, [Wake(session)])
    message = controller.message(session)
    assert (message["type"], message["failed"]) == ("delta", {"c0_0": "down"})


def test_an_agents_snapshot_is_none_for_an_arbiter_and_the_other_way_round() -> None:
    view = View(1, 1, Failures(TREE))
    address = TREE.ip(next(TREE.hosts()))
    with pytest.raises(protocol.ProtocolError, match="not for an arbiter"):
        protocol.receive(protocol.snapshot(view, address), None, None)
    with pytest.raises(protocol.ProtocolError, match=r"not for 10\.0\.0\.2"):
        protocol.receive(arbiter.snapshot(view, 5), None, address)
    with pytest.raises(protocol.ProtocolError, match="term"):
        arbiter.term_of(protocol.snapshot(view, None))


def test_a_second_arbiter_is_rejected_while_the_first_answers_and_takes_its_place_otherwise() -> None:
    its = Controller().its
    assert its.claim(ARBITER, "192.0.2.1", "first", 0.0) == [Accept("first")]
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    first = its.term
    its.claim(ARBITER, "192.0.2.2", "second", 1.0)
    rejected = its.received(session, protocol.ack(None, 0), 1.1)
    assert [type(effect) for effect in rejected] == [Reject]
    assert isinstance(rejected[0], Reject)
    assert isinstance(rejected[0].error, TakenClaimError)
    its.claim(ARBITER, "192.0.2.2", "second", 2.0)
    assert its.tick(2.0 + CLAIM_SECONDS) == [Cut(session), Accept("second")]
    its.enter("192.0.2.2", "connection", 4.0)
    assert its.term > first


def test_a_silent_one_is_pinged_and_cut_off() -> None:
    its = Controller().its
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    assert Cut(session) in its.tick(CUT_SECONDS + 1)
    report = its.report()
    assert report is not None
    assert report["connected"] is False


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=40))
def test_terms_only_rise_whatever_the_controllers_clock_does(steps: list[tuple[int, bool]]) -> None:
    controller, last = Controller(), 0
    for epoch, restarts in steps:
        if restarts:
            controller = Controller(EPOCH - 25 + epoch)
            controller.its.knows(arbiter.asked_term({"term": [str(last)]}))
        controller.its.enter("192.0.2.1", None, 0.0)
        assert controller.its.term > last
        last = controller.its.term
    assert last < 2**53


def test_what_it_reports_is_shown_and_nothing_else() -> None:
    controller = Controller()
    its = controller.its
    assert its.report() is None
    session, _ = its.enter("192.0.2.1", "connection", 0.0)
    controller.message(session)
    its.received(
        session, arbiter.ack(controller.view, 0, {**REPORT, "more": 1, "order": "\n", "late_batches": -1}), 0.1
    )
    report = its.report()
    assert report is not None
    assert report["reports"] == REPORT
    assert (report["peer"], report["since"], report["version"]) == ("192.0.2.1", 1000.0, 1)
    its.received(session, protocol.ack(controller.view, 0), 0.2)
    again = its.report()
    assert again is not None
    assert again["reports"] == REPORT


@settings(max_examples=40)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(arbiter.REPORTED)), inner)))  # fmt: skip
def test_no_report_can_do_harm(value: Any) -> None:
    for text in (json.dumps(value), json.dumps({"report": value})):
        for name, kept in arbiter.report_of(text).items():
            kind = arbiter.REPORTED[name]
            assert isinstance(kept, (int, float) if kind is float else kind)
