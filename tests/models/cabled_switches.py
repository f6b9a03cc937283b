"""The switches of a fat-tree in memory, and the cables between them."""

from __future__ import annotations

from sopa_ryu.fabric.messages import Heard
from tests.models.memory_switch import MemorySwitch
from tests.models.reports import End
from topologies import FatTree, Switch
from topologies.failures import Reason


class CabledSwitches:
    """Switches that nothing is connected to but each other.

    Parameters
    ----------
    k : int

    Attributes
    ----------
    switches : dict of Switch to MemorySwitch
    plan, cables : dict of End to End
        Where a cable from each port between switches should lead, and where it really leads.
    """

    def __init__(self, k: int) -> None:
        self.tree = FatTree(k)
        self.switches = {
            switch: MemorySwitch(self.tree.dpid(switch), dict.fromkeys(self.tree.ports(switch)))
            for switch in self.tree.switches()
        }
        self.cables: dict[End, End] = {}
        for link in self.tree.links():
            if isinstance(link.lower, Switch):
                low = link.lower, self.tree.port(link.lower, link.upper)
                high = link.upper, self.tree.port(link.upper, link.lower)
                self.cables |= {low: high, high: low}
        self.plan = dict(self.cables)

    def swap(self, one: End, other: End) -> None:
        """Exchange the plugs in two ports; that is seen only if they are unplugged before."""
        far_one, far_other = self.cables[one], self.cables[other]
        if far_one != other:
            self.cables |= {one: far_other, far_other: one, other: far_one, far_one: other}

    def spread_probes(self, device: MemorySwitch) -> None:
        """Have the probes that a switch sends arrive where its cables lead."""
        here = self.tree.switch_by_dpid(device.dpid)
        while device.probes:
            port = device.probes.pop()
            there, far_port = self.cables[here, port]
            if (
                device.ports.get(port, Reason.DOWN) is None
                and self.switches[there].ports.get(far_port, Reason.DOWN) is None
            ):
                self.switches[there].hear(far_port, Heard(device.dpid, port, ""))
