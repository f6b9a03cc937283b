"""The messages that lead from the installed rules of a switch to the intended ones, and their order."""

import random

import pytest

from flowrules.model import Bucket, Flow, Group, Output, SwitchRules, Table, ToGroup
from flowrules.switch_rules import renews_cache, switch_rules
from sopa_ryu.fabric.messages import AddFlow, AddGroup, DeleteFlow, DeleteGroup, Installed, InstalledState, ModifyGroup
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE, cookie, difference, is_ours, reconcile
from topologies import Failures, FatTree

HIGH = Flow(Table.DOWN, 40, (("metadata", 1),), "high", apply=(Output(1),))
CHANGED = HIGH._replace(purpose="changed", apply=(Output(2),))
GROUPED = Flow(Table.UP, 20, (), "grouped", apply=(ToGroup(1),))
GROUP, TURNED = Group(1, (Bucket(3), Bucket(4))), Group(1, (Bucket(4), Bucket(3)))
WANTED = SwitchRules((HIGH, GROUPED), (GROUP,))


def installed(flow: Flow, version: int = 7) -> Installed:
    return Installed(flow.table, flow.priority, cookie(flow, version), flow.match)


FOUND_HIGH, FOUND_GROUPED = installed(HIGH), installed(GROUPED)
STALE, FOREIGN = installed(HIGH._replace(priority=41)), Installed(Table.DOWN, 9, 0x1234, ())
LEARNED = Installed(Table.DELIVER, 1, LEARNED_COOKIE, (("metadata", (1, 0xFFFF)),))
HALF_A_MATCH, OTHER_MATCH = installed(CHANGED)._replace(match=CHANGED.match[::-1]), FOUND_HIGH._replace(match=())
ASTRAY, RIGHT = LEARNED._replace(table=Table.UP), {1: (3, 4)}
RECONCILED = {
    "an empty switch gets groups first, the last tables next": ([], {}, [AddGroup(GROUP), AddFlow(GROUPED, 3), AddFlow(HIGH, 3)]),
    "what is right is not touched, whatever its version": ([installed(HIGH, 1), installed(GROUPED, 2)], RIGHT, []),
    "what does something else is overwritten": ([installed(CHANGED), FOUND_GROUPED], RIGHT, [AddFlow(HIGH, 3)]),
    "whatever the order of its match": ([HALF_A_MATCH, FOUND_GROUPED], RIGHT, [AddFlow(HIGH, 3)]),
    "what matches something else is replaced": ([OTHER_MATCH, FOUND_GROUPED], RIGHT, [AddFlow(HIGH, 3), DeleteFlow(OTHER_MATCH)]),
    "stale and foreign entries are deleted last and groups after them": (
        [STALE, FOREIGN],
        {1: (4, 3), 5: (3,)},
        [ModifyGroup(GROUP), AddFlow(GROUPED, 3), AddFlow(HIGH, 3), DeleteFlow(STALE), DeleteFlow(FOREIGN), DeleteGroup(5)],
    ),
    "a foreign entry in a right one's place is overwritten": (
        [FOUND_HIGH._replace(cookie=1), FOUND_GROUPED], RIGHT, [AddFlow(HIGH, 3)],
    ),
    "what a switch has learned stays": ([FOUND_HIGH, FOUND_GROUPED, LEARNED], RIGHT, []),
    "unless it is in another table": ([FOUND_HIGH, FOUND_GROUPED, ASTRAY], RIGHT, [DeleteFlow(ASTRAY)]),
}  # fmt: skip


@pytest.mark.parametrize(("flows", "groups", "changes"), RECONCILED.values(), ids=RECONCILED)
def test_how_rules_are_reconciled(flows: list[Installed], groups: dict[int, tuple[int, ...]], changes: list[object]) -> None:
    assert reconcile(WANTED, InstalledState(flows, groups), 3) == changes


def test_a_cookie_tells_owner_entry_and_version() -> None:
    assert cookie(HIGH, 1) >> 56 == cookie(CHANGED, 1) >> 56 == 0x50
    assert cookie(HIGH, 5) & 0xFFFFFFFF == 5
    assert cookie(HIGH, (1 << 32) + 5) == cookie(HIGH, 5)
    assert cookie(HIGH, 1) >> 32 != cookie(CHANGED, 1) >> 32
    assert is_ours(installed(HIGH))
    assert not is_ours(installed(HIGH)._replace(cookie=0x51 << 56))


def test_a_difference_adds_before_it_deletes_and_overwrites_in_place() -> None:
    low, gone = Flow(Table.UP, 3, (), "low"), Installed(Table.UP, 3, 0, ())
    before, after = SwitchRules((HIGH, low), (GROUP,)), SwitchRules((CHANGED, GROUPED), (TURNED,))
    assert difference(before, after, 4) == [ModifyGroup(TURNED), AddFlow(CHANGED, 4), AddFlow(GROUPED, 4), DeleteFlow(gone)]
    assert difference(before, before, 4) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_entry_that_renews_the_cache_changes_after_all_others(seed: int) -> None:
    """What a switch caches before the last other change lacks bits of the mask of the new entry."""
    chance, tree = random.Random(seed), FatTree(4)
    links = [tree.name(link) for link in tree.links()]
    switch = tree.switch(chance.choice(["e0_0", "a1_1"]))
    rules = [switch_rules(tree, switch, Failures(tree, dict.fromkeys(chance.sample(links, number), "down"))) for number in (0, 9)]
    assert rules[0] != rules[1]
    stale = InstalledState([installed(flow) for flow in rules[0].flows], {group.id: () for group in rules[0].groups})
    for changes in (difference(*rules, 2), reconcile(rules[1], stale, 2)):
        flows = [change for change in changes if isinstance(change, AddFlow | DeleteFlow)]
        matches = [change.flow.match if isinstance(change, AddFlow) else change.entry.match for change in flows]
        assert [renews_cache(match) for match in matches] == [False] * (len(flows) - 2) + [True] * 2
        assert isinstance(flows[-2], AddFlow)
