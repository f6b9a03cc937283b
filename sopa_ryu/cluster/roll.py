"""Who is in the cluster, who was, and what of that the log has to say. Pure."""

from __future__ import annotations

import logging
from typing import Any

from sopa_ryu.cluster.identity import Identity
from sopa_ryu.cluster.mirror import Mirror
from sopa_ryu.cluster.records import MemberRecord

LOG = logging.getLogger("sopa.cluster")

AWAY_SECONDS = 3600.0
"""A member that has no lease is listed for so long: afterwards it was taken out of service."""


class Roll:
    """The members and relays as one member knows them.

    Args:
        cluster: The cluster's name.

    Attributes:
        leader: The name that was logged last.
    """

    def __init__(self, cluster: str, identity: Identity, mirror: Mirror) -> None:
        self.leader: str | None = None
        self._cluster, self._identity, self._mirror = cluster, identity, mirror
        self._problems: dict[str, str] = {}
        self._secrets: set[str] = set()
        self._present: dict[str, MemberRecord] = {}
        self._gone: dict[str, tuple[MemberRecord, float]] = {}

    def changed(self, now: float) -> None:
        """Note that the engine's keys have changed, at a time in monotonic seconds."""
        for key, problem in self._mirror.problems.items():
            if self._problems.get(key) != problem:
                LOG.error("cluster %s: %s", self._cluster, problem)
        self._problems = dict(self._mirror.problems)
        members = self._mirror.members
        gone = {name: (its, now) for name, its in self._present.items() if name not in members}
        self._gone = {name: its for name, its in (self._gone | gone).items() if name not in members}
        self._present = members
        for name, member in members.items():
            if member.secrets != self._identity.secrets and name not in self._secrets:
                self._secrets.add(name)
                LOG.error(
                    "member %s has other token files than this one: agents and operators that move are rejected; copy token, "
                    "agent-token and agent-secret of one member's --sopa-state-dir to all",
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

    def switches(self, own: int) -> tuple[int, int]:
        """Return how many switches are connected to this member, which is given, and the most that are to another one."""
        others = (its.switches for name, its in self._mirror.members.items() if name != self._identity.name)
        return own, max(others, default=0)

    def relayed(self) -> tuple[int | None, int]:
        """Return the version that all agents of relays have acknowledged, None without such agents, and how many these are."""
        with_agents = [relay for relay in self._mirror.relays.values() if relay.agents]
        version = min((relay.version for relay in with_agents), default=None)
        return version, sum(relay.agents for relay in with_agents)

    def report(self, now: float) -> dict[str, Any]:
        """Return the body of ``GET /sopa/v1/cluster`` but for the engine."""
        mirror = self._mirror
        present = mirror.view.version if mirror.view is not None else 0
        members = [
            {**_described(its), "role": its.role, "lag": max(0, present - its.version), "switches": its.switches}
            for its in mirror.members.values()
        ]
        away = [
            {**_described(its), "role": "away", "lag": None, "switches": 0}
            for its, since in self._gone.values()
            if now - since < AWAY_SECONDS
        ]
        shown = ("name", "url", "agents", "version", "waiting")
        return {
            "name": self._cluster,
            "term": mirror.latest_term,
            "leader": mirror.leader.name if mirror.leader is not None else None,
            "members": members + away,
            "relays": [{field: getattr(relay, field) for field in shown} for relay in mirror.relays.values()],
        }


def _described(member: MemberRecord) -> dict[str, Any]:
    return {"name": member.name, "url": member.url, "program": member.program}
