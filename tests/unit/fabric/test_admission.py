"""Which switches are admitted first of many that connect at once."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.fabric.pacing import AT_ONCE, Admission
from sopa_ryu.fabric.rule_changes import Sent
from sopa_ryu.fabric.switch_session import SwitchPhase, SwitchSession
from tests.models.memory_switch import MemorySwitch
from topologies import FatTree

TREE = FatTree(16)
SWITCHES = list(TREE.switches())
OVER = (SwitchPhase.IN_FORCE, SwitchPhase.BACKING_OFF, SwitchPhase.TAKEN, SwitchPhase.CLOSED)


def sessions(count: int) -> list[SwitchSession]:
    return [SwitchSession(MemorySwitch(1, {}).connect(), switch, TREE.name(switch), Sent(), 0.0) for switch in SWITCHES[:count]]


def waiting(line: list[SwitchSession], waits: Callable[[SwitchSession], bool] = lambda session: False) -> Admission:
    """An admission with everybody in its line."""
    admission = Admission(waits)
    assert not any(admission.is_turn(session) for session in line)
    return admission


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 199), st.sampled_from([*OVER, SwitchPhase.READING, SwitchPhase.INSTALLING])), max_size=400)
)
def test_turns_begin_in_order_as_others_end_and_never_too_many_at_once(events: list[tuple[int, SwitchPhase]]) -> None:
    line = sessions(200)
    admission = waiting(line)
    begun = admission.begin()

    def in_turn() -> list[SwitchSession]:
        return [session for session in begun if session.phase not in OVER]

    for number, phase in events:
        if line[number] in in_turn():
            line[number].phase = phase
        begun += admission.begin()
        assert len(in_turn()) == min(AT_ONCE, sum(session.phase not in OVER for session in line))
        assert all(map(admission.is_turn, in_turn()))
    while turns := in_turn():
        turns[0].phase = SwitchPhase.IN_FORCE
        begun += admission.begin()
    assert begun == line


def test_who_has_gone_is_passed_over_and_who_tries_again_is_in_the_line_again() -> None:
    first, second, *_, gone, last = line = sessions(AT_ONCE + 2)
    admission = waiting(line)
    admission.begin()
    first.phase, gone.phase = SwitchPhase.BACKING_OFF, SwitchPhase.CLOSED
    assert admission.begin() == [last]
    first.phase = SwitchPhase.CLAIMING
    assert not admission.is_turn(first)
    assert admission.begin() == []
    second.phase = SwitchPhase.IN_FORCE
    assert admission.begin() == [first]


@pytest.mark.parametrize("phase", [SwitchPhase.IN_FORCE, SwitchPhase.UPDATING])
def test_a_switch_in_use_never_waits_for_a_turn(phase: SwitchPhase) -> None:
    line = sessions(AT_ONCE + 1)
    admission = waiting(line)
    line[-1].phase = phase
    assert admission.is_turn(line[-1])


def test_switches_that_wait_for_the_fabric_to_settle_hold_up_nobody() -> None:
    wait, line = True, sessions(2 * AT_ONCE)
    admission = waiting(line, lambda session: wait)
    for session in admission.begin():
        session.phase = SwitchPhase.WAITING
    assert admission.begin() == line[AT_ONCE:]
    for session in line:
        session.phase = SwitchPhase.WAITING
    assert admission.begin() == []
    assert all(map(admission.is_turn, line))  # nothing is due to them
    wait = False
    assert not any(map(admission.is_turn, line))
    assert admission.begin() == line[:AT_ONCE]
