"""Traces over REST: begin one, read what it has found so far, end it."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from sopa_ryu.channel.trace_desk import Asked, BusyError, Trace, TraceError
from sopa_ryu.rest.operations import Problem
from sopa_ryu.rest.reader import FabricControl
from sopa_ryu.rest.resources import Resources
from sopa_ryu.rest.schemas import HOST_PATTERN
from sopa_ryu.rest.trace_answer import is_hashed, tell
from sopa_ryu.rest.trace_plan import planned
from sopa_ryu.runtime import clock


class TraceResources:
    """The answers about traces; `Problem` if there is none."""

    def __init__(self, fabric: FabricControl, resources: Resources) -> None:
        self._fabric, self._resources = fabric, resources
        self._desk = fabric.notifier.traces
        self._last: tuple[Any, dict[str, Any]] = None, {}

    def begin(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin a trace."""
        ends = self._end(body, "src"), self._end(body, "dst")
        failures = self._fabric.state.failures
        asked = planned(body, failures, *ends)
        return self._tell(self._begin(ends, asked))

    def _begin(self, ends: tuple[Any, Any], asked: Asked) -> Trace:
        flow = asked.flow
        if flow is not None and is_hashed(ends[0], self._fabric.no_label, self._fabric.notifier.has_agent(ends[0])):
            return self._desk.answered_here(ends, flow, self._fabric.state.version, clock.now())
        try:
            return self._fabric.begin_trace(ends, asked)
        except BusyError as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"Retry-After": "5"}) from error
        except TraceError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error

    def _end(self, body: dict[str, Any], name: str) -> Any:
        text = body.get(name)
        if not isinstance(text, str) or not re.fullmatch(HOST_PATTERN[1:-1], text):
            raise Problem(
                HTTPStatus.BAD_REQUEST, f"{name}: write a host's IPv4 address or name, as in 10.0.0.2 or h0_0_2"
            )
        return self._resources.host(name, text)

    def read(self, trace: int) -> dict[str, Any]:
        """Return what a trace has found so far."""
        return self._tell(self._find(trace))

    def cancel(self, trace: int) -> dict[str, Any]:
        """End a trace; return what it has found."""
        found = self._find(trace)
        self._fabric.cancel_trace(found)
        return self._tell(found)

    def _find(self, number: int) -> Trace:
        found = self._desk.find(number, clock.now())
        if found is None:
            raise Problem(
                HTTPStatus.NOT_FOUND, f"there is no trace {number} any more: one is kept for a minute after its end"
            )
        return found

    def _tell(self, trace: Trace) -> dict[str, Any]:
        """Return a trace's answer: made anew only if something has changed, since that of many paths takes tens of milliseconds."""
        state = trace.number, trace.state, self._fabric.state.version, sum(found.sent for found in trace.found)
        if self._last[0] != state:
            self._last = state, tell(trace, self._fabric.state.failures, self._fabric.no_label)
        return self._last[1]
