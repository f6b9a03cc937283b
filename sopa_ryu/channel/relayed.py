"""What a relay and the leader of a cluster say to each other about the relay's agents (docs/cluster.md). Pure.

The relay says which of its hosts probe and answer probes, and hands on their reports, many in one message. The leader says which
streams each of them has to probe. So the leader has one channel for each relay, and the estimator the reports of all hosts. What
the leader asks an agent to trace, and what that answers, are the messages of the agents' channel, handed on as they are. Which
hosts run MCS is in `relayed_mcs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from sopa_ryu.channel import relayed_mcs
from sopa_ryu.channel.probe_lists import HEADER
from sopa_ryu.channel.relayed_mcs import Feed, News, Told

MAX_UP_BYTES, MAX_DOWN_BYTES = 32 << 20, 4 << 20
LISTS_AT_ONCE = 64
"""Lists in one message: 27 streams have some 1,500 bytes."""


class RelayedError(ValueError):
    """A message that is rejected; the text says why, and nothing has changed."""


class Given(NamedTuple):
    """The list of a host: its place among the fabric's hosts, the number of the list, and the message for its agent."""

    place: int
    number: int
    text: str


class Forged(NamedTuple):
    """So many records of a host's reports are wrong."""

    place: int
    records: int


class Asked(NamedTuple):
    """A message to a host's agent that asks for a trace, or ends one."""

    place: int
    text: str


class Relayed:
    """One relay's channel at the leader: its hosts, and the lists that are due to them.

    Args:
        peer: The address that it connects from.
        connection: Of the edge.

    Attributes:
        places: Its hosts that probe and answer.
        traces: Whether it hands on what its agents are asked to trace: one of an earlier release does not.
        mcs: What it is sent of the hosts that run MCS; None for one of an earlier release.
        is_writing: Whether the edge writes what is due.
    """

    def __init__(self, name: str, peer: str, connection: Any) -> None:
        self.name, self.peer, self.connection = name, peer, connection
        self.places: frozenset[int] = frozenset()
        self.is_writing = self.traces = False
        self.mcs: Feed | None = None
        self._asked: list[Asked] = []
        self._due: dict[int, Given] = {}
        self._forged: dict[int, int] = {}

    def give(self, given: Given) -> None:
        """Have a host be sent a list."""
        self._due[given.place] = given

    def forged(self, place: int, count: int) -> None:
        """Have the relay count what is wrong in a host's reports."""
        self._forged[place] = self._forged.get(place, 0) + count

    def ask(self, asked: Asked) -> None:
        """Have a host's agent be asked for a trace."""
        self._asked.append(asked)

    def due(self, places: Mapping[IPv4Address, int] | None = None) -> str | None:
        """Return the next message for the relay; None if nothing is due. ``places`` are those of the fabric's hosts."""
        if self._asked:
            asked, self._asked = self._asked, []
            return json.dumps({"type": "asked", "hosts": [list(each) for each in asked]})
        if self._forged:
            forged, self._forged = self._forged, {}
            return json.dumps({"type": "forged", "hosts": [list(each) for each in forged.items()]})
        if self.mcs is not None and (text := self.mcs.due(places or {})) is not None:
            return text
        if not self._due:
            return None
        first = list(self._due)[:LISTS_AT_ONCE]
        return json.dumps({"type": "lists", "lists": [list(self._due.pop(place)) for place in first]})


# -- the relay's messages -----------------------------------------------------------------------------------------------


def hosts(places: Iterable[int]) -> str:
    """Return the message that names all hosts whose agents probe and answer, by their places among the fabric's hosts.

    It says, too, that this relay hands on traces, and which of its hosts run MCS once the leader has answered with its lists.
    """
    return json.dumps({"type": "hosts", "hosts": sorted(places), "traces": True, "mcs": True})


def traced(answers: Iterable[tuple[int, str]]) -> str:
    """Return the message that hands on what agents answer to traces, each with the place of its host."""
    return json.dumps({"type": "traced", "hosts": [list(each) for each in answers]})


class Named(NamedTuple):
    """The hosts that a relay has, by their places, whether it hands on traces, and whether it speaks of MCS."""

    places: list[int]
    traces: bool
    mcs: bool


class Traced(NamedTuple):
    """What agents answer to traces, each with the place of its host."""

    answers: list[tuple[int, str]]


def read_up(text: str, count: int) -> Named | Traced | Told:
    """Return what a relay says in text; ``count`` is how many hosts the fabric has. Raises `RelayedError`.

    >>> read_up(hosts({3, 1}), 16)
    Named(places=[1, 3], traces=True, mcs=True)
    >>> read_up(traced([(3, "{}")]), 16)
    Traced(answers=[(3, '{}')])
    """
    message = _object(text)
    kind, places = message.get("type"), message.get("hosts")
    if kind == "traced":
        if not isinstance(places, list):
            raise RelayedError("its hosts are no list")
        for row in places:
            if not isinstance(row, list) or tuple(map(type, row)) != (int, str) or not 0 <= row[0] < count:
                raise RelayedError(f"{row!r:.60} is no answer to a trace")
        return Traced([(place, answer) for place, answer in places])
    if kind == "mcs":
        try:
            return relayed_mcs.read_told(message, count)
        except ValueError as error:
            raise RelayedError(str(error)) from error
    if kind != "hosts":
        raise RelayedError(f"its type is {kind!r:.40}, none of hosts, traced and mcs")
    if not isinstance(places, list) or not all(type(place) is int and 0 <= place < count for place in places):
        raise RelayedError(f"its hosts are no numbers below {count}")
    return Named(places, message.get("traces") is True, message.get("mcs") is True)


def reports(data: bytes, allowed: Collection[int]) -> tuple[bytes, int]:
    """Return the reports of a relay's own hosts out of a message, and how many others were left out. Raises `RelayedError`."""
    at, left_out, kept = 0, 0, []
    while at < len(data):
        if at + HEADER.size > len(data):
            raise RelayedError("a report ends within its header")
        place, _, size = HEADER.unpack_from(data, at)
        end = at + HEADER.size + size
        if end > len(data):
            raise RelayedError("a report ends within its records")
        if place in allowed:
            kept.append(data[at:end])
        else:
            left_out += 1
        at = end
    return b"".join(kept), left_out


def count(reports: bytes) -> int:
    """Return how many whole reports there are."""
    at = found = 0
    while at < len(reports):
        at += HEADER.size + HEADER.unpack_from(reports, at)[2]
        found += 1
    return found


# -- the leader's messages ----------------------------------------------------------------------------------------------


def read_down(text: str | bytes, count: int) -> Iterator[Given | Forged | Asked | News]:
    """Yield what the leader says of a relay's hosts; ``count`` is how many hosts the fabric has. Raises `RelayedError`."""
    message = _object(text)
    kind = str(message.get("type"))
    if kind == "mcs":
        try:
            yield relayed_mcs.read_news(message, count)
        except ValueError as error:
            raise RelayedError(str(error)) from error
        return
    if kind not in _DOWN:
        raise RelayedError(f"its type is {kind!r:.40}, none of {', '.join([*_DOWN, 'mcs'])}")
    field, shape, made = _DOWN[kind]
    rows = message.get(field)
    if not isinstance(rows, list):
        raise RelayedError(f"its {field} are no list")
    for row in rows:
        if not isinstance(row, list) or tuple(map(type, row)) != shape or not 0 <= row[0] < count:
            raise RelayedError(f"{row!r:.60} is no entry of {kind}")
        yield made(*row)


_DOWN: dict[str, tuple[str, tuple[type, ...], Callable[..., Given | Forged | Asked]]] = {
    "lists": ("lists", (int, int, str), Given),
    "forged": ("hosts", (int, int), Forged),
    "asked": ("hosts", (int, str), Asked),
}


def _object(text: str | bytes) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RelayedError(f"it is no JSON: {error!s:.60}") from error
    if not isinstance(message, dict):
        raise RelayedError("it is no JSON object")
    return message
