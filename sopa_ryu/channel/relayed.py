"""What a relay and the leader of a cluster say to each other about the probes of the relay's agents (docs/cluster.md). Pure.

The relay says which of its hosts probe and answer probes, and hands on their reports, many in one message. The leader says which
streams each of them has to probe. So the leader has one channel for each relay, and the estimator the reports of all hosts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from sopa_ryu.channel.probe_lists import HEADER

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


class Relayed:
    """One relay's channel at the leader: its hosts, and the lists that are due to them.

    Parameters
    ----------
    name : str
    peer : str
        The address that it connects from.
    connection : object
        Of the edge.

    Attributes
    ----------
    places : frozenset of int
        Its hosts that probe and answer.
    is_writing : bool
        Whether the edge writes what is due.
    """

    def __init__(self, name: str, peer: str, connection: Any) -> None:
        self.name, self.peer, self.connection = name, peer, connection
        self.places: frozenset[int] = frozenset()
        self.is_writing = False
        self._due: dict[int, Given] = {}
        self._forged: dict[int, int] = {}

    def give(self, given: Given) -> None:
        """Have a host be sent a list."""
        self._due[given.place] = given

    def forged(self, place: int, count: int) -> None:
        """Have the relay count what is wrong in a host's reports."""
        self._forged[place] = self._forged.get(place, 0) + count

    def due(self) -> str | None:
        """Return the next message for the relay; None if nothing is due."""
        if self._forged:
            forged, self._forged = self._forged, {}
            return json.dumps({"type": "forged", "hosts": [list(each) for each in forged.items()]})
        if not self._due:
            return None
        places = list(self._due)[:LISTS_AT_ONCE]
        return json.dumps({"type": "lists", "lists": [list(self._due.pop(place)) for place in places]})


# -- the relay's messages -----------------------------------------------------------------------------------------------


def hosts(places: Iterable[int]) -> str:
    """Return the message that names all hosts whose agents probe and answer, by their places among the fabric's hosts."""
    return json.dumps({"type": "hosts", "hosts": sorted(places)})


def read_hosts(text: str, count: int) -> list[int]:
    """Return the places of the hosts that a relay names; ``count`` is how many the fabric has. Raises `RelayedError`.

    Examples
    --------
    >>> read_hosts(hosts({3, 1}), 16)
    [1, 3]
    """
    message = _object(text, "hosts")
    places = message.get("hosts")
    if not isinstance(places, list) or not all(type(place) is int and 0 <= place < count for place in places):
        raise RelayedError(f"its hosts are no numbers below {count}")
    return places


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


def read_down(text: str | bytes, count: int) -> Iterator[Given | Forged]:
    """Yield what the leader says of a relay's hosts; ``count`` is how many hosts the fabric has. Raises `RelayedError`."""
    message = _object(text, None)
    kind = message.get("type")
    rows = message.get({"lists": "lists", "forged": "hosts"}.get(str(kind), ""))
    if not isinstance(rows, list):
        raise RelayedError(f"its type is {kind!r:.40}, neither lists nor forged")
    shape: tuple[type, ...] = (int, int, str) if kind == "lists" else (int, int)
    for row in rows:
        if not isinstance(row, list) or tuple(map(type, row)) != shape or not 0 <= row[0] < count:
            raise RelayedError(f"{row!r:.60} is no entry of {kind}")
        yield Given(*row) if kind == "lists" else Forged(*row)


def _object(text: str | bytes, kind: str | None) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RelayedError(f"it is no JSON: {error!s:.60}") from error
    if not isinstance(message, dict):
        raise RelayedError("it is no JSON object")
    if kind is not None and message.get("type") != kind:
        raise RelayedError(f"its type is {message.get('type')!r:.40}, not {kind}")
    return message
