"""What a host wants to send, as its demands say it: bytes of frames since the agent's start, by destination. Pure.

The kernel tells what the sockets have not sent yet, and what has been sent in all. A socket that is reset takes along what it had
not sent; so that both counters of a demand only rise, that counts as sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.channel.slots import MAX_ENTRIES, Wanted

REPEATS = 4
"""A change is in so many demands, of which all but one may be lost; after that it is repeated in turn with all others."""


class Unsent(NamedTuple):
    """What a connection to a host of the fabric has not sent.

    Args:
        destination: Its address.
        bytes: Of frames.
    """

    destination: int
    bytes: int


class Demands:
    """The counters of one host.

    >>> peer = IPv4Address("10.1.0.2")
    >>> its = Demands()
    >>> its.note({peer: 3000}, {}); its.note({peer: 1500}, {peer: 1500}); next(its.datagrams())
    [Wanted(destination=IPv4Address('10.1.0.2'), wanted=3000, sent=1500)]
    """

    def __init__(self) -> None:
        self._wanted: dict[IPv4Address, int] = {}
        self._gone: dict[IPv4Address, int] = {}
        self._unsent: dict[IPv4Address, int] = {}
        self._fresh: dict[IPv4Address, int] = {}
        self._turn = 0

    @property
    def outstanding(self) -> bool:
        """True while anything waits to be sent, or a change has not been told often enough."""
        return bool(self._fresh or self._unsent)

    @property
    def active(self) -> set[IPv4Address]:
        """The destinations whose sent bytes `note` needs, besides those with unsent ones."""
        return set(self._unsent) | set(self._fresh)

    def note(self, unsent: Mapping[IPv4Address, int], sent: Mapping[IPv4Address, int]) -> None:
        """Note what the sockets have not sent, and what has been sent in all since the start.

        Args:
            unsent: Destinations that are missing have nothing to be sent.
            sent: Of all destinations in `unsent` and `active` that have been sent anything.
        """
        for destination in unsent.keys() | self.active:
            waiting = unsent.get(destination, 0)
            total = self._gone.get(destination, 0) + sent.get(destination, 0) + waiting
            before = self._wanted.get(destination, 0)
            if total < before:
                self._gone[destination] = self._gone.get(destination, 0) + before - total
                total = before
            if total != before or waiting != self._unsent.get(destination, 0):
                self._wanted[destination] = total
                self._fresh[destination] = REPEATS
            if waiting:
                self._unsent[destination] = waiting
            else:
                self._unsent.pop(destination, None)

    def datagrams(self) -> Iterator[list[Wanted]]:
        """Yield the entries of the next demand's datagrams: what has changed, what waits, and others in turn if there is room."""
        first = [*self._fresh, *(destination for destination in self._unsent if destination not in self._fresh)]
        room = -len(first) % MAX_ENTRIES if first else MAX_ENTRIES
        if room and len(first) < len(self._wanted):
            known = list(self._wanted)
            others = [known[(self._turn + n) % len(known)] for n in range(min(room, len(known)))]
            self._turn = (self._turn + len(others)) % len(known)
            chosen = set(first)
            first += [destination for destination in others if destination not in chosen]
        self._fresh = {destination: left - 1 for destination, left in self._fresh.items() if left > 1}
        for at in range(0, max(1, len(first)), MAX_ENTRIES):
            yield [self._entry(destination) for destination in first[at : at + MAX_ENTRIES]]

    def _entry(self, destination: IPv4Address) -> Wanted:
        wanted = self._wanted[destination]
        return Wanted(destination, wanted, wanted - self._unsent.get(destination, 0))
