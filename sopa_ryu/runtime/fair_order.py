"""Fair queueing of requests by client: a client that asks for little is served before those that ask without pause."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")

MOST_IDLE = 64
"""Clients with nothing waiting that are remembered, besides as many as have something waiting."""
LONGEST_EVERY = 8
"""Every so many turns, the client that has waited longest is next, so that a steady stream of new clients cannot starve it."""


class FairOrder(Generic[Item]):
    """Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) of items by client.

    After each `take`, call `spent` with the cost of that turn before the next `take`.

    >>> order = FairOrder[str]()
    >>> for name in ("a1", "a2", "a3", "b1", "b2"):
    ...     order.add(name[0], name)
    >>> for cost in (1.0, 3.0, 1.0):  # b1 costs as much as three of a's
    ...     client, item = order.take()
    ...     order.spent(client, cost)
    ...     print(item)
    a1
    b1
    a2
    >>> order.add("c", "c1")  # which has had nothing yet
    >>> order.take()
    ('c', 'c1')
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Item]] = {}
        self._places: dict[str, _Place] = {}  # in the order of how long they wait
        self._line: list[_Place] = []  # as those of `_places`, and some that are out of date
        self._number = count(1)
        self._turns = 0
        self._now = 0.0  # virtual time: when the last turn began
        self._ends: dict[str, float] = {}  # of the last turn of each client

    def __len__(self) -> int:
        return len(self._places)

    def add(self, client: str, item: Item) -> None:
        """Queue an item behind those of the same client."""
        if client in self._waiting:
            self._waiting[client].append(item)
        else:
            self._waiting[client] = deque([item])
            self._line_up(client)

    def take(self) -> tuple[str, Item]:
        """Return the next client and its item; `IndexError` if nothing is queued."""
        self._turns += 1
        if self._turns % LONGEST_EVERY or not self._places:
            place = heappop(self._line)
            while self._places.get(place.client) != place:
                place = heappop(self._line)
            self._now = max(self._now, place.begins)
        else:
            place = next(iter(self._places.values()))
        del self._places[place.client]
        self._ends.pop(place.client, None)  # it is the latest now
        self._ends[place.client] = place.begins
        return place.client, self._waiting[place.client].popleft()

    def spent(self, client: str, cost: float) -> None:
        """Charge a client for its turn."""
        self._ends[client] += cost
        if self._waiting[client]:
            self._line_up(client)
        else:
            del self._waiting[client]
        while len(self._ends) > len(self._places) + MOST_IDLE:
            del self._ends[next(iter(self._ends))]

    def _line_up(self, client: str) -> None:
        end = self._ends.get(client, 0.0)
        place = self._places[client] = _Place(max(self._now, end), end, next(self._number), client)
        heappush(self._line, place)


class _Place(NamedTuple):
    """A client's place in the queue: the least is next."""

    begins: float
    ended: float
    """Breaks ties of ``begins``: the client whose last turn ended earlier is first."""
    number: int
    client: str
