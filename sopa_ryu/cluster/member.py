"""A controller's membership of a cluster: its lease, its campaign for the leadership, and the versions that it commits.

Four green threads: one keeps the lease and one the record (`enlistment`), one watches the engine's keys, one acts on what the
others and the core have changed. What decides is in `candidacy` and in `sopa_ryu.fabric.commitment`; what the leader writes is in
`commits`; what follows is carried out by `Hands`, the application.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ryu.lib import hub

from sopa_ryu.cluster import records
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.commits import Commits, DeposedError
from sopa_ryu.cluster.engine import Engine, EngineError, Kind
from sopa_ryu.cluster.enlistment import LEADER, STANDBY, Enlistment
from sopa_ryu.cluster.gateway import Condition, Kept
from sopa_ryu.cluster.identity import Identity, difference
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.outage import Outage
from sopa_ryu.cluster.patience import Patience
from sopa_ryu.cluster.records import Charter, CommittedView, Leader, Term
from sopa_ryu.cluster.roll import Roll
from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.rest.reader import UndecidedError

LOG = logging.getLogger("sopa.cluster")

LOOK_SECONDS = 0.25
"""How often the clock is looked at, at least."""
RETRY_SECONDS = 0.25


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


def uptime() -> float:
    """Return seconds of a clock that goes on while the process or the machine stands still."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Member:
    """A controller among others.

    Args:
        charter: The fabric that this member serves.
        clock: Returns the seconds that leases are measured by.

    Attributes:
        mirror: The engine's keys as this member knows them.
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
        self.roll = Roll(engine.address.name, identity, self.mirror)
        self._patience = Patience()
        self._enlistment = Enlistment(
            engine, self.mirror, self.candidacy, identity, lease_seconds, self._patience, clock, hands.standing
        )
        self._commits = Commits(engine, self.mirror, self.candidacy, self._patience, self._changed)
        self._outage = Outage()
        self._has_answered = False
        self._charter = charter
        self._hands = hands
        self._clock = clock
        self._event = hub.Event()
        self._resigns = False
        self._forsaken = 0
        self._agreed = False
        self._told_charter = ""
        self._drains_at = -1

    # -- sopa_ryu.rest.reader.ClusterControl --------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and may command."""
        return self.candidacy.may_command(self._clock())

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST API; None while there is no leader.

        A member that the engine still names, but that has stepped down by its clock, knows that there is none.
        """
        leader = self.mirror.leader
        return leader.url if leader is not None and not self._was_leader else None

    @property
    def _was_leader(self) -> bool:
        """Whether this member leads no longer, or not yet, although the engine names it, as far as is known."""
        leader = self.mirror.leader
        return leader is not None and leader.name == self.identity.name and not self.is_leader

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
        engine = {"reachable": self.problem is None, "problem": self.problem}
        its = self.roll.report(time.monotonic())
        if self._was_leader:
            its["leader"] = None
            for member in its["members"]:
                if member["name"] == self.identity.name and member["role"] == LEADER:
                    member["role"] = STANDBY
        return {**its, "engine": engine}

    def on_commit(self, seconds: Callable[[float], None]) -> None:
        """Have a function called with the seconds that each version has waited for the engine."""
        self._commits.seconds = seconds

    # -- green threads ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Have the member act soon: something has changed."""
        self._event.set()

    def keep_lease(self) -> None:
        """Keep a lease until killed."""
        while True:
            try:
                self._enlistment.renew()
                self._well("lease")
            except EngineError as error:
                self._ill("lease", error)
            self.look()
            hub.sleep(self.candidacy.renewal_seconds or RETRY_SECONDS)

    def keep_record(self) -> None:
        """Keep this member's record up to date until killed: a write, which may take longer than the lease."""
        while True:
            try:
                if self._agreed and self.candidacy.lease:
                    self._enlistment.enter()
                    self._well("record")
            except EngineError as error:
                self._ill("record", error)
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
                    self._well("watch")
            except EngineError as error:
                self._ill("watch", error)
                hub.sleep(RETRY_SECONDS)

    def act(self) -> None:
        """Campaign, lead, commit, follow or step down, until killed."""
        while True:
            self._event.wait(LOOK_SECONDS)
            self._event.clear()
            try:
                self._act()
                self._well("writes")
            except EngineError as error:
                self._ill("writes", error)
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
            elif mine.is_cut_off(*self.roll.switches(self._hands.standing()[1]), now):
                mine.rest(now)
                self._forsake(
                    "another member has more than twice as many switches; check this machine's management network"
                )
            else:
                self._commit()
            if mine.term:
                return
        self._resigns = False
        if self._forsaken:
            self._give_up()
        if not self.mirror.revision or not self._agrees():
            return
        if is_mine and kept is not None and mine.may_lead(now):
            self._lead(kept)
            return
        self._follow()
        if kept is not None and not kept.lease:
            LOG.error(
                "cluster %s: the key leader is bound to no lease: it was changed by hand, and is deleted",
                self.engine.address.name,
            )
            self.engine.write({}, [Condition("leader", modified=kept.modified)], deletes=["leader"])
            self._commits.read()
        elif kept is None and self._enlistment.is_entered and mine.may_campaign(now):
            self._campaign()

    def _agrees(self) -> bool:
        """Tell whether this member's fabric is the cluster's; the first member says which that is."""
        charter = self.mirror.charter
        if charter is None:
            if self.mirror.kept("charter") is None:
                self.engine.write({"charter": records.write(self._charter)}, [Condition("charter", created=0)])
                self._commits.read()
            return False
        different = difference(self._charter, charter)
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
        term = mine.next_term(self.mirror.latest_term, time.time_ns() // 1_000_000, generation)
        try:
            written = self.engine.write(
                {"term": records.write(Term(term)), "leader": records.write(Leader(me.name, term, me.url))},
                [Condition("leader", created=0), Condition("term", modified=known.modified if known else 0)],
                mine.lease,
                seconds=self._patience.seconds,
            )
        except EngineError as error:
            if error.unknown:
                self._patience.late()
            raise
        self._commits.read()
        if written is not None:
            self.look()

    def _lead(self, kept: Kept) -> None:
        """Lead: the engine names this member, under its present lease."""
        self._commits.read()
        leader, now = self.mirror.leader, self._clock()
        if leader is None or self.mirror.kept("leader") != kept or not self.candidacy.has_lease(now):
            return
        self._follow()
        self._drain()
        self.candidacy.lead(leader.term, kept.created)
        self._commits.begin()
        LOG.warning("member %s leads cluster %s, term %d", leader.name, self.engine.address.name, leader.term)
        self.roll.leader = leader.name
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
        self._commits.read()

    def _commit(self) -> None:
        """Commit what the core proposes, until it proposes nothing."""
        while (proposal := self._hands.proposal()) is not None:
            try:
                is_done = self._commits.commit(proposal)
            except DeposedError:
                self._stand_by("the engine names another leader")
                return
            if not self.candidacy.may_command(self._clock()):
                return
            if is_done:
                self._hands.committed(proposal)

    def write_drains(self, names: Iterable[str]) -> None:
        """Keep the names of all drained elements in the engine; raises `EngineError` if this member cannot, or may not."""
        if not self.candidacy.may_command(self._clock()):
            raise EngineError("this controller does not lead the cluster", Kind.REFUSED)
        self._commits.write_drains(names)

    # -- following ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """The engine's keys have changed."""
        self.roll.changed(time.monotonic())
        if not self.candidacy.term and self.roll.is_led_by_another():
            self._hands.stand_by(self.roll.leader)
        self._hands.relays(*self.roll.relayed())
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

    @property
    def problem(self) -> str | None:
        """Why the engine is not reachable, or why this member does not take part; None if all is well."""
        return self._outage.problem or (None if self._has_answered else "the engine has not answered yet")

    def _well(self, work: str) -> None:
        self._has_answered = True
        if self._outage.worked(work, self._clock()):
            LOG.info("cluster %s: the engine answers", self.engine.address.name)

    def _ill(self, work: str, error: EngineError) -> None:
        if self._outage.failed(work, error, self._clock()):
            LOG.error(
                "cluster %s: %s; switches and agents keep what they have, new versions and drains wait",
                self.engine.address.name,
                error,
            )
