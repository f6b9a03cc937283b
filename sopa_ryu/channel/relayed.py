"""What a relay and the leader of a cluster say to each other about the relay's agents (docs/cluster.md). Pure.

The relay says which of its hosts probe and answer probes, and hands on their reports, many in one message. The leader says which
streams each of them has to probe. So the leader has one channel for each relay, and the estimator the reports of all hosts. What
the leader asks an agent to trace, and what that answers, are the messages of the agents' channel, handed on as they are.

A relay that has said that it speaks of hosts that run MCS, by paths, is sent the leader's lists, of all hosts of the fabric, and
says from then on which of its own begin and end to run MCS. It numbers what it says; the leader's messages name the number up to
which its lists contain that. Hosts are named by their places among the fabric's hosts, variants by the version of the option.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.json import Decoder

from sopa_ryu.channel.mcs import ChannelKind, HostList, Variant
from sopa_ryu.channel.messages import MAX_STREAMS, RECORD_BYTES, Number, Octet, ProtocolError, decode, decoder, encode
from sopa_ryu.channel.probe_lists import HEADER, MAX_WAITING_BYTES

MAX_UP_BYTES, MAX_UP_TEXT, MAX_DOWN_BYTES = MAX_WAITING_BYTES, 2 << 20, 4 << 20
"""What a relay sends: reports that waited, and everything else, of which a leader reads so much in 0.06 s."""
LISTS_AT_ONCE = 64
"""Lists in one message: 27 streams have some 1,500 bytes."""
MAX_HOSTS = 4096
"""Of one message about MCS: more are several, between which everything else has its turn."""
_MAX_VERSION = 255
"""The option's version has 4 bits; one byte has room for others."""
Places = tuple[Number, ...]


def may_be_handed(variant: Variant | None) -> bool:
    """Tell whether hosts of a variant are told to other relays.

    By ports they are not: a host may scatter only while every receiver is known to know of it, which nobody waits for across
    relays.

    >>> may_be_handed(Variant(1, "paths")), may_be_handed(Variant(1, "ports")), may_be_handed(None)
    (True, False, False)
    """
    return variant is not None and variant.kind == ChannelKind.PATHS and variant.version <= _MAX_VERSION


# -- the relay's messages -----------------------------------------------------------------------------------------------


class AnsweringHosts(Struct, tag="hosts", frozen=True):
    """All hosts whose agents probe and answer, whether the relay hands on traces, and whether it speaks of MCS."""

    hosts: Places
    traces: bool = False
    mcs: bool = False


class Handed(NamedTuple):
    """A message that a relay hands on: of the agents' channel, about a trace, from or to the agent of a host."""

    place: Number
    text: str


class TraceAnswers(Struct, tag="traced", frozen=True):
    """What agents answer to traces."""

    rows: tuple[Handed, ...] = field(name="hosts")


class McsBegun(NamedTuple):
    """The hosts whose agents have begun to run a version of MCS."""

    version: Octet
    hosts: Places


class McsEvents(Struct, tag="mcs", frozen=True):
    """What a relay says of its hosts since its message before.

    Attributes:
        number: It rises with each message of a channel.
        here: The hosts whose agents have begun to run MCS, by its version.
        lost: Those whose channel is lost.
        left: Those whose agents have ended, and said so.
        none: Those whose agents are connected and run none of it by now.
    """

    number: Number
    here: tuple[McsBegun, ...]
    lost: Places
    left: Places
    none: Places

    def __post_init__(self) -> None:
        """Check that a version is named once."""
        _check_once("here", [begun.version for begun in self.here])


FromRelay = AnsweringHosts | TraceAnswers | McsEvents


# -- the leader's messages ----------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """The list of a host: its place among the fabric's hosts, the number of the list, and the message for its agent."""

    place: Number
    number: Number
    text: str


class Lists(Struct, tag="lists", frozen=True):
    """What hosts have to probe."""

    rows: tuple[Given, ...] = field(name="lists")


class Forged(NamedTuple):
    """So many records of a host's reports are wrong."""

    place: Number
    records: Number


class Forgeries(Struct, tag="forged", frozen=True):
    """Whose reports are wrong."""

    rows: tuple[Forged, ...] = field(name="hosts")


class TraceRequests(Struct, tag="asked", frozen=True):
    """What agents are asked to trace."""

    rows: tuple[Handed, ...] = field(name="hosts")


class McsChange(NamedTuple):
    """A change of the list of the hosts that run a version of MCS."""

    version: Octet
    added: Places
    removed: Places


class McsLists(Struct, tag="mcs", frozen=True):
    """What leads from the leader's lists before to the present ones, or a part of it, on one channel; it begins with empty lists.

    Attributes:
        heard: The lists contain what the relay has said up to its message of this number; in a part that is not the last, that
            of before.
        complete: Whether a host that is missing does not run MCS, rather than has not come back to this leader yet; likewise.
    """

    heard: Number
    complete: bool
    lists: tuple[McsChange, ...]

    def __post_init__(self) -> None:
        """Check that a version is named once."""
        _check_once("lists", [changed.version for changed in self.lists])


FromLeader = Lists | Forgeries | TraceRequests | McsLists


# -- how they are read --------------------------------------------------------------------------------------------------

M = TypeVar("M", bound=FromRelay | FromLeader)
_FROM_RELAY: Decoder[FromRelay] = decoder(FromRelay)
_FROM_LEADER: Decoder[FromLeader] = decoder(FromLeader)


def from_relay(text: str, count: int) -> FromRelay:
    """Return what a relay says in text; ``count`` is how many hosts the fabric has. Raises `ProtocolError`.

    >>> from_relay(encode(AnsweringHosts((1, 3))), 16)
    AnsweringHosts(hosts=(1, 3), traces=False, mcs=False)
    """
    if len(text) > MAX_UP_TEXT:
        raise ProtocolError(f"it has {len(text)} characters, and may have {MAX_UP_TEXT}")
    return _within(decode(_FROM_RELAY, text), count)


def from_leader(text: str | bytes, count: int) -> tuple[Given | Forged | Handed | McsLists, ...]:
    """Return what the leader says of a relay's hosts; ``count`` is how many hosts the fabric has. Raises `ProtocolError`."""
    message = _within(decode(_FROM_LEADER, text), count)
    return (message,) if isinstance(message, McsLists) else message.rows


def _within(message: M, count: int) -> M:
    """Return a message all of whose places are those of hosts of the fabric."""
    for name, places in _named(message):
        if len(places) > count or max(places, default=0) >= count:
            raise ProtocolError(f"{name}: expected up to {count} places of hosts below {count}, got {places!s:.60}", name)
    return message


def _named(message: FromRelay | FromLeader) -> Iterator[tuple[str, Places]]:
    match message:
        case AnsweringHosts(hosts):
            yield "hosts", hosts
        case McsEvents():
            yield from (("here", begun.hosts) for begun in message.here)
            yield from (("lost", message.lost), ("left", message.left), ("none", message.none))
        case McsLists():
            yield from (("lists", places) for changed in message.lists for places in changed[1:])
        case _:
            yield from ((message.__struct_encode_fields__[0], (row.place,)) for row in message.rows)


def _check_once(name: str, versions: list[int]) -> None:
    if len(versions) > len(set(versions)):
        raise ValueError(f"{name}: a version is named twice")


# -- what a relay is sent ------------------------------------------------------------------------------------------------


class Relayed:
    """One relay's channel at the leader: its hosts, and the lists that are due to them.

    Args:
        peer: The address that it connects from.
        connection: Of the edge.

    Attributes:
        places: Its hosts that probe and answer.
        waiting: The version of MCS, or None, that it has named of hosts which another relay has.
        reports_left, reported_at: So many more reports were taken from it at that time.
        wrong_since: Since when each of its messages has had reports of hosts that are not its own; 0 if the last had none.
        traces: Whether it hands on what its agents are asked to trace: one of an earlier release does not.
        mcs: What it is sent of the hosts that run MCS; None for one of an earlier release.
        is_writing: Whether the edge writes what is due.
    """

    def __init__(self, name: str, peer: str, connection: Any) -> None:
        self.name, self.peer, self.connection = name, peer, connection
        self.places: frozenset[int] = frozenset()
        self.waiting: dict[int, int | None] = {}
        self.reports_left, self.reported_at = math.inf, 0.0
        self.wrong_since = 0.0
        self.is_writing = self.traces = False
        self.mcs: Feed | None = None
        self._asked: list[Handed] = []
        self._due: dict[int, Given] = {}
        self._forged: dict[int, int] = {}

    def give(self, given: Given) -> None:
        """Have a host be sent a list."""
        self._due[given.place] = given

    def forged(self, place: int, count: int) -> None:
        """Have the relay count what is wrong in a host's reports."""
        self._forged[place] = self._forged.get(place, 0) + count

    def ask(self, asked: Handed) -> None:
        """Have a host's agent be asked for a trace."""
        self._asked.append(asked)

    def due(self, places: Mapping[IPv4Address, int] | None = None) -> str | None:
        """Return the next message for the relay; None if nothing is due. ``places`` are those of the fabric's hosts."""
        if self._asked:
            asked, self._asked = self._asked, []
            return encode(TraceRequests(tuple(asked)))
        if self._forged:
            forged, self._forged = self._forged, {}
            return encode(Forgeries(tuple(Forged(*each) for each in forged.items())))
        if self.mcs is not None and (text := self.mcs.due(places or {})) is not None:
            return text
        if not self._due:
            return None
        first = list(self._due)[:LISTS_AT_ONCE]
        return encode(Lists(tuple(self._due.pop(place) for place in first)))


class Feed:
    """What one relay is sent of the leader's lists.

    Attributes:
        heard: The number of its latest message.
    """

    def __init__(self) -> None:
        self.heard = 0
        self._sent: dict[Variant, HostList] = {}
        self._sent_state: tuple[int, bool] | None = None
        self._due: tuple[dict[Variant, HostList], tuple[int, bool]] | None = None
        self._rest: Iterator[tuple[int, bool, IPv4Address]] | None = None

    def bring(self, lists: Mapping[Variant, HostList], complete: bool) -> bool:
        """Have the relay brought to lists that contain all it has said; return whether something is due."""
        if self._rest is not None:
            return True  # the lists before are still on their way
        state = self.heard, complete
        numbers = {variant: host_list.number for variant, host_list in lists.items()}
        if state == self._sent_state and numbers == {variant: host_list.number for variant, host_list in self._sent.items()}:
            self._due = None
        else:
            self._due = dict(lists), state
        return self._due is not None

    def due(self, places: Mapping[IPv4Address, int]) -> str | None:
        """Return the next message that is due, and note that it is sent; ``places`` has those of the fabric's hosts."""
        if self._due is None:
            return None
        lists, state = self._due
        if self._rest is None:
            self._rest = self._changes(lists)
        part = list(islice(self._rest, MAX_HOSTS))
        if len(part) < MAX_HOSTS:
            self._sent, self._sent_state, self._due, self._rest = lists, state, None, None
        added: dict[int, list[int]] = {version: [] for version, _, _ in part}
        removed: dict[int, list[int]] = {version: [] for version in added}
        for version, is_new, host in part:
            (added if is_new else removed)[version].append(places[host])
        changes = (McsChange(version, tuple(added[version]), tuple(removed[version])) for version in sorted(added))
        return encode(McsLists(*(self._sent_state or (0, False)), tuple(changes)))

    def _changes(self, lists: Mapping[Variant, HostList]) -> Iterator[tuple[int, bool, IPv4Address]]:
        for variant in lists.keys() | self._sent.keys():
            before, after = (_hosts(host_lists.get(variant)) for host_lists in (self._sent, lists))
            if before is not after and may_be_handed(variant):
                yield from ((variant.version, True, host) for host in after - before)
                yield from ((variant.version, False, host) for host in before - after)


def _hosts(host_list: HostList | None) -> frozenset[IPv4Address]:
    return frozenset() if host_list is None else host_list.hosts


# -- reports, which are bytes --------------------------------------------------------------------------------------------


def reports(data: bytes, most: int) -> list[tuple[int, bytes]]:
    """Return the reports of a message and the places of their hosts, no more than so many. Raises `ProtocolError`."""
    at = 0
    found: list[tuple[int, bytes]] = []
    while at < len(data) and len(found) < most:
        if at + HEADER.size > len(data):
            raise ProtocolError("a report ends within its header")
        place, _, size = HEADER.unpack_from(data, at)
        end = at + HEADER.size + size
        if end > len(data):
            raise ProtocolError("a report ends within its records")
        if size % RECORD_BYTES or size > MAX_STREAMS * RECORD_BYTES:
            raise ProtocolError(f"a report has {size} bytes, which are not up to {MAX_STREAMS} records of {RECORD_BYTES}")
        found.append((place, data[at:end]))
        at = end
    return found
