"""Traces over REST: begin one, of the paths, probes and flow that a request asks for; read what it has found so far, end it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sopa_ryu.channel.messages import MAX_COUNT, MAX_INTERVAL_MS, MAX_PATHS, MAX_PROBES, MIN_INTERVAL_MS, FlowOf
from sopa_ryu.channel.trace_desk import Asked, BusyError, Trace, TraceError
from sopa_ryu.rest.operations import Problem
from sopa_ryu.rest.reader import FabricControl
from sopa_ryu.rest.resources import Resources, a_host
from sopa_ryu.rest.trace_answer import Up, is_hashed, tell
from sopa_ryu.runtime import clock
from topologies import Failures, Host

DEFAULT_COUNT = 20
DEFAULT_INTERVAL_MS = 10.0
UNASKED_PATHS = 64
"""So many candidate paths are traced without being asked for."""
KEYS = ("src", "dst", "up", "all", "count", "interval_ms", "flow")
_FLOW_KEYS = ("protocol", "sport", "dport")


def planned(body: dict[str, Any], failures: Failures, src: Host, dst: Host) -> Asked:
    """Return what a body asks for between two hosts; `Problem` (400, 409) if it is malformed or cannot be done."""
    unknown = [key for key in body if key not in KEYS]
    if unknown:
        raise _bad(f"unknown key {unknown[0]!r:.60}; a trace has: {', '.join(KEYS)}")
    flow = _flow(body["flow"]) if body.get("flow") is not None else None
    if src == dst:
        raise Problem(HTTPStatus.CONFLICT, "src and dst are the same host: its packets to itself do not enter the fabric")
    given, every = body.get("up"), body.get("all", False)
    if not isinstance(every, bool):
        raise _bad("all: write true or false")
    if every and given is not None:
        raise Problem(HTTPStatus.CONFLICT, "up and all exclude each other")
    if flow is not None:
        if given is not None or every:
            raise Problem(HTTPStatus.CONFLICT, "a flow takes the paths that it takes: leave out up and all")
        return Asked(flow=flow)
    ups = _every(failures, src, dst, every) if given is None else _named(given, failures, src, dst)
    count = _whole(body, "count", DEFAULT_COUNT, MAX_COUNT)
    interval = body.get("interval_ms", DEFAULT_INTERVAL_MS)
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not MIN_INTERVAL_MS <= interval <= MAX_INTERVAL_MS:
        raise _bad(
            f"interval_ms: write a number from {MIN_INTERVAL_MS:g} to {MAX_INTERVAL_MS:g}: the time from one probe to the next"
        )
    if len(ups) * count > MAX_PROBES:
        raise Problem(
            HTTPStatus.CONFLICT,
            f"{len(ups)} paths with {count} probes each are more than {MAX_PROBES:,} probes: choose fewer of either",
        )
    return Asked(ups, count, float(interval))


def _every(failures: Failures, src: Host, dst: Host, asked: bool) -> tuple[Up, ...]:
    usable, excluded = failures.split(src, dst)
    if not usable:
        raise Problem(HTTPStatus.CONFLICT, f"no path is left: all {len(excluded)} are excluded; sopa paths says why")
    if len(usable) > (MAX_PATHS if asked else UNASKED_PATHS):
        advice = f", and a trace has at most {MAX_PATHS}: name them by up" if asked else ": name some by up, or say all"
        raise Problem(HTTPStatus.CONFLICT, f"there are {len(usable)} paths{advice}")
    return tuple(path.up for path in usable)


def _named(given: object, failures: Failures, src: Host, dst: Host) -> tuple[Up, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_PATHS:
        raise _bad(f"up: write a list of 1 to {MAX_PATHS} paths, such as [[0, 1]]")
    usable, excluded = failures.split(src, dst)
    order = {path.up: index for index, path in enumerate(usable)}
    reasons = {path.up: path.reason for path in excluded}
    ups: list[Up] = []
    for each in given:
        hops = [_integer(hop) for hop in each] if isinstance(each, list) else [None]
        up = tuple(hop for hop in hops if isinstance(hop, int) and not isinstance(hop, bool))
        if len(up) < len(hops):
            raise _bad(f"up: {each!s:.60} is no path: write its uplinks, such as [0, 1]")
        if up in reasons:
            raise Problem(
                HTTPStatus.CONFLICT,
                f"path {_text(up)} is excluded ({reasons[up]}): switches send packets with its label by others, so that "
                "probes would not cross it",
            )
        if up not in order:
            example = _text(usable[0].up) if usable else "none is left"
            raise Problem(HTTPStatus.NOT_FOUND, f"{_text(up)} is no candidate path of these hosts, such as {example}")
        ups.append(up)
    return tuple(sorted(set(ups), key=order.__getitem__))


def _flow(given: object) -> FlowOf:
    if not isinstance(given, dict) or any(key not in _FLOW_KEYS for key in given):
        raise _bad(f"flow: write an object with {', '.join(_FLOW_KEYS)}")
    protocol = _whole(given, "protocol", 6, 255, least=0)
    sport, dport = (_whole(given, name, 0, 65535, least=0) for name in ("sport", "dport"))
    return FlowOf(protocol, sport, dport)


def _whole(given: dict[str, Any], name: str, default: int, most: int, least: int = 1) -> int:
    value = _integer(given.get(name, default))
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _bad(f"{name}: write a whole number from {least} to {most}")
    return value


def _integer(value: object) -> object:
    """Return a number without a fraction as an integer, which 1.0 is, too (JSON Schema, section 6.1.1)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(up: Up) -> str:
    return ",".join(map(str, up)) or "without uplinks"


def _bad(text: str) -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, text)


class TraceResources:
    """The answers about traces; `Problem` if there is none."""

    def __init__(self, fabric: FabricControl, resources: Resources) -> None:
        self._fabric, self._resources = fabric, resources
        self._desk = fabric.agents.traces
        self._last: tuple[Any, dict[str, Any]] = None, {}

    def begin(self, body: dict[str, Any]) -> dict[str, Any]:
        """Begin a trace."""
        texts = self._end(body, "src"), self._end(body, "dst")
        family = self._resources.family(*texts)
        ends = self._resources.host("src", texts[0]), self._resources.host("dst", texts[1])
        asked = planned(body, self._fabric.state.failures, *ends)._replace(family=family)
        return self._tell(self._begin(ends, asked))

    def _begin(self, ends: tuple[Any, Any], asked: Asked) -> Trace:
        fabric, agent = self._fabric, self._fabric.agents.has_agent(ends[0])
        if asked.flow is not None and is_hashed(ends[0], fabric.no_label, agent, asked.family, fabric.carrier):
            return self._desk.answered_here(ends, asked, fabric.state.version, clock.now())
        try:
            return self._fabric.begin_trace(ends, asked)
        except BusyError as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), {"Retry-After": "5"}) from error
        except TraceError as error:
            raise Problem(HTTPStatus.CONFLICT, str(error)) from error

    def _end(self, body: dict[str, Any], name: str) -> str:
        text = body.get(name)
        try:
            return a_host(self._fabric.state.aliases.own(text) if isinstance(text, str) else "")
        except ValueError as error:
            raise _bad(f"{name}: {error}") from error

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
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no trace {number} any more: one is kept for a minute after its end")
        return found

    def _tell(self, trace: Trace) -> dict[str, Any]:
        """Return a trace's answer: made anew only if something has changed, since that of many paths takes tens of milliseconds."""
        state = trace.number, trace.state, self._fabric.state.version, sum(found.sent for found in trace.found)
        if self._last[0] != state:
            self._last = state, tell(trace, self._fabric.state.failures, self._fabric.no_label, self._fabric.carrier)
        return self._last[1]
