"""The state of the fabric as the controller sees it: which switches are connected, what has failed, at which version. Pure.

The one place that decides what has failed; `sopa_ryu.fabric.evidence` has what is known. Every observation (a port's status, a
lost channel, a probe from the wrong switch, an operator's drain) comes in with its time; every change of what has failed is one
version.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sopa_ryu.events.event import Event, EventKind, Note, ignored, of_version
from sopa_ryu.fabric.commitment import Commitment, Proposal
from sopa_ryu.fabric.departures import Departures
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.evidence import Element, Evidence, Management
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.known_rules import KnownRules
from sopa_ryu.fabric.view import View, changes
from topologies import Clos, Failures, Host, Level, Link, Switch
from topologies.aliases import Aliases
from topologies.failures import Reason
from topologies.way_out import away

KEPT_CHANGES = 256
INHERITED_SECONDS = {Reason.MISWIRED: 20.0, Reason.NO_CHANNEL: 20.0}
"""How long a new leader believes what its predecessor has found out and it has not: two rounds of LLDP."""


@dataclass
class Change:
    """One version of the fabric: what failed and healed with it, and how long it took to take effect."""

    version: int
    at: float
    """When, in seconds since 1970."""
    observed: float
    """When the cause was observed, in monotonic seconds."""
    failed: dict[str, str]
    """What failed, or has another reason now."""
    healed: list[str]
    agents: int = 0
    """How many agents were connected and had to be sent it."""
    acknowledged_ms: float | None = None
    """From ``observed`` until the last of them had it in force; None while one has not."""
    installed_ms: float | None = None
    """From ``observed`` until the last switch confirmed its rules; None until then."""

    def milliseconds(self, now: float) -> float:
        """Return how long ago the cause was observed, in milliseconds."""
        return round(1000 * (now - self.observed), 3)


@dataclass
class FabricState:
    """One versioned view of one fabric."""

    tree: Clos
    epoch: int
    """Tells this controller's versions from those of one that ran before it: milliseconds since 1970 at its start."""
    damping: HoldDown[Element] = field(default_factory=lambda: HoldDown(0.0, 0.0))
    """How long an element that has come back stays excluded."""
    aliases: Aliases = field(init=False)
    """What operators call its elements. Nothing here uses them; they are replaced when the fabric file is read anew."""
    version: int = 1
    without_switches: bool = False
    """Whether no switch is waited for: operators and hosts alone say what has failed, until one connects."""
    settled: bool = False
    """Whether enough switches have connected to tell what has failed. A controller that has just started knows nothing yet: until
    then agents and switches keep what an earlier one sent them."""
    failures: Failures = field(init=False)
    connected: set[Switch] = field(default_factory=set)
    """The switches that have confirmed their rules over their present connection."""
    rejected: dict[int, str] = field(default_factory=dict)
    """Datapath ids that are not used, each with the reason in words."""
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=KEPT_CHANGES))
    drains: Mapping[str, Drain] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    """Their names."""
    since: dict[str, float] = field(default_factory=dict)
    """When each element of ``failures`` was excluded, as far as this controller knows, in seconds since 1970."""
    note: Note = ignored
    """Has events kept."""
    setup: dict[str, Any] = field(default_factory=lambda: {"checked": 0, "detail": "", "problems": []})
    bfd: dict[str, Any] = field(default_factory=lambda: {"enabled": False, "detail": ""})
    management: Management = field(init=False)
    """Faults of the management network, during which nothing is withdrawn."""
    evidence: Evidence = field(init=False)
    known_rules: KnownRules = field(init=False)
    commitment: Commitment | None = None
    """Where several controllers share the fabric: what has to be committed before it is a version."""
    _inherited: Failures | None = None
    _miswired: frozenset[Element] = frozenset()
    _observed: dict[Element, Reason] = field(default_factory=dict)
    _held: dict[Element, tuple[Reason, float]] = field(default_factory=dict)
    _departures: Departures = field(init=False)
    _together: bool = False

    def __post_init__(self) -> None:
        self.settled |= self.without_switches
        self.failures, self.aliases = Failures(self.tree), self.tree.aliases
        self.management = Management(self.tree)
        self.evidence = Evidence(self.tree, self.management)
        self.known_rules = KnownRules(self.tree)
        self._departures = Departures(self.tree)

    # -- observations -------------------------------------------------------------------------------------------------

    def switch_heard(self, switch: Switch, ports: Mapping[int, Reason], now: float) -> bool:
        """Note that a switch has connected, and which of its ports carry nothing (`Reason.DOWN` or `Reason.SILENT`).

        It is not used before it has confirmed its rules. Like every observation, return True if that makes a new version.
        """
        self.evidence.connected(switch, ports, now)
        self._note(EventKind.CONNECTED, self.tree.name(switch))
        return self._update(now)

    def settle(self, now: float) -> bool:
        """Begin to tell what has failed: every switch has connected, or what is known of the others has to be enough."""
        self.settled = True
        return self._update(now)

    def switch_ready(self, switch: Switch, now: float) -> bool:
        """Note that a switch has confirmed its rules."""
        self.connected.add(switch)
        self.evidence.confirmed(switch)
        return self._update(now)

    def switch_refuses(self, switch: Switch, now: float) -> bool:
        """Note that a switch refused rules, did not answer, or has none: it cannot be relied on to forward."""
        self.connected.discard(switch)
        self.evidence.without_rules(switch)
        self._note(EventKind.REFUSED, self.tree.name(switch), "the switch refused its rules, did not answer, or has none")
        return self._update(now)

    def switch_lost(self, switch: Switch, now: float) -> bool:
        """Note that the OpenFlow channel of a switch is gone: it forwards by the rules that it has, unless neighbours deny it."""
        self.connected.discard(switch)
        self.evidence.lost(switch, now)
        self._note(EventKind.LOST, self.tree.name(switch))
        return self._update(now)

    def switch_answered(self, switch: Switch, now: float) -> bool:
        """Note that a switch has answered after a fault of the management network: what it reports counts again."""
        self.management.heard(switch)
        return self._update(now)

    def port_changed(self, switch: Switch, port: int, trouble: Reason | None, now: float) -> bool:
        """Note that a switch's port carries nothing (`Reason.DOWN`, `Reason.SILENT`), or with None that it does."""
        self.evidence.port(switch, port, trouble, now)
        return self._update(now)

    def host_left(self, host: Host, links: Collection[str], now: float) -> bool:
        """Note the links that a host has left now, where hosts alone say what has failed."""
        self._departures.left(host, links)
        before, left = self._departures.excluded, self._departures.decide(self.failures)
        for name in before ^ left:
            link = self.tree.link_by_name(name)
            assert isinstance(link.lower, Switch)
            self.evidence.port(link.lower, self.tree.port(link.lower, link.upper), Reason.SILENT if name in left else None, now)
        return self._update(now)

    def gateway_answers(self, gateway: Host, does: bool, now: float) -> bool:
        """Note that a gateway's BFD session is up: from now on silence counts; or that the gateway has shut it down."""
        self.evidence.answers(gateway, does, now)
        return self._update(now)

    def miswired(self, links: Iterable[str], now: float) -> bool:
        """Replace the set of links that lead elsewhere than planned."""
        self._miswired = frozenset(map(self.tree.element, links))
        return self._update(now)

    def drain(self, drains: Iterable[str] | Mapping[str, Drain], now: float, actor: str = "", why: str = "") -> bool:
        """Replace the links and switches that an operator has excluded from the candidate paths; by whom, and why."""
        before, self.drains = self.drains, dict(drains) if isinstance(drains, Mapping) else dict.fromkeys(drains, Drain())
        self.drained = frozenset(self.drains)
        for name, drain in self.drains.items():
            if before.get(name) != drain:
                until = "" if drain.until is None else f" (until {time.strftime('%F %T', time.localtime(drain.until))})"
                self._note(EventKind.DRAINED, name, f"{drain.reason}{until}".lstrip(), drain.actor)
        for name in before.keys() - self.drains.keys():
            self._note(EventKind.RESTORED, name, why, actor)
        return self._update(now)

    def tick(self, now: float) -> bool:
        """Release what was held down long enough."""
        return self._update(now)

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do if nothing happens before, in monotonic seconds."""
        held = self._held.values() if self._may_conclude else ()  # without any switch, nothing changes
        return min((self.management.next_tick, *(until for _, until in held)))

    def drainable(self, name: str) -> str:
        """Return the name of a link or switch that may be drained; `TopologyError` if there is none of that name.

        `ValueError` if it is a host's link, which has no replacement. That of a gateway may be drained: others lead out, too.
        """
        element = self.tree.element(name)
        host = element.lower if isinstance(element, Link) else None
        if isinstance(host, Host) and host not in self.tree.gateways:
            raise ValueError(f"{name} is the only link of its host: there is no other path for its packets")
        return name

    # -- versions -----------------------------------------------------------------------------------------------------

    @contextmanager
    def together(self, now: float) -> Iterator[None]:
        """Take the observations within as one: what follows from them is concluded after the last."""
        self._together = True
        try:
            yield
        finally:
            self._together = False
        self._update(now)

    @property
    def _may_conclude(self) -> bool:
        """Whether there is evidence of failures. A controller without any switch that ought to have some is cut off itself."""
        return bool(self.evidence.heard) or self.without_switches

    def _update(self, now: float) -> bool:
        if self._together:
            return False
        self.management.look(self.connected, now)
        # a controller without any switch has lost its own network, not the whole fabric
        if not self.settled or not self._may_conclude:
            return False
        if self.commitment is None:
            return self._adopt(self.version + 1, self._concluded(now), now)
        if not self.commitment.leads:
            self.evidence.believe(self.failures)
            self._damp(now)
        else:
            if self._inherited is not None:
                self._inherit(self._inherited, now)
            self.commitment.want(self._concluded(now), self.failures, now)
        return False

    def _concluded(self, now: float) -> Failures:
        self._damp(now)
        broken = {
            **dict.fromkeys(self._miswired, Reason.MISWIRED),
            **{element: reason for element, (reason, _) in self._held.items()},
            **self._observed,
        }
        # a failed switch stands for its links
        dead = {element for element in broken if isinstance(element, Switch)}
        reasons = dict.fromkeys(self.drained, Reason.DRAINED) | {
            self.tree.name(element): reason for element, reason in broken.items() if dead.isdisjoint(_ends(element))
        }
        failures = Failures(self.tree, reasons)
        unfollowed = list(self.known_rules.unfollowed(self._is_confirmed_or_out, failures))
        if unfollowed:
            failures = Failures(self.tree, dict.fromkeys(map(self.tree.name, unfollowed), Reason.NO_CHANNEL) | dict(failures))
        return failures

    def _adopt(self, version: int, failures: Failures, observed: float) -> bool:
        if dict(failures) == dict(self.failures):
            return False
        before, self.failures = self.failures, failures
        self.version = version
        failed, healed = changes(before, self.failures)
        at = time.time()
        for name in healed:
            self.since.pop(name, None)
        for name in failed:
            self.since.setdefault(name, at)
        self.changes.append(Change(self.version, at, observed, failed, healed))
        self.note(of_version(at, version, before, failures))
        return True

    # -- versions of a cluster ----------------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether agents may be sent the fabric's version."""
        return self.settled if self.commitment is None else self.commitment.is_known

    def follow(self, term: int, version: int, failures: Failures, now: float) -> bool:
        """Take the version that the leader of a term has committed; return whether it is another than before."""
        assert self.commitment is not None
        self.commitment.follow(term, version)
        self.evidence.operating = True
        new = (term, version) != (self.epoch, self.version)
        if dict(failures) == dict(self.failures):
            self.version = version
        else:
            self._adopt(version, failures, now)
        self.epoch = term
        self._update(now)
        return new

    def lead(self, term: int, now: float) -> None:
        """Begin to lead with the failures of the version that was followed, from which the first version of the term follows."""
        assert self.commitment is not None
        self.epoch = term
        self.commitment.lead(term)
        self._inherited = self.failures
        self.known_rules.presume(self.failures)
        self._update(now)

    def stand_by(self) -> None:
        """Propose no versions any more: another controller leads, or none does."""
        assert self.commitment is not None
        self.commitment.stand_by()
        self.connected.clear()

    def committed(self, proposal: Proposal) -> bool:
        """Take a proposal that was committed as the fabric's version; return False if it is none of the present term's."""
        assert self.commitment is not None
        if not self.commitment.adopt(proposal):
            return False
        if not self._adopt(proposal.version, proposal.failures, proposal.observed):
            self.version = proposal.version
        return True

    def _inherit(self, failures: Failures, now: float) -> None:
        """Hold down what the former leader held down, or has found and this one has not."""
        self._inherited = None
        self._damp(now)
        self._held = {element: held for element, held in self._held.items() if self.tree.name(element) in failures}
        for element, name in failures.elements.items():
            # the set of reasons is open: a member of another release may have named one
            reason = Reason(failures[name]) if failures[name] in list(Reason) else Reason.DOWN
            if element in self._observed or element in self._held or reason is Reason.DRAINED:
                continue
            if isinstance(element, Switch):
                self.evidence.exclude(element, reason)  # until it has confirmed its rules
                continue
            known = INHERITED_SECONDS.get(reason)
            self._held[element] = reason, self.damping.back(element, now) if known is None else now + known

    def _damp(self, now: float) -> None:
        """Compare what is observed now with what was, and hold down what has come back."""
        if self.evidence.heard:
            self.evidence.conclude()
        observed = self.evidence.observed(self._observed)
        for element in observed.keys() - self._observed.keys():
            self.damping.failed(element, now)
        for element, reason in self._observed.items():
            if element not in observed:
                self._held[element] = reason, self.damping.back(element, now)
        self._held = {
            element: (reason, until) for element, (reason, until) in self._held.items() if until > now and element not in observed
        }
        self._observed = observed
        self.damping.forget_old(now)

    def _note(self, kind: EventKind, name: str, cause: str = "", actor: str = "") -> None:
        self.note((Event(time.time(), kind, name, cause or None, actor or None),))

    def _is_confirmed_or_out(self, switch: Switch) -> bool:
        """Return False for a switch that forwards, as far as is known, by rules that cannot be changed or are not confirmed yet."""
        return switch in self.connected or switch in self.evidence.out

    def change(self, version: int) -> Change | None:
        """Return the change that made a version, or None if it is too long ago."""
        return next((change for change in reversed(self.changes) if change.version == version), None)

    # -- for readers --------------------------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What agents are sent."""
        return View(self.epoch, self.version, self.failures, self.commitment.cluster if self.commitment else "")

    @property
    def reached(self) -> Collection[Switch]:
        """The switches that are connected, for readers: a standby installs nothing, so that none confirms anything to it."""
        stands_by = self.commitment is not None and not self.commitment.leads
        return self.evidence.heard if stands_by else self.connected

    @property
    def has_switches(self) -> bool:
        """Whether switches are this controller's: not where none was waited for and none has come."""
        return not self.without_switches or bool(self.evidence.heard)

    @property
    def missing(self) -> list[Switch]:
        """The switches that ought to be connected and are not."""
        reached = self.reached
        return [switch for switch in self.tree.switches() if switch not in reached] if self.has_switches else []

    def fabric(self) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/fabric``."""
        return {
            "k": self.tree.k,
            "pods": self.tree.pods,
            "edges": self.tree.edges,
            "aggregations": self.tree.aggregations,
            "cores": self.tree.cores,
            "hosts_per_edge": self.tree.hosts_per_edge,
            "hosts": self.tree.host_count,
            **self.tree.described6,
            "switches": {level.name.lower(): sum(1 for _ in self.tree.switches(level)) for level in Level},
            "connected": len(self.reached),
            "version": self.version,
            "epoch": self.epoch,
            "settled": self.settled,
            "failures": self.failure_list(),
            **({} if self.has_switches else {"no_switches": True}),
            "missing": [self.tree.name(switch) for switch in self.missing],
            "rejected": [{"dpid": f"{dpid:016x}", "reason": why} for dpid, why in sorted(self.rejected.items())],
            "no_channel": [self.tree.name(switch) for switch in self.no_channel],
            "management": self.management.report(),
            "bfd": self.bfd,
            "setup": self.setup,
            **({"gateways": self.gateways()} if self.tree.gateways else {}),
        }

    def gateways(self) -> list[dict[str, Any]]:
        """Return the hosts that lead out of the fabric, and why no packet may go to one."""
        return [
            {"name": self.tree.name(gateway), "address": str(self.tree.ip(gateway)), "away": away(self.failures, gateway)}
            for gateway in self.tree.gateways
        ]

    @property
    def no_channel(self) -> list[Switch]:
        """The switches without a channel that are presumed to forward by the rules they have."""
        return self.evidence.no_channel() if self.settled and self.has_switches else []

    def failure_list(self, now: float | None = None) -> list[dict[str, Any]]:
        """Return the name, kind and reason of each failure, and since when; with a time also how long it is still held down."""
        listed: list[dict[str, Any]] = []
        for element, name in self.failures.elements.items():
            kind = "link" if isinstance(element, Link) else "switch"
            listed.append({"name": name, "kind": kind, "reason": self.failures[name], "since": self.since.get(name)})
            if name in self.drains:
                listed[-1]["drain"] = self.drains[name].report()
            if now is not None:
                held = self._held.get(element)
                listed[-1]["held_seconds"] = round(max(0.0, held[1] - now), 3) if held else None
        return listed

    def change_list(self) -> list[dict[str, Any]]:
        """Return the list of ``GET /sopa/v1/changes``: the last versions, the latest first."""
        return [{name: value for name, value in vars(change).items() if name != "observed"} for change in reversed(self.changes)]


def _ends(element: Element) -> list[Switch]:
    # by type: a host's and a switch's numbers may be equal as tuples
    return [end for end in element if isinstance(end, Switch)] if isinstance(element, Link) else []
