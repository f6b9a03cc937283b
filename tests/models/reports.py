"""What switches have reported of ports and channels, in order, and what must follow of switches without a channel.

It is written from the rules in docs/architecture.md, section 9, and knows nothing of `sopa_ryu.fabric.evidence`.
"""

from __future__ import annotations

from typing import NamedTuple

from topologies import FatTree, Host, Level, Switch
from topologies.failures import Reason

End = tuple[Switch, int]

SHORTLY_BEFORE = 15.0


class Report(NamedTuple):
    """A port's state as a switch reported it, and since when the port is in trouble."""

    trouble: Reason | None
    since: float


class Reports:
    """The reports of one run of the controller.

    Attributes
    ----------
    lost : dict of Switch to float
        When the loss of a switch's channel was noticed.
    present : set of Switch
        Those with a channel, as far as the controller has noticed.
    confirmed : set of Switch
    stays_out : dict of Switch to Reason
        Switches that must be excluded until they have confirmed their rules.
    operating : bool
        Whether a switch came with rules of an earlier controller.
    """

    def __init__(self, tree: FatTree) -> None:
        self.lost: dict[Switch, float] = {}
        self.present: set[Switch] = set()
        self.confirmed: set[Switch] = set()
        self.stays_out: dict[Switch, Reason] = {}
        self.operating = False
        self._tree = tree
        self._last: dict[End, Report] = {}

    def port(self, end: End, trouble: Reason | None, now: float) -> None:
        """Note what a switch reports of a port.

        If the link carries packets, a report against it by a switch that has lost its channel since counts no longer: the same
        trouble reported again by that switch is a new one.
        """
        if trouble is Reason.SILENT and isinstance(self._tree.neighbour(*end), Host):
            trouble = None  # no host of the model has ever answered BFD
        before = self._last.get(end)
        goes_on = before is not None and before.trouble is not None
        self._last[end] = Report(trouble, before.since if before and goes_on else now)
        far = self._tree.neighbour(*end)
        if trouble is None and isinstance(far, Switch) and far not in self.present:
            self._last.pop((far, self._tree.port(far, end[0])), None)

    def connects(self, switch: Switch, ports: dict[int, Reason | None], now: float) -> None:
        """A switch connects and describes its ports."""
        self.present.add(switch)
        for port in self._tree.ports(switch):
            self.port((switch, port), ports.get(port, Reason.DOWN), now)

    def loses(self, switch: Switch, now: float) -> None:
        """The loss of a switch's channel is noticed."""
        self.present.discard(switch)
        self.lost[switch] = now

    def confirms(self, switch: Switch) -> None:
        """A switch has confirmed its rules."""
        self.confirmed.add(switch)
        self.stays_out.pop(switch, None)

    def is_empty(self, switch: Switch) -> None:
        """A switch is found without rules, or has not confirmed those it was sent."""
        self.confirmed.discard(switch)
        self.stays_out[switch] = Reason.NO_RULES

    def trouble(self, end: End) -> Reason | None:
        """Return what is wrong with an end of a link as far as is known."""
        report = self._last.get(end)
        return report.trouble if report is not None else None

    def conclude(self, judge: bool) -> None:
        """Note which switches without a channel must be excluded from now on; unless ``judge``, none is found dead."""
        for switch in self._tree.switches():
            if switch in self.present or switch in self.stays_out:
                continue
            if switch not in self.confirmed and not self.operating:
                self.stays_out[switch] = Reason.NOT_CONNECTED
            elif judge and self._is_dead(switch):
                self.stays_out[switch] = Reason.DOWN if switch in self.lost else Reason.NOT_CONNECTED

    def _is_dead(self, switch: Switch) -> bool:
        links = [
            ((switch, port), (far, self._tree.port(far, switch)))
            for port, far in self._tree.ports(switch).items()
            if not isinstance(far, Host)
        ]
        seen = [self._last[far] for _, far in links if far[0] in self.present]
        unseen = [own for own, far in links if far[0] not in self.present]
        lost_at = self.lost.get(switch, float("-inf"))
        if switch.level is Level.EDGE and not all(
            self.trouble(own) or self.trouble(far) for own, far in links if own in unseen
        ):
            return False
        return all(report.trouble for report in seen) and any(
            report.since >= lost_at - SHORTLY_BEFORE for report in seen
        )
