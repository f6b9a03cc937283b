"""Small parts of the core: who has a turn, who has followed which version, and what follows from suspect links."""

import logging
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.events.event import Event
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.pacing import AT_ONCE, Admission, Pacer
from sopa_ryu.fabric.rule_changes import Sent
from sopa_ryu.fabric.suspects import Caretaker, Suspected, SuspectPolicy, needed
from sopa_ryu.fabric.switch_session import SwitchPhase, SwitchSession
from sopa_ryu.fabric.view import VersionTracker
from tests.helpers.golden import Script, Step, each_script
from tests.models.memory_fabric import MemoryFabric
from tests.models.memory_switch import MemorySwitch
from topologies import Clos, Failures, FatTree, Reason

LOG = logging.getLogger("sopa.health")


class Part:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog

    def handle(self, step: Step) -> str:
        self.caplog.clear()
        said = getattr(self, f"do_{step.command}")(*step.words, **step.options)
        return "\n".join([str(said or ""), *self.caplog.messages])


class Pacing(Part):
    def do_pacer(self, interval: str) -> str:
        self.its = Pacer[str](float(interval))
        return f"at {self.its.at:g}"

    def do_due(self, at: str, things: str = "") -> str:
        thing = self.its.due(things, float(at))
        return f"{thing or 'nobody'}, then at {self.its.at:g}"

    def do_turns(self, things: str, begin: str, end: str) -> str:
        """Say who has a turn when, if the pacer is asked at the time that it says, and never before."""
        told, now = [], max(float(begin), self.its.at)
        while now <= float(end):
            told.append(f"{now:g} {self.its.due(things, now)}")
            now = max(now, self.its.at)
        return ", ".join(told)


class Tracking(Part):
    def do_tracker(self) -> None:
        self.done: list[int] = []
        self.its = VersionTracker(self.done.append)

    def do_begin(self, version: str, who: str = "") -> str:
        return f"waits for {self.its.begin(int(version), who)}"

    def do_reached(self, who: str, version: str) -> str:
        self.its.reached(who, int(version))
        return f"done: {self.done}"

    def do_left(self, who: str) -> str:
        self.its.left(who)
        return f"done: {self.done}"


class Suspicions(Part):
    tree: Clos = FatTree(8)

    def do_caretaker(self, policy: str) -> None:
        self.its, self.names = Caretaker(self.tree, SuspectPolicy(policy)), set[str]()
        self.its.note = self.noted

    def noted(self, events: Iterable[Event]) -> None:
        for event in events:
            LOG.info("event: %s %s: %s", event.kind, event.element, event.cause)

    def do_suspects(self, *names: str, certainty: str = "0.9999", down: str = "yes", drained: str = "", of: str = "all") -> str:
        """Say what is to be drained after an evaluation, what is confirmed, and what has been drained, with those that are."""
        self.names.update(names)
        found = [Suspected(name, {"yes": True, "no": False}.get(down), 0.0123, float(certainty), 7) for name in names]
        drain = self.its.decide(found, Failures(self.tree, dict.fromkeys(drained.split(), "drained")), of == "all")
        told = drain, [one.name for one in self.its.confirmed()], sorted(filter(self.its.action, self.names))
        return "to drain: {}; confirmed: {}; drained: {}".format(*(" ".join(each) or "nothing" for each in told))

    def do_needed(self, numbers: str, name: str, down: str = "", absent: str = "") -> str:
        tree = Clos(*map(int, numbers.split()), links=dict.fromkeys(absent.split(), "absent"))
        return needed(tree, Failures(tree, dict.fromkeys(down.split(), "down")), name) or "it is not needed"


PARTS = {"pacer": Pacing, "version_tracker": Tracking, "suspects": Suspicions}


@each_script(__file__, *PARTS)
def test_script(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.health")
    script.play(PARTS[script.path.parent.name](caplog).handle)


@pytest.mark.parametrize("name", ["a0_0-c0_0", "a3_0", "c1_1"])
@pytest.mark.parametrize("reason", [Reason.NO_RULES, Reason.NOT_CONNECTED, Reason.MISWIRED, Reason.DRAINED])
def test_what_forwards_is_left_from_below_and_used_again_from_above(reason: Reason, name: str) -> None:
    """In between no switch sends a packet to one above that has no way for it any more, or none yet."""
    fabric = MemoryFabric(4)
    for switch in reversed(fabric.switches):  # the order of connections decides nothing
        fabric.connect(switch)
    fabric.settle()
    fabric.advance(1)
    state, healthy = fabric.state, fabric.state.failures
    for failures, sign in ((Failures(fabric.tree, {name: reason}), 1), (healthy, -1)):
        effects = Effects(due=dict.fromkeys(fabric.core.switches.sessions.values()))
        state.version, state.failures = state.version + 1, failures
        fabric.core.switches.follow(state.version - 1, effects)
        levels = [session.switch.level for session in effects.due if not session.holds(state.version)]
        assert levels == sorted(levels, key=lambda level: sign * level)
        assert levels


# -- who is admitted first of many switches that connect at once

OVER = (SwitchPhase.IN_FORCE, SwitchPhase.BACKING_OFF, SwitchPhase.TAKEN, SwitchPhase.CLOSED)


def sessions(count: int) -> list[SwitchSession]:
    switches = list(FatTree(16).switches())[:count]
    return [SwitchSession(MemorySwitch(1, {}).connect(), switch, f"{switch}", Sent(), 0.0) for switch in switches]


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
