"""What switches report of their ports and neighbours, and what follows of a switch without a channel. Pure.

A lost OpenFlow channel says something of the channel only. While a switch has none, its neighbours speak for it:

- A link with a channel at one end counts as that end reports it. What the other end reported last against the link counts until
  the first end reports anew that the link carries packets. A link without a channel at either end stays as it was.
- A switch is dead if every link to a neighbour with a channel is down or silent, and one of them has failed since about the time
  the channel was lost: a link that failed long before says nothing of the switch. An edge switch has no replacement, so that the
  links to its neighbours without a channel have to be known as failed, too.
- A switch that was dead stays excluded until it has connected and confirmed its rules, though its links may be back: it may have
  restarted, and then it has none. So does one that connects without any rules of a SOPA controller.
- A switch that has not connected since the controller started is presumed to forward only if a switch has connected with the
  rules of an earlier controller. Otherwise the fabric is new, and it has no rules yet.

Many channels that are lost together, or a controller that stood still, say something of the management network or of the
controller, and nothing of the switches. Such a fault begins a grace period. It ends when every switch that still has a channel has
answered, and every switch that lost its channel has one again, or after `GRACE_SECONDS`. Meanwhile no switch counts as dead, and
what a switch reports counts only after it has answered: its messages before that may be old.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Collection, Mapping, Set

from topologies import Clos, Failures, Host, Level, Link, Switch
from topologies.failures import Reason

LOG = logging.getLogger("sopa")

MANY_SECONDS = 5.0
"""More channels than a pod has switches, lost within this time, are one fault of the management network."""
GRACE_SECONDS = 10.0
"""Open vSwitch connects again after 1 to 8 s."""
RECENT_SECONDS = 15.0
"""A link that failed so shortly before a lost channel was noticed may have failed with its switch: echo requests take 8 s."""

Element = Switch | Link
End = tuple[Switch, int]


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
                "management network: %d OpenFlow channels lost within %g s. No path is withdrawn for that: the switches forward "
                "by the rules they have. Check the management network and this machine",
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
            "this controller stood still for %.1f s. No path is withdrawn until the switches have been heard again. Check the "
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
                "management network: %d of %d switches have no OpenFlow channel. Their paths stay while their neighbours report "
                "the links up. Check their management network",
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
        return {"fault": self.in_grace, "detail": self._detail, **{f"{kind}_faults": n for kind, n in self.faults.items()}}


class Evidence:
    """Everything that switches have reported.

    Attributes:
        heard: The switches with a channel.
        operating: Whether a switch has connected with rules of an earlier controller.
        out: Switches that are excluded until they have confirmed their rules.
    """

    def __init__(self, tree: Clos, management: Management) -> None:
        self.heard: set[Switch] = set()
        self.operating = False
        self.out: dict[Switch, Reason] = {}
        self._tree = tree
        self._switches = frozenset(tree.switches())
        self._management = management
        self._ports: dict[Switch, dict[int, Reason]] = {}
        self._since: dict[End, float] = {}
        self._lost_at: dict[Switch, float] = {}
        self._confirmed: set[Switch] = set()
        self._answering: set[End] = set()
        """Ports to hosts that have answered BFD, and have not shut it down."""

    # -- observations -------------------------------------------------------------------------------------------------

    def connected(self, switch: Switch, ports: Mapping[int, Reason], now: float) -> None:
        """Note that a switch has a channel, and which of its ports carry nothing."""
        self.heard.add(switch)
        self._lost_at.pop(switch, None)
        self._management.heard(switch)
        for port in self._tree.ports(switch):
            self.port(switch, port, ports.get(port), now)

    def lost(self, switch: Switch, now: float) -> None:
        """Note that a switch has lost its channel."""
        self.heard.discard(switch)
        self._lost_at[switch] = now

    def port(self, switch: Switch, port: int, trouble: Reason | None, now: float) -> None:
        """Note that a switch's port carries nothing, or with None that it does."""
        if trouble is Reason.SILENT and isinstance(self._tree.neighbour(switch, port), Host):
            # a host that has never answered BFD is not silent because somebody has enabled it at its port
            trouble = trouble if (switch, port) in self._answering else None
        if trouble is not None:
            self._ports.setdefault(switch, {})[port] = trouble
            self._since.setdefault((switch, port), now)
            return
        self._carries(switch, port)
        neighbour = self._tree.neighbour(switch, port)
        if isinstance(neighbour, Switch) and neighbour not in self.heard:
            # what it reported before its channel was lost is older than this
            self._carries(neighbour, self._tree.port(neighbour, switch))

    def _carries(self, switch: Switch, port: int) -> None:
        """Forget what was wrong with a port. Switches without any such port are not kept: each conclusion looks at all that are."""
        ports = self._ports.get(switch, {})
        if ports.pop(port, None) is not None and not ports:
            del self._ports[switch]
        self._since.pop((switch, port), None)

    def answers(self, host: Host, does: bool, now: float) -> None:
        """Note that a host's BFD session is up, or that the host has shut it down and is not silent for that."""
        edge = self._tree.edge_of(host)
        end = edge, self._tree.port(edge, host)
        if does:
            self._answering.add(end)
        elif end in self._answering:
            self._answering.discard(end)
            if self._ports.get(edge, {}).get(end[1]) is Reason.SILENT:
                self.port(*end, None, now)

    def confirmed(self, switch: Switch) -> None:
        """Note that a switch has confirmed its rules."""
        self._confirmed.add(switch)
        self.out.pop(switch, None)

    def without_rules(self, switch: Switch) -> None:
        """Note that a switch refused rules, did not confirm them, or has none."""
        self._confirmed.discard(switch)
        self.out[switch] = Reason.NO_RULES

    def exclude(self, switch: Switch, reason: Reason) -> None:
        """Exclude a switch, for a reason that the former leader had, until it has confirmed its rules."""
        self.out.setdefault(switch, reason)

    def believe(self, failures: Failures) -> None:
        """Note what the controller says that installs the rules: a switch that it does not exclude has them."""
        for switch in [switch for switch in self.out if switch in self.heard and self._tree.name(switch) not in failures]:
            self.confirmed(switch)

    def relies_on(self, switch: Switch) -> bool:
        """Tell whether a switch is in use for rules that it has confirmed, or for those of an earlier controller."""
        return switch not in self.out and (switch in self._confirmed or self.operating)

    # -- conclusions --------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Exclude the switches without a channel that are dead, or cannot have rules yet."""
        if len(self.heard) == len(self._switches):
            return
        for switch in self._switches.difference(self.heard, self.out):
            if switch not in self._confirmed and not self.operating:
                self.out[switch] = Reason.NOT_CONNECTED
            elif not self._management.in_grace and self._is_dead(switch):
                self.out[switch] = Reason.DOWN if switch in self._lost_at else Reason.NOT_CONNECTED

    def _is_dead(self, switch: Switch) -> bool:
        recent = self._lost_at.get(switch, float("-inf")) - RECENT_SECONDS
        evidence = False
        own = self._ports.get(switch, {})
        for port, neighbour in self._tree.ports(switch).items():
            if isinstance(neighbour, Host):
                continue
            near = neighbour, self._tree.port(neighbour, switch)
            is_troubled = near[1] in self._ports.get(neighbour, {})
            if neighbour in self.heard:
                if not is_troubled:
                    return False
                evidence |= self._since[near] >= recent
            elif switch.level is Level.EDGE and not is_troubled and port not in own:
                return False
        return evidence

    def observed(self, before: Mapping[Element, Reason]) -> dict[Element, Reason]:
        """Return what has failed; ``before`` is what had, which a switch that has to be heard again first cannot add to."""
        observed: dict[Element, Reason] = dict(self.out.items())
        for switch, ports in self._ports.items():
            for port, trouble in ports.items():
                link = self._tree.link(switch, self._tree.neighbour(switch, port))
                if switch in self._management.unheard and link not in before:
                    continue
                # one end may receive nothing while the other has no carrier
                observed[link] = Reason.DOWN if Reason.DOWN in (trouble, observed.get(link)) else trouble
        return observed

    def no_channel(self) -> list[Switch]:
        """Return the switches without a channel that are not excluded: they are presumed to forward by the rules they have."""
        if len(self.heard) == len(self._switches):
            return []
        return [switch for switch in self._tree.switches() if switch not in self.heard and switch not in self.out]
