"""The state of the fabric as the controller sees it: who is connected, what has failed, at which version. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from topologies import Failures, FatTree, Host, Level, Link, Switch

DOWN = "down"


@dataclass
class FabricState:
    """One versioned view of one fabric; every change of what has failed is one version.

    Parameters
    ----------
    tree : FatTree
    epoch : int
        Tells this controller's versions from those of one that ran before it: milliseconds since 1970 at its start.
    """

    tree: FatTree
    epoch: int
    version: int = 1
    failures: Failures = field(init=False)
    connected: set[Switch] = field(default_factory=set)
    rejected: dict[int, str] = field(default_factory=dict)
    _ports_down: set[tuple[Switch, int]] = field(default_factory=set)
    _lost: set[Switch] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.failures = Failures(self.tree)

    def switch_connected(self, switch: Switch, ports_down: Iterable[int]) -> bool:
        """A switch holds its rules and has told which of its ports are down; True if that changes what has failed."""
        self.connected.add(switch)
        self._lost.discard(switch)
        self._ports_down = {(who, port) for who, port in self._ports_down if who != switch}
        self._ports_down |= {(switch, port) for port in ports_down}
        return self._settle()

    def switch_lost(self, switch: Switch) -> bool:
        """The OpenFlow channel of a switch is gone; True if that changes what has failed."""
        self.connected.discard(switch)
        self._lost.add(switch)
        self._ports_down = {(who, port) for who, port in self._ports_down if who != switch}
        return self._settle()

    def switch_taken(self, switch: Switch) -> None:
        """Another controller has become a switch's master: it works on, but not for this one."""
        self.connected.discard(switch)

    def port_changed(self, switch: Switch, port: int, up: bool) -> bool:
        """A switch has told that a port went up or down; True if that changes what has failed."""
        if up:
            self._ports_down.discard((switch, port))
        else:
            self._ports_down.add((switch, port))
        return self._settle()

    def reject(self, dpid: int, reason: str) -> None:
        """Remember a datapath that is left alone, and why."""
        self.rejected[dpid] = reason

    def _settle(self) -> bool:
        reasons = {self.tree.name(switch): DOWN for switch in self._lost}
        for switch, port in self._ports_down:
            neighbour = self.tree.neighbour(switch, port)
            # the link is named from its lower end, whichever end told
            below = isinstance(neighbour, Host) or neighbour.level < switch.level
            link = Link(neighbour, switch) if below else Link(switch, neighbour)  # type: ignore[arg-type]
            reasons[self.tree.name(link)] = DOWN
        if reasons == dict(self.failures):
            return False
        self.failures = Failures(self.tree, reasons)
        self.version += 1
        return True

    # -- what is told to the outside ------------------------------------------------------------------------------------

    def fabric(self) -> dict[str, Any]:
        """The body of ``GET /sopa/v1/fabric``."""
        missing = (switch for switch in self.tree.switches() if switch not in self.connected)
        return {
            "k": self.tree.k,
            "hosts": self.tree.host_count,
            "switches": {level.name.lower(): sum(1 for _ in self.tree.switches(level)) for level in Level},
            "connected": len(self.connected),
            "version": self.version,
            "epoch": self.epoch,
            "failures": failure_list(self.failures),
            "missing": [self.tree.name(switch) for switch in missing],
            "rejected": [{"dpid": f"{dpid:016x}", "reason": why} for dpid, why in sorted(self.rejected.items())],
        }

    def snapshot(self) -> dict[str, Any]:
        """The push channel's ``snapshot``: all that an agent needs to compute its path sets."""
        return {
            "type": "snapshot",
            "epoch": self.epoch,
            "version": self.version,
            "k": self.tree.k,
            "failures": dict(self.failures),
        }


def failure_list(failures: Mapping[str, str]) -> list[dict[str, str]]:
    """Failures as REST tells them: name, kind and reason of each."""
    return [
        {"name": name, "kind": "link" if "-" in name else "switch", "reason": reason}
        for name, reason in failures.items()
    ]
