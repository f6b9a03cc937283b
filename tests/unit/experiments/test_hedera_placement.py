"""Hedera's demands (section 4.2) beside the best rates, and its placement (section 5): what fits stays, a seed says it all."""

import random
from collections import Counter
from itertools import pairwise

import networkx
import pytest

from experiments.bench.optimum import max_min
from experiments.schemes.hedera.demand import estimate
from experiments.schemes.hedera.placement import Annealing, Elephant, Hop, Up, global_first_fit, links
from tests.helpers.random_fabrics import random_fabric
from topologies import Failures, FatTree, Host

TREE = FatTree(4)
HEALTHY = Failures(TREE)
HOSTS = list(TREE.hosts())


def loads(tree: FatTree, elephants: list[Elephant], placed: list[Up | None]) -> Counter[Hop]:
    carried: Counter[Hop] = Counter()
    for elephant, up in zip(elephants, placed, strict=True):
        if up is not None:
            for hop in links(tree, elephant.src, elephant.dst, up):
                carried[hop] += elephant.demand  # type: ignore[assignment]
    return carried


def excess(tree: FatTree, elephants: list[Elephant], placed: list[Up | None]) -> float:
    return sum(max(0.0, load - 1) for load in loads(tree, elephants, placed).values())


def some_flows(choose: random.Random, hosts: list[Host], most: int) -> list[tuple[Host, Host]]:
    return [(a, b) for a, b in (choose.sample(hosts, 2) for _ in range(choose.randint(1, most)))]


def drawn(tree: FatTree, seed: int) -> tuple[Failures, list[Elephant]]:
    choose = random.Random(seed)
    hosts = list(tree.hosts())
    pairs = some_flows(choose, hosts, 3 * len(hosts))
    names = [tree.name(each) for each in (*tree.switch_links(), *tree.switches())]
    failures = Failures(tree, dict.fromkeys(choose.sample(names, seed % 4), "down"))
    return failures, [Elephant(a, b, demand) for (a, b), demand in zip(pairs, estimate(pairs), strict=True)]


def stride(tree: FatTree, by: int) -> list[Elephant]:
    hosts = list(tree.hosts())
    return [Elephant(host, hosts[(at + by) % len(hosts)], 1.0) for at, host in enumerate(hosts)]


@pytest.mark.parametrize("seed", range(20))
def test_a_path_is_one_that_is_there_and_works_also_for_what_had_another(seed: int) -> None:
    tree = FatTree(4 + 2 * (seed % 2))
    failures, elephants = drawn(tree, seed)
    where = random.Random(seed)
    for number, (src, dst, *_) in enumerate(elephants):
        if number % 2 and tree.kind(src, dst) != "intra-rack":
            current = where.choice(tree.choices(tree.kind(src, dst)))
            elephants[number] = elephants[number]._replace(current=current)
    for place in (global_first_fit, Annealing(tree, 1).place):
        placed = place(failures, elephants)
        assert len(placed) == len(elephants)
        for (src, dst, *_), up in zip(elephants, placed, strict=True):
            if up is not None:
                assert up in tree.choices(tree.kind(src, dst))
                assert failures.on_way(src, dst, up) is None
                assert tree.kind(src, dst) != "intra-rack"


@pytest.mark.parametrize("seed", range(20))
def test_first_fit_overloads_no_link_and_keeps_its_decisions(seed: int) -> None:
    failures, elephants = drawn(TREE, seed)
    placed = global_first_fit(failures, elephants)
    carried = loads(TREE, elephants, placed)
    assert max(carried.values(), default=0) <= 1 + 1e-5
    for (src, dst, demand, _), up in zip(elephants, placed, strict=True):
        if up is None and TREE.kind(src, dst) != "intra-rack":
            for other in TREE.choices(TREE.kind(src, dst)):
                full = any(carried[hop] + demand > 1 for hop in links(TREE, src, dst, other))
                assert full or failures.on_way(src, dst, other) is not None
    again = [elephant._replace(current=up) for elephant, up in zip(elephants, placed, strict=True)]
    kept = global_first_fit(failures, again)
    assert all(new == old for new, old in zip(kept, placed, strict=True) if old is not None)


@pytest.mark.parametrize("k", [4, 6])
def test_annealing_finds_a_place_for_every_flow_of_a_stride(k: int) -> None:
    tree = FatTree(k)
    elephants = stride(tree, tree.half**2)  # every host to the host at its place in the next pod
    placed = Annealing(tree, 3).place(Failures(tree), elephants)
    assert None not in placed
    assert excess(tree, elephants, placed) < 0.2 * len(elephants)
    if k == 4:
        assert excess(tree, elephants, placed) == pytest.approx(0)


@pytest.mark.parametrize("seed", range(6))
def test_annealing_never_gets_worse_and_says_the_same_for_a_seed(seed: int) -> None:
    _, elephants = drawn(TREE, 100 + seed)
    annealing = Annealing(TREE, seed)
    before = dict(annealing.cores)
    by_chance: list[Up | None] = []
    for src, dst, *_ in elephants:
        core, kind = before[dst], TREE.kind(src, dst)
        by_chance.append(core if kind == "inter-pod" else core[:1] if kind == "inter-rack" else None)
    first = annealing.place(HEALTHY, elephants)
    assert excess(TREE, elephants, first) <= excess(TREE, elephants, by_chance) + 1e-6
    second = annealing.place(HEALTHY, elephants)
    assert excess(TREE, elephants, second) <= excess(TREE, elephants, first) + 1e-6
    assert Annealing(TREE, seed).place(HEALTHY, elephants) == first


def test_annealing_gives_every_core_switch_one_host_of_each_pod() -> None:
    annealing = Annealing(TREE, 5)
    annealing.place(HEALTHY, stride(TREE, 4))
    for pod in range(TREE.k):
        served = [annealing.cores[host] for host in HOSTS if host.pod == pod]
        assert sorted(served) == sorted(TREE.choices("inter-pod"))
    # what overloads nothing stays where it is
    annealing = Annealing(TREE, 9)
    cores = dict(annealing.cores)
    annealing.place(HEALTHY, [Elephant(HOSTS[0], HOSTS[-1], 1.0)])
    assert annealing.cores == cores


@pytest.mark.parametrize("seed", range(20))
def test_demands_are_the_max_min_fair_rates_of_a_fabric_in_which_hosts_alone_limit_flows(seed: int) -> None:
    choose = random.Random(seed)
    flows = some_flows(choose, HOSTS[: choose.randint(2, len(HOSTS))], 30)
    assert estimate(flows) == pytest.approx(max_min(TREE, flows))
    assert estimate([]) == []


@pytest.mark.parametrize("seed", range(15))
def test_a_flow_alone_has_the_maximum_flow_of_its_candidate_paths(seed: int) -> None:
    tree = random_fabric(seed)
    src, dst = next(tree.hosts()), list(tree.hosts())[-1]
    ways: networkx.DiGraph[str] = networkx.DiGraph()
    ways.add_node("source")
    for path in tree.candidate_paths(src, dst):
        nodes = [tree.name(src), *path.hops, tree.name(dst)]
        for one, other in pairwise(nodes):
            ways.add_edge(one, other, capacity=tree.capacity(tree.link(tree.node(one), tree.node(other))))
    best = networkx.maximum_flow_value(ways, tree.name(src), tree.name(dst)) if ways.edges else 0.0
    assert max_min(tree, [(src, dst)]) == pytest.approx([best])
