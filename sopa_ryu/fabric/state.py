"""The state of the fabric as the controller sees it: who is connected, what has failed, at which version. Pure.

The one place that decides what has failed. Whoever observes something (a port's status, a lost channel, a probe from the wrong
switch, an operator's drain) tells it here, with the time; every change of what has failed is one version.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.view import View, changes
from topologies import Failures, FatTree, Host, Level, Link, Switch
from topologies.failures import DRAINED

DOWN = "down"
SILENT = "silent"
"""The port is up, but BFD hears nothing from the other end, or the other end nothing from this one."""
MISSING = "not connected"
"""It has never connected since the controller started."""
NO_RULES = "without its rules"
"""It refuses what it is told: it cannot be relied on."""
MISWIRED = "miswired"

KEPT_CHANGES = 256


@dataclass
class Change:
    """One version of the fabric: what failed and healed with it, and how long it took to take effect.

    Attributes
    ----------
    version : int
    at : float
        When, in seconds since 1970.
    observed : float
        When the controller took in what caused it (time.monotonic, seconds).
    failed : dict of str to str
        What failed, or has another reason now.
    healed : list of str
    agents : int
        How many agents were connected and had to be told.
    acknowledged_ms : float or None
        From ``observed`` until the last of them had it in force; None while one has not.
    installed_ms : float or None
        From ``observed`` until the last switch confirmed its rules; None until then.
    """

    version: int
    at: float
    observed: float
    failed: dict[str, str]
    healed: list[str]
    agents: int = 0
    acknowledged_ms: float | None = None
    installed_ms: float | None = None


@dataclass
class FabricState:
    """One versioned view of one fabric.

    Parameters
    ----------
    tree : FatTree
    epoch : int
        Tells this controller's versions from those of one that ran before it: milliseconds since 1970 at its start.
    damping : HoldDown
        How long what comes back stays out of use.

    Attributes
    ----------
    settled : bool
        Whether enough switches have been heard to say what has failed. A controller that has just started knows nothing yet:
        until then agents and switches keep what an earlier one told them.
    """

    tree: FatTree
    epoch: int
    damping: HoldDown = field(default_factory=lambda: HoldDown(0.0, 0.0))
    version: int = 1
    settled: bool = False
    failures: Failures = field(init=False)
    connected: set[Switch] = field(default_factory=set)
    rejected: dict[int, str] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    drained: frozenset[str] = frozenset()
    bfd: dict[str, Any] = field(default_factory=lambda: {"enabled": False, "detail": ""})
    _heard: set[Switch] = field(default_factory=set)
    _out: dict[Switch, str] = field(default_factory=dict)
    _ports: dict[Switch, dict[int, str]] = field(default_factory=dict)
    _miswired: Mapping[str, str] = field(default_factory=dict)
    _observed: dict[str, str] = field(default_factory=dict)
    _held: dict[str, tuple[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.failures = Failures(self.tree)

    # -- what is observed ---------------------------------------------------------------------------------------------

    def switch_heard(self, switch: Switch, ports: Mapping[int, str], now: float) -> bool:
        """A switch has connected and told which of its ports carry nothing, and why (`DOWN` or `SILENT`).

        It is not relied on before it holds its rules. True, here as below, if that makes a new version.
        """
        self._heard.add(switch)
        self._ports[switch] = dict(ports)
        return self._update(now)

    @property
    def all_heard(self) -> bool:
        """Whether every switch of the fabric is connected."""
        return len(self._heard) == self.tree.switch_count

    def settle(self, now: float) -> bool:
        """From now on say what has failed: all switches have been heard, or it is time to give up those that have not."""
        self.settled = True
        self._out |= {
            switch: MISSING for switch in self.tree.switches() if switch not in self._heard | self._out.keys()
        }
        return self._update(now)

    def switch_ready(self, switch: Switch, now: float) -> bool:
        """A switch has confirmed that it holds its rules."""
        self.connected.add(switch)
        self._out.pop(switch, None)
        return self._update(now)

    def switch_refuses(self, switch: Switch, now: float) -> bool:
        """A switch has refused rules, or does not answer: what it holds is not known."""
        self.connected.discard(switch)
        self._out[switch] = NO_RULES
        return self._update(now)

    def switch_lost(self, switch: Switch, now: float) -> bool:
        """The OpenFlow channel of a switch is gone."""
        self.connected.discard(switch)
        self._heard.discard(switch)
        self._ports.pop(switch, None)
        self._out[switch] = DOWN
        return self._update(now)

    def switch_taken(self, switch: Switch) -> None:
        """Another controller has become a switch's master: it works on, but not for this one."""
        self.connected.discard(switch)

    def port_changed(self, switch: Switch, port: int, trouble: str | None, now: float) -> bool:
        """A switch has told that a port carries nothing (`DOWN`, `SILENT`), or with None that it does."""
        if trouble is None:
            self._ports.setdefault(switch, {}).pop(port, None)
        else:
            self._ports.setdefault(switch, {})[port] = trouble
        return self._update(now)

    def miswired(self, links: Iterable[str], now: float) -> bool:
        """These are all the links that lead elsewhere than planned."""
        self._miswired = dict.fromkeys(links, MISWIRED)
        return self._update(now)

    def drain(self, names: Iterable[str], now: float) -> bool:
        """These are all the links and switches that an operator has taken out of the candidate paths."""
        self.drained = frozenset(names)
        return self._update(now)

    def tick(self, now: float) -> bool:
        """Time has passed: what was held down long enough is used again."""
        return self._update(now)

    @property
    def next_tick(self) -> float | None:
        """When `tick` has something to do, if nothing happens before."""
        return min((until for _, until in self._held.values()), default=None)

    def reject(self, dpid: int, reason: str) -> None:
        """Remember a datapath that is left alone, and why."""
        self.rejected[dpid] = reason

    def drainable(self, name: str) -> str:
        """The name of a link or switch that may be drained.

        Raises
        ------
        TopologyError
            If there is none of that name.
        ValueError
            If it is a host's link, which nothing can replace.
        """
        element = self.tree.element(name)
        if isinstance(element, Link) and isinstance(element.lower, Host):
            raise ValueError(f"{name} is the only link of its host: there is no other way for its packets")
        return name

    # -- what follows -------------------------------------------------------------------------------------------------

    def _update(self, now: float) -> bool:
        # a controller that hears no switch at all has lost its own network, not the whole fabric
        if not self.settled or not self._heard:
            return False
        self._damp(now)
        broken = {**self._miswired, **{name: reason for name, (reason, _) in self._held.items()}, **self._observed}
        # the links of a switch that is out need not be named one by one
        dead = {name for name in broken if "-" not in name}
        broken = {name: reason for name, reason in broken.items() if name in dead or not dead & set(name.split("-"))}
        reasons = {**dict.fromkeys(self.drained, DRAINED), **broken}
        if reasons == dict(self.failures):
            return False
        before, self.failures = self.failures, Failures(self.tree, reasons)
        self.version += 1
        failed, healed = changes(before, self.failures)
        self.changes.append(Change(self.version, time.time(), now, failed, healed))
        return True

    def _damp(self, now: float) -> None:
        """Take in what is observed at present, and hold down what has come back."""
        observed = {self.tree.name(switch): reason for switch, reason in self._out.items()}
        for switch, ports in self._ports.items():
            for port, trouble in ports.items():
                name = self.tree.name(self.tree.link(switch, self.tree.neighbour(switch, port)))
                # one end may hear nothing while the other has no carrier
                observed[name] = DOWN if DOWN in (trouble, observed.get(name)) else trouble
        for name in observed:
            if name not in self._observed:
                self.damping.failed(name, now)
        for name, reason in self._observed.items():
            if name not in observed:
                self._held[name] = reason, self.damping.back(name, now)
        self._held = {
            name: (reason, until)
            for name, (reason, until) in self._held.items()
            if until > now and name not in observed
        }
        self._observed = observed
        self.damping.forget_old(now)

    # -- what is told to the outside ----------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What agents are told."""
        return View(self.epoch, self.version, self.failures)

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
            "settled": self.settled,
            "failures": self.failure_list(),
            "missing": [self.tree.name(switch) for switch in missing],
            "rejected": [{"dpid": f"{dpid:016x}", "reason": why} for dpid, why in sorted(self.rejected.items())],
            "bfd": self.bfd,
        }

    def failure_list(self, now: float | None = None) -> list[dict[str, Any]]:
        """What has failed: name, kind and reason of each; with a time also for how long it is still held down, if it is back."""
        told: list[dict[str, Any]] = []
        for name, reason in self.failures.items():
            told.append({"name": name, "kind": "link" if "-" in name else "switch", "reason": reason})
            if now is not None:
                held = self._held.get(name)
                told[-1]["held_seconds"] = round(max(0.0, held[1] - now), 3) if held else None
        return told

    def change_list(self) -> list[dict[str, Any]]:
        """The body's list of ``GET /sopa/v1/changes``: the last versions, the latest first."""
        return [
            {
                "version": change.version,
                "at": change.at,
                "failed": change.failed,
                "healed": change.healed,
                "agents": change.agents,
                "acknowledged_ms": change.acknowledged_ms,
                "installed_ms": change.installed_ms,
            }
            for change in reversed(self.changes)
        ]
