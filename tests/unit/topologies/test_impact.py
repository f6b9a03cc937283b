"""What a fabric is left with, compared with the candidate paths between all its racks and with its links one by one."""

import random
from itertools import combinations

from tests.unit.topologies.test_failures import random_failures, some_fabric
from topologies import Clos, Failures, Level
from topologies.impact import groups, left, links_of


@some_fabric
def test_pairs_without_a_path_are_those_without_candidate_paths(tree: Clos, seed: int) -> None:
    failures = random_failures(tree, random.Random(seed), 20)
    pairs = combinations(tree.switches(Level.EDGE), 2)
    counts = [len(failures.choices_from(one)[other]) for one, other in pairs]
    found = left(failures)
    assert (found.pairs, found.fewest) == (counts.count(0), min(filter(None, counts), default=None))
    for level, (worst, _) in found.oversubscription.items():
        ratios = []
        for switch in filter(failures.alive, tree.switches(Level[level.upper()])):
            above = sum(failures.alive(link, link.upper) for link in tree.links_above(switch))
            below = [link for link in links_of(tree, switch) if link.upper == switch and failures.alive(link, link.lower)]
            ratios.append((len(below) if below or level != "edge" else tree.hosts_per_edge) / above if above else float("inf"))
        assert worst == max(ratios)


@some_fabric
def test_groups_are_switches_of_which_every_link_has_failed_and_explain_each_of_them_once(tree: Clos, seed: int) -> None:
    draw = random.Random(seed)
    switches = draw.sample(list(tree.switches()), min(3, tree.switch_count))
    silent = {tree.name(link) for switch in switches for link in links_of(tree, switch)}
    failures = Failures(tree, dict.fromkeys(silent, "silent"))
    found = groups(failures)
    for group in found:
        assert sorted(group.links) == sorted(tree.name(link) for link in links_of(tree, tree.switch(group.switch)))
    of = [name for group in found for name in group.links]
    assert silent.issuperset(of)
    for switch in switches:  # one link may be left to another switch's group
        links = {tree.name(link) for link in links_of(tree, switch)}
        assert len(links - set(of)) < 2, switch
    some = draw.choice(sorted(silent)) if silent else ""
    assert not silent or all(some not in group.links for group in groups(failures.without(some)))
