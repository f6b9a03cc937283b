"""The cabling between switches compared with the plan, from the LLDP probes of all ports between switches. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.fabric.pacing import Pacer
from sopa_ryu.fabric.switch_session import SwitchSession
from topologies import Clos, Host, Link, Switch, TopologyError

LOG = logging.getLogger("sopa.wiring")

SWAPPED = "swapped"
FOREIGN = "foreign"
MISSING = "missing"
DEVICE_SHARE = 0.3
"""For how much of the patience, about a round, a device has to be heard before it counts."""
MAX_ALSO_HEARD = 1000
PATIENCE_ROUNDS = 3.5
"""A link counts as missing after this many rounds without a probe."""
PROBES_PER_SECOND = 500
"""A round of a large fabric takes as long as it takes at this rate."""


@dataclass(slots=True)
class _Wrong:
    """A neighbour that is not the planned one, with the times of the last probe from it and from any wrong neighbour."""

    who: str
    kind: str
    who_at: float
    last_at: float
    is_device: bool


@dataclass(slots=True, eq=False, repr=False)
class _End:
    """One end of a planned link, and the probes that arrived there."""

    link: int
    switch: Switch
    port: int
    dpid: int
    other: _End = field(init=False)
    right_at: float = -inf
    wrong: _Wrong | None = None
    device_at: float = inf
    device: str = ""


class _Cable(NamedTuple):
    """A planned link: its name and its ends, the lower one first."""

    name: str
    ends: tuple[_End, _End]


class Wiring:
    """Probes that arrived at both ends of each link, compared with the plan.

    Nothing here changes with time alone, so that no clock has to tick: a wrong neighbour stays until the planned one is heard and
    no wrong one was for ``patience``, or until the port goes down. Of several wrong ones at one port (a hub) the first counts for
    as long as it is heard.

    A device that sends LLDP but no probe of ours (lldpd on a switch, the firmware of its network card) sends beside the planned
    neighbour or instead of it. It only counts once the planned one has been silent for ``patience`` and the device was heard for a
    round; a probe of the planned one clears it immediately.

    Attributes:
        patience: Seconds without a probe after which a link that is up counts as missing.
        refused: How many times a link came up with another neighbour than the planned one, or one of its ends changed from one
            wrong neighbour to another.
    """

    def __init__(self, tree: Clos, patience: float) -> None:
        self.tree = tree
        self.patience = patience
        self.refused = 0
        self._links: list[_Cable] = []
        self._ends: dict[Switch, list[_End | None]] = {
            switch: [None] * (tree.port_count(switch.level) + 1) for switch in tree.switches()
        }
        self._miswired: dict[int, str] = {}
        for link in tree.switch_links():
            assert isinstance(link.lower, Switch)
            self._plan(link.lower, link.upper)

    def _plan(self, lower: Switch, upper: Switch) -> None:
        tree, number = self.tree, len(self._links)
        low = _End(number, lower, tree.port(lower, upper), tree.dpid(lower))
        high = _End(number, upper, tree.port(upper, lower), tree.dpid(upper))
        low.other, high.other = high, low
        for end in (low, high):
            self._ends[end.switch][end.port] = end
        self._links.append(_Cable(tree.name(Link(lower, upper)), (low, high)))

    # -- observations -------------------------------------------------------------------------------------------------

    def heard(self, switch: Switch, port: int, probe: Heard, now: float) -> bool:
        """Note a probe; return whether that changes `miswired`. One where no link between switches is planned is ignored."""
        end = self._end(switch, port)
        if end is None:
            return False
        wrong = end.wrong
        if probe.dpid == end.other.dpid and probe.port == end.other.port:
            end.right_at = now
            if wrong is None or (not wrong.is_device and now - wrong.last_at < self.patience):
                return False
            end.wrong = None
            return self._settle(end.link)
        who, kind = self._sender(probe)
        if probe.dpid is None:
            end.device, end.device_at = who, min(end.device_at, now)
            if end.right_at >= now - self.patience or now - end.device_at < self.patience * DEVICE_SHARE:
                return False
        if wrong is not None:
            wrong.last_at = now
            if wrong.who == who:
                wrong.who_at = now
                return False
            # Were it the latest that counts, two neighbours behind one hub would change what is miswired at every probe.
            if now - wrong.who_at < self.patience:
                return False
        if wrong is not None or end.link not in self._miswired:
            self.refused += 1
        end.wrong = _Wrong(who, kind, who_at=now, last_at=now, is_device=probe.dpid is None)
        return self._settle(end.link)

    def forget(self, switch: Switch, port: int | None = None) -> bool:
        """Forget the probes of a port that went down, or with None of all of a switch; return whether that changes `miswired`."""
        ports = range(1, self.tree.port_count(switch.level) + 1) if port is None else (port,)
        changed = False
        for end in filter(None, (self._end(switch, each) for each in ports)):
            end.right_at, end.wrong = -inf, None
            end.device_at, end.device = inf, ""
            changed |= self._settle(end.link)
        return changed

    def _end(self, switch: Switch, port: int) -> _End | None:
        ends = self._ends.get(switch)
        return ends[port] if ends is not None and 0 < port < len(ends) else None

    def _sender(self, probe: Heard) -> tuple[str, str]:
        """Return a wrong neighbour in words, and the kind of the problem."""
        if probe.dpid is None:
            return probe.text or "a device without a name", FOREIGN
        at = f"port {'unknown' if probe.port is None else probe.port}"
        try:
            switch = self.tree.switch_by_dpid(probe.dpid)
        except TopologyError:
            return f"datapath {probe.dpid:#018x} {at}", FOREIGN
        planned = probe.port is not None and 1 <= probe.port <= self.tree.port_count(switch.level)
        return f"{self.tree.name(switch)} {at}", SWAPPED if planned else FOREIGN

    def _settle(self, number: int) -> bool:
        cable = self._links[number]
        wrong = "; ".join(
            f"{self._at(end)} leads to {end.wrong.who}, not to {self._at(end.other)}" for end in cable.ends if end.wrong
        )
        if wrong == self._miswired.get(number, ""):
            return False
        if wrong:
            self._miswired[number] = wrong
        else:
            del self._miswired[number]
        return True

    def _at(self, end: _End) -> str:
        return f"{self.tree.name(end.switch)} port {end.port}"

    # -- for readers --------------------------------------------------------------------------------------------------

    @property
    def miswired(self) -> dict[str, str]:
        """Planned links that lead elsewhere, in the order of `FatTree.links`, each with its actual end in words.

        Only a probe makes a link miswired, never silence: a late probe must not fail a healthy link.
        """
        return {self._links[number].name: words for number, words in sorted(self._miswired.items())}

    def beside(self, switch: Switch, port: int) -> str:
        """Return the device that is heard at a port beside the planned neighbour, or nothing."""
        end = self._end(switch, port)
        return end.device if end is not None and end.wrong is None else ""

    def report(self, down: Mapping[str, str], since: Mapping[Switch, float], now: float) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/wiring``.

        ``links`` between switches are ``right`` (heard so at both ends), ``unchecked`` (not long enough connected to tell), or one
        of ``problems``: "swapped" (another switch or port of the fat-tree was heard), "foreign" (somebody else was, at either end)
        or "missing". What was heard outweighs what is known otherwise, so that the first two are `miswired`. ``also_heard`` are
        devices beside right neighbours, the first 1,000.

        Args:
            down: The links that are known to carry nothing, by name, each with the reason.
            since: The connected switches, each with the time since when, in monotonic seconds.
        """
        earliest = now - self.patience
        settled = {switch for switch, at in since.items() if at < earliest}
        right = unchecked = 0
        problems = []
        for number, (name, (lower, upper)) in enumerate(self._links):
            both = lower.switch in since and upper.switch in since
            silent = [end for end in (lower, upper) if end.right_at < earliest]
            if number in self._miswired:
                kind, detail = self._kind(number), self._miswired[number]
            elif not both:
                kind, detail = MISSING, self._absent(end.switch for end in (lower, upper) if end.switch not in since)
            elif name in down:
                kind, detail = MISSING, f"the link is {down[name]}"
            elif not silent:
                right += 1
                continue
            elif lower.switch in settled and upper.switch in settled:
                kind, detail = MISSING, self._silence(silent)
            else:
                unchecked += 1
                continue
            problems.append({"link": name, "kind": kind, "detail": detail})
        return {
            "links": len(self._links),
            "right": right,
            "unchecked": unchecked,
            "problems": problems,
            "refused": self.refused,
            "also_heard": [
                {"at": self._at(end), "who": end.device}
                for cable in self._links
                for end in cable.ends
                if end.device and end.wrong is None
            ][:MAX_ALSO_HEARD],
        }

    def _kind(self, number: int) -> str:
        kinds = {end.wrong.kind for end in self._links[number].ends if end.wrong}
        return FOREIGN if FOREIGN in kinds else SWAPPED

    def _absent(self, switches: Iterable[Switch]) -> str:
        names = [self.tree.name(switch) for switch in switches]
        return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not connected"

    def _silence(self, silent: Sequence[_End]) -> str:
        if len(silent) == 1:
            (end,) = silent
            return f"nothing from {self._at(end.other)} arrives at {self._at(end)}, only the other way round"
        return f"nothing arrives at {' or at '.join(self._at(end) for end in silent)}"


class LinkDiscovery:
    """Checks the cabling of the connected switches by a probe of each port in ``interval`` seconds; 0 for none at all."""

    def __init__(self, tree: Clos, sessions: Mapping[Switch, SwitchSession], interval: float) -> None:
        self.tree = tree
        self.interval = interval and max(interval, 2 * tree.switch_link_count / PROBES_PER_SECOND)
        self.wiring = Wiring(tree, PATIENCE_ROUNDS * self.interval or inf)
        self._sessions = sessions
        self._pacer = Pacer[Switch](self.interval)
        self._known: dict[str, str] = {}
        self._also_heard: set[tuple[Switch, int]] = set()

    @property
    def next_tick(self) -> float:
        """When the next switch is to be probed, in monotonic seconds."""
        return self._pacer.at

    def tick(self, now: float) -> SwitchSession | None:
        """Return the switch that has probes due because its turn has come."""
        switch = self._pacer.due(self._sessions.keys(), now)
        if switch is None:
            return None
        self.probe(self._sessions[switch])
        return self._sessions[switch]

    def probe(self, session: SwitchSession, ports: Iterable[int] | None = None) -> None:
        """Have probes sent from a switch's ports, or some of them, that lead to other switches."""
        if self.interval:
            fabric_ports = {port for port, node in self.tree.ports(session.switch).items() if not isinstance(node, Host)}
            session.probes.update(fabric_ports if ports is None else fabric_ports & set(ports))

    def heard(self, switch: Switch, port: int, probe: Heard, now: float) -> bool:
        """Take an LLDP frame that arrived at a port; return True if other links are miswired now."""
        changed = self._tell(self.wiring.heard(switch, port, probe, now))
        if probe.dpid is None and self.wiring.beside(switch, port) and (switch, port) not in self._also_heard:
            self._also_heard.add((switch, port))
            LOG.warning(
                "%s port %d also hears LLDP of %s. The link stays in use. End lldpd there, or the LLDP of the network card",
                self.tree.name(switch),
                port,
                self.wiring.beside(switch, port),
            )
        return changed

    def port_down(self, switch: Switch, port: int | None = None) -> bool:
        """Forget what was heard at a port, or at all of a switch's: another cable may be plugged in next."""
        return self._tell(self.wiring.forget(switch, port))

    def _tell(self, changed: bool) -> bool:
        if changed:
            miswired = self.wiring.miswired
            for name, detail in miswired.items():
                if self._known.get(name) != detail:
                    LOG.error("link %s is miswired and excluded from candidate paths: %s. Recable it", name, detail)
            for name in self._known.keys() - miswired.keys():
                LOG.info("link %s: miswiring cleared", name)
            self._known = dict(miswired)
        return changed
