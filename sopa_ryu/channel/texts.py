"""The log lines about the processes that follow the fabric: agents, and the arbiter. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Texts(NamedTuple):
    """Log lines, for agents by default; ``%s`` first is the name of the host, or in `rejected` the address of the claimant."""

    unanswering: str = "agent of %s at %s does not answer: cut off, another that connects takes its place"
    silent: str = "agent of %s silent for %.0f s: cut off, its host keeps its path sets; check the agent and its network"
    twice: str = "agent of %s connected twice: the connection from %s is cut"
    connected: str = "agent of %s connected from %s (%d connected)"
    disconnected: str = "agent of %s disconnected: its host keeps its path sets until the agent is back (%d connected)"
    malformed: str = "agent of %s: message rejected: %s; check the agent's version"
    cut_off: str = "agent of %s cut off after %d rejected messages; check the agent's version"
    rejected: str = "connection from %s as agent of %s rejected: %s"
    deposed: str = (
        "another controller is the master of most switches: %d agents are sent away, they keep their path sets; end this "
        "controller, or the other one and restart this one"
    )
    stands_by: str = "this controller stands by: %d agents are sent away, they keep their path sets; %s"
    accepted_again: str = "this controller is the master of most switches again: agents are accepted"


ARBITER = Texts(
    unanswering="arbiter of %s at %s does not answer: cut off, another that connects takes its place",
    silent="arbiter of %s silent for %.0f s: cut off, it goes on with the fabric as it was; check the arbiter and its network",
    twice="arbiter of %s connected twice: the connection from %s is cut",
    connected="arbiter of %s connected from %s (%d connected)",
    disconnected="arbiter of %s disconnected: once its leases end, hosts spray without slots until it is back (%d connected)",
    malformed="arbiter of %s: message rejected: %s; check the arbiter's version",
    cut_off="arbiter of %s cut off after %d rejected messages; check the arbiter's version",
    rejected="connection from %s as arbiter of %s rejected: %s",
    deposed="another controller is the master of most switches: %d arbiters are sent away; end one of the two controllers",
    stands_by="this controller stands by: %d arbiters are sent away; %s",
    accepted_again="this controller is the master of most switches again: an arbiter is accepted",
)
