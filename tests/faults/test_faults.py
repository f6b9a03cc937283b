"""Faults, in sequence and several at a time, against an oracle that knows only the graph."""

from pathlib import Path

import pytest

from tests.faults.harness import FaultyLab
from tests.faults.plan import KINDS, Step
from tests.faults.soak import run
from topologies import Clos
from topologies.identity import PREFIX6
from topologies.lab.isolation import isolated

IRREGULAR = Clos(
    2, 2, 2, 4, 2, links={"e0_0-a0_1": "absent", "a1_0-c0_1": "absent", "a0_0-c0_0": 2}, no_label=["h1_1_3"],
    mbit={"host": 4, "edge": 4, "aggregation": 4}, prefix6=str(PREFIX6),
)  # fmt: skip
"""Slow links, in proportion to which agents probe: thousands of probes a second keep Open vSwitch from everything else."""


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_after_every_fault_the_fabric_connects_what_the_oracle_says() -> None:
    """Each kind of fault once, in a fabric that lacks links; ``make soak`` takes thousands, and other fabrics."""
    steps = [Step.parse(text) for text in (Path(__file__).parent / "scripts/each_kind.txt").read_text().splitlines()]
    assert {fault.kind for step in steps for fault in step.begin} == KINDS.keys() - {"hostlink"}
    assert isolated(lambda: run(FaultyLab(IRREGULAR), steps, "the test's steps")) == 0
