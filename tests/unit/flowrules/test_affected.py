"""The switches whose rules differ between two sets of failures: none is missed, and few are named in vain."""

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from flowrules import affected as module
from flowrules.affected import affected
from flowrules.steering import allowed_uplinks
from flowrules.switch_rules import fabric_rules
from tests.helpers.random_fabrics import random_fabric
from topologies import Clos, Failures, FatTree, Level, Switch
from topologies.failures import Reason

REASONS = (Reason.DOWN, Reason.DOWN, Reason.SILENT, Reason.DRAINED, Reason.NO_CHANNEL)


def fabric(seed: int) -> Clos:
    choose = random.Random(f"{seed} affected")
    tree = FatTree(choose.choice((4, 6))) if seed % 4 == 0 else random_fabric(seed, most=40, rates=seed % 4 == 1)
    if choose.random() < 0.5:
        return tree
    hosts = [tree.name(host) for host in tree.hosts()]
    gateways = choose.sample(hosts, min(len(hosts), choose.randint(1, 4)))
    return Clos.from_document({**tree.document(), "gateways": gateways})


def histories(tree: Clos, choose: random.Random, steps: int) -> Iterator[Failures]:
    """Failures one after the other: elements fail, heal and get other reasons, one or several at a time."""
    names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
    reasons: dict[str, str] = {}
    for _ in range(steps):
        yield Failures(tree, reasons)
        for name in choose.sample(names, min(len(names), choose.choice((1, 1, 1, 2, 5)))):
            if name in reasons and choose.random() < 0.6:
                del reasons[name]
            else:
                reasons[name] = choose.choice(REASONS)
        if choose.random() < 0.1:
            reasons.clear()


@pytest.mark.parametrize("seed", range(32))
def test_the_rules_of_all_others_are_the_same(seed: int) -> None:
    tree, choose = fabric(seed), random.Random(f"{seed} failures")
    for before, after in pairwise(histories(tree, choose, 8)):
        named = affected(before, after)
        assert differing(before, after) <= named, (tree, dict(before), dict(after))
        for switch in {*tree.switches()} - named:  # what `sopa_ryu.fabric.known_rules` relies on
            if switch.level is not Level.CORE:
                assert allowed_uplinks(tree, switch, before) == allowed_uplinks(tree, switch, after)


def differing(before: Failures, after: Failures) -> set[Switch]:
    were, are = dict(fabric_rules(before.tree, before)), dict(fabric_rules(after.tree, after))
    return {switch for switch in were if were[switch] != are[switch]}


@pytest.mark.parametrize("name", ["a0_0-c0_1", "e0_1-a0_0", "a1_1", "c1_0", "e2_1", "h0_0_2-e0_0"])
def test_of_a_fat_tree_with_one_failure_no_switch_is_named_in_vain(name: str) -> None:
    healthy = Failures(FatTree(8))
    failed = healthy.with_failed(name, Reason.DOWN)
    assert affected(healthy, failed) == affected(failed, healthy) == differing(healthy, failed)


def test_a_failure_beside_many_standing_ones_is_told_apart() -> None:
    standing = {f"a{pod}_{pod % 6}-c{pod % 6}_{(5 * pod) % 6}": Reason.DOWN for pod in range(1, 12)}
    before = Failures(FatTree(12), standing)
    after = before.with_failed("a0_0-c0_1", Reason.DOWN)
    named, needed = affected(before, after), differing(before, after)
    assert needed <= named
    assert len(named) <= 2 * len(needed)


def test_what_would_take_too_long_is_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = FatTree(8)
    its = Failures(tree), Failures(tree, {"a0_0-c0_1": Reason.DOWN})
    monkeypatch.setattr(module, "MOST_ANSWERS", 2)
    assert affected(*its) is None
    monkeypatch.setattr(module, "MOST_ANSWERS", 1000)
    assert affected(*its)
