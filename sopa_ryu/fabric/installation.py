"""The rules of one switch: what was read of it, what it is sent, and what it has confirmed by a barrier. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flowrules.model import SwitchRules
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.messages import AddFlow, DeleteFlow, Installed, InstalledState, Modification


@dataclass
class Sent:
    """What a switch was sent, and refused, since the controller started, over all its connections.

    Attributes:
        errors: Its error messages by type.
        mended: Entries and groups that another program had changed, and that were put right.
    """

    flow_mods: int = 0
    group_mods: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    mended: int = 0


class Installation:
    """The way of a switch from the entries that were read of it to confirmed rules, and from one version's rules to the next.

    Args:
        sent: Goes on counting from there.

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
        """Whether the entries that were read are of an earlier SOPA controller."""
        return any(map(rule_changes.is_ours, self.flows))

    @property
    def is_to_mend(self) -> bool:
        """Whether the switch differs from the rules that it had confirmed, and has not been sent others since."""
        return self._to_mend is not None and self._to_mend[0] is self.rules

    def begin(self, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the entries that were read to the wanted rules."""
        found = InstalledState(self.flows, self.groups)
        return self._send(rule_changes.reconcile(wanted, found, version), wanted, version)

    def change(self, confirmed: SwitchRules, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the confirmed rules to the wanted ones."""
        return self._send(rule_changes.difference(confirmed, wanted, version), wanted, version)

    def compare(self, confirmed: SwitchRules, found: InstalledState) -> int:
        """Take what was read of a switch with confirmed rules; return how many entries and groups differ from them."""
        wrong = rule_changes.reconcile(confirmed, found, self.version)
        self._to_mend = (confirmed, found) if wrong else None
        self.sent.mended += len(wrong)
        return len(wrong)

    def mend(self, wanted: SwitchRules, version: int) -> list[Modification]:
        """Return what leads from the entries that differ to the wanted rules.

        Raises:
            ValueError: If none differ.
        """
        if self._to_mend is None:
            raise ValueError("the switch does not differ from its rules")
        (_, found), self._to_mend = self._to_mend, None
        return self._send(rule_changes.reconcile(wanted, found, version), wanted, version)

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
