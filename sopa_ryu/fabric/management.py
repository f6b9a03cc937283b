"""Faults of the management network, and pauses of the controller itself: nothing is concluded until switches are heard again. Pure.

Many channels that are lost together, or a controller that stood still, say something of the management network or of the
controller, and nothing of the switches. Such a fault begins a grace period. It ends when every switch that still has a channel has
answered, and every switch that lost its channel has one again, or after `GRACE_SECONDS`. Meanwhile no switch counts as dead, and
what a switch reports counts only after it has answered: its messages before that may be old.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Set

from topologies import Clos, Switch

LOG = logging.getLogger("sopa")

MANY_SECONDS = 5.0
"""More channels than a pod has switches, lost within this time, are one fault of the management network."""
GRACE_SECONDS = 10.0
"""Open vSwitch connects again after 1 to 8 s."""


class Management:
    """The management network as the controller sees it.

    Attributes:
        faults: How many there were: ``channels`` (many lost together) and ``pauses`` (of the controller).
        unheard: Switches that have not answered since the fault began.
    """

    def __init__(self, tree: Clos) -> None:
        self.faults: Counter[str] = Counter(channels=0, pauses=0)
        self.unheard: set[Switch] = set()
        self._tree = tree
        self._lost: deque[tuple[float, Switch]] = deque()
        self._awaited: set[Switch] = set()
        self._until: float | None = None
        self._detail = ""

    @property
    def in_grace(self) -> bool:
        """Whether nothing is concluded for the time being."""
        return self._until is not None

    @property
    def next_tick(self) -> float:
        """When the grace period ends at the latest, in monotonic seconds."""
        return float("inf") if self._until is None else self._until

    def lost(self, switch: Switch, now: float) -> bool:
        """Note that a switch has lost its channel; return True if that makes it a fault of the management network."""
        self.unheard.discard(switch)
        self._lost.append((now, switch))
        while now - self._lost[0][0] > MANY_SECONDS:
            self._lost.popleft()
        together = {lost for _, lost in self._lost}
        if self._detail.startswith("many") and self.in_grace:
            self._awaited.add(switch)
        elif len(together) > self._tree.edges + self._tree.aggregations:  # more than a pod
            self._awaited |= together
            self.faults["channels"] += 1
            self._begin(f"many OpenFlow channels lost together, the last from {self._tree.name(switch)}", now)
            LOG.error(
                "management network: %d OpenFlow channels lost within %g s: no path is withdrawn for that, the switches forward "
                "by the rules they have; check the management network and this machine",
                len(together),
                MANY_SECONDS,
            )
            return True
        return False

    def paused(self, seconds: float, now: float) -> None:
        """Note that the controller stood still for some seconds."""
        self.faults["pauses"] += 1
        self._begin(f"the controller stood still for {seconds:.1f} s", now)
        LOG.error(
            "this controller stood still for %.1f s: no path is withdrawn until the switches have been heard again; check the "
            "load and memory of this machine",
            seconds,
        )

    def ask(self, switches: Collection[Switch]) -> None:
        """Note that these switches are asked to answer now."""
        self.unheard = set(switches)

    def heard(self, switch: Switch) -> None:
        """Note that a switch has answered, or has connected anew."""
        self.unheard.discard(switch)
        self._awaited.discard(switch)

    def look(self, connected: Set[Switch], now: float) -> bool:
        """End the grace period if it is over; return True if it ends now."""
        if self._until is None or (now < self._until and (self.unheard or not self._awaited <= connected)):
            return False
        missing = self._tree.switch_count - len(connected)
        if missing:
            LOG.warning(
                "management network: %d of %d switches have no OpenFlow channel: their paths stay while their neighbours report "
                "the links up; check their management network",
                missing,
                self._tree.switch_count,
            )
        else:
            LOG.info("management network: all %d switches have been heard again", self._tree.switch_count)
        self._until, self._detail = None, ""
        self.unheard.clear()
        self._awaited.clear()
        self._lost.clear()
        return True

    def _begin(self, detail: str, now: float) -> None:
        self._until, self._detail = now + GRACE_SECONDS, detail

    def report(self) -> dict[str, object]:
        """Return ``management`` of ``GET /sopa/v1/fabric``."""
        return {
            "fault": self.in_grace,
            "detail": self._detail,
            **{f"{kind}_faults": n for kind, n in self.faults.items()},
        }
