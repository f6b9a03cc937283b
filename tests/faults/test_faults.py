"""Faults, in sequence and several at a time, against an oracle that knows only the graph."""

from collections import Counter
from itertools import permutations
from pathlib import Path

import networkx
import pytest

from experiments.workloads.checks import fair_share
from tests.faults.harness import FaultyLab
from tests.faults.oracle import Oracle, word
from tests.faults.plan import ALONE, KINDS, KINDS_IN_DECK, MAX_AT_ONCE, PASSING, Fault, Step, plan
from tests.faults.shares import Shares
from tests.faults.soak import run
from topologies import Clos, Failures, FatTree, TopologyError
from topologies.fabric_file import load
from topologies.lab.isolation import isolated
from topologies.weights import weights

FABRICS = {file.stem: load(file) for file in sorted((Path(__file__).parent / "fabrics").glob("*.yaml"))}
TREES = {"k=4": FatTree(4), **FABRICS}


def test_the_fabrics_are_a_leaf_spine_an_oversubscribed_and_an_irregular_one() -> None:
    assert set(FABRICS) == {"leaf-spine", "oversubscribed", "irregular"}
    assert not FABRICS["leaf-spine"].cores
    assert FABRICS["irregular"].absent
    assert fair_share(FABRICS["oversubscribed"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_plan_has_each_kind_by_its_weight_heals_what_it_breaks_and_replays_from_its_text(
    name: str, seed: int
) -> None:
    tree, decks = TREES[name], 5
    steps = list(plan(tree, seed, decks * KINDS_IN_DECK))
    assert [str(Step.parse(str(step))) for step in steps] == [str(step) for step in steps]
    assert [str(step) for step in plan(tree, seed, decks * KINDS_IN_DECK)] == [str(step) for step in steps]
    active: list[Fault] = []
    for step in steps:
        for number, fault in enumerate(step.begin):
            assert fault not in active
            assert fault.kind not in ALONE or not (active or number), f"{fault} is not alone"
            if fault.kind not in PASSING:
                active.append(fault)
        for fault in step.heal:
            active.remove(fault)
        assert len(active) <= MAX_AT_ONCE
    assert not active
    begun = [fault for step in steps for fault in step.begin]
    expected = {**KINDS, "link": KINDS["link"] + KINDS["hostlink"]}
    del expected["hostlink"]
    for number in range(decks):
        deck = begun[number * KINDS_IN_DECK : (number + 1) * KINDS_IN_DECK]
        assert Counter(fault.kind for fault in deck) == expected


@pytest.mark.parametrize(
    "without", [["controller", "clock"], sorted(set(KINDS) - {"agents"})], ids=["restarts", "most"]
)
def test_a_plan_does_without_the_kinds_that_are_left_out(without: list[str]) -> None:
    kinds = {fault.kind for step in plan(FatTree(4), 1, 100, without) for fault in step.begin}
    assert kinds == set(KINDS) - {"hostlink", *without}


def test_cables_are_exchanged_where_there_are_two() -> None:
    single = Clos(2, 2, 1, 1, 2)
    with pytest.raises(TopologyError, match="has two uplinks: leave out the kind cables"):
        next(plan(single, 1, 10))
    assert list(plan(single, 1, 10, ["cables"]))


@pytest.mark.parametrize("name", TREES)
def test_the_oracles_candidate_paths_are_those_of_the_structure(name: str) -> None:
    tree = TREES[name]
    oracle = Oracle(tree.graph(), [])
    for src in tree.hosts():
        for dst in tree.hosts():
            if src != dst:
                paths = tree.candidate_paths(src, dst)
                found = oracle.candidates(tree.name(src), tree.name(dst))
                assert found == sorted(list(path.hops) for path in paths)
                words = [(*path.up, 255, 255)[:2] for path in paths]
                assert oracle.rack_words(tree.name(src), tree.name(tree.edge_of(dst))) == sorted(words)


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


def said_by(failures: Failures, equal: bool = False) -> Shares:
    """What a controller says of the paths between all hosts, or would without weights."""
    tree = failures.tree
    shares = Shares(failures)
    for src, dst in permutations(tree.hosts(), 2):
        usable, _ = failures.split(src, dst)
        its = [1 / len(usable)] * len(usable) if equal else weights(failures, src, dst)
        candidates = [{"hops": path.hops, "weight": weight} for path, weight in zip(usable, its, strict=True)]
        shares.take(tree.name(src), tree.name(dst), candidates)
    return shares


def test_the_oracle_finds_wrong_weights() -> None:
    rates = {f"e0_{leaf}-a0_1": 5.0 for leaf in range(3)}
    tree = Clos(1, 3, 2, 0, 3, mbit={"host": 10, "edge": 20}, links=rates)
    assert said_by(Failures(tree)).wrong_weights() == []
    (problem,) = said_by(Failures(tree), equal=True).wrong_weights()
    assert "are possible" in problem
    shares = said_by(Failures(tree))
    assert shares.wrong_turns("h0_0_2", ("e0_0", "e0_1"), [(0, 255), (0, 255), (1, 255), (0, 255), (0, 255)]) == []
    assert shares.wrong_turns("h0_0_2", ("e0_0", "e0_1"), [(0, 255), (1, 255)])
    shares.take("h0_0_2", "h0_1_2", [{"hops": ["e0_0", "a0_0", "e0_1"], "weight": 0.9}])
    assert any("sum to 0.9" in problem for problem in shares.problems)


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
