"""What agents and controller say about probes: which streams an agent has to probe, and what it reports (docs/probes.md). Pure."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from flowrules.label import UNUSED

ASKED = "probes"
"""The parameter of the channel's query with which an agent says that it probes and answers probes."""
MAX_STREAMS = 256
PROBE_BYTES = 102
"""Of a probe's frame without FCS; the carrier's overhead is more."""
MAX_INTERVAL_MS = 60_000.0
_RECORD = struct.Struct("<5B3x4H2I")
RECORD_BYTES = _RECORD.size
_MAX_COUNT = (1 << 16) - 1
_MAX_DELAY = (1 << 32) - 1
_MAX_NUMBER = 1 << 63


class Stream(NamedTuple):
    """The probes to one host on one path: `up1` and `up2` as in a label, 255 where a hop is not taken."""

    destination: IPv4Address
    up1: int
    up2: int = UNUSED


class Assignment(NamedTuple):
    """The streams that an agent has to probe, in turn, one probe each ``interval_ms`` milliseconds."""

    number: int
    interval_ms: float
    streams: tuple[Stream, ...]


class Counts(NamedTuple):
    """What an agent has found of one stream since its last report.

    Attributes:
        probes: Probes whose fate was decided.
        lost_out, lost_back, lost: Those of them lost on the way out, on the way back, and on a way that is not known.
        smallest_us, mean_us: Delay there and back in microseconds; 0 if none came back.
    """

    stream: Stream
    probes: int
    lost_out: int = 0
    lost_back: int = 0
    lost: int = 0
    smallest_us: int = 0
    mean_us: int = 0


class Report(NamedTuple):
    """What an agent reports: the number of the assignment that it follows, counts by stream, and packets that the host dropped."""

    number: int
    counts: tuple[Counts, ...]
    dropped: int = 0


def assignment_text(assignment: Assignment) -> str:
    """Return the message that gives an agent its streams."""
    streams = [[str(its.destination), its.up1, its.up2] for its in assignment.streams]
    its = {"number": assignment.number, "interval_ms": assignment.interval_ms, "streams": streams}
    return json.dumps({"type": "probes", **its})


def read_assignment(message: dict[str, Any]) -> Assignment | None:
    """Return what a message of the controller, which is JSON already, gives an agent to probe; None if it is another message.

    Raises:
        ValueError: If it is malformed.

    >>> its = Assignment(7, 20.0, (Stream(IPv4Address("10.2.1.3"), 0, 1),))
    >>> read_assignment(json.loads(assignment_text(its))) == its
    True
    """
    if message.get("type") != "probes":
        return None
    number, interval, streams = message.get("number"), message.get("interval_ms"), message.get("streams")
    if not isinstance(streams, list) or len(streams) > MAX_STREAMS:
        raise ValueError(f"streams is no list of at most {MAX_STREAMS}")
    if isinstance(interval, bool) or not isinstance(interval, int | float) or not 1.0 <= interval <= MAX_INTERVAL_MS:
        raise ValueError(f"interval_ms is no number from 1 to {MAX_INTERVAL_MS:g}")
    return Assignment(read_number(number), float(interval), tuple(read_stream(one) for one in streams))


def report_text(report: Report) -> str:
    """Return the message that reports counts; larger counts than 65,535 are cut."""
    records = b"".join(_record(one) for one in report.counts)
    its = {"number": report.number, "streams": base64.b64encode(records).decode(), "dropped": report.dropped}
    return json.dumps({"type": "report", **its})


def read_report(message: dict[str, Any]) -> tuple[int, bytes, int] | None:
    """Return number, records and dropped packets of an agent's report, which is JSON already; None if it is another message.

    The records stay bytes: the controller hands those of thousands of agents to its estimator as they are.

    Raises:
        ValueError: If it is malformed.

    >>> counts = Counts(Stream(IPv4Address("10.2.1.3"), 0, 1), 50, 1, smallest_us=80, mean_us=120)
    >>> number, records, dropped = read_report(json.loads(report_text(Report(7, (counts,)))))
    >>> list(unpacked(records)) == [counts]
    True
    """
    if message.get("type") != "report":
        return None
    try:
        records = base64.b64decode(message.get("streams", ""), validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"streams is no base64: {error}") from error
    if len(records) % RECORD_BYTES or len(records) > MAX_STREAMS * RECORD_BYTES:
        raise ValueError(
            f"streams has {len(records)} bytes: no records of {RECORD_BYTES}, at most {MAX_STREAMS} of them"
        )
    return read_number(message.get("number")), records, read_number(message.get("dropped", 0))


def unpacked(records: bytes) -> Iterable[Counts]:
    """Return the counts of a report's records."""
    for pod, edge, host, up1, up2, *numbers in _RECORD.iter_unpack(records):
        yield Counts(Stream(IPv4Address(bytes((10, pod, edge, host))), up1, up2), *numbers)


def _record(one: Counts) -> bytes:
    address: Sequence[int] = one.stream.destination.packed[1:]
    counted = (min(number, _MAX_COUNT) for number in one[1:5])
    delays = (min(number, _MAX_DELAY) for number in one[5:])
    return _RECORD.pack(*address, one.stream.up1, one.stream.up2, *counted, *delays)


def read_stream(value: object) -> Stream:
    """Return a stream of a message, which is JSON already; ValueError if it is none."""
    match value:
        case [str(address), int(up1), int(up2)] if 0 <= up1 <= UNUSED and 0 <= up2 <= UNUSED:
            return Stream(IPv4Address(address), up1, up2)
    raise ValueError(f"{str(value)[:60]} is no stream: an address and two hops from 0 to {UNUSED}")


def read_number(value: object) -> int:
    """Return a whole number from 0 on of a message; ValueError if it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise ValueError(f"{str(value)[:60]} is no number from 0 on")
    return value
