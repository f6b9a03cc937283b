"""The application's side of a cluster: what a member has the core, the agents' channel and the drains do."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import sopa_ryu
from flowrules.label import Carrier
from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.cluster.address import Access, AddressError, EngineAddress, parse
from sopa_ryu.cluster.engine import Engine, EngineError
from sopa_ryu.cluster.identity import Identity
from sopa_ryu.cluster.member import Member
from sopa_ryu.cluster.records import FORMAT, Charter, CommittedView
from sopa_ryu.fabric.commitment import Commitment, Proposal
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.options import ClusterSettings, OptionError
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET
from sopa_ryu.rest.reader import UndecidedError
from topologies import Failures, TopologyError

LOG = logging.getLogger("sopa.cluster")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine under whatever name.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("192.0.2.1"), is_loopback("m1.example")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(settings: ClusterSettings) -> EngineAddress:
    """Return the engine's address; raises `OptionError` if it is wrong."""
    try:
        return parse(settings.engine)
    except AddressError as error:
        raise OptionError(f"cluster: {error}") from None


def engine_of(settings: ClusterSettings) -> Engine:
    """Return the client of the engine that the options name; raises `OptionError` if they are wrong."""
    access = Access(settings.ca, settings.cert, settings.key, settings.user, settings.password_file)
    try:
        return Engine(address_of(settings), access)
    except (AddressError, EngineError) as error:
        raise OptionError(f"cluster: {error}") from None


def secrets_digest(directory: Path) -> str:
    """Return a digest of the token files in a directory: whether two members have the same, and nothing more."""
    found = hashlib.sha256(b"sopa cluster")
    for name in (OPERATORS, AGENTS, SECRET):
        try:
            found.update((directory / name).read_bytes().strip() + b"\n")
        except OSError:
            found.update(b"\n")
    return found.hexdigest()[:32]


class ControllerSide:
    """The hands of a member.

    Args:
        carry_out: Carries out what follows from an observation.
        now: Return the core's time.
        acknowledged: Called with the version that all agents of relays have acknowledged, None without such agents, and how
            many these are.
    """

    def __init__(
        self,
        core: Coordinator,
        arbiter: ArbiterNotifier,
        carry_out: Callable[[Effects], None],
        now: Callable[[], float],
        acknowledged: Callable[[int | None, int], None],
    ) -> None:
        self._core = core
        self._state = core.state
        self._arbiter = arbiter
        self._carry_out = carry_out
        self._now = now
        self._acknowledged = acknowledged
        self._refused: tuple[int, int] | None = None
        self.leader: str | None = None

    @property
    def _commitment(self) -> Commitment:
        assert self._state.commitment is not None
        return self._state.commitment

    # -- sopa_ryu.cluster.member.Hands --------------------------------------------------------------------------------

    def follow(self, view: CommittedView) -> None:
        """Take a version that the leader has committed."""
        if (view.term, view.version) <= (self._commitment.term, self._state.version) and self._commitment.is_known:
            return
        try:
            failures = Failures(self._state.tree, view.failures)
        except TopologyError as error:
            if self._refused != (view.term, view.version):
                LOG.error(
                    "version %d of term %d in the engine cannot be used: %s; find out who wrote it",
                    view.version,
                    view.term,
                    error,
                )
                self._refused = view.term, view.version
            return
        self._carry_out(self._core.followed(view.term, view.version, failures, self._now()))

    def drain_all(self, names: Iterable[str]) -> None:
        """Let exactly these elements be drained; names that the fabric does not have are left out."""
        known = set()
        for name in names:
            try:
                known.add(self._state.drainable(name))
            except ValueError as error:
                LOG.error("drains in the engine: %s cannot be drained: %s; restore it", name, error)
        self._carry_out(self._core.drained(known, self._now()))

    def lead(self, term: int) -> None:
        """Command the switches and agents from now on."""
        self._arbiter.begin(term)
        self.leader = None
        self._carry_out(self._core.lead(term, self._now()))

    def stand_by(self, leader: str | None) -> None:
        """Command nothing any more."""
        self.leader = leader
        if self._core.switches.leads:
            self._carry_out(self._core.stand_by(self._now()))

    def proposal(self) -> Proposal | None:
        """Return what has to be committed now; None if nothing has."""
        return self._commitment.propose(self._state.version)

    def committed(self, proposal: Proposal) -> None:
        """Put a version in force."""
        self._carry_out(self._core.committed(proposal, self._now()))

    def relays(self, acknowledged: int | None, agents: int) -> None:
        """Take what relays say of their agents."""
        self._acknowledged(acknowledged, agents)

    def highest_generation(self) -> int:
        """Return the highest generation id that a switch is known to have, or a leader had."""
        switches = self._core.switches
        return max(switches.highest_generation, switches.generation.number)

    def drained(self) -> frozenset[str]:
        """Return the names of what is drained."""
        return self._state.drained

    def standing(self) -> tuple[int, int]:
        """Return the version that this member follows, and how many switches are connected."""
        return self._state.version, len(self._core.switches.sessions)


class ClusterDrains:
    """The drained elements, kept in the engine by the leader."""

    def __init__(self, member: Member, core: Coordinator) -> None:
        self._member = member
        self._state = core.state

    def add(self, name: str) -> frozenset[str]:
        """Add a link or switch and return all drains, which the engine has when this returns; raises as `Drains.add` does."""
        return self._keep(self._state.drained | {self._state.drainable(name)})

    def remove(self, name: str) -> frozenset[str]:
        """Remove a link or switch and return all drains; raises as `add` does."""
        return self._keep(self._state.drained - {self._state.drainable(name)})

    def _keep(self, names: frozenset[str]) -> frozenset[str]:
        if names != self._state.drained:
            try:
                self._member.write_drains(names)
            except EngineError as error:
                raise UndecidedError(f"the drains cannot be kept in the cluster's engine: {error}") from error
        return names


def join(
    settings: ClusterSettings,
    directory: Path,
    url: str,
    core: Coordinator,
    hands: ControllerSide,
    carrier: Carrier,
) -> Member:
    """Return this controller's membership, whose green threads are still to be started."""
    elsewhere = not all(is_loopback(node.host) for node in address_of(settings).endpoints)
    if elsewhere and is_loopback(urlsplit(settings.url or url).hostname or ""):
        LOG.warning(
            "member %s: relays and operators on other machines cannot reach its REST at %s: set --wsapi-host, or "
            "--sopa-cluster-url where they use another address",
            settings.member,
            settings.url or url,
        )
    identity = Identity(settings.member, settings.url or url, sopa_ryu.__version__, secrets_digest(directory))
    charter = Charter(FORMAT, core.state.tree.document(), str(carrier))
    return Member(engine_of(settings), identity, charter, settings.lease, hands)
