"""Faults, in sequence and several at a time, against an oracle that knows only the graph."""

from itertools import permutations
from pathlib import Path

import pytest

from tests.faults.harness import FaultyLab
from tests.faults.oracle import Oracle
from tests.faults.plan import KINDS, Step
from tests.faults.shares import Shares
from tests.faults.soak import run
from topologies import Clos, Failures, FatTree
from topologies.fabric_file import load
from topologies.identity import PREFIX6
from topologies.lab.isolation import isolated
from topologies.weights import weights

TREES = {"k=4": FatTree(4), **{file.stem: load(file) for file in Path(__file__).parent.glob("fabrics/*.yaml")}}


@pytest.mark.parametrize("name", sorted(TREES))
def test_the_oracles_candidate_paths_are_those_of_the_structure(name: str) -> None:
    tree = TREES[name]
    oracle = Oracle(tree.graph(), [])
    for src, dst in permutations(tree.hosts(), 2):
        paths = tree.candidate_paths(src, dst)
        assert oracle.candidates(tree.name(src), tree.name(dst)) == sorted(list(path.hops) for path in paths)
        words = [(*path.up, 255, 255)[:2] for path in paths]
        assert oracle.rack_words(tree.name(src), tree.name(tree.edge_of(dst))) == sorted(words)


def test_the_oracle_knows_no_way_that_comes_down_and_goes_up_again() -> None:
    valley = Oracle(FatTree(4).graph(), ["e0_0-a0_0", "e1_0-a1_1", "c0_0", "c0_1"])
    assert not valley.connected("h0_0_2", "h1_0_2")
    assert valley.connected("h0_0_2", "h2_0_2")


def test_the_oracle_finds_wrong_weights() -> None:
    rates = {f"e0_{leaf}-a0_1": 5.0 for leaf in range(3)}
    failures = Failures(Clos(1, 3, 2, 0, 3, mbit={"host": 10, "edge": 20}, links=rates))
    tree, right, equal = failures.tree, Shares(failures), Shares(failures)
    for src, dst in permutations(tree.hosts(), 2):
        usable, _ = failures.split(src, dst)
        for shares, given in ((right, weights(failures, src, dst)), (equal, [1 / len(usable)] * len(usable))):
            candidates = [{"hops": path.hops, "weight": weight} for path, weight in zip(usable, given, strict=True)]
            shares.take(tree.name(src), tree.name(dst), candidates)
    assert right.wrong_weights() == []
    (problem,) = equal.wrong_weights()
    assert "are possible" in problem
    pair = "e0_0", "e0_1"
    assert right.wrong_turns("h0_0_2", pair, [(0, 255), (0, 255), (1, 255), (0, 255), (0, 255)]) == []
    assert right.wrong_turns("h0_0_2", pair, [(0, 255), (1, 255)])


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
