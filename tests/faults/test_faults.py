"""Faults, in sequence and several at a time, against an oracle that knows only the graph."""

from __future__ import annotations

import networkx
import pytest

from tests.faults.oracle import Oracle, word
from tests.faults.plan import KINDS, PASSING, Step, plan
from tests.faults.soak import run
from topologies import FatTree
from topologies.lab.isolation import isolated


@pytest.mark.parametrize("seed", [1, 2])
def test_a_plan_heals_whatever_it_breaks_and_replays_from_its_text(seed: int) -> None:
    tree = FatTree(4)
    steps = list(plan(tree, seed, 300))
    assert [str(Step.parse(str(step))) for step in steps] == [str(step) for step in steps]
    assert [str(step) for step in plan(tree, seed, 300)] == [str(step) for step in steps]
    active = []
    for step in steps:
        active += [fault for fault in step.begin if fault.kind not in PASSING]
        for fault in step.heal:
            active.remove(fault)
    assert not active
    begun = [fault for step in steps for fault in step.begin]
    assert len(begun) == 300
    assert {fault.kind for fault in begun} == set(KINDS) - {"hostlink"}


def test_the_oracle_knows_what_a_person_sees_in_the_graph() -> None:
    graph = FatTree(4).graph()
    healthy = Oracle(graph, [])
    assert len(healthy.candidates("h0_0_2", "h2_1_3")) == 4
    assert all(healthy.connected(a, b) for a in healthy.hosts for b in healthy.hosts)
    assert word(["e0_0", "a0_1", "c1_0", "a2_1", "e2_0"]) == (1, 0)
    assert word(["e0_0", "a0_1", "e0_1"]) == (1, 255)
    one = Oracle(graph, ["e2_1-a2_0"], ["c1_0"])
    assert one.candidates("h0_0_2", "h2_1_3") == [["e0_0", "a0_1", "c1_1", "a2_1", "e2_1"]]
    assert one.rack_words("h0_0_2", "e2_1") == [(1, 1)]
    assert one.connected("h0_0_2", "h2_1_3")
    cut = Oracle(graph, ["a2_0", "a2_1"])
    assert not cut.connected("h0_0_2", "h2_1_3")
    assert not cut.connected("h2_0_2", "h2_1_3")
    assert cut.connected("h2_0_2", "h2_0_3")
    # there is a way, but only one that comes down and goes up again
    valley = Oracle(graph, ["e0_0-a0_0", "e1_0-a1_1", "c0_0", "c0_1"])
    assert networkx.has_path(valley.working, "h0_0_2", "h1_0_2")
    assert not valley.connected("h0_0_2", "h1_0_2")


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_after_every_fault_the_fabric_connects_what_the_oracle_says(seed: int) -> None:
    assert isolated(lambda: run(4, list(plan(FatTree(4), seed, 50)), f"seed {seed}")) == 0
