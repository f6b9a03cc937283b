"""One switch's session: which messages are due in each phase, what answers, refusals and silence lead to."""

from __future__ import annotations

import pytest

from flowrules.model import Flow, Output, SwitchRules, Table
from sopa_ryu.fabric.installation import Sent
from sopa_ryu.fabric.messages import (
    Answer,
    BarrierRequest,
    FlowsRequest,
    GroupsRequest,
    Installed,
    Message,
    Refusal,
    Request,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.phase import Phase
from sopa_ryu.fabric.rule_changes import cookie
from sopa_ryu.fabric.switch_errors import AnotherMasterError, RefusedError, SilentError
from sopa_ryu.fabric.switch_session import SwitchSession
from tests.models.memory_fabric import MemoryFabric
from tests.models.memory_switch import MemorySwitch
from topologies import FatTree

TREE = FatTree(4)
FLOW = Flow(Table.DOWN, 40, (), "one", apply=(Output(1),))
OTHER = Flow(Table.DOWN, 41, (), "other", apply=(Output(2),))
RULES, OTHER_RULES = SwitchRules((FLOW,), ()), SwitchRules((OTHER,), ())
REFUSAL = Refusal("flow_mod_failed", "flow mod failed, code 1, refused message type 14")


@pytest.fixture
def session() -> SwitchSession:
    return SwitchSession(MemorySwitch(1, {}).connect(), TREE.switch("e0_0"), "e0_0", Sent(), 100.0)


def request(messages: list[Message], kind: type) -> Request:
    """Return the last message, which has to be a request of that kind."""
    last = messages[-1]
    assert isinstance(last, RoleRequest | FlowsRequest | GroupsRequest | BarrierRequest)
    assert isinstance(last, kind)
    return last


def answer(session: SwitchSession, messages: list[Message], kind: type, value: Answer = None) -> None:
    session.was_sent(100.0)
    assert session.answered(request(messages, kind), value)


def admitted(session: SwitchSession, *found: Installed) -> SwitchSession:
    """Bring a session up to the rules of version 1."""
    answer(session, session.claim(5), RoleRequest, True)
    flows, groups = session.read()
    assert isinstance(flows, FlowsRequest)
    assert isinstance(groups, GroupsRequest)
    assert session.answered(groups, {})
    assert session.phase is Phase.READING
    assert session.answered(flows, list(found))
    assert session.phase is Phase.WAITING
    session.phase = Phase.INSTALLING
    answer(session, session.install(RULES, 1), BarrierRequest)
    session.phase = Phase.IN_FORCE
    assert (session.rules, session.version) == (RULES, 1)
    return session


def test_a_switch_is_claimed_read_and_given_its_rules(session: SwitchSession) -> None:
    admitted(session)
    assert session.deadline is None
    assert (session.sent.flow_mods, session.sent.group_mods, session.messages_sent) == (1, 0, 1)


def test_only_entries_of_a_sopa_controller_make_a_switch_wait(session: SwitchSession) -> None:
    for owner, foreign in ((cookie(FLOW, 1), True), (7, False)):
        session.phase = Phase.READING
        flows, groups = session.read()
        session.answered(flows, [Installed(1, 1, owner, ())])
        session.answered(groups, {})
        assert session.may_have_foreign_state is foreign


def test_an_answer_is_awaited_from_when_its_request_was_sent(session: SwitchSession) -> None:
    session.claim(5)
    assert session.is_busy
    assert session.deadline is None
    session.was_sent(117.0)
    assert session.deadline == 147.0
    session.was_sent(120.0)  # a probe
    assert session.deadline == 147.0


def test_both_answers_are_awaited_and_the_second_one_no_longer(session: SwitchSession) -> None:
    answer(session, session.claim(5), RoleRequest, True)
    flows, groups = session.read()
    session.was_sent(100.0)
    assert session.answered(flows, [])
    assert session.deadline == 130.0
    with pytest.raises(SilentError, match="no answer to GroupsRequest in 30 s"):
        session.expire()
    assert not session.answered(groups, {})


def test_retry_intervals_double_up_to_60_s_and_begin_anew_after_success(session: SwitchSession) -> None:
    waits = []
    for _ in range(7):
        session.back_off(1000.0)
        assert session.phase is Phase.BACKING_OFF
        assert session.deadline is not None
        waits.append(session.deadline - 1000.0)
        session.expire()
        assert session.phase is Phase.CLAIMING
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    admitted(session).back_off(2000.0)
    assert session.deadline == 2002.0


def test_a_late_refusal_is_ignored(session: SwitchSession) -> None:
    late = request(admitted(session).update(OTHER_RULES, 2), BarrierRequest)
    session.back_off(130.0)
    session.refused(late, REFUSAL)
    assert not session.answered(late, None)
    assert session.phase is Phase.BACKING_OFF


def test_the_same_rules_need_no_message(session: SwitchSession) -> None:
    assert admitted(session).update(RULES, 2) == []
    assert (session.phase, session.version) == (Phase.IN_FORCE, 2)
    session.back_off(100.0)
    with pytest.raises(ValueError, match="no confirmed rules"):
        session.update(RULES, 3)


def test_what_was_refused_counts_at_the_barrier(session: SwitchSession) -> None:
    barrier = request(admitted(session).update(OTHER_RULES, 2), BarrierRequest)
    session.refused(None, REFUSAL)
    session.refused(None, REFUSAL)
    with pytest.raises(RefusedError, match=r"^flow mod failed, code 1, refused message type 14$"):
        session.answered(barrier, None)
    assert session.rules is None
    assert session.sent.errors == {"flow_mod_failed": 2}


def test_what_was_refused_before_does_not_count_at_the_next_barrier(session: SwitchSession) -> None:
    admitted(session).refused(None, REFUSAL)  # a probe
    answer(session, session.update(OTHER_RULES, 2), BarrierRequest)
    assert session.rules == OTHER_RULES


def test_a_refused_claim_means_another_master(session: SwitchSession) -> None:
    claim = request(session.claim(5), RoleRequest)
    with pytest.raises(AnotherMasterError, match="started later than this one"):
        session.refused(claim, Refusal("role_request_failed", "stale"))


def test_a_refused_question_is_an_error_of_its_own(session: SwitchSession) -> None:
    answer(session, session.claim(5), RoleRequest, True)
    flows, _ = session.read()
    with pytest.raises(RefusedError, match="busy"):
        session.refused(flows, Refusal("bad_request", "busy"))


def test_the_role_is_requested_once_per_check_and_may_stay_unanswered(session: SwitchSession) -> None:
    assert admitted(session).role_check() == []
    session.check_role()
    (check,) = session.role_check()
    assert isinstance(check, RoleRequest)
    assert check.generation is None
    assert session.role_check() == []
    session.was_sent(100.0)
    session.expire()
    assert not session.is_busy
    assert session.rules == RULES
    assert not session.answered(check, False)
    session.check_role()
    with pytest.raises(AnotherMasterError):
        answer(session, session.role_check(), RoleRequest, False)


@pytest.mark.parametrize("phase", list(Phase))
def test_probes_are_sent_once_where_this_controller_is_the_master(session: SwitchSession, phase: Phase) -> None:
    session.phase = phase
    session.probes = {4, 3}
    no_master = phase in (Phase.CLAIMING, Phase.BACKING_OFF, Phase.TAKEN, Phase.STANDING_BY, Phase.CLOSED)
    assert session.take_probes() == ([] if no_master else [SendProbe(3), SendProbe(4)])
    assert session.probes == ({3, 4} if no_master else set())


@pytest.mark.parametrize(
    ("names", "accepted"),
    [
        (["e0_0"], True),
        (["0000000000010000", "somewhere.example"], True),
        (["e0_1"], False),
        ([], False),
        (None, False),
    ],
)
def test_a_certificate_may_have_to_name_the_switch(names: list[str] | None, accepted: bool) -> None:
    fabric, switch = MemoryFabric(), TREE.switch("e0_0")
    manager = fabric.core.switches
    manager.rejections.bind_certificates = True
    channel = fabric.switches[switch].connect()
    channel.names = names
    fabric.core.switch_connected(channel, fabric.now)
    assert (switch in manager.sessions) is accepted
    assert manager.rejections.misnamed == (not accepted)
    assert accepted or "certificate" in fabric.state.rejected[channel.dpid]
