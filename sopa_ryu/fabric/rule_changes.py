"""The rules of one switch: what was read, sent and confirmed by a barrier, and the difference from those it should have. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

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


@dataclass
class Sent:
    """What a switch was sent, and refused, since the controller started, over all its connections."""

    flow_mods: int = 0
    group_mods: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    """Its error messages by type."""
    mended: int = 0
    """Entries and groups that another program had changed, and that were put right."""


class Installation:
    """The way of a switch from the entries that were read of it to confirmed rules, and from one version's rules to the next.

    Attributes:
        rules: The rules that the switch has confirmed by a barrier; None while that is not known.
        version: The fabric's version of these rules; 0 before the first.
        messages_sent: Modifications sent over this connection.
        changed: The modifications that were sent last, by type.
        groups: What was read of the switch; nothing once it has confirmed rules.
    """

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.rules: SwitchRules | None = None
        self.version = 0
        self.messages_sent = 0
        self.changed: Counter[type] = Counter()
        self.flows: list[Installed] = []
        self.groups: dict[int, tuple[int, ...]] = {}
        self._target: tuple[SwitchRules, int] | None = None
        self._to_mend: tuple[SwitchRules, InstalledState] | None = None

    @property
    def is_of_sopa(self) -> bool:
        """Whether the entries that were read are of an earlier SOPA controller, which may have known of failures."""
        return any(map(is_ours, self.flows))

    @property
    def is_to_mend(self) -> bool:
        """Whether the switch differs from the rules that it had confirmed, and has not been sent others since."""
        return self._to_mend is not None and self._to_mend[0] is self.rules

    def begin(self, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the entries that were read to the wanted rules."""
        found = InstalledState(self.flows, self.groups)
        return self._send(reconcile(wanted, found, version), wanted, version)

    def change(self, confirmed: SwitchRules, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the confirmed rules to the wanted ones."""
        return self._send(difference(confirmed, wanted, version), wanted, version)

    def compare(self, confirmed: SwitchRules, found: InstalledState) -> int:
        """Take what was read of a switch with confirmed rules; return how many entries and groups differ from them."""
        wrong = reconcile(confirmed, found, self.version)
        self._to_mend = (confirmed, found) if wrong else None
        self.sent.mended += len(wrong)
        return len(wrong)

    def mend(self, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the entries that differ to the wanted rules; `ValueError` if none differ."""
        if self._to_mend is None:
            raise ValueError("the switch does not differ from its rules")
        (_, found), self._to_mend = self._to_mend, None
        return self._send(reconcile(wanted, found, version), wanted, version)

    def confirm(self) -> None:
        """Note that the switch has everything that it was sent."""
        if self._target is not None:
            self.rules, self.version = self._target
        self.flows, self.groups = [], {}

    def _send(self, changed: list[Modification], wanted: SwitchRules, version: int) -> list[Modification]:
        self.rules = None  # until the barrier, the switch's state is not known
        self._target = wanted, version
        self.changed = Counter(map(type, changed))
        flow_mods = self.changed[AddFlow] + self.changed[DeleteFlow]
        self.messages_sent += len(changed)
        self.sent.flow_mods += flow_mods
        self.sent.group_mods += len(changed) - flow_mods
        return changed
