"""Which switches are admitted first of many that connect at once."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.fabric.admission import AT_ONCE, Admission
from sopa_ryu.fabric.installation import Sent
from sopa_ryu.fabric.phase import Phase
from sopa_ryu.fabric.switch_session import SwitchSession
from tests.models.memory_switch import MemorySwitch
from topologies import FatTree

TREE = FatTree(16)
SWITCHES = list(TREE.switches())
OVER = (Phase.IN_FORCE, Phase.BACKING_OFF, Phase.TAKEN, Phase.CLOSED)


def sessions(count: int) -> list[SwitchSession]:
    return [
        SwitchSession(MemorySwitch(1, {}).connect(), switch, TREE.name(switch), Sent(), 0.0)
        for switch in SWITCHES[:count]
    ]


@pytest.fixture
def its() -> list[SwitchSession]:
    return sessions(2 * AT_ONCE)


def waiting(its: list[SwitchSession], waits: Callable[[SwitchSession], bool] = lambda session: False) -> Admission:
    """An admission with everybody in its line."""
    admission = Admission(waits)
    assert not any(admission.is_turn(session) for session in its)
    return admission


def test_as_many_as_there_are_turns_go_on_and_the_others_follow_in_order(its: list[SwitchSession]) -> None:
    admission = waiting(its[: AT_ONCE + 3])
    assert admission.begin() == its[:AT_ONCE]
    assert [admission.is_turn(session) for session in its[: AT_ONCE + 3]] == [True] * AT_ONCE + [False] * 3
    its[5].phase, its[7].phase = Phase.IN_FORCE, Phase.READING
    assert admission.begin() == [its[AT_ONCE]]
    its[0].phase = its[1].phase = Phase.BACKING_OFF  # it does not answer: others do not wait for it
    its[AT_ONCE + 1].phase = Phase.CLOSED
    assert admission.begin() == [its[AT_ONCE + 2]]
    its[0].phase = Phase.CLAIMING
    assert not admission.is_turn(its[0])
    assert admission.begin() == [its[0]]


@pytest.mark.parametrize("phase", [Phase.IN_FORCE, Phase.UPDATING])
def test_a_switch_in_use_never_waits_for_a_turn(its: list[SwitchSession], phase: Phase) -> None:
    admission = waiting(its)
    admission.begin()
    its[-1].phase = phase
    assert admission.is_turn(its[-1])


def test_switches_that_wait_for_the_fabric_to_settle_hold_up_nobody(its: list[SwitchSession]) -> None:
    wait = True
    admission = waiting(its, lambda session: wait)
    for session in admission.begin():
        session.phase = Phase.WAITING
    assert admission.begin() == its[AT_ONCE:]
    for session in its:
        session.phase = Phase.WAITING
    assert admission.begin() == []
    assert all(map(admission.is_turn, its))  # nothing is due to them
    wait = False
    assert not any(map(admission.is_turn, its))
    assert admission.begin() == its[:AT_ONCE]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 199), st.sampled_from([*OVER, Phase.READING, Phase.INSTALLING])), max_size=400)
)
def test_everybody_gets_a_turn_and_never_too_many_at_once(events: list[tuple[int, Phase]]) -> None:
    its = sessions(200)
    admission = waiting(its)
    begun = {id(session) for session in admission.begin()}
    for number, phase in events:
        if id(its[number]) in begun and its[number].phase not in OVER:
            its[number].phase = phase
        begun |= {id(session) for session in admission.begin()}
        assert sum(session.phase not in OVER and id(session) in begun for session in its) <= AT_ONCE
    while turns := [session for session in its if session.phase not in OVER and id(session) in begun]:
        turns[0].phase = Phase.IN_FORCE
        begun |= {id(session) for session in admission.begin()}
    assert len(begun) == len(its)
