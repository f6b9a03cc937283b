"""The rules that a switch without a channel still forwards by, and the labels that it does not follow by them. Pure.

Rules cannot be changed on such a switch. Its steering entries stay as they were confirmed, also when what they steer around has
healed: a label that names such an uplink is then ignored, and the packet takes another path than the one it names. So that
uplink stays excluded from candidate paths. It still carries packets: in the rules of other switches it is used where no other
path is left, as a drained one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flowrules.steering import allowed_uplinks
from topologies import Clos, Failures, Level, Link, Switch


class KnownRules:
    """The failures that each switch's rules are made for, or others for which they are the same."""

    def __init__(self, tree: Clos) -> None:
        self._tree = tree
        self._healthy = Failures(tree)
        self._made_for: dict[Switch, tuple[Failures, ...]] = {}
        self._steering: dict[Switch, None] = {}
        """Those whose rules steer, or may steer, around a failure."""
        self._found: dict[Switch, tuple[tuple[Failures, ...], list[Link]]] = {}
        self._found_for: dict[str, str] = {}

    def sent(self, switch: Switch, failures: Failures) -> None:
        """Note that a switch is sent the rules for some failures: until it confirms them it may have those before, or a mixture."""
        before = self._made_for.get(switch, (self._healthy,))
        if failures is not before[-1]:
            self._note(switch, (*before, failures))

    def confirmed(self, switch: Switch) -> None:
        """Note that a switch has confirmed the rules that it was sent last."""
        self._note(switch, self._made_for.get(switch, (self._healthy,))[-1:])

    def presume(self, failures: Failures) -> None:
        """Take it that every switch has the rules for some failures: another controller has installed them."""
        for switch in self._tree.switches():
            self._note(switch, (failures,))

    def _note(self, switch: Switch, made: tuple[Failures, ...]) -> None:
        self._made_for[switch] = made
        if any(made):
            self._steering[switch] = None
        else:
            self._steering.pop(switch, None)

    def unfollowed(self, may_change: Callable[[Switch], bool], failures: Failures) -> Iterator[Link]:
        """Yield the uplinks that switches may not send packets by although their labels name them.

        A switch that ``may_change`` has rules that can be changed, or that do not count.
        """
        if dict(failures) != self._found_for:
            self._found, self._found_for = {}, dict(failures)
        for switch in self._steering:
            if may_change(switch):
                continue
            made = self._made_for[switch]
            found = self._found.get(switch)
            if found is None or found[0] is not made:
                found = self._found[switch] = made, list(self._unfollowed_by(switch, made, failures))
            yield from found[1]

    def _unfollowed_by(self, switch: Switch, faults: tuple[Failures, ...], failures: Failures) -> Iterator[Link]:
        old = [made for made in faults if made and dict(made) != dict(failures)]
        if not old or switch.level is Level.CORE or not failures.alive(switch):
            return
        now = allowed_uplinks(self._tree, switch, failures)
        for made in old:
            then = allowed_uplinks(self._tree, switch, made)
            uplinks = {uplink for rack, allowed in now.items() for uplink in allowed if uplink not in then[rack]}
            yield from (self._tree.link(switch, self._tree.uplink(switch, uplink)) for uplink in uplinks)
