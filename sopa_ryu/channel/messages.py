"""The messages of the push channel, declared once with their bounds: what controller, agents and arbiter write and read. Pure.

Every message is a JSON object that names its ``type``. A reader ignores fields that it does not know, so that a later release can
add one. The bounds of a field are in its annotation, those that connect several fields in ``__post_init__``. What depends on the
state of the reader is in `protocol`, and in the desks that take the messages.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import replace

from flowrules.label import UNUSED
from sopa_ryu.runtime.foreign_text import PRINTABLE, printable

MAX_NUMBER = (1 << 63) - 1
MAX_STREAMS = 256
"""Streams that an agent probes by the controller's list."""
PROBE_BYTES = 102
"""Of a probe's frame without FCS; the carrier's overhead is more."""
MAX_PROBE_RATE = 200.0
"""Probes that a host sends in all, a second."""
MAX_PATHS, MAX_COUNT, MAX_PROBES = 1024, 1000, 20_000
"""Of a trace: paths, probes of each, and probes in all."""
MIN_INTERVAL_MS, MAX_INTERVAL_MS = 5.0, 1000.0
"""Of a trace: at most 200 probes a second."""
MAX_FATES = 256
"""Fates of one message: with them it is shorter than 4,096 bytes, which is what agents may send at once."""
MAX_LABELS = 1024
"""Labels of a flow of one message."""
MAX_LINKS = 1000
"""HostLinks of hosts of one message: the controller makes it in a few milliseconds."""
MAX_PROBLEM = 300
BACK, LOST_OUT, LOST_BACK, LOST = range(4)
"""What became of a probe: it came back; it is lost on the way out, on the way back, on a way that is not known."""
_SHOWN = 160  # characters of an error
MAX_LISTED_MS = 60_000.0
_MAX_HOST = (1 << 32) - 1
MOMENTS, FIRST_MOMENT_MS, EACH_MOMENT_MS = 16, 250, 125
"""Of losses: so many moments of a report, each so long, the first of them up to the age of both."""
_RECORD, _FATE = struct.Struct("<5Bx5H2I"), struct.Struct("<HBxI")
RECORD_BYTES = _RECORD.size
_MAX_COUNTED, _MAX_DELAY = (1 << 16) - 1, (1 << 32) - 1

Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Octet = Annotated[int, Meta(ge=0, le=255)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class ProtocolError(ValueError):
    """A message that is rejected; the text says why, and nothing has changed.

    Attributes:
        field: The field that is wrong or missing; empty if it is not one alone.
    """

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class GapError(ProtocolError):
    """A delta of another version than the agent has in force, or a type of a later release: a snapshot is needed."""


class LowerTermError(ProtocolError):
    """A snapshot of a leader's term before the one whose view is in force: the channel has to be left for another."""


# -- what messages have in common ---------------------------------------------------------------------------------------

T = TypeVar("T")


def encode(message: Struct) -> str:
    """Return a message as text, in the form of Python's `json`: peers of all releases and the recorded contracts have it."""
    return json.dumps(msgspec.to_builtins(message, enc_hook=str))


def decoder(kind: Any) -> Decoder[Any]:
    """Return the decoder of a message, or of a union of messages."""
    return Decoder(kind, dec_hook=_address)


def decode(reader: Decoder[T], text: str | bytes) -> T:
    """Read a message.

    Raises:
        ProtocolError: If it is none; the text names the field and the bound that it broke.

    >>> decode(decoder(Ack), '{"type": "ack", "epoch": 7, "version": -1}')
    Traceback (most recent call last):
    sopa_ryu.channel.messages.ProtocolError: version: expected `int` >= 0
    """
    try:
        return reader.decode(text)
    except msgspec.ValidationError as error:
        raise _rejected(str(error)) from error
    except (ValueError, RecursionError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise ProtocolError(printable(f"it is no JSON: {why}", _SHOWN)) from error


def _rejected(problem: str) -> ProtocolError:
    """Return the error for a text of msgspec, such as "Expected `int` >= 0 - at `$.epoch`"."""
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", problem):
        return ProtocolError(f"it has no {missing[1]}", missing[1])
    bound, at, path = problem.rpartition(" - at `$")
    if not at:
        return ProtocolError(printable(problem.replace("Expected `object`,", "it is no JSON object:"), _SHOWN))
    path = path.strip(".`")
    return ProtocolError(printable(f"{path}: {bound[:1].lower()}{bound[1:]}", _SHOWN), re.split(r"[.\[]", path)[0])


def _address(kind: type, value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"expected an {kind.__name__.removesuffix('Address')} address")
    return kind(value)


# -- of the controller --------------------------------------------------------------------------------------------------


class Snapshot(Struct, tag="snapshot", frozen=True, kw_only=True, omit_defaults=True):
    """What brings an agent, or the arbiter, to a version from any other or from none.

    Attributes:
        cluster: In a cluster its name; the epoch is the leader's term then.
        host: The agent's; None for the arbiter.
        term: The arbiter's.
        k: Of a fat-tree with equal links, which older agents read, too; otherwise None, and there is ``fabric``.
        fabric: As a document (`Clos.document`), but for ``prefix6``, of which older agents know nothing.
        failures: From what has failed to why.
        mcs: The hosts that run the same MCS as the agent; with it come the other fields of `HostChange`.
    """

    epoch: Number
    version: Number
    cluster: str = ""
    host: str | None = None
    term: Annotated[int, Meta(ge=1, le=MAX_NUMBER)] | None = None
    k: Number | UnsetType | None = UNSET
    fabric: dict[str, Any] | None = None
    prefix6: str | None = None
    failures: dict[str, str]
    mcs: tuple[IPv4Address, ...] | UnsetType = UNSET
    mcs_number: Number | UnsetType = UNSET
    mcs_known: Number | UnsetType = UNSET
    mcs_complete: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that the list of hosts is whole."""
        _ = self.hosts

    @property
    def hosts(self) -> HostChange | None:
        """The list of the hosts that run MCS, as a change of an empty one; None if there is none."""
        if self.mcs is UNSET:
            return None
        if self.mcs_number is UNSET or self.mcs_known is UNSET or self.mcs_complete is UNSET:
            raise ValueError("it has mcs, but not mcs_number, mcs_known and mcs_complete")
        return HostChange(self.mcs_number, self.mcs, (), self.mcs_known, self.mcs_complete)


class Delta(Struct, tag="delta", frozen=True):
    """What brings an agent from version ``base`` to a later one of the same epoch."""

    epoch: Number
    base: Number
    version: Number
    failed: dict[str, str]
    healed: tuple[str, ...]


class Ping(Struct, tag="ping", frozen=True):
    """A request for an acknowledgement."""


class HostChange(Struct, tag="mcs", frozen=True):
    """A change of the list of the hosts that run MCS (`mcs.HostList`)."""

    number: Number
    added: tuple[IPv4Address, ...]
    removed: tuple[IPv4Address, ...]
    known: Number
    complete: bool

    def __post_init__(self) -> None:
        """Check that no later list is known."""
        if self.known > self.number:
            raise ValueError(f"known: expected `int` <= {self.number}, which is number")


class Stream(NamedTuple):
    """The probes to one host on one path: `up1` and `up2` as in a label, 255 where a hop is not taken."""

    destination: IPv4Address
    up1: Octet
    up2: Octet = UNUSED


class Turn(NamedTuple):
    """The self-probes to one switch: its uplinks as in a label, and the ports of these uplinks, 255 for one not taken."""

    up1: Annotated[int, Meta(ge=0, lt=UNUSED)]
    up2: Octet
    port1: Octet
    port2: Octet


class Assignment(Struct, tag="probes", frozen=True, omit_defaults=True):
    """The streams that an agent has to probe, in turn, one probe each ``interval_ms`` milliseconds.

    Attributes:
        rate: Probes a second that the host may send in all; None from a controller of an earlier release.
        turns: Self-probes, of which agents of earlier releases know nothing; they come after ``streams``, in the same turn.
    """

    number: Number
    interval_ms: Annotated[float, Meta(ge=1.0, le=MAX_LISTED_MS)]
    streams: Annotated[tuple[Stream, ...], Meta(max_length=MAX_STREAMS)]
    rate: Annotated[float, Meta(ge=0.0, le=MAX_LISTED_MS)] | None = None
    turns: Annotated[tuple[Turn, ...], Meta(max_length=MAX_STREAMS)] = ()

    def __post_init__(self) -> None:
        """Check that a report of all has room."""
        if len(self.streams) + len(self.turns) > MAX_STREAMS:
            raise ValueError(f"{len(self.streams)} streams and {len(self.turns)} turns are more than {MAX_STREAMS}")


class FlowOf(NamedTuple):
    """A flow between two hosts that are known."""

    protocol: Octet
    sport: Port
    dport: Port


class TraceRequest(Struct, tag="trace", frozen=True, omit_defaults=True):
    """What an agent is asked: to send probes on each of some paths, how it labels a flow, or to end that.

    Attributes:
        number: Of the trace.
        destination, destination6: Of the flow: its address of either family.
        count: Probes of each stream.
        interval_ms: From one probe to the next, of all streams in turn.
        cancel: The trace of that number is not wanted any more.
    """

    number: Number
    destination: IPv4Address | None = None
    flow: FlowOf | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 0
    interval_ms: Annotated[float, Meta(ge=MIN_INTERVAL_MS, le=MAX_INTERVAL_MS)] = 0.0
    streams: Annotated[tuple[Stream, ...], Meta(min_length=1, max_length=MAX_PATHS)] = ()
    cancel: bool = False
    destination6: IPv6Address | None = None

    def __post_init__(self) -> None:
        """Check that it is one of the three, and how many probes it asks for."""
        probes = len(self.streams) * self.count
        if probes > MAX_PROBES:
            raise ValueError(f"{len(self.streams)} streams with {self.count} probes each are more than {MAX_PROBES}")
        destined = self.destination is not None or self.destination6 is not None
        if not self.cancel and (not destined if self.flow else not probes or not self.interval_ms):
            raise ValueError("it has neither streams, count and interval_ms, nor destination and flow, nor cancel")


_Rate = Annotated[float, Meta(ge=0.0)] | None


class HostLink(NamedTuple):
    """What a host's link carries upwards and downwards, and can carry in each direction: bits per second, None if not known."""

    up: _Rate
    down: _Rate
    capacity: _Rate


class HostLinks(Struct, tag="links", frozen=True):
    """The links of hosts in the order of addresses, from one on: what an arbiter asks for (`Ack.links`). After the last, none."""

    first: Number
    links: Annotated[tuple[HostLink, ...], Meta(max_length=MAX_LINKS)]


FromController = Snapshot | Delta | Ping | HostChange | Assignment | TraceRequest | HostLinks
_FROM_CONTROLLER: Decoder[FromController] = decoder(FromController)


def from_controller(text: str | bytes) -> FromController:
    """Read a message of the controller.

    Raises:
        GapError: If it is of a type that only a later controller knows: a snapshot is always understood.
        ProtocolError: If it is malformed.
    """
    try:
        return decode(_FROM_CONTROLLER, text)
    except ProtocolError as error:
        if error.field == "type":
            raise GapError(str(error), error.field) from error
        raise


# -- of agents and arbiter ----------------------------------------------------------------------------------------------

_Measured = Annotated[float, Meta(ge=0.0)] | UnsetType
_Counted = Number | UnsetType


class ArbiterReport(Struct, frozen=True):
    """What an arbiter says of itself: shares from 0 to 1, counts since it started."""

    listen: Annotated[str, Meta(max_length=60, pattern=PRINTABLE)] | UnsetType = UNSET
    slot_ms: _Measured = UNSET
    lease_ms: _Counted = UNSET
    participants: _Counted = UNSET
    load: _Measured = UNSET
    batches: _Counted = UNSET
    late_batches: _Counted = UNSET
    granted_cells: _Counted = UNSET
    unplaced_cells: _Counted = UNSET
    rejected_datagrams: _Counted = UNSET


REPORTED: dict[str, type] = {name: get_args(kind)[0] for name, kind in get_type_hints(ArbiterReport).items()}
"""The fields of an arbiter's report, and their types."""


class Ack(Struct, tag="ack", frozen=True):
    """An acknowledgement: the version that is in force, 0 before the first, and how many messages were rejected so far.

    Attributes:
        mcs: The number of the list of hosts that run MCS that is in force, of an agent that runs it.
        report: The arbiter's.
        links: The arbiter asks for `HostLinks` from this host on.
    """

    epoch: Number
    version: Number
    refused: Number = 0
    mcs: Number | UnsetType = UNSET
    report: ArbiterReport | UnsetType = UNSET
    links: Annotated[int, Meta(ge=0, le=_MAX_HOST)] | UnsetType = UNSET


class Resync(Struct, tag="resync", frozen=True):
    """A request for a snapshot."""


class Counts(NamedTuple):
    """What an agent has found of one stream since its last report.

    Attributes:
        probes: Probes whose fate was decided.
        lost_out, lost_back, lost: Those of them lost on the way out, on the way back, and on a way that is not known.
        smallest_us, mean_us: Delay there and back in microseconds; 0 if none came back.
        moments: When lost ones were sent, as bits: 0 up to 375 ms ago, each further one 125 ms before, 15 all before.
    """

    stream: Stream
    probes: int
    lost_out: int = 0
    lost_back: int = 0
    lost: int = 0
    smallest_us: int = 0
    mean_us: int = 0
    moments: int = 0


def moment(age_ms: int) -> int:
    """Return the bit of `Counts.moments` of a probe that was sent so long ago.

    >>> [moment(age) for age in (0, 374, 375, 5000)]
    [1, 1, 2, 32768]
    """
    return 1 << min(MOMENTS - 1, max(0, age_ms - FIRST_MOMENT_MS) // EACH_MOMENT_MS)


def packed(counts: Iterable[Counts]) -> bytes:
    """Return records of counts; larger counts than 65,535 are cut.

    >>> counts = Counts(Stream(IPv4Address("10.2.1.3"), 0, 1), 50, 1, smallest_us=80, mean_us=120)
    >>> list(unpacked(packed([counts]))) == [counts]
    True
    """
    return b"".join(
        _RECORD.pack(
            *each.stream.destination.packed[1:],
            each.stream.up1,
            each.stream.up2,
            each.moments,
            *(min(number, _MAX_COUNTED) for number in each[1:5]),
            *(min(number, _MAX_DELAY) for number in each[5:7]),
        )
        for each in counts
    )


def unpacked(records: bytes) -> Iterable[Counts]:
    """Return the counts of a report's records."""
    for pod, edge, host, up1, up2, moments, *numbers in _RECORD.iter_unpack(records):
        yield Counts(Stream(IPv4Address(bytes((10, pod, edge, host))), up1, up2), *numbers)._replace(moments=moments)


MAX_LEFT = 64
"""Links that a host says it has left, at most."""


class Report(Struct, tag="report", frozen=True):
    """An agent's report of probes, once a second.

    Attributes:
        number: Of the assignment that it follows.
        streams: Records (`packed`). They stay bytes: those of thousands of agents go to the controller's estimator as they are.
        dropped: Packets that the host itself has dropped meanwhile.
        left: The links between switches that it has left, as they carry nothing; unset for none.
    """

    number: Number
    streams: Annotated[bytes, Meta(max_length=MAX_STREAMS * RECORD_BYTES)] = b""
    dropped: Number = 0
    left: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(max_length=MAX_LEFT)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that the records are whole."""
        _check_whole("streams", self.streams, _RECORD.size)


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


class TraceAnswer(Struct, tag="traced", frozen=True, omit_defaults=True):
    """What an agent answers to a request, in one message or several: the last is ``done``, and fails with a problem.

    Attributes:
        probes: Records of what became of them (`trace_answers`).
        labels: Of a flow, two bytes each; with it come the other fields of `FlowLabels`.
    """

    number: Number
    probes: Annotated[bytes, Meta(max_length=MAX_FATES * _FATE.size)]
    done: bool
    problem: str = ""
    policy: Annotated[str, Meta(max_length=40, pattern=PRINTABLE)] | UnsetType = UNSET
    exact: bool | UnsetType = UNSET
    length: Number | UnsetType = UNSET
    labels: Annotated[bytes, Meta(max_length=MAX_LABELS * 2)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Check that the records are whole, and of a flow that all is there."""
        _check_whole("probes", self.probes, _FATE.size)
        if any(outcome.fate > LOST for outcome in self.outcomes):
            raise ValueError(f"probes: expected fates <= {LOST}")
        _ = self.flow

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What became of probes since the answer before."""
        return tuple(Outcome(*each) for each in _FATE.iter_unpack(self.probes))

    @property
    def flow(self) -> FlowLabels | None:
        """How the flow is labelled; None if there is none, or not yet."""
        if self.labels is UNSET:
            return None
        if self.policy is UNSET or self.exact is UNSET or self.length is UNSET:
            raise ValueError("it has labels, but not policy, exact and length")
        _check_whole("labels", self.labels, 2)
        return FlowLabels(self.policy, self.exact, self.length, tuple(zip(self.labels[::2], self.labels[1::2], strict=True)))


def trace_answers(
    number: int, outcomes: Sequence[Outcome], done: bool, problem: str = "", flow: FlowLabels | None = None
) -> list[TraceAnswer]:
    """Return the answers with any number of outcomes; the last one has ``done``, the problem and the flow.

    >>> outcomes = (Outcome(0, BACK, 81_000), Outcome(0, LOST_OUT))
    >>> [answer] = trace_answers(3, outcomes, done=True)
    >>> answer.outcomes == outcomes
    True
    """
    parts = [outcomes[at : at + MAX_FATES] for at in range(0, len(outcomes), MAX_FATES)] or [()]
    records = [b"".join(_FATE.pack(place, fate, min(delay_ns, _MAX_DELAY)) for place, fate, delay_ns in part) for part in parts]
    earlier = [TraceAnswer(number, part, done=False) for part in records[:-1]]
    last = TraceAnswer(number, records[-1], done, problem[:MAX_PROBLEM])
    if flow is not None:
        labels = b"".join(bytes(label) for label in flow.labels[:MAX_LABELS])
        last = replace(last, policy=flow.policy, exact=flow.exact, length=flow.length, labels=labels)
    return [*earlier, last]


def _check_whole(field: str, records: bytes, size: int) -> None:
    if len(records) % size:
        raise ValueError(f"{field}: expected records of {size} bytes, got {len(records)} bytes")


FromAgent = Ack | Resync | Report | TraceAnswer
_FROM_AGENT: Decoder[FromAgent] = decoder(FromAgent)


def from_agent(text: str | bytes) -> FromAgent:
    """Read a message of an agent, or of the arbiter; `ProtocolError` if it is malformed."""
    return decode(_FROM_AGENT, text)
