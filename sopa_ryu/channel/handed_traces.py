"""Traces at a front: what the controller asks its agents, and what they answer, which is handed on. Pure."""

from __future__ import annotations

from sopa_ryu.channel.messages import TraceAnswer, TraceRequest, encode, from_controller, trace_answers
from topologies import Host

MAX_WAITING = 1024
"""Answers that wait for the controller; those of an agent that answers more than it was asked for are dropped there, too."""


class HandedTraces:
    """Traces that the controller has begun."""

    def __init__(self) -> None:
        self._texts: dict[Host, list[str]] = {}
        self._asked: dict[Host, int] = {}
        self._running: set[Host] = set()
        self._answers: list[tuple[Host, str]] = []

    # -- the controller -------------------------------------------------------------------------------------------------

    def ask(self, host: Host, text: str) -> None:
        """Have a host's agent be sent what the controller asks; raises `ProtocolError` if it is no request."""
        request = from_controller(text)
        if not isinstance(request, TraceRequest):
            return
        if request.cancel:
            self._running.discard(host)
        else:
            self._asked[host] = request.number
            self._running.add(host)
        self._texts.setdefault(host, []).append(text)

    def take(self) -> list[tuple[Host, str]]:
        """Return the answers since the last call."""
        answers, self._answers = self._answers, []
        return answers

    # -- the agents -----------------------------------------------------------------------------------------------------

    def due(self, host: Host) -> str | None:
        """Return the next message to a host's agent."""
        waiting = self._texts.pop(host, [])
        if waiting[1:]:
            self._texts[host] = waiting[1:]
        return waiting[0] if waiting else None

    def answered(self, host: Host, answer: TraceAnswer) -> None:
        """Take what a host's agent answers; `ValueError` if it was not asked."""
        if self._asked.get(host) != answer.number:
            raise ValueError(f"it answers trace {answer.number}, which it was not asked for, or not any more")
        if answer.done:
            self._running.discard(host)
        self._hand(host, answer)

    def left(self, host: Host) -> None:
        """End a host's running trace, because its agent's session has ended."""
        self._texts.pop(host, None)
        number = self._asked.pop(host, None)
        if number is not None and host in self._running:
            self._running.discard(host)
            problem = "the agent has left its relay, or its channel is lost"
            self._hand(host, *trace_answers(number, (), True, problem))

    def _hand(self, host: Host, answer: TraceAnswer) -> None:
        if len(self._answers) < MAX_WAITING:
            self._answers.append((host, encode(answer)))
