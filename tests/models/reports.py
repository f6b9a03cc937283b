"""What a run of the controller has been told, in order, and what must follow of switches without a channel.

It is written from the rules in docs/architecture.md, section 9, and knows nothing of `sopa_ryu.fabric.evidence`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from sopa_ryu.fabric.messages import RoleRequest
from sopa_ryu.fabric.switch_session import ANSWER_SECONDS
from sopa_ryu.fabric.view import View
from tests.models.memory_switch import Channel
from topologies import FatTree, Host, Level, Switch
from topologies.failures import Reason

End = tuple[Switch, int]

SHORTLY_BEFORE = 15.0


class Report(NamedTuple):
    trouble: Reason | None
    since: float


class Reports:
    def __init__(self, tree: FatTree) -> None:
        self.lost: dict[Switch, float] = {}  # when the loss of a switch's channel was noticed
        self.present: set[Switch] = set()  # with a channel, as far as the controller has noticed
        self.confirmed: set[Switch] = set()
        self.stays_out: dict[Switch, Reason] = {}  # excluded until they have confirmed their rules
        self.operating = False  # a switch came with rules of an earlier controller
        self._tree = tree
        self._last: dict[End, Report] = {}
        self._links = {switch: self._ends(switch) for switch in tree.switches()}

    def _ends(self, switch: Switch) -> list[tuple[End, End]]:
        """Return its own and the far end of each link of a switch to another."""
        ports = self._tree.ports(switch).items()
        return [((switch, port), (far, self._tree.port(far, switch))) for port, far in ports if isinstance(far, Switch)]

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
        self.present.add(switch)
        for port in self._tree.ports(switch):
            self.port((switch, port), ports.get(port, Reason.DOWN), now)

    def loses(self, switch: Switch, now: float) -> None:
        self.present.discard(switch)
        self.lost[switch] = now

    def confirms(self, switch: Switch) -> None:
        self.confirmed.add(switch)
        self.stays_out.pop(switch, None)

    def is_empty(self, switch: Switch) -> None:
        self.confirmed.discard(switch)
        self.stays_out[switch] = Reason.NO_RULES

    def trouble(self, end: End) -> Reason | None:
        return self._last[end].trouble if end in self._last else None

    def conclude(self, judge: bool) -> None:
        """Note which switches without a channel must be excluded from now on; unless ``judge``, none is found dead."""
        for switch in self._links:
            if switch in self.present or switch in self.stays_out:
                continue
            if switch not in self.confirmed and not self.operating:
                self.stays_out[switch] = Reason.NOT_CONNECTED
            elif judge and self._is_dead(switch):
                self.stays_out[switch] = Reason.DOWN if switch in self.lost else Reason.NOT_CONNECTED

    def _is_dead(self, switch: Switch) -> bool:
        links = self._links[switch]
        seen = [self._last[far] for _, far in links if far[0] in self.present]
        unseen = [own for own, far in links if far[0] not in self.present]
        lost_at = self.lost.get(switch, float("-inf"))
        if switch.level is Level.EDGE and not all(self.trouble(own) or self.trouble(far) for own, far in links if own in unseen):
            return False
        return all(report.trouble for report in seen) and any(report.since >= lost_at - SHORTLY_BEFORE for report in seen)


@dataclass
class Run:
    """The history of one run of the controller, as the switches and the network have seen it."""

    reports: Reports
    accepted: set[Channel] = field(default_factory=set)  # by which a switch with the planned ports has connected
    heard: set[Switch] = field(default_factory=set)  # those that have connected so
    taken: set[Channel] = field(default_factory=set)  # over which another controller is known or presumed the master
    asked: dict[RoleRequest, float] = field(default_factory=dict)  # when the role was asked for
    begun: list[int] = field(default_factory=list)  # versions made while a switch could follow
    in_force: list[int] = field(default_factory=list)  # and those reported in force
    sent: View | None = None  # to agents, the last time
    version: int = 1
    wrong: dict[End, float] = field(default_factory=dict)  # when a port heard a wrong neighbour last, while it counts

    def in_time(self, request: RoleRequest, now: float) -> bool:
        return now < self.asked[request] + ANSWER_SECONDS
