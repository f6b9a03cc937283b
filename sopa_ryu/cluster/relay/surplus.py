"""Which agents a relay sends on, so that each relay has its share again after one has been away. Pure.

An agent's host decides which relay comes first for it; an agent that is at another one says so when it connects. Only such agents
are sent on, to the relay that comes first if it runs. There they stay: so nobody is sent round and round, however uneven the shares
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.cluster.records import RelayRecord

LOOK_SECONDS = 1.0
UNEVEN_SECONDS = 30.0
"""For so long shares are uneven, among the same relays, before agents are sent on: during an upgrade relays come and go."""
UNEVEN_SHARE, UNEVEN_AGENTS = 0.25, 16
"""Shares are uneven if the most that a relay has are so many more than the fewest: of the mean, and agents."""
BATCH = 32
"""So many are sent on at a look: several relays send them to one, which has to serve others meanwhile."""


class Surplus:
    """What one relay knows of the shares."""

    def __init__(self) -> None:
        self._relays: frozenset[str] = frozenset()
        self._since: float | None = None

    def look(self, relays: Iterable[RelayRecord], own: str, sessions: Collection[AgentSession], now: float) -> list[AgentSession]:
        """Return the agents to send on now; ``relays`` are those that run, this one among them, none if that is not known."""
        agents = {_plain(relay.url): relay.agents for relay in relays}
        if agents.keys() != self._relays or not agents:
            self._relays, self._since = frozenset(agents), None
            return []
        agents[_plain(own)] = len(sessions)
        if self._since is None or now - self._since < UNEVEN_SECONDS:
            spread = max(agents.values()) - min(agents.values())
            uneven = spread >= max(UNEVEN_AGENTS, UNEVEN_SHARE * sum(agents.values()) / len(agents))
            if not uneven:
                self._since = None
            elif self._since is None:
                self._since = now
            return []
        sent = list(islice((each for each in sessions if _plain(each.first) in agents), BATCH))
        if not sent:
            self._since = None
        return sent


def _plain(url: str) -> str:
    return url.rstrip("/")
