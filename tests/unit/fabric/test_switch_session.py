"""One switch's session: what scripts/coordinator does not show of answers, refusals and silence."""

import pytest

from flowrules.model import Flow, Output, SwitchRules, Table
from sopa_ryu.fabric.messages import Installed, Refusal, SendProbe
from sopa_ryu.fabric.rule_changes import Sent, cookie
from sopa_ryu.fabric.switch_session import AnotherMasterError, SwitchError, SwitchPhase, SwitchSession
from tests.models.memory_fabric import MemoryFabric
from tests.models.memory_switch import MemorySwitch
from topologies import FatTree

TREE = FatTree(4)
FLOW = Flow(Table.DOWN, 40, (), "one", apply=(Output(1),))
RULES = SwitchRules((FLOW,), ())
OTHER_RULES = SwitchRules((FLOW._replace(priority=41),), ())
REFUSAL = Refusal("flow_mod_failed", "flow mod failed, code 1, refused message type 14")


@pytest.fixture
def session() -> SwitchSession:
    return SwitchSession(MemorySwitch(1, {}).connect(), TREE.switch("e0_0"), "e0_0", Sent(), 100.0)


def admitted(session: SwitchSession) -> SwitchSession:
    """Bring a session up to the rules of version 1."""
    assert session.answered(session.claim(5)[-1], True)
    flows, groups = session.read()
    assert session.answered(groups, {})
    assert session.phase is SwitchPhase.READING
    assert session.answered(flows, [])
    assert session.phase is SwitchPhase.WAITING
    session.phase = SwitchPhase.INSTALLING
    barrier = session.install(RULES, 1)[-1]
    session.was_sent(100.0)
    assert session.answered(barrier, None)
    session.phase = SwitchPhase.IN_FORCE
    assert (session.rules, session.version, session.deadline) == (RULES, 1, None)
    return session


def test_a_session_counts_what_it_has_sent(session: SwitchSession) -> None:
    sent = admitted(session).sent
    assert (sent.flow_mods, sent.group_mods, session.installation.messages_sent) == (1, 0, 1)


@pytest.mark.parametrize(("owner", "foreign"), [(cookie(FLOW, 1), True), (7, False)])
def test_only_entries_of_a_controller_make_a_switch_wait(session: SwitchSession, owner: int, foreign: bool) -> None:
    session.phase = SwitchPhase.READING
    for request, answer in zip(session.read(), ([Installed(1, 1, owner, ())], {}), strict=True):
        session.answered(request, answer)
    assert session.installation.is_of_sopa is foreign


def test_both_answers_are_awaited_and_the_second_one_no_longer(session: SwitchSession) -> None:
    flows, groups = session.read()
    session.was_sent(100.0)
    assert session.answered(flows, [])
    assert session.deadline == 130.0
    with pytest.raises(SwitchError, match="no answer to GroupsRequest in 30 s"):
        session.expire()
    assert not session.answered(groups, {})


def test_a_late_refusal_is_ignored(session: SwitchSession) -> None:
    late = admitted(session).update(OTHER_RULES, 2)[-1]
    session.back_off(130.0)
    session.refused(late, REFUSAL)
    assert not session.answered(late, None)
    assert session.phase is SwitchPhase.BACKING_OFF
    with pytest.raises(ValueError, match="no confirmed rules"):
        session.update(RULES, 3)


def test_what_was_refused_counts_at_its_own_barrier_only(session: SwitchSession) -> None:
    admitted(session).refused(None, REFUSAL)  # a probe
    assert session.answered(session.update(OTHER_RULES, 2)[-1], None)
    assert session.rules == OTHER_RULES
    barrier = session.update(RULES, 3)[-1]
    session.refused(None, REFUSAL)
    with pytest.raises(SwitchError, match=f"^{REFUSAL.text}$"):
        session.answered(barrier, None)
    assert session.rules is None
    assert session.sent.errors == {"flow_mod_failed": 2}


def test_a_refused_claim_means_another_master_and_a_refused_question_does_not(session: SwitchSession) -> None:
    with pytest.raises(AnotherMasterError, match="started later than this one"):
        session.refused(session.claim(5)[-1], Refusal("role_request_failed", "stale"))
    with pytest.raises(SwitchError, match="busy"):
        session.refused(session.read()[-1], Refusal("bad_request", "busy"))


@pytest.mark.parametrize("phase", list(SwitchPhase))
def test_probes_are_sent_once_where_this_controller_is_the_master(session: SwitchSession, phase: SwitchPhase) -> None:
    session.phase, session.probes = phase, {4, 3}
    no_master = phase.name in ("CLAIMING", "BACKING_OFF", "TAKEN", "STANDING_BY", "CLOSED")
    assert session.take_probes() == ([] if no_master else [SendProbe(3), SendProbe(4)])
    assert session.probes == ({3, 4} if no_master else set())


def test_only_the_answer_to_the_last_question_says_that_a_switch_is_alive(session: SwitchSession) -> None:
    questions = []
    for _ in range(2):
        session.ask_alive()
        questions.append(session.take_echo()[-1])
    assert [session.is_alive(question) for question in (*questions, questions[-1])] == [False, True, False]


@pytest.mark.parametrize(
    ("names", "accepted"),
    [(["e0_0"], True), (["0000000000010000", "elsewhere.example"], True), (["e0_1"], False), ([], False), (None, False)],
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
