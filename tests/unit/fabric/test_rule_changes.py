"""The messages that lead from the installed rules of a switch to the intended ones, and their order."""

from __future__ import annotations

import random

import pytest

from flowrules.model import Bucket, Flow, Group, Output, SwitchRules, Table, ToGroup
from flowrules.switch_rules import renews_cache, switch_rules
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    DeleteFlow,
    DeleteGroup,
    Installed,
    InstalledState,
    Modification,
    ModifyGroup,
)
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE, cookie, difference, is_learned, is_ours, reconcile
from tests.models.memory_switch import MemorySwitch
from topologies import Failures, FatTree

HIGH = Flow(Table.DOWN, 40, (("metadata", 1),), "high", apply=(Output(1),))
CHANGED = HIGH._replace(purpose="changed", apply=(Output(2),))
GROUPED = Flow(Table.UP, 20, (), "grouped", apply=(ToGroup(1),))
GROUP, TURNED = Group(1, (Bucket(3), Bucket(4))), Group(1, (Bucket(4), Bucket(3)))
WANTED = SwitchRules((HIGH, GROUPED), (GROUP,))
NOTHING = InstalledState([], {})


def installed(flow: Flow, version: int = 7) -> Installed:
    return Installed(flow.table, flow.priority, cookie(flow, version), flow.match)


def test_an_empty_switch_gets_groups_first_and_the_last_tables_next() -> None:
    assert reconcile(WANTED, NOTHING, 3) == [AddGroup(GROUP), AddFlow(GROUPED, 3), AddFlow(HIGH, 3)]


def test_what_is_right_is_not_touched_whatever_its_version() -> None:
    found = InstalledState([installed(HIGH, 1), installed(GROUPED, 2)], {1: (3, 4)})
    assert reconcile(WANTED, found, 3) == []


def test_an_entry_that_does_something_else_is_overwritten_and_not_deleted() -> None:
    found = InstalledState([installed(CHANGED), installed(GROUPED)], {1: (3, 4)})
    assert reconcile(WANTED, found, 3) == [AddFlow(HIGH, 3)]
    turned = installed(CHANGED)._replace(match=CHANGED.match[::-1])
    assert reconcile(WANTED, InstalledState([turned, installed(GROUPED)], {1: (3, 4)}), 3) == [AddFlow(HIGH, 3)]


def test_stale_and_foreign_entries_are_deleted_last_and_groups_after_them() -> None:
    stale = installed(HIGH._replace(priority=41))
    foreign = Installed(Table.DOWN, 9, 0x1234, ())
    found = InstalledState([stale, foreign], {1: (4, 3), 5: (3,)})
    assert reconcile(WANTED, found, 3) == [
        ModifyGroup(GROUP),
        AddFlow(GROUPED, 3),
        AddFlow(HIGH, 3),
        DeleteFlow(stale),
        DeleteFlow(foreign),
        DeleteGroup(5),
    ]


def test_a_foreign_entry_in_the_place_of_a_right_one_is_overwritten() -> None:
    found = InstalledState([installed(HIGH)._replace(cookie=1), installed(GROUPED)], {1: (3, 4)})
    assert reconcile(WANTED, found, 3) == [AddFlow(HIGH, 3)]


def test_what_a_switch_has_learned_stays() -> None:
    learned = Installed(Table.DELIVER, 1, LEARNED_COOKIE, (("metadata", (1, 0xFFFF)),))
    assert is_learned(learned)
    assert reconcile(WANTED, InstalledState([installed(HIGH), installed(GROUPED), learned], {1: (3, 4)}), 3) == []
    elsewhere = learned._replace(table=Table.UP)
    assert reconcile(SwitchRules((), ()), InstalledState([learned, elsewhere], {}), 3) == [DeleteFlow(elsewhere)]


def test_a_cookie_tells_owner_entry_and_version() -> None:
    assert cookie(HIGH, 1) >> 56 == cookie(CHANGED, 1) >> 56 == 0x50
    assert cookie(HIGH, 5) & 0xFFFFFFFF == 5
    assert cookie(HIGH, (1 << 32) + 5) == cookie(HIGH, 5)
    assert cookie(HIGH, 1) >> 32 != cookie(CHANGED, 1) >> 32
    assert is_ours(installed(HIGH))
    assert not is_ours(installed(HIGH)._replace(cookie=0x51 << 56))


def test_a_difference_adds_before_it_deletes_and_overwrites_in_place() -> None:
    low = Flow(Table.UP, 3, (), "low")
    before, after = SwitchRules((HIGH, low), (GROUP,)), SwitchRules((CHANGED, GROUPED), (TURNED,))
    assert difference(before, after, 4) == [
        ModifyGroup(TURNED),
        AddFlow(CHANGED, 4),
        AddFlow(GROUPED, 4),
        DeleteFlow(Installed(Table.UP, 3, 0, ())),
    ]
    assert difference(before, before, 4) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_entry_that_renews_the_cache_changes_after_all_others(seed: int) -> None:
    """What a switch caches before the last other change lacks bits of the mask of the new entry."""
    chance, tree = random.Random(seed), FatTree(4)
    links = [tree.name(link) for link in tree.links()]
    switch = tree.switch(chance.choice(["e0_0", "a1_1"]))
    rules = [
        switch_rules(tree, switch, Failures(tree, dict.fromkeys(chance.sample(links, number), "down")))
        for number in (0, 9)
    ]
    assert rules[0] != rules[1]
    stale = InstalledState([installed(flow) for flow in rules[0].flows], {group.id: () for group in rules[0].groups})
    for changes in (difference(*rules, 2), reconcile(rules[1], stale, 2)):
        flows = [change for change in changes if isinstance(change, AddFlow | DeleteFlow)]
        matches = [change.flow.match if isinstance(change, AddFlow) else change.entry.match for change in flows]
        assert [renews_cache(match) for match in matches] == [False] * (len(flows) - 2) + [True] * 2
        assert isinstance(flows[-2], AddFlow)


@pytest.mark.parametrize("seed", range(10))
def test_any_rules_of_a_switch_become_any_others_by_either_way(seed: int) -> None:
    chance, tree = random.Random(seed), FatTree(4)
    names = [tree.name(link) for link in tree.links()] + [tree.name(switch) for switch in tree.switches()]

    def rules() -> SwitchRules:
        failed = chance.sample(names, chance.randrange(6))
        reasons = {name: chance.choice(["down", "drained"]) for name in failed}
        return switch_rules(tree, switch, Failures(tree, reasons))

    switch = chance.choice(list(tree.switches()))
    device = MemorySwitch(1, {})
    channel = device.connect()

    def carry_out(changes: list[Modification]) -> None:
        for change in changes:
            assert device.handle(channel, change) == []

    def state() -> InstalledState:
        ports = {number: tuple(bucket.port for bucket in group.buckets) for number, group in device.groups.items()}
        return InstalledState([entry.installed for entry in device.entries.values()], ports)

    present = rules()
    carry_out(reconcile(present, state(), 1))
    for version in range(2, 6):
        former, present = present, rules()
        if version % 2:
            carry_out(reconcile(present, state(), version))
        else:
            carry_out(difference(former, present, version))
        assert {repr(entry.flow) for entry in device.entries.values()} == set(map(repr, present.flows))
        assert reconcile(present, state(), version) == []
