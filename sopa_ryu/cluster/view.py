"""What a member or relay knows of its cluster: the engine's keys as records, who is in it and who was, what all share. Pure."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.fabric.state_directory import differences

R = TypeVar("R", bound=records.Record)

LOG = logging.getLogger("sopa.cluster")

AWAY_SECONDS = 3600.0
"""A member that has no lease is listed for so long: afterwards it was taken out of service."""
DIFFERENCES_SHOWN = 5


class Mirror:
    """All keys of a cluster as of a revision of the engine, fed with what `Engine.read` and `Engine.watch` return.

    Attributes:
        revision: The engine's; 0 before the first contents.
        problems: From a key whose value SOPA did not write to what is wrong and what to do. Its record counts as missing.
    """

    def __init__(self) -> None:
        self.revision = 0
        self.problems: dict[str, str] = {}
        self._keys: dict[str, Kept] = {}
        self._records: dict[str, records.Record] = {}

    def apply(self, contents: Contents) -> frozenset[str]:
        """Take in changes, or all keys, also of an engine that went back; return the keys whose value, revisions or lease differ.

        Changes that came before what `refresh` has read are in that already.
        """
        if not contents.whole and contents.revision < self.revision:
            return frozenset()
        news = dict(contents.keys)
        if contents.whole:
            news.update(dict.fromkeys(self._keys.keys() - news.keys()))
            self.revision = contents.revision
        self.revision = max(self.revision, contents.revision)
        changed = {key for key, value in news.items() if value != self._keys.get(key)}
        for key in changed:
            self._take(key, news[key])
        if changed & {records.VIEW, records.TERM, records.LEADER}:
            self._judge_view()
        return frozenset(changed)

    def refresh(self, contents: Contents) -> frozenset[str]:
        """Apply all keys as they were read beside a watch, which may have been faster: then they are old, and nothing changes."""
        return self.apply(contents) if contents.revision >= self.revision else frozenset()

    def _take(self, key: str, value: Kept | None) -> None:
        self.problems.pop(key, None)
        self._records.pop(key, None)
        if value is None:
            self._keys.pop(key, None)
            return
        self._keys[key] = value
        try:
            self._records[key] = records.read(key, value.value)
        except records.RecordError as error:
            self.problems[key] = str(error)

    def _judge_view(self) -> None:
        """A view of a later term than the last leader's is of no leader: who followed it would take no leader's view any more.

        The key ``term`` alone does not tell that term: it may have been changed by hand while another leads.
        """
        view = self._one(records.VIEW, records.CommittedView)
        if view is None:
            return
        self.problems.pop(records.VIEW, None)
        last = min((record.term for record in (self.term, self.leader) if record is not None), default=view.term)
        if view.term > last:
            self.problems[records.VIEW] = (
                f"the key {records.VIEW} has term {view.term}, but the last leader's is {last}. It is not followed until a "
                "leader writes the next version. Find out who else can write to etcd"
            )

    def kept(self, key: str) -> Kept | None:
        """Return a key's value and revisions, also if its value is malformed; None if it does not exist."""
        return self._keys.get(key)

    def modified(self, key: str) -> int:
        """Return the revision of a key's last write; 0 if it does not exist."""
        value = self._keys.get(key)
        return value.modified if value is not None else 0

    @property
    def charter(self) -> records.Charter | None:
        """What the members agree on; None if it is missing or malformed, as for all that follow."""
        return self._one(records.CHARTER, records.Charter)

    @property
    def term(self) -> records.Term | None:
        return self._one(records.TERM, records.Term)

    @property
    def latest_term(self) -> int:
        """The number of the latest leadership; 0 if none is known."""
        return self.term.term if self.term is not None else 0

    @property
    def leader(self) -> records.Leader | None:
        return self._one(records.LEADER, records.Leader)

    @property
    def view(self) -> records.CommittedView | None:
        """The committed view. Who follows it keeps the one before where this is None."""
        return None if records.VIEW in self.problems else self._one(records.VIEW, records.CommittedView)

    @property
    def drains(self) -> records.DrainsRecord | None:
        return self._one(records.DRAINS, records.DrainsRecord)

    @property
    def members(self) -> dict[str, records.MemberRecord]:
        """The members by name, in order."""
        return {record.name: record for record in self._all(records.MemberRecord)}

    @property
    def relays(self) -> dict[str, records.RelayRecord]:
        """The relays by name, in order."""
        return {record.name: record for record in self._all(records.RelayRecord)}

    def _one(self, key: str, kind: type[R]) -> R | None:
        record = self._records.get(key)
        return record if isinstance(record, kind) else None

    def _all(self, kind: type[R]) -> list[R]:
        return [record for _, record in sorted(self._records.items()) if isinstance(record, kind)]


class Identity(NamedTuple):
    """A member as the others see it: its name, the URL of its REST API, its program's version, a digest of its token files."""

    name: str
    url: str
    program: str
    secrets: str


def difference(own: records.Charter, clusters: records.Charter) -> str:
    """Return what a member does not share with its cluster, in words; nothing if it agrees.

    >>> difference(records.Charter(1, {"pods": 4}, "mac"), records.Charter(1, {"pods": 4}, "option"))
    "the cluster's carrier is option, and this controller's is mac"
    """
    if clusters.format != own.format:
        return f"the cluster's keys have format {clusters.format}, and this program writes format {own.format}"
    if clusters.carrier != own.carrier:
        return f"the cluster's carrier is {clusters.carrier}, and this controller's is {own.carrier}"
    lines = list(islice(differences(clusters.fabric, own.fabric), DIFFERENCES_SHOWN))
    return f"its fabric is another than the cluster's: {'; '.join(lines)}" if lines else ""


class Roll:
    """The members and relays as one member knows them: who is there, who was, and what of that the log has to say.

    ``leader`` is the name that was logged last.
    """

    def __init__(self, cluster: str, identity: Identity, mirror: Mirror) -> None:
        self.leader: str | None = None
        self._cluster, self._identity, self._mirror = cluster, identity, mirror
        self._problems: dict[str, str] = {}
        self._secrets: set[str] = set()
        self._present: dict[str, records.MemberRecord] = {}
        self._gone: dict[str, tuple[records.MemberRecord, float]] = {}

    def changed(self, now: float) -> None:
        """Note that the engine's keys have changed, at a time in monotonic seconds."""
        for key, problem in self._mirror.problems.items():
            if self._problems.get(key) != problem:
                LOG.error("cluster %s: %s", self._cluster, problem)
        self._problems = dict(self._mirror.problems)
        members = self._mirror.members
        gone = self._gone | {name: (member, now) for name, member in self._present.items()}
        self._gone = {name: member for name, member in gone.items() if name not in members}
        self._present = members
        for name, member in members.items():
            if member.secrets != self._identity.secrets and name not in self._secrets:
                self._secrets.add(name)
                LOG.error(
                    "member %s has other token files than this one. Agents and operators that move are rejected. Copy "
                    "token, agent-token and agent-secret of one member's --sopa-state-dir to all",
                    name,
                )

    def is_led_by_another(self) -> bool:
        """Return True, and log it, if another member leads than was logged last, or none does."""
        leader = self._mirror.leader
        name = leader.name if leader is not None else None
        if name == self.leader:
            return False
        self.leader = name
        term = self._mirror.latest_term
        LOG.info("cluster %s: %s", self._cluster, f"{name} leads, term {term}" if name else "no leader")
        return True

    def most_switches(self) -> int:
        """Return the most switches that are connected to another member."""
        members = self._mirror.members
        return max((member.switches for name, member in members.items() if name != self._identity.name), default=0)

    def relayed(self) -> tuple[int | None, int]:
        """Return the version that all agents of relays have acknowledged, None without such agents, and how many these are."""
        with_agents = [relay for relay in self._mirror.relays.values() if relay.agents]
        version = min((relay.version for relay in with_agents), default=None)
        return version, sum(relay.agents for relay in with_agents)

    def report(self, now: float) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/cluster`` but for the engine."""
        mirror = self._mirror
        version = mirror.view.version if mirror.view is not None else 0
        members = [
            {**_described(member), "role": member.role, "lag": max(0, version - member.version), "switches": member.switches}
            for member in mirror.members.values()
        ]
        away = [
            {**_described(member), "role": "away", "lag": None, "switches": 0}
            for member, since in self._gone.values()
            if now - since < AWAY_SECONDS
        ]
        fields = ("name", "url", "agents", "version", "waiting")
        return {
            "name": self._cluster,
            "term": mirror.latest_term,
            "leader": mirror.leader.name if mirror.leader is not None else None,
            "members": members + away,
            "relays": [{field: getattr(relay, field) for field in fields} for relay in mirror.relays.values()],
        }


def _described(member: records.MemberRecord) -> dict[str, Any]:
    return {"name": member.name, "url": member.url, "program": member.program}
