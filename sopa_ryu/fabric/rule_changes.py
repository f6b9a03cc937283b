"""The difference between the rules that a switch should have and those it has, as messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from flowrules.model import Flow, SwitchRules, Table, digest, does
from flowrules.switch_rules import renews_cache
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

COOKIE_MARK = 0x50
LEARNED_COOKIE = COOKIE_MARK << 56


def cookie(flow: Flow, version: int) -> int:
    """Return a flow entry's cookie: the mark (8 bits), the entry's digest (24 bits), the fabric version (32 bits)."""
    return COOKIE_MARK << 56 | digest(flow) << 32 | version & 0xFFFFFFFF


def cookie_mark(entry: Installed) -> int:
    """Return the first byte of a flow entry's cookie, which tells who installed it."""
    return entry.cookie >> 56


def is_ours(entry: Installed) -> bool:
    """Tell whether a flow entry was installed by a SOPA controller."""
    return cookie_mark(entry) == COOKIE_MARK


def is_learned(entry: Installed) -> bool:
    """Tell whether the switch learned a flow entry itself, from a host's packet."""
    return entry.table in (Table.DOWN, Table.DELIVER, Table.LEARN) and entry.cookie == LEARNED_COOKIE


def identity(entry: Installed) -> tuple[int, int, int]:
    """Return what `identities` calls the entry: table, priority and digest."""
    return entry.table, entry.priority, entry.cookie >> 32 & 0xFFFFFF


def identities(rules: SwitchRules) -> dict[tuple[int, int, int], Flow]:
    """Return the flow entries of rules by table, priority and digest."""
    return {(int(flow.table), flow.priority, digest(flow)): flow for flow in rules.flows}


def intended(entry: Installed, missing: dict[tuple[int, int, int], Flow]) -> Flow | None:
    """Return the intended flow entry that an installed one is, and take it out of the missing ones; None if it is none."""
    name = identity(entry)
    flow = missing.get(name) if is_ours(entry) else None
    if flow is None or frozenset(entry.match) != frozenset(flow.match) or entry.does not in (None, does(flow)):
        return None
    return missing.pop(name)


def reconcile(wanted: SwitchRules, found: InstalledState, version: int) -> list[Modification]:
    """Return the messages that make a switch have exactly the wanted rules, without touching what is right.

    An entry is right only if it also matches and does what it should: its cookie stays when somebody modifies it. Entries that the
    switch learned itself stay.
    """
    missing = identities(wanted)
    stale = [entry for entry in found.flows if not is_learned(entry) and intended(entry, missing) is None]
    changed: list[Modification] = []
    for group in wanted.groups:
        ports = tuple(bucket.port for bucket in group.buckets)
        if group.id not in found.groups:
            changed.append(AddGroup(group))
        elif found.groups[group.id] != ports:
            changed.append(ModifyGroup(group))
    # the last tables first: an entry that sends packets on never stands before what it sends them to
    changed += _flow_changes(sorted(missing.values(), key=lambda flow: -flow.table), stale, version)
    return changed + [DeleteGroup(each) for each in sorted(found.groups.keys() - {group.id for group in wanted.groups})]


def difference(before: SwitchRules, after: SwitchRules, version: int) -> list[Modification]:
    """Return the messages that lead from one rule set to another on a switch that has confirmed the first."""
    old, new = set(before.flows), set(after.flows)
    added = [flow for flow in after.flows if flow not in old]
    gone = [Installed(flow.table, flow.priority, 0, flow.match) for flow in before.flows if flow not in new]
    changed: list[Modification] = [ModifyGroup(group) for group in after.groups if group not in before.groups]
    return changed + list(_flow_changes(added, gone, version))


def _flow_changes(added: list[Flow], stale: list[Installed], version: int) -> Iterator[Modification]:
    # ADD overwrites an entry of the same table, priority and match in place; only what nothing replaces is deleted, last
    new = {(flow.table, flow.priority, frozenset(flow.match)) for flow in added}
    gone = [entry for entry in stale if (entry.table, entry.priority, frozenset(entry.match)) not in new]
    # what the switch caches between the first and the last change is renewed, too, if the cache is renewed after them
    for renewing in (False, True):
        for flow in added:
            if renews_cache(flow.match) is renewing:
                yield AddFlow(flow, version)
        for entry in gone:
            if renews_cache(entry.match) is renewing:
                yield DeleteFlow(entry)
