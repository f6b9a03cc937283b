"""What follows from suspects: within bounds, said once, undone."""

import pytest

from sopa_ryu.fabric.suspects import Caretaker, Suspected, SuspectPolicy, needed
from topologies import Clos, Failures, FatTree

TREE = FatTree(8)
NONE = Failures(TREE)
LINK = "a2_0-c0_1"


def suspect(name: str = LINK, confidence: float = 0.9999, down: bool | None = True) -> Suspected:
    return Suspected(name, down, 0.0123, confidence, 7)


def lines(caretaker: Caretaker, suspects: list[Suspected], log: pytest.LogCaptureFixture) -> list[str]:
    log.set_level("INFO", "sopa.health")
    log.clear()
    caretaker.decide(suspects, NONE)
    return log.messages


def test_a_warning_is_one_line_once_two_evaluations_agree(caplog: pytest.LogCaptureFixture) -> None:
    its = Caretaker(TREE, SuspectPolicy.WARN)
    said = [lines(its, [suspect()], caplog) for _ in range(3)]
    assert said[1] == [
        f"link {LINK} loses 1.23% of the packets downwards (certainty above 99.9%, losses reported by 7 hosts): it stays in use "
        "(--sopa-suspect warn); check its optics, cable and ports"
    ]
    assert said[0] == said[2] == []
    assert [one.name for one in its.confirmed()] == [LINK]
    said = [lines(its, [], caplog) for _ in range(3)]
    assert said == [[], [], [f"link {LINK} loses no more packets downwards"]]
    assert its.confirmed() == []


def test_a_drain_is_asked_for_once_and_stays_until_an_operator_restores_it(caplog: pytest.LogCaptureFixture) -> None:
    its = Caretaker(TREE, SuspectPolicy.DRAIN)
    its.decide([suspect()], NONE)
    assert its.decide([suspect()], NONE) == [LINK]
    assert f"it is drained until sopa restore {LINK}" in caplog.text
    drained = Failures(TREE, {LINK: "drained"})
    for suspects in ([suspect()], [], [], []):
        assert its.decide(suspects, drained) == []
        assert its.action(LINK) == "drained"
    its.decide([], NONE)
    assert its.action(LINK) is None


def test_never_more_than_so_many_and_none_that_is_needed() -> None:
    its = Caretaker(TREE, SuspectPolicy.DRAIN)
    many = [suspect(f"a{pod}_0-c0_1") for pod in range(4)]
    its.decide(many, NONE)
    assert len(its.decide(many, NONE)) == 2
    few = Failures(TREE, {"e0_0-a0_0": "down", "e0_0-a0_1": "down"})
    assert "would have only 1 of 4 uplinks left" in str(needed(TREE, few, "e0_0-a0_2"))
    assert needed(TREE, NONE, "e0_0-a0_2") is None
    assert needed(FatTree(2), Failures(FatTree(2)), "e0_0-a0_0") is not None
    apart = Clos(2, 1, 4, 4, 2, links={"a1_1-c1_0": "absent", "a1_2-c2_0": "absent", "a1_3-c3_0": "absent"})
    assert "no path between e0_0 and e1_0" in str(needed(apart, Failures(apart), "e0_0-a0_0"))


def test_what_is_not_certain_enough_or_without_direction_is_said_so(caplog: pytest.LogCaptureFixture) -> None:
    its = Caretaker(TREE, SuspectPolicy.DRAIN)
    its.decide([suspect(confidence=0.96, down=None)], NONE)
    assert its.decide([suspect(confidence=0.96, down=None)], NONE) == []
    assert "in a direction that is not known (certainty 96%" in caplog.text
    assert "below a certainty of 99%" in caplog.text


def test_a_suspect_of_one_evaluation_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    its = Caretaker(TREE, SuspectPolicy.DRAIN)
    for _ in range(5):
        assert lines(its, [suspect()], caplog) == lines(its, [], caplog) == []
