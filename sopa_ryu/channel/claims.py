"""Who may be the agent of a host: errors of claims that are rejected, and the claims that wait for a decision. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from sopa_ryu.channel.agent_session import AgentSession
from topologies import Clos, Host, TopologyError

CLAIM_SECONDS = 2.0
"""So long the holder of a place has to answer a ping before another that claims it takes it."""


class ClaimError(Exception):
    """A connection for a host that is rejected."""


class ForeignClaimError(ClaimError):
    """A claim that comes from another host of the fabric."""


class DeposedClaimError(ClaimError):
    """A claim while another controller is the switches' master."""


class TakenClaimError(ClaimError):
    """A claim for a host whose agent is connected and answers."""


class Claim(NamedTuple):
    """A claim that waits for the holder of its host to answer a ping."""

    holder: AgentSession
    peer: str
    claimant: Any
    deadline: float


class Claims:
    """The claims that wait, in the order in which they came: of each holder's host the latest one."""

    def __init__(self) -> None:
        self._waiting: dict[AgentSession, Claim] = {}

    def add(self, holder: AgentSession, peer: str, claimant: Any, now: float) -> Claim | None:
        """Let a claim wait for the holder of its host; return the one before, which it replaces but for the deadline."""
        before = self._waiting.get(holder)
        self._waiting[holder] = Claim(holder, peer, claimant, before.deadline if before else now + CLAIM_SECONDS)
        return before

    def overdue(self, now: float) -> list[AgentSession]:
        """Return the holders that have not answered in time."""
        return [claim.holder for claim in self._waiting.values() if claim.deadline <= now]

    def take(self, holder: AgentSession) -> Claim | None:
        """Remove and return the claim that waits for a holder."""
        return self._waiting.pop(holder, None)

    def take_all(self) -> list[Claim]:
        """Remove and return all claims."""
        taken, self._waiting = [*self._waiting.values()], {}
        return taken


def foreign(tree: Clos, host: Host, peer: str) -> str:
    """Return why an address may not be the agent of a host; nothing if it may."""
    try:
        sender = tree.host_by_ip(peer)
    except (TopologyError, ValueError):
        return ""  # from outside the fabric, as over a management network: it may be any host
    return "" if sender == host else f"{peer} is {tree.name(sender)}: an agent may only ask for its own host"
