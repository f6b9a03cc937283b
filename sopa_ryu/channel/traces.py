"""What controller and agents say of traces: which probes to send now, and what became of each (docs/probes.md). Pure."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from sopa_ryu.channel.probes import Stream, read_number, read_stream

MAX_PATHS = 1024
MAX_COUNT = 1000
MAX_PROBES = 20_000
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 5.0, 1000.0
"""At most 200 probes a second."""
MAX_FATES = 256
"""Fates of one message: with them it is shorter than 4,096 bytes, which is what agents may send at once."""
MAX_LABELS = 1024
"""Labels of a flow of one message."""
MAX_PROBLEM = 300
_FATE = struct.Struct("<HBxI")
_MAX_DELAY = (1 << 32) - 1
BACK, LOST_OUT, LOST_BACK, LOST = range(4)
"""What became of a probe: it came back; it is lost on the way out, on the way back, on a way that is not known."""


class FlowOf(NamedTuple):
    """A flow between two hosts that are known."""

    protocol: int
    sport: int = 0
    dport: int = 0


class Request(NamedTuple):
    """What an agent is asked: to send probes on each of some paths, or how it labels a flow.

    Attributes:
        number: Of the trace.
        streams: In turn, one probe each ``interval_ms`` milliseconds.
        probes: Of each.
        destination: With a flow: where it leads.
    """

    number: int
    streams: tuple[Stream, ...] = ()
    probes: int = 0
    interval_ms: float = MIN_INTERVAL_MS
    destination: IPv4Address | None = None
    flow: FlowOf | None = None


class Cancel(NamedTuple):
    """The trace of that number is not wanted any more."""

    number: int


class Outcome(NamedTuple):
    """What became of one probe: the place of its stream in the request, how, and the delay there and back in nanoseconds."""

    place: int
    fate: int
    delay_ns: int = 0


class FlowLabels(NamedTuple):
    """How an agent labels a flow.

    Attributes:
        policy: As on the command line.
        exact: Whether ``labels`` are those of the flow's packets in turn, from its first on; otherwise only that they are among
            them.
        length: After how many packets the order repeats; 0 if it does not.
        labels: Both hops of each, 255 for one that is not taken; the first `MAX_LABELS`.
    """

    policy: str
    exact: bool
    length: int
    labels: tuple[tuple[int, int], ...]


class Answer(NamedTuple):
    """What an agent answers, in one message or several: the last is ``done``, and fails with a problem."""

    number: int
    outcomes: tuple[Outcome, ...] = ()
    done: bool = False
    problem: str = ""
    flow: FlowLabels | None = None


def request_text(request: Request | Cancel) -> str:
    """Return the message that asks an agent for a trace, or ends one."""
    if isinstance(request, Cancel):
        return json.dumps({"type": "trace", "number": request.number, "cancel": True})
    its: dict[str, Any] = {"type": "trace", "number": request.number}
    if request.flow is not None:
        its |= {"destination": str(request.destination), "flow": list(request.flow)}
    else:
        streams = [[str(one.destination), one.up1, one.up2] for one in request.streams]
        its |= {"count": request.probes, "interval_ms": request.interval_ms, "streams": streams}
    return json.dumps(its)


def read_request(message: dict[str, Any]) -> Request | Cancel | None:
    """Return what a message of the controller, which is JSON already, asks for; None if it is another message.

    Raises:
        ValueError: If it is malformed.

    >>> its = Request(3, (Stream(IPv4Address("10.2.1.3"), 0, 1),), 20, 10.0)
    >>> read_request(json.loads(request_text(its))) == its
    True
    """
    if message.get("type") != "trace":
        return None
    number = read_number(message.get("number"))
    if message.get("cancel") is True:
        return Cancel(number)
    if "flow" in message:
        match message["flow"]:
            case [int(protocol), int(sport), int(dport)] if protocol < 256 and max(sport, dport) < 65536:
                if min(protocol, sport, dport) >= 0:
                    flow = FlowOf(protocol, sport, dport)
                    return Request(number, destination=IPv4Address(str(message.get("destination"))), flow=flow)
        raise ValueError("flow is no list of protocol and ports")
    streams, count, interval = message.get("streams"), message.get("count"), message.get("interval_ms")
    if not isinstance(streams, list) or not 1 <= len(streams) <= MAX_PATHS:
        raise ValueError(f"streams is no list of 1 to {MAX_PATHS}")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count is no number from 1 to {MAX_COUNT}")
    if len(streams) * count > MAX_PROBES:
        raise ValueError(f"{len(streams)} streams with {count} probes each are more than {MAX_PROBES}")
    if (
        isinstance(interval, bool)
        or not isinstance(interval, int | float)
        or not MIN_INTERVAL_MS <= interval <= MAX_INTERVAL_MS
    ):
        raise ValueError(f"interval_ms is no number from {MIN_INTERVAL_MS:g} to {MAX_INTERVAL_MS:g}")
    return Request(number, tuple(read_stream(one) for one in streams), count, float(interval))


def answer_text(answer: Answer) -> str:
    """Return the message that answers a request; ValueError for more than fits into one."""
    if len(answer.outcomes) > MAX_FATES:
        raise ValueError(f"a message has room for {MAX_FATES} fates")
    packed = b"".join(_FATE.pack(its.place, its.fate, min(its.delay_ns, _MAX_DELAY)) for its in answer.outcomes)
    its: dict[str, Any] = {"type": "traced", "number": answer.number, "probes": _encoded(packed), "done": answer.done}
    if answer.problem:
        its["problem"] = answer.problem[:MAX_PROBLEM]
    if answer.flow is not None:
        flow = answer.flow
        labels = b"".join(bytes(label) for label in flow.labels[:MAX_LABELS])
        its |= {"policy": flow.policy, "exact": flow.exact, "length": flow.length, "labels": _encoded(labels)}
    return json.dumps(its)


def read_answer(message: dict[str, Any]) -> Answer | None:
    """Return what a message of an agent, which is JSON already, answers; None if it is another message.

    Raises:
        ValueError: If it is malformed.

    >>> its = Answer(3, (Outcome(0, BACK, 81_000), Outcome(0, LOST_OUT)), done=True)
    >>> read_answer(json.loads(answer_text(its))) == its
    True
    """
    if message.get("type") != "traced":
        return None
    problem, done = message.get("problem", ""), message.get("done")
    if not isinstance(problem, str) or not isinstance(done, bool):
        raise ValueError("problem is no text, or done neither true nor false")
    packed = _decoded(message.get("probes"), _FATE.size, MAX_FATES)
    outcomes = tuple(Outcome(*its) for its in _FATE.iter_unpack(packed))
    if any(its.fate > LOST for its in outcomes):
        raise ValueError(f"a fate is none of 0 to {LOST}")
    flow = _read_flow(message) if "labels" in message else None
    return Answer(read_number(message.get("number")), outcomes, done, problem[:MAX_PROBLEM], flow)


def _read_flow(message: dict[str, Any]) -> FlowLabels:
    policy, exact, length = message.get("policy"), message.get("exact"), read_number(message.get("length"))
    if not isinstance(policy, str) or len(policy) > 40 or not isinstance(exact, bool):
        raise ValueError("policy is no name, or exact neither true nor false")
    packed = _decoded(message.get("labels"), 2, MAX_LABELS)
    return FlowLabels(policy, exact, length, tuple((packed[at], packed[at + 1]) for at in range(0, len(packed), 2)))


def _encoded(packed: bytes) -> str:
    return base64.b64encode(packed).decode()


def _decoded(text: object, size: int, most: int) -> bytes:
    if not isinstance(text, str):
        raise ValueError("a field of records is no text")
    try:
        packed = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ValueError(f"a field of records is no base64: {error}") from error
    if len(packed) % size or len(packed) > size * most:
        raise ValueError(f"{len(packed)} bytes are no records of {size}, at most {most} of them")
    return packed


def in_messages(number: int, outcomes: Sequence[Outcome], done: bool, problem: str = "") -> list[Answer]:
    """Return the messages for any number of fates; the last one has ``done`` and the problem."""
    parts = [tuple(outcomes[at : at + MAX_FATES]) for at in range(0, len(outcomes), MAX_FATES)] or [()]
    return [Answer(number, its) for its in parts[:-1]] + [Answer(number, parts[-1], done, problem)]
