"""A controller's membership of a cluster: its lease, its campaign for the leadership, and the versions that it commits.

Three green threads: one keeps the lease, one watches the engine's keys, one acts on what the other two and the core have changed.
What decides is in `candidacy` and in `sopa_ryu.fabric.commitment`; what follows is carried out by `Hands`, the application.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, Protocol

from ryu.lib import hub

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.engine import Engine, EngineError, Kind
from sopa_ryu.cluster.gateway import Condition, Kept
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.records import FORMAT, Charter, CommittedView, Drains, Leader, MemberRecord, Term
from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.fabric.last_fabric import differences
from sopa_ryu.rest.cluster import UndecidedError

LOG = logging.getLogger("sopa.cluster")

LOOK_SECONDS = 0.25
"""How often the clock is looked at, at least."""
RETRY_SECONDS = 0.25
FIRST_PATIENCE_SECONDS, LAST_PATIENCE_SECONDS = 1.0, 8.0
"""How long a commit may take at one node of the engine: twice as long after each that did not end in time."""
DIFFERENCES_SHOWN = 5
AWAY_SECONDS = 3600.0
"""A member that has no lease is listed for so long: afterwards it was taken out of service."""
LEADER, STANDBY = "leader", "standby"


class Hands(Protocol):
    """What a member has the application do, and asks it for."""

    def follow(self, view: CommittedView) -> None:
        """Take a version that the leader has committed."""

    def drain_all(self, names: Iterable[str]) -> None:
        """Let exactly these elements be drained."""

    def lead(self, term: int) -> None:
        """Command the switches and agents from now on."""

    def stand_by(self, leader: str | None) -> None:
        """Command nothing any more."""

    def proposal(self) -> Proposal | None:
        """Return what has to be committed now, under a new number; None if nothing has."""

    def committed(self, proposal: Proposal) -> None:
        """Put a proposal in force, which the engine has now."""

    def relays(self, acknowledged: int | None, agents: int) -> None:
        """Take the version that all agents of relays have acknowledged, None without such agents, and how many these are."""

    def highest_generation(self) -> int:
        """Return the highest generation id that a switch is known to have, or a leader had; 0 for none."""

    def drained(self) -> frozenset[str]:
        """Return the names of what is drained."""

    def standing(self) -> tuple[int, int]:
        """Return the version that this member follows, and how many switches are connected."""


class Identity(NamedTuple):
    """A member as the others see it.

    Attributes
    ----------
    name : str
    url : str
        Of its REST API.
    program : str
        The version of the program.
    secrets : str
        A digest of its token files.
    """

    name: str
    url: str
    program: str
    secrets: str


def uptime() -> float:
    """Return seconds of a clock that goes on while the process or the machine stands still."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _difference(own: Charter, clusters: Charter) -> str:
    """Return what a member does not share with its cluster, in words; nothing if it agrees."""
    if clusters.format != own.format:
        return f"the cluster's keys have format {clusters.format}, and this program writes format {own.format}"
    if clusters.carrier != own.carrier:
        return f"the cluster's carrier is {clusters.carrier}, and this controller's is {own.carrier}"
    found = list(islice(differences(clusters.fabric, own.fabric), DIFFERENCES_SHOWN))
    return f"its fabric is another than the cluster's: {'; '.join(found)}" if found else ""


class Member:
    """A controller among others.

    Parameters
    ----------
    engine : Engine
    identity : Identity
    charter : Charter
        The fabric that this member serves.
    lease_seconds : int
    hands : Hands
    clock : callable
        Returns the seconds that leases are measured by.

    Attributes
    ----------
    mirror : Mirror
        The engine's keys as this member knows them.
    candidacy : Candidacy
    problem : str or None
        Why the engine is not reachable, or why this member does not take part; None if all is well.
    """

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        charter: Charter,
        lease_seconds: int,
        hands: Hands,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.mirror = Mirror()
        self.candidacy = Candidacy(identity.name)
        self.problem: str | None = "the engine has not answered yet"
        self.commit_seconds: Callable[[float], None] = lambda seconds: None
        self._charter = charter
        self._lease_seconds = lease_seconds
        self._hands = hands
        self._clock = clock
        self._event = hub.Event()
        self._resigns = False
        self._forsaken = 0
        self._agreed = False
        self._entered: MemberRecord | None = None
        self._since = int(time.time())
        self._told_leader: str | None = None
        self._told_secrets: set[str] = set()
        self._told_charter = ""
        self._told_problems: dict[str, str] = {}
        self._drains_at = -1
        self._patience = FIRST_PATIENCE_SECONDS
        self._present: dict[str, MemberRecord] = {}
        self._gone: dict[str, tuple[MemberRecord, float]] = {}

    # -- sopa_ryu.rest.reader.ClusterControl --------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and may command."""
        return self.candidacy.may_command(self._clock())

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST API; None while there is no leader."""
        leader = self.mirror.leader
        return leader.url if leader is not None else None

    def whereabouts(self) -> str:
        """Return where agents and operators find the leader, in words."""
        leader = self.mirror.leader
        if leader is None or leader.name == self.identity.name:
            return "no member leads the cluster now"
        return f"the leader is {leader.name} at {leader.url}"

    def step_down(self) -> None:
        """Leave the leadership to another member soon; raises `UndecidedError` if this member does not lead."""
        if not self.is_leader:
            raise UndecidedError("this controller does not lead the cluster any more")
        self._resigns = True
        self.look()

    def report(self) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/cluster``."""
        leader = self.mirror.leader
        present = self.mirror.view.version if self.mirror.view is not None else 0
        return {
            "name": self.engine.address.name,
            "term": self._term,
            "leader": leader.name if leader is not None else None,
            "members": [
                {
                    "name": member.name,
                    "role": member.role,
                    "lag": max(0, present - member.version),
                    "url": member.url,
                    "program": member.program,
                    "switches": member.switches,
                }
                for member in self.mirror.members.values()
            ]
            + [
                {"name": name, "role": "away", "lag": None, "url": gone.url, "program": gone.program, "switches": 0}
                for name, (gone, since) in self._gone.items()
                if time.monotonic() - since < AWAY_SECONDS
            ],
            "relays": [
                {
                    "name": relay.name,
                    "url": relay.url,
                    "agents": relay.agents,
                    "version": relay.version,
                    "waiting": relay.waiting,
                }
                for relay in self.mirror.relays.values()
            ],
            "engine": {"reachable": self.problem is None, "problem": self.problem},
        }

    # -- green threads ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Have the member act soon: something has changed."""
        self._event.set()

    def keep_lease(self) -> None:
        """Keep a lease, and this member's record up to date, until killed."""
        while True:
            try:
                self._renew()
                if self._agreed:
                    self._enter()
                self._well()
            except EngineError as error:
                self._ill(error)
            self.look()
            hub.sleep(self.candidacy.renewal_seconds or RETRY_SECONDS)

    def watch(self) -> None:
        """Follow the engine's keys until killed."""
        while True:
            try:
                self.mirror.apply(self.engine.read())
                self._changed()
                for contents in self.engine.watch(self.mirror.revision):
                    if self.mirror.apply(contents):
                        self._changed()
            except EngineError as error:
                self._ill(error)
                hub.sleep(RETRY_SECONDS)

    def act(self) -> None:
        """Campaign, lead, commit, follow or step down, until killed."""
        while True:
            self._event.wait(LOOK_SECONDS)
            self._event.clear()
            try:
                self._act()
            except EngineError as error:
                self._ill(error)
                hub.sleep(RETRY_SECONDS)

    def leave(self) -> None:
        """Give the lease back, so that another member leads at once: this one stops."""
        lease = self.candidacy.lease
        if self.candidacy.term:
            self._stand_by("this controller stops")
        self.candidacy.lost()
        if lease:
            try:
                self.engine.revoke(lease)
            except EngineError as error:
                LOG.warning("the lease was not given back: %s; another member leads when it has ended", error)
        self.engine.close()

    @property
    def _term(self) -> int:
        """The latest term; 0 if none is known."""
        return self.mirror.term.term if self.mirror.term is not None else 0

    # -- the lease ----------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        mine, sent = self.candidacy, self._clock()
        if mine.lease and self.engine.renew(mine.lease):
            mine.renewed(sent)
            return
        if mine.lease:
            LOG.warning("member %s: its lease has ended: it stands by and asks for another", mine.name)
            mine.lost()
            self._entered = None
        lease = self.engine.grant(self._lease_seconds)
        mine.granted(lease, self.engine.granted, sent)

    def _enter(self) -> None:
        """Bring this member's record up to date."""
        mine = self.candidacy
        version, switches = self._hands.standing()
        me = self.identity
        role = LEADER if mine.term else STANDBY
        record = MemberRecord(
            me.name,
            me.url,
            me.program,
            FORMAT,
            role,
            mine.term or self._term,
            version,
            switches,
            self._since,
            me.secrets,
        )
        if record == self._entered:
            return
        key = f"members/{me.name}"
        found = self.mirror.kept(key)
        # a record that is there already is its own, too, if the answer to its first write was lost
        is_own = self._entered is not None or (found is not None and found.lease == mine.lease)
        conditions = [] if is_own else [Condition(key, created=0)]
        if self.engine.write({key: records.write(record)}, conditions, mine.lease) is None:
            found = self.mirror.kept(key)
            if found is not None and found.lease != mine.lease:
                raise EngineError(
                    f"another member is named {me.name}: choose a name with --sopa-cluster-member, or wait until the lease of the "
                    "one that ran before has ended",
                    Kind.REFUSED,
                )
            return
        self._entered = record

    # -- acting -------------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        mine, now = self.candidacy, self._clock()
        kept = self.mirror.kept("leader")
        is_mine = kept is not None and mine.lease != 0 and kept.lease == mine.lease
        if mine.term:
            if not mine.may_command(now):
                self._stand_by("its lease was not renewed in time")
            elif self.mirror.revision >= mine.created and not (
                is_mine and kept is not None and kept.created == mine.created
            ):
                self._stand_by("the engine names another leader, or none")
            elif self._resigns:
                mine.rest(now)
                self._forsake("it was asked to step down")
            else:
                self._commit()
            if mine.term:
                return
        self._resigns = False
        if self._forsaken:
            self._give_up()
        if not self.mirror.revision or not self._agrees():
            return
        if is_mine and kept is not None and mine.has_lease(now):
            self._lead(kept)
            return
        self._follow()
        if kept is not None and not kept.lease:
            LOG.error(
                "cluster %s: the key leader is bound to no lease: it was changed by hand, and is deleted",
                self.engine.address.name,
            )
            self.engine.write({}, [Condition("leader", modified=kept.modified)], deletes=["leader"])
            self.mirror.apply(self.engine.read())
        elif kept is None and self._entered is not None and mine.may_campaign(now):
            self._campaign()

    def _agrees(self) -> bool:
        """Tell whether this member's fabric is the cluster's; the first member says which that is."""
        charter = self.mirror.charter
        if charter is None:
            if self.mirror.kept("charter") is None:
                self.engine.write({"charter": records.write(self._charter)}, [Condition("charter", created=0)])
                self.mirror.apply(self.engine.read())
            return False
        different = _difference(self._charter, charter)
        if different and different != self._told_charter:
            LOG.error(
                "member %s does not take part in cluster %s: %s; give all members the same fabric file and program, or this one "
                "another cluster (etcd://.../NAME)",
                self.identity.name,
                self.engine.address.name,
                different,
            )
        self._told_charter = different
        self._agreed = not different
        return self._agreed

    def _campaign(self) -> None:
        me, mine = self.identity, self.candidacy
        known = self.mirror.kept("term")
        generation = self._hands.highest_generation()
        term = mine.next_term(self._term, time.time_ns() // 1_000_000, generation)
        written = self.engine.write(
            {"term": records.write(Term(term)), "leader": records.write(Leader(me.name, term, me.url))},
            [Condition("leader", created=0), Condition("term", modified=known.modified if known else 0)],
            mine.lease,
        )
        self.mirror.apply(self.engine.read())
        if written is not None:
            self.look()

    def _lead(self, kept: Kept) -> None:
        """Lead: the engine names this member, under its present lease."""
        self.mirror.apply(self.engine.read())
        leader, now = self.mirror.leader, self._clock()
        if leader is None or self.mirror.kept("leader") != kept or not self.candidacy.has_lease(now):
            return
        self._follow()
        self._drain()
        self.candidacy.lead(leader.term, kept.created)
        LOG.warning("member %s leads cluster %s, term %d", leader.name, self.engine.address.name, leader.term)
        self._told_leader = leader.name
        self._hands.lead(leader.term)
        drained = self._hands.drained()
        if drained and self.mirror.kept("drains") is None:
            LOG.warning(
                "cluster %s: the engine has lost the drains: this leader writes them again", self.engine.address.name
            )
            self.write_drains(drained)
        self._changed()
        self.look()

    def _stand_by(self, why: str) -> None:
        LOG.warning("member %s leads no longer, term %d: %s", self.identity.name, self.candidacy.term, why)
        self.candidacy.stand_by()
        leader = self.mirror.leader
        self._hands.stand_by(leader.name if leader is not None and leader.name != self.identity.name else None)

    def outranked(self, why: str) -> None:
        """Lead no longer, because a switch says so; the next term is above what the switch knows."""
        if self.candidacy.term:
            self._forsake(why)
            self.look()

    def _forsake(self, why: str) -> None:
        """Stand by, and have the engine forget this leadership."""
        self._forsaken = self.candidacy.created
        self._stand_by(why)

    def _give_up(self) -> None:
        self.engine.write({}, [Condition("leader", created=self._forsaken)], deletes=["leader"])
        self._forsaken = 0
        self.mirror.apply(self.engine.read())

    def _commit(self) -> None:
        """Commit what the core proposes, until it proposes nothing."""
        mine = self.candidacy
        while (proposal := self._hands.proposal()) is not None:
            began = time.monotonic()
            record = CommittedView(proposal.term, proposal.version, dict(proposal.failures))
            conditions = [Condition("leader", created=mine.created)]
            try:
                written = self.engine.write({"view": records.write(record)}, conditions, seconds=self._patience)
            except EngineError as error:
                if error.unknown:  # a node that has stopped is left; an engine that is slow needs more time
                    self._patience = min(2 * self._patience, LAST_PATIENCE_SECONDS)
                raise
            if written is None:
                self._stand_by("the engine names another leader")
                return
            self._patience = max(FIRST_PATIENCE_SECONDS, 2 * (time.monotonic() - began))
            self.commit_seconds(time.monotonic() - began)
            if not mine.may_command(self._clock()):
                return
            self._hands.committed(proposal)

    def write_drains(self, names: Iterable[str]) -> None:
        """Keep the names of all drained elements in the engine; raises `EngineError` if this member cannot, or may not."""
        mine = self.candidacy
        if not mine.may_command(self._clock()):
            raise EngineError("this controller does not lead the cluster", Kind.REFUSED)
        record = Drains(mine.term, tuple(sorted(names)))
        conditions = [Condition("leader", created=mine.created)]
        if self.engine.write({"drains": records.write(record)}, conditions, seconds=LAST_PATIENCE_SECONDS) is None:
            raise EngineError("the engine names another leader", Kind.REFUSED)

    # -- following ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """The engine's keys have changed."""
        for key, problem in self.mirror.problems.items():
            if self._told_problems.get(key) != problem:
                LOG.error("cluster %s: %s", self.engine.address.name, problem)
        self._told_problems = dict(self.mirror.problems)
        leader = self.mirror.leader
        name = leader.name if leader is not None else None
        if name != self._told_leader and not self.candidacy.term:
            self._told_leader = name
            LOG.info(
                "cluster %s: %s", self.engine.address.name, f"{name} leads, term {self._term}" if name else "no leader"
            )
            self._hands.stand_by(name)
        members = self.mirror.members
        gone = {name: (its, time.monotonic()) for name, its in self._present.items() if name not in members}
        self._gone = {name: its for name, its in (self._gone | gone).items() if name not in members}
        self._present = members
        for member in self.mirror.members.values():
            if member.secrets != self.identity.secrets and member.name not in self._told_secrets:
                self._told_secrets.add(member.name)
                LOG.error(
                    "member %s has other token files than this one: agents and operators that move are rejected; copy token, "
                    "agent-token and agent-secret of one member's --sopa-state-dir to all",
                    member.name,
                )
        with_agents = [relay for relay in self.mirror.relays.values() if relay.agents]
        version = min((relay.version for relay in with_agents), default=None)
        self._hands.relays(version, sum(relay.agents for relay in with_agents))
        self.look()

    def _follow(self) -> None:
        view = self.mirror.view
        if view is not None:
            self._hands.follow(view)
        self._drain()

    def _drain(self) -> None:
        kept = self.mirror.kept("drains")
        drains = self.mirror.drains
        if kept is not None and drains is not None and kept.modified != self._drains_at:
            self._drains_at = kept.modified
            self._hands.drain_all(drains.names)

    # -- the engine's health ------------------------------------------------------------------------------------------

    def _well(self) -> None:
        if self.problem is not None:
            LOG.info("cluster %s: the engine answers", self.engine.address.name)
            self.problem = None

    def _ill(self, error: EngineError) -> None:
        if str(error) != self.problem:
            LOG.error(
                "cluster %s: %s; switches and agents keep what they have, new versions and drains wait",
                self.engine.address.name,
                error,
            )
            self.problem = str(error)
