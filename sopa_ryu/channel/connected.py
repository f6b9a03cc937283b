"""What a controller knows of the agents that are connected to its own front, and who reaches those of relays. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sopa_ryu.channel.mcs_hosts import McsHosts
from sopa_ryu.channel.messages import ProtocolError, TraceAnswer, from_agent
from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.channel.trace_desk import Asked, Trace, TraceDesk
from sopa_ryu.events.event import Event, EventKind, Note, ignored
from topologies import Clos, Host


@dataclass(slots=True)
class ConnectedAgent:
    """An agent of the controller's own front; times are those of `clock.now`.

    Attributes:
        peer: The address that it connected from.
        carrier, policy, spray: Where it writes the label, how it chooses paths, and for which flows anew for each packet, by its
            own account; None if it does not say.
        acknowledged: The version that it acknowledged last; 0 before the first.
        acknowledged_ms: How long after it was sent that version was acknowledged.
        behind_since: When the oldest version was sent that is not acknowledged; None if there is none.
        heard: When its last message arrived.
        refused, refuses: Messages of the agent that were rejected here, and messages that it says it has rejected.
        traces: Whether it can be asked for traces: it probes.
        left: The links that its host has left.
    """

    name: str
    peer: str
    carrier: str | None
    policy: str | None
    spray: str | None
    acknowledged: int
    acknowledged_ms: float | None
    behind_since: float | None
    heard: float
    refused: int
    refuses: int
    traces: bool
    left: tuple[str, ...] = ()


class Hand(NamedTuple):
    """Have a front hand a message to the agent of a host."""

    front: Relayed
    host: Host
    text: str


class ConnectedAgents:
    """The connected agents, and what the controller has them do.

    Attributes:
        sessions: The agents of the controller's own front.
        seen: Whether any agent has connected to it yet.
        front: That front; None while there is none.
        refused: ``claims`` and ``messages`` that it has rejected.
        traces: What agents are asked to trace.
        probe_lists: Who probes what, and what is reported.
        mcs_hosts: Who runs MCS, in a cluster; the front of a single controller knows it alone.
        note: Has events kept.
        departed: Called with a host whose agent says that it has left other links than before, and with them.
    """

    def __init__(self, tree: Clos) -> None:
        self.sessions: dict[Host, ConnectedAgent] = {}
        self.seen = False
        self.front: Relayed | None = None
        self.refused: Counter[str] = Counter(claims=0, messages=0)
        self.traces = TraceDesk()
        self.probe_lists = ProbeLists()
        self.mcs_hosts = McsHosts()
        self.note: Note = ignored
        self.departed: Callable[[Host, tuple[str, ...]], None] = lambda host, links: None
        self._tree = tree
        self._since: dict[Host, float] = {}

    # -- the front ------------------------------------------------------------------------------------------------------

    def change(self, changed: dict[Host, ConnectedAgent], left: Iterable[Host], now: float) -> None:
        """Take what has changed of the front's agents."""
        at = time.time()
        for host in left:
            if (gone := self.sessions.pop(host, None)) is not None:
                self.traces.left(host, now)
                self._since.pop(host, None)
                if gone.left:
                    self.departed(host, ())
                self.note((Event(at, EventKind.AGENT_LEFT, gone.name, actor=gone.peer),))
        for host in [host for host in changed if host not in self.sessions]:
            self._since[host] = at
            self.note((Event(at, EventKind.AGENT, changed[host].name, actor=changed[host].peer),))
        departed = [
            host for host, agent in changed.items() if agent.left != (before.left if (before := self.sessions.get(host)) else ())
        ]
        self.sessions.update(changed)
        for host in departed:
            self.departed(host, changed[host].left)
        self.seen |= bool(changed)

    def lose_all(self, now: float) -> None:
        """Note that the front has ended: its agents connect again to the next one."""
        self.change({}, list(self.sessions), now)
        self.front = None

    # -- for readers ----------------------------------------------------------------------------------------------------

    def behind(self, version: int) -> list[ConnectedAgent]:
        """Return the connected agents that have not acknowledged a version."""
        return [agent for agent in self.sessions.values() if agent.acknowledged != version]

    def tell(self, host: Host, version: int, now: float) -> dict[str, Any]:
        """Return what an agent has in force, and how far behind a version it is, as in ``GET /agents``."""
        agent = self.sessions[host]
        return {
            "host": agent.name,
            "address": str(self._tree.ip(host)),
            "peer": agent.peer,
            "since": self._since.get(host),
            "carrier": agent.carrier,
            "policy": agent.policy,
            "spray": agent.spray,
            "version": agent.acknowledged,
            "lag": version - agent.acknowledged,
            "lag_seconds": round(now - agent.behind_since, 3) if agent.behind_since is not None else 0.0,
            "acknowledged_ms": agent.acknowledged_ms,
            "last_contact_seconds": round(now - agent.heard, 3),
            "refused": agent.refused,
            "refuses": agent.refuses,
        }

    def has_agent(self, host: Host) -> bool:
        """Tell whether the agent of a host is connected here, or probes at a relay."""
        return host in self.sessions or self._front_of(host) is not None

    def _front_of(self, host: Host) -> Relayed | None:
        """Return the front or relay that has the agent of a host; None if none has it, or it does not probe at a relay."""
        if host in self.sessions:
            return self.front
        holder = self.probe_lists.answering.get(host)
        return holder if isinstance(holder, Relayed) else None

    # -- traces ---------------------------------------------------------------------------------------------------------

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked, version: int, now: float) -> tuple[Trace, list[Hand]]:
        """Have the agent of a host trace paths, or a flow, to another host; raises `TraceError` if it cannot."""
        src, dst = ends
        tracer = self.sessions.get(src) or self._front_of(src)
        trace = self.traces.begin(tracer, ends, self._tree.ip(dst), asked, version, now)
        return trace, self._due([trace])

    def cancel_trace(self, trace: Trace, now: float) -> list[Hand]:
        """End a trace, unless it has ended."""
        self.traces.cancel(trace, now)
        return self._due([trace])

    def traced(self, host: Host, text: str, now: float) -> None:
        """Take what an agent answers to a trace; raises `ProtocolError` if it was not asked that."""
        answer = from_agent(text)
        if not isinstance(answer, TraceAnswer):
            raise ProtocolError("it is no answer to a trace")
        try:
            self.traces.answered(host, answer, now)
        except ValueError as error:
            raise ProtocolError(str(error)) from error

    def tick(self, now: float) -> list[Hand]:
        """End the traces that nobody reads or answers, and make lists of the hosts that run MCS."""
        self.mcs_hosts.tick(now, ())
        return self._due(self.traces.tick(now))

    def _due(self, traces: Iterable[Trace]) -> list[Hand]:
        hands = []
        for trace in traces:
            front = self._front_of(trace.src)
            while front is not None and (text := self.traces.due(trace.src)) is not None:
                hands.append(Hand(front, trace.src, text))
        return hands
