"""What a relay and the leader of a cluster say to each other about the hosts that run MCS, by paths (docs/cluster.md). Pure.

A relay that has said that it speaks of them (`relayed.hosts`) is sent the leader's lists, of all hosts of the fabric, and says from
then on which of its own begin and end to run MCS. It numbers what it says; the leader's messages name the number up to which its
lists contain that. Hosts are named by their places among the fabric's hosts, variants by the version of the option.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from itertools import islice
from typing import Any, NamedTuple

from sopa_ryu.channel.mcs import ChannelKind, HostList, Variant

MAX_VERSION = 255
"""The option's version has 4 bits; one byte has room for others."""
MAX_HOSTS = 4096
"""Of one message: more are several, between which everything else has its turn."""


class Told(NamedTuple):
    """What a relay says of its hosts since its message before.

    Attributes:
        number: It rises with each message of a channel.
        here: The hosts whose agents have begun to run MCS, by its version.
        lost: Those whose channel is lost.
        left: Those whose agents have ended, and said so.
        none: Those whose agents are connected and run none of it by now.
    """

    number: int
    here: Mapping[int, Sequence[int]]
    lost: Sequence[int]
    left: Sequence[int]
    none: Sequence[int]


class News(NamedTuple):
    """What leads from the leader's lists before to the present ones, or a part of it, on one channel; it begins with empty lists.

    Attributes:
        heard: The lists contain what the relay has said up to its message of this number; in a part that is not the last, that
            of before.
        complete: Whether a host that is missing does not run MCS, rather than has not come back to this leader yet; likewise.
        added, removed: By version.
    """

    heard: int
    complete: bool
    added: Mapping[int, Sequence[int]]
    removed: Mapping[int, Sequence[int]]


def may_be_handed(variant: Variant | None) -> bool:
    """Tell whether hosts of a variant are told to other relays.

    By ports they are not: a host may scatter only while every receiver is known to know of it, which nobody waits for across
    relays.

    >>> may_be_handed(Variant(1, "paths")), may_be_handed(Variant(1, "ports")), may_be_handed(None)
    (True, False, False)
    """
    return variant is not None and variant.kind == ChannelKind.PATHS and variant.version <= MAX_VERSION


def told_text(told: Told) -> str:
    """Return a relay's message.

    >>> its = Told(3, {1: [0, 2]}, [4], [], [])
    >>> read_told(json.loads(told_text(its)), 16) == its
    True
    """
    its = told._asdict() | {"here": _rows(told.here)}
    return json.dumps({"type": "mcs", **its})


def read_told(message: Mapping[str, Any], count: int) -> Told:
    """Return what a relay says; ``count`` is how many hosts the fabric has. Raises `ValueError`."""
    here = _read_rows(message.get("here"), 1, count)
    rest = (_read_places(message.get(name), count) for name in ("lost", "left", "none"))
    return Told(_read_number(message.get("number")), {version: rows[0] for version, rows in here.items()}, *rest)


def news_text(news: News) -> str:
    """Return the leader's message.

    >>> its = News(3, True, {1: [0, 2]}, {1: []})
    >>> read_news(json.loads(news_text(its)), 16) == its
    True
    """
    lists = [[version, list(news.added[version]), list(news.removed[version])] for version in sorted(news.added)]
    return json.dumps({"type": "mcs", "heard": news.heard, "complete": news.complete, "lists": lists})


def read_news(message: Mapping[str, Any], count: int) -> News:
    """Return what the leader says; ``count`` is how many hosts the fabric has. Raises `ValueError`."""
    lists = _read_rows(message.get("lists"), 2, count)
    complete = message.get("complete")
    if type(complete) is not bool:
        raise ValueError(f"complete is {complete!r:.40}, neither true nor false")
    added, removed = ({version: rows[at] for version, rows in lists.items()} for at in (0, 1))
    return News(_read_number(message.get("heard")), complete, added, removed)


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
        numbers = {variant: its.number for variant, its in lists.items()}
        if state == self._sent_state and numbers == {variant: its.number for variant, its in self._sent.items()}:
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
        return news_text(News(*(self._sent_state or (0, False)), added, removed))

    def _changes(self, lists: Mapping[Variant, HostList]) -> Iterator[tuple[int, bool, IPv4Address]]:
        for variant in lists.keys() | self._sent.keys():
            before, after = (_hosts(its.get(variant)) for its in (self._sent, lists))
            if before is not after and may_be_handed(variant):
                yield from ((variant.version, True, host) for host in after - before)
                yield from ((variant.version, False, host) for host in before - after)


def _hosts(its: HostList | None) -> frozenset[IPv4Address]:
    return frozenset() if its is None else its.hosts


def _rows(lists: Mapping[int, Iterable[int]]) -> list[list[Any]]:
    return [[version, list(places)] for version, places in sorted(lists.items())]


def _read_rows(rows: object, lists: int, count: int) -> dict[int, list[list[int]]]:
    """Return rows of a version and so many lists of hosts, by version."""
    found: dict[int, list[list[int]]] = {}
    if not isinstance(rows, list):
        raise ValueError("its lists are no list")
    for row in rows:
        if not isinstance(row, list) or len(row) != 1 + lists or type(row[0]) is not int:
            raise ValueError(f"{row!r:.60} is no version and {lists} lists")
        if not 0 <= row[0] <= MAX_VERSION or row[0] in found:
            raise ValueError(f"{row[0]!r:.40} is no version from 0 to {MAX_VERSION}, or there are two of it")
        found[row[0]] = [_read_places(places, count) for places in row[1:]]
    return found


def _read_places(places: object, count: int) -> list[int]:
    if not isinstance(places, list) or len(places) > count:
        raise ValueError(f"its hosts are no list of {count} at the most")
    if not all(type(place) is int and 0 <= place < count for place in places):
        raise ValueError(f"its hosts are no numbers below {count}")
    return places


def _read_number(number: object) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r:.40} is no number of a message")
    return number
