"""Faults, in sequence and several at a time, against an oracle that knows only the graph."""

import pytest

from tests.faults.harness import FaultyLab
from tests.faults.plan import KINDS, Step
from tests.faults.soak import run
from topologies import Clos
from topologies.lab.isolation import isolated

IRREGULAR = Clos(
    2, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a0_0-c0_0": 5000}, no_label=["h1_1_3"],
    mbit={"host": 10_000, "edge": 10_000, "aggregation": 10_000},
)  # fmt: skip
STEPS = (
    "+link a0_1-c1_0; +link h0_1_3-e0_1; +silent a1_1-c1_1>c1_1; +agents 1",
    "+drain c1_0; +flap e1_1-a1_1; -link a0_1-c1_0; -agents 1",
    "+switch c1_1; -link h0_1_3-e0_1; -silent a1_1-c1_1>c1_1; -drain c1_0",
    "+controller",
    "+link e1_0-a1_0; -switch c1_1",
    "-controller",
    "+cables a1_1-c1_0 a1_1-c1_1; -link e1_0-a1_0",
    "-cables a1_1-c1_0 a1_1-c1_1",
    "+channels c0_0 a0_0",
    "+files; +filter h0_0_2; -channels c0_0 a0_0",
    "+partition 1 3",
    "+pause 1; +impostor e0_0; +rules a1_0",
    "+clock",
)


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_every_fault_the_fabric_connects_what_the_oracle_says() -> None:
    """Each kind of fault once, in a fabric that lacks links; ``make soak`` takes thousands, and other fabrics."""
    steps = [Step.parse(text) for text in STEPS]
    assert {fault.kind for step in steps for fault in step.begin} == KINDS.keys() - {"hostlink"}
    assert isolated(lambda: run(FaultyLab(IRREGULAR), steps, "the test's steps")) == 0
