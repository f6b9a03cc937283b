"""Traces by the agents that are connected here or at a relay: who is asked, and whose answers are taken. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.effects import Effects, Hand
from sopa_ryu.channel.handed_traces import HandedTraces
from sopa_ryu.channel.messages import ProtocolError, TraceAnswer, from_agent
from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.channel.trace_desk import Asked, Trace, TraceDesk
from topologies import Clos, Host


class Tracing:
    """The way between the traces of a controller or relay and the agents.

    Args:
        desk: `HandedTraces` at a relay: the leader has the traces.
        sessions: The agents that are connected here.
        lists: They know which relay has which agent.
        effects: What has to be done is added to them.
    """

    def __init__(
        self, tree: Clos, desk: TraceDesk, sessions: Mapping[Host, AgentSession], lists: ProbeLists, effects: Effects
    ) -> None:
        self.desk = desk
        self._tree = tree
        self._sessions = sessions
        self._lists = lists
        self._effects = effects

    def relay_of(self, host: Host) -> Relayed | None:
        """Return the relay that has the agent of a host; None if none has it, or it does not probe."""
        holder = self._lists.answering.get(host)
        return holder if isinstance(holder, Relayed) else None

    # -- requests -----------------------------------------------------------------------------------------------------

    def begin(self, ends: tuple[Host, Host], asked: Asked, version: int, now: float) -> Trace:
        """Have the agent of a host trace paths, or a flow, to another host; raises `TraceError` if it cannot."""
        src, dst = ends
        tracer = self._sessions.get(src) or self.relay_of(src)
        trace = self.desk.begin(tracer, ends, self._tree.ip(dst), asked, version, now)
        self._wake_for([trace])
        return trace

    def cancel(self, trace: Trace, now: float) -> None:
        """End a trace, unless it has ended."""
        self.desk.cancel(trace, now)
        self._wake_for([trace])

    def tick(self, now: float) -> None:
        """End the traces that nobody reads or answers."""
        self._wake_for(self.desk.tick(now))

    def ask(self, host: Host, text: str) -> None:
        """Ask a host's agent for what the leader wants traced, at a relay; raises `ProtocolError`."""
        if isinstance(self.desk, HandedTraces):
            self.desk.ask(host, text)
        if (session := self._sessions.get(host)) is not None:
            self._effects.wake(session)

    def _wake_for(self, traces: Iterable[Trace]) -> None:
        for trace in traces:
            relay = self.relay_of(trace.src)
            if (session := self._sessions.get(trace.src)) is not None:
                self._effects.wake(session)
            elif relay is not None:
                while (text := self.desk.due(trace.src)) is not None:
                    self._effects.add(Hand(relay, trace.src, text))

    # -- answers ------------------------------------------------------------------------------------------------------

    def answered(self, host: Host, answer: TraceAnswer, now: float) -> None:
        """Take what a host's agent answers; raises `ProtocolError` if it was not asked that."""
        try:
            self.desk.answered(host, answer, now)
        except ValueError as error:
            raise ProtocolError(str(error)) from error

    def relayed(self, host: Host, text: str, now: float) -> None:
        """Take what an agent that a relay has answers; raises `ProtocolError`."""
        answer = from_agent(text)
        if not isinstance(answer, TraceAnswer):
            raise ProtocolError("it is no answer to a trace")
        self.answered(host, answer, now)

    def handed(self) -> list[tuple[Host, str]]:
        """Return what agents have answered, at a relay, to what the leader asks."""
        return self.desk.take() if isinstance(self.desk, HandedTraces) else []
