"""A controller's membership of a cluster: its lease, its campaign for the leadership, and the versions that it commits.

Four green threads: one keeps the lease and one the record (`Enlistment`), one watches the engine's keys, one acts on what the
others and the core have changed (`Member`). What decides is in `candidacy` and in `sopa_ryu.fabric.commitment`; what the leader
writes is in `Commits`, each write fenced by the revision that made it leader; what follows is carried out by `ControllerSide`.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

import sopa_ryu
from flowrules.label import Carrier
from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import Access, AddressError, EngineAddress, parse
from sopa_ryu.cluster.candidacy import Candidacy
from sopa_ryu.cluster.controller_side import ControllerSide
from sopa_ryu.cluster.engine import LAST_SECONDS, Engine, Outage, Patience
from sopa_ryu.cluster.gateway import Condition, EngineError, Kept, Kind
from sopa_ryu.cluster.records import FORMAT, Charter, CommittedView, DrainsRecord, Leader, MemberRecord, Term
from sopa_ryu.cluster.view import Identity, Mirror, Roll, difference
from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.options import ClusterSettings, OptionError
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET
from sopa_ryu.rest.operators import FILE as NAMED
from sopa_ryu.rest.reader import UndecidedError
from sopa_ryu.runtime.clients import is_loopback
from sopa_ryu.runtime.library import hub
from sopa_ryu.runtime.listeners import SparingLog

LOG = logging.getLogger("sopa.cluster")

LEADER, STANDBY = "leader", "standby"
LOOK_SECONDS = 0.25
"""How often the clock is looked at, at least."""
RETRY_SECONDS = 0.25
SLOW_SECONDS = 0.5
"""A version that has waited for the engine for so long is worth a warning: a failure is to be known to all by then."""


def uptime() -> float:
    """Return seconds of a clock that goes on while the process or the machine stands still."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class DeposedError(Exception):
    """The engine names another leader, or none."""


class Commits:
    """The writes of one member while it leads, fenced by its candidacy.

    ``changed`` is called when what was read beside the watch has changed the mirror; ``seconds`` with the seconds that a version
    has waited for the engine.
    """

    def __init__(
        self, engine: Engine, mirror: Mirror, candidacy: Candidacy, patience: Patience, changed: Callable[[], None]
    ) -> None:
        self.seconds: Callable[[float], None] = lambda seconds: None
        self._engine, self._mirror, self._candidacy = engine, mirror, candidacy
        self._patience = patience
        self._changed = changed
        self._view_at: int | None = None
        self._waits_since: float | None = None
        self._say = SparingLog(LOG).warning

    def begin(self) -> None:
        """Begin a leadership: what the engine's view was before is not known."""
        self._view_at = self._waits_since = None

    def commit(self, proposal: Proposal) -> bool:
        """Commit a version; return False if another attempt has to be made, under another number.

        After an `EngineError` that is ``unknown`` it may be committed all the same. Raises `DeposedError`, too.
        """
        since = self._waits_since = time.monotonic() if self._waits_since is None else self._waits_since
        record = CommittedView(proposal.term, proposal.version, dict(proposal.failures))
        if self._view_at is None:
            self.read()
            self._view_at = self._mirror.modified("view")
        # without the second a write whose node has stopped, and goes on later, would come after this one
        conditions = [Condition("leader", created=self._candidacy.created), Condition("view", modified=self._view_at)]
        self._view_at = None
        written = self._patience.write(self._engine, {"view": records.write(record)}, conditions)
        if written is None:
            if self.is_named():
                return False  # an earlier write has come after all
            raise DeposedError
        waited = time.monotonic() - since
        self._view_at, self._waits_since = written.revision, None
        self.seconds(waited)
        if waited >= SLOW_SECONDS:
            self._say(
                "slow",
                "cluster %s: etcd took %.1f s to keep version %d. Failures reach switches and agents so much later. Look for "
                "`slow fdatasync` in etcd's log, and give it a faster disk (docs/controllers.md)",
                self._engine.address.name,
                waited,
                proposal.version,
            )
        return True

    def write_drains(self, drains: Mapping[str, Drain], *, lost: bool = False) -> int:
        """Keep all drains in the engine, at the revision that is returned; raises `EngineError`.

        If they were ``lost``, what is there after all stays, and 0 is returned.
        """
        details = {name: drain.report() for name, drain in sorted(drains.items()) if drain != Drain()}
        record = DrainsRecord(self._candidacy.term, tuple(sorted(drains)), details)
        while self.is_named():
            modified = self._mirror.modified("drains")
            if lost and modified:
                return 0
            conditions = [Condition("leader", created=self._candidacy.created), Condition("drains", modified=modified)]
            if written := self._engine.write({"drains": records.write(record)}, conditions, seconds=LAST_SECONDS):
                return written.revision
        raise EngineError("the engine names another leader", Kind.REFUSED)

    def is_named(self) -> bool:
        """Return True if the engine, asked now, names this leadership."""
        self.read()
        key = self._mirror.kept("leader")
        return key is not None and key.created == self._candidacy.created

    def read(self) -> None:
        """Take in what the engine has now, unless the watch has brought later changes meanwhile; raises `EngineError`."""
        if self._mirror.refresh(self._engine.read(self._patience.seconds)):
            self._changed()


class Enlistment:
    """The lease of one member, and its record under that lease: what says to the others that it is there.

    ``patience`` is that of all writes of the member; a new lease is one, too. ``standing`` returns the version that it follows, and
    how many switches are connected.
    """

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        candidacy: Candidacy,
        identity: Identity,
        seconds: int,
        patience: Patience,
        clock: Callable[[], float],
        standing: Callable[[], tuple[int, int]],
    ) -> None:
        self._engine, self._mirror, self._candidacy = engine, mirror, candidacy
        self._identity, self._seconds, self._clock = identity, seconds, clock
        self._standing, self._patience = standing, patience
        self._entered: MemberRecord | None = None
        self._entered_at = 0
        self._former = 0
        self._since = int(time.time())

    @property
    def is_entered(self) -> bool:
        """Whether the engine has the record under the present lease."""
        return self._entered is not None

    def renew(self) -> None:
        """Renew the lease, or get one; raises `EngineError`."""
        own, sent = self._candidacy, self._clock()
        if own.lease and self._engine.renew(own.lease):
            own.renewed(sent)
            return
        if own.lease:
            LOG.warning("member %s: its lease has ended. It stands by and asks for another", own.name)
            self._former = own.lease
            own.lost()
            self._entered, self._entered_at = None, 0
        try:
            lease = self._engine.grant(self._seconds, self._patience.seconds)
        except EngineError as error:
            if error.late:
                self._patience.late()
            raise
        own.granted(lease, self._engine.granted, sent)

    def enter(self) -> None:
        """Bring the record up to date; raises `EngineError`."""
        own, identity, lease = self._candidacy, self._identity, self._candidacy.lease
        version, switches = self._standing()
        record = MemberRecord(
            **identity._asdict(),
            format=FORMAT,
            role=LEADER if own.term else STANDBY,
            term=own.term or self._mirror.latest_term,
            version=version,
            switches=switches,
            since=self._since,
        )
        if record == self._entered:
            return
        name, value = f"{records.MEMBERS}{identity.name}", records.write(record)
        key = self._mirror.kept(name)
        if key is not None and key.lease == lease and key.value == value:
            self._entered, self._entered_at = record, key.modified  # the answer to its write was lost
            return
        # so that a write that its node has kept back does not come after a later one
        condition = Condition(name, modified=self._entered_before(key))
        written = self._patience.write(self._engine, {name: value}, [condition], lease)
        if own.lease != lease:
            return  # it was lost meanwhile
        if written is not None:
            self._entered, self._entered_at = record, written.revision
            return
        key = self._mirror.kept(name)
        if key is not None and key.lease not in (lease, self._former):
            raise EngineError(
                f"another member is named {identity.name}: choose a name with --sopa-cluster-member, or wait until the lease of "
                "the one that ran before has ended",
                Kind.REFUSED,
            )

    def _entered_before(self, key: Kept | None) -> int:
        """Return the revision of this member's record in the engine; 0 if it has none yet."""
        if self._mirror.revision < self._entered_at:
            return self._entered_at
        # one that is there already is its own, too, if the answer to its first write was lost
        if key is not None and (self._entered is not None or key.lease == self._candidacy.lease):
            return key.modified
        return 0


class Member:
    """A controller among others. Its clock returns the seconds that leases are measured by."""

    def __init__(
        self,
        engine: Engine,
        identity: Identity,
        charter: Charter,
        lease_seconds: int,
        hands: ControllerSide,
        clock: Callable[[], float] = uptime,
        secret: str | None = None,
    ) -> None:
        self.engine = engine
        self.identity = identity
        self.mirror = Mirror()
        self._secret, self._objection = secret, ""
        self.candidacy = Candidacy(identity.name)
        self._cluster = engine.address.name
        self.roll = Roll(self._cluster, identity, self.mirror)
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
        self._agreeing = hub.Event()
        self._resigns = False
        self._forsaken = 0
        self._agreed = False
        self._difference = ""
        self._drains_at: float = -1

    # -- sopa_ryu.rest.cluster.ClusterControl -------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this member leads, and may command."""
        return self.candidacy.may_command(self._clock())

    def leader_url(self) -> str | None:
        """Return the URL of the leader's REST API; None while there is no leader, or none that has sealed its record.

        A member that the engine still names, but that has stepped down by its clock, knows that there is none.
        """
        leader = self.mirror.leader
        known = leader is not None and not self._was_leader and not leader.objection(self._secret)
        return leader.url if leader is not None and known else None

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

    def change_fabric(self, document: Mapping[str, Any]) -> None:
        """Have the cluster's members agree on another fabric, if this one leads; raises `UndecidedError` if that is not certain.

        Who stands by takes part with that fabric once the leader has said so.
        """
        if not self.is_leader:
            return
        charter = records.write(replace(self._charter, fabric=document))
        try:
            written = self.engine.write({"charter": charter}, [Condition("leader", created=self.candidacy.created)])
        except EngineError as error:
            raise UndecidedError(f"the cluster's charter cannot be written: {error}") from error
        if written is None:
            raise UndecidedError("this controller does not lead the cluster any more")

    def report(self) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/cluster``."""
        engine = {"reachable": self.problem is None, "problem": self.problem}
        report = self.roll.report(time.monotonic())
        if self._was_leader:
            report["leader"] = None
            for member in report["members"]:
                if member["name"] == self.identity.name and member["role"] == LEADER:
                    member["role"] = STANDBY
        return {**report, "engine": engine}

    def on_commit(self, seconds: Callable[[float], None]) -> None:
        """Have a function called with the seconds that each version has waited for the engine."""
        self._commits.seconds = seconds

    # -- green threads ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Have the member act soon: something has changed."""
        self._event.set()

    def keep_lease(self) -> None:
        while True:
            self._try("lease", self._enlistment.renew)
            self.look()
            hub.sleep(self.candidacy.renewal_seconds or RETRY_SECONDS)

    def keep_record(self) -> None:
        """Keep this member's record up to date until killed: a write, which may take longer than the lease."""
        while True:
            if self._agreed and self.candidacy.lease:
                self._try("record", self._enlistment.enter)
            self.look()
            self._agreeing.wait(self.candidacy.renewal_seconds or RETRY_SECONDS)
            self._agreeing.clear()

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
            if not self._try("writes", self._act):
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
                LOG.warning("cannot revoke the lease: %s. Another member leads when it has ended", error)
        self.engine.close()

    # -- acting -------------------------------------------------------------------------------------------------------

    def _act(self) -> None:
        own, now = self.candidacy, self._clock()
        key = self.mirror.kept("leader")
        named = key if key is not None and own.lease and key.lease == own.lease else None
        if own.term:
            if not own.may_command(now):
                self._stand_by("its lease was not renewed in time")
            elif self.mirror.revision >= own.created and (named is None or named.created != own.created):
                self._stand_by("the engine names another leader, or none")
            elif self._resigns:
                own.rest(now)
                self._forsake("it was asked to step down")
            elif own.is_cut_off(self._hands.standing()[1], self.roll.most_switches(), now):
                own.rest(now)
                self._forsake("another member has more than twice as many switches. Check this machine's management network")
            else:
                self._drain()
                self._commit()
            if own.term:
                return
        self._resigns = False
        if self._forsaken:
            self.engine.write({}, [Condition("leader", created=self._forsaken)], deletes=["leader"])
            self._forsaken = 0
            self._commits.read()
        if not self.mirror.revision or not self._agrees():
            return
        if named is not None and own.may_lead(now):
            self._lead(named)
            return
        self._follow()
        if key is not None and not key.lease:
            LOG.error("cluster %s: the key leader is bound to no lease. It was changed by hand, and is deleted", self._cluster)
            self.engine.write({}, [Condition("leader", modified=key.modified)], deletes=["leader"])
            self._commits.read()
        elif key is None and self._enlistment.is_entered and own.may_campaign(now):
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
        if different and different != self._difference:
            LOG.error(
                "member %s does not take part in cluster %s: %s. Give all members the same fabric file and program, or this one "
                "another cluster (etcd://.../NAME)",
                self.identity.name,
                self._cluster,
                different,
            )
        self._difference = different
        if not different and not self._agreed:
            self._agreeing.set()
        self._agreed = not different
        return self._agreed

    def _campaign(self) -> None:
        name, url = self.identity.name, self.identity.url
        generation = self._hands.highest_generation()
        term = self.candidacy.next_term(self.mirror.latest_term, time.time_ns() // 1_000_000, generation)
        written = self._patience.write(
            self.engine,
            {"term": records.write(Term(term)), "leader": records.write(Leader(name, term, url).sealed(self._secret))},
            [Condition("leader", created=0), Condition("term", modified=self.mirror.modified("term"))],
            self.candidacy.lease,
        )
        self._commits.read()
        if written is not None:
            self.look()

    def _lead(self, named: Kept) -> None:
        """Lead: the engine names this member, under its present lease."""
        self._commits.read()
        leader, now = self.mirror.leader, self._clock()
        if leader is None or self.mirror.kept("leader") != named or not self.candidacy.has_lease(now):
            return
        self._follow()
        self._drain()
        self.candidacy.lead(leader.term, named.created)
        self._commits.begin()
        LOG.warning("member %s leads cluster %s, term %d", leader.name, self._cluster, leader.term)
        self.roll.leader = leader.name
        self._hands.lead(leader.term)
        drained = self._hands.drained()
        if drained and self.mirror.kept("drains") is None:
            LOG.warning("cluster %s: the engine has lost the drains. This leader writes them again", self._cluster)
            self._drains_at = self._commits.write_drains(drained, lost=True)
        self._changed()
        self.look()

    def _stand_by(self, why: str) -> None:
        LOG.warning("member %s leads no longer, term %d: %s", self.identity.name, self.candidacy.term, why)
        self._hands.note_leader(None, self.candidacy.term, f"{self.identity.name} leads no longer: {why}")
        self.candidacy.stand_by()
        self._hands.stand_by()

    def outranked(self, why: str) -> None:
        """Lead no longer, because a switch says so; the next term is above what the switch knows."""
        if self.candidacy.term:
            self._forsake(why)
            self.look()

    def _forsake(self, why: str) -> None:
        """Stand by, and have the engine forget this leadership."""
        self._forsaken = self.candidacy.created
        self._stand_by(why)

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

    def write_drains(self, drains: Mapping[str, Drain]) -> None:
        """Keep all drains in the engine; raises `EngineError` if this member cannot, or may not."""
        if not self.candidacy.may_command(self._clock()):
            raise EngineError("this controller does not lead the cluster", Kind.REFUSED)
        before, self._drains_at = self._drains_at, math.inf  # the watch may be faster than the answer
        try:
            before = self._commits.write_drains(drains)
        finally:
            self._drains_at = before

    # -- following ----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.roll.changed(time.monotonic())
        leader, before = self.mirror.leader, self._objection
        self._objection = leader.objection(self._secret) if leader is not None else ""
        if self._objection not in ("", before):
            LOG.error("cluster %s: %s", self._cluster, self._objection)
        if not self.candidacy.term and self.roll.is_led_by_another():
            self._hands.stand_by()
        if leader is not None:
            self._hands.note_leader(leader.name, leader.term)
        self._hands.acknowledged(*self.roll.relayed())
        self.look()

    def _follow(self) -> None:
        view = self.mirror.view
        if view is not None:
            self._hands.follow(view)
        self._drain()

    def _drain(self) -> None:
        """Follow the drains in the engine, by whomever they are; a leader has its own before the mirror has."""
        drains, modified = self.mirror.drains, self.mirror.modified("drains")
        is_own = self.candidacy.term and modified < self._drains_at
        if drains is not None and modified != self._drains_at and not is_own:
            self._drains_at = modified
            self._hands.drain_all(drains.drains)

    # -- the engine's health ------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """Why the engine is not reachable, or why this member does not take part; None if all is well."""
        return self._outage.problem or (None if self._has_answered else "the engine has not answered yet")

    def _try(self, work: str, do: Callable[[], None]) -> bool:
        """Do some work with the engine; return whether it was done."""
        try:
            do()
        except EngineError as error:
            self._ill(work, error)
            return False
        self._well(work)
        return True

    def _well(self, work: str) -> None:
        self._has_answered = True
        if self._outage.worked(work, self._clock()):
            LOG.info("cluster %s: the engine answers", self._cluster)

    def _ill(self, work: str, error: EngineError) -> None:
        if self._outage.failed(work, error, self._clock()):
            LOG.error("cluster %s: %s. Switches and agents keep what they have, new versions and drains wait", self._cluster, error)


def join(
    settings: ClusterSettings,
    directory: Path,
    url: str,
    core: Coordinator,
    hands: ControllerSide,
    carrier: Carrier,
    secret: str | None,
) -> Member:
    """Return this controller's membership, whose green threads are still to be started. ``secret`` is what members share."""
    elsewhere = not all(is_loopback(node.host) for node in address_of(settings).endpoints)
    if elsewhere and is_loopback(urlsplit(settings.url or url).hostname or ""):
        LOG.warning(
            "member %s: relays and operators on other machines cannot reach its REST at %s. Set --wsapi-host, or "
            "--sopa-cluster-url where they use another address",
            settings.member,
            settings.url or url,
        )
    identity = Identity(settings.member, settings.url or url, sopa_ryu.__version__, secrets_digest(directory))
    try:
        records.check_identity(identity.name, identity.url)
    except records.RecordError as error:
        raise OptionError(f"cluster-member, cluster-url: {error}") from None
    charter = Charter(FORMAT, core.state.tree.document(), str(carrier))
    return Member(engine_of(settings), identity, charter, settings.lease, hands, secret=secret)


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
    digest = hashlib.sha256(b"sopa cluster")
    for name in (OPERATORS, AGENTS, SECRET):
        try:
            digest.update((directory / name).read_bytes().strip() + b"\n")
        except OSError:
            digest.update(b"\n")
    with suppress(OSError):  # as without the file, members of before it agree
        digest.update((directory / NAMED).read_bytes().strip() + b"\n")
    return digest.hexdigest()[:32]
