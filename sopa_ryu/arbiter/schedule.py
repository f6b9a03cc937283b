"""The arbiter's decisions: demands in, batches of granted slots out. Pure: its clock is a parameter, datagrams are the service's.

Slot n is the time from n to n + 1 slot lengths on the arbiter's monotonic clock, and four slots are a batch. At the beginning of a
batch the one `AHEAD` after it is granted, so that grants arrive before their slots. A batch that would come too late is left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any, NamedTuple, Protocol

from sopa_ryu.arbiter.budgets import Budgets, Capacities
from sopa_ryu.arbiter.demands import HostDemands, StaleError
from sopa_ryu.channel.slots import DEMAND_NS, MAX_ENTRIES, Demand, Grant, Granted

SLOTS = 4
"""Of a batch."""
AHEAD = 2
LEASE_BATCHES = 8
MIN_LEASE_BATCHES = 4
"""So that `DATAGRAMS_A_LEASE` fit into it."""
MIN_LEASE_MS = 100
MIN_AHEAD_NS = 5_000_000
"""A grant is not made later than so long before its slot: it would not arrive in time."""
DATAGRAMS_A_LEASE = 3
MAX_AHEAD_NS = 86_400_000_000_000
"""An agent's run, its clock when it began, may be so far ahead of the arbiter's: what is further would outlast every other."""
LOAD_NS = 5_000_000_000
"""The load is an average that forgets a batch by and by in this time: that between two reports."""
_NS_A_MS = 1_000_000
_SEQUENCES = 1 << 32


class RejectedError(ValueError):
    """A demand that is rejected.

    Args:
        reason: For the counter.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class CellGrant(Protocol):
    """A cell that the allocator grants: numbers of hosts, the slot within the batch, and the path."""

    @property
    def source(self) -> int: ...
    @property
    def destination(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def up1(self) -> int: ...
    @property
    def up2(self) -> int: ...


class Allocator(Protocol):
    """The library (``arbiter.h``)."""

    def follow(self, capacities: Capacities, /) -> None:
        """Go on with other capacities of the same fabric."""

    def demand(self, demands: Iterable[tuple[int, int, int]], /) -> None:
        """Set what is left to send, in cells: source, destination and cells of each pair."""

    def reserve(self, host: int, sending: int, receiving: int, /) -> None:
        """Leave cells of a host's link free in the next batch."""

    def batch(self) -> Iterable[CellGrant]:
        """Allocate the next batch; what is granted is taken off the demands."""

    def statistics(self) -> tuple[int, int, int]:
        """Return slots, cells granted, and cells that waited for want of a path, since it was made."""


class Timing(NamedTuple):
    """The length of a slot in nanoseconds, and of a lease in milliseconds."""

    slot_ns: int
    lease_ms: int

    @classmethod
    def of(cls, slot_ms: float, lease_ms: int | None = None) -> Timing:
        """Return the timing of a slot length; by default the lease is 8 batches, at least 100 ms.

        >>> Timing.of(3.2)
        Timing(slot_ns=3200000, lease_ms=103)
        """
        slot_ns = round(slot_ms * _NS_A_MS)
        lease = -(-LEASE_BATCHES * SLOTS * slot_ns // _NS_A_MS) if lease_ms is None else lease_ms
        return cls(slot_ns, max(MIN_LEASE_MS, lease) if lease_ms is None else lease)

    @property
    def batch_ns(self) -> int:
        """The length of a batch."""
        return SLOTS * self.slot_ns

    @property
    def lease_ns(self) -> int:
        """The length of a lease."""
        return self.lease_ms * _NS_A_MS


class HostLoad(NamedTuple):
    """What a host that does not take part sends and receives, as shares of its link."""

    sending: float
    receiving: float


@dataclass(slots=True)
class _Reserved:
    """Parts of cells that are still to be reserved: loads below a cell a batch add up."""

    sending: float = 0.0
    receiving: float = 0.0

    def take(self, load: HostLoad) -> tuple[int, int]:
        self.sending = min(self.sending, 1.0) + SLOTS * min(1.0, load.sending)
        self.receiving = min(self.receiving, 1.0) + SLOTS * min(1.0, load.receiving)
        whole = int(self.sending), int(self.receiving)
        self.sending -= whole[0]
        self.receiving -= whole[1]
        return whole


class Schedule:
    """The state of the arbiter.

    Args:
        make: Makes the allocator of a fabric.
        wall: Return the nanoseconds since 1970.

    Attributes:
        term: The controller's number for this arbiter; 0 while there is none, and nothing is granted.
        hosts: The hosts that have sent demands, by number.
        counted: ``batches``, ``late`` batches, ``cells`` granted, ``reserved`` cells of hosts that do not take part,
            ``forgotten`` hosts, ``clock`` for a clock that was set back.
        granted_share: What of the slots of all hosts' links was granted in the last seconds.
    """

    def __init__(self, timing: Timing, make: Callable[[Capacities], Allocator], wall: Callable[[], int] = time.time_ns) -> None:
        self.timing = timing
        self.term = 0
        self.hosts: dict[int, HostDemands] = {}
        self.counted: Counter[str] = Counter(batches=0, late=0, cells=0, reserved=0, forgotten=0, clock=0)
        self.granted_share = 0.0
        self._make, self._wall = make, wall
        self._budgets: Budgets | None = None
        self._allocator: Allocator | None = None
        self._addresses: tuple[IPv4Address, ...] = ()
        self._indices: dict[IPv4Address, int] = {}
        self._changed: set[tuple[int, int]] = set()
        self._loads: Mapping[int, HostLoad] = {}
        self._reserved: dict[int, _Reserved] = {}
        self._sequences: Counter[int] = Counter()
        self._next: int | None = None
        self._last_turn = 0
        self._unplaced = 0

    # -- from the controller --------------------------------------------------------------------------------------------

    def follow(self, budgets: Budgets) -> None:
        """Go on with these capacities; of another fabric, nothing that was asked for stays."""
        before, self._budgets = self._budgets, budgets
        if before is None or self._allocator is None or before.tree != budgets.tree:
            self._unplaced = self.unplaced
            self._allocator = self._make(budgets.capacities)
            self._addresses = tuple(map(budgets.tree.ip, budgets.tree.hosts()))
            self._indices = {address: index for index, address in enumerate(self._addresses)}
            self.hosts.clear()
            self._changed.clear()
            self._loads = {}
        else:
            self._allocator.follow(budgets.capacities)
            if before.cell_bytes != budgets.cell_bytes:
                self._changed.update((host.index, other) for host in self.hosts.values() for other in host.needs)

    def accept(self, term: int) -> None:
        """Grant under this term from now on; numbers of datagrams start anew."""
        if term != self.term:
            self.term = term
            self._sequences.clear()

    def stop(self) -> None:
        """Grant nothing until there is another term."""
        self.term = 0

    @property
    def grants(self) -> bool:
        """Whether slots are granted: there are a term and a fabric."""
        return self.term > 0 and self._allocator is not None

    @property
    def unplaced(self) -> int:
        """Cells that were allocated, but waited for want of a path."""
        return self._unplaced + (self._allocator.statistics()[2] if self._allocator is not None else 0)

    def load(self, loads: Mapping[int, HostLoad]) -> None:
        """Reserve cells in every batch for these hosts, by number, unless they take part."""
        self._loads = loads
        self._reserved = {index: reservation for index, reservation in self._reserved.items() if index in loads}

    # -- from the hosts -------------------------------------------------------------------------------------------------

    def address(self, index: int) -> IPv4Address:
        """Return the address of the host of a number."""
        return self._addresses[index]

    @property
    def knows_fabric(self) -> bool:
        """Whether there is a fabric, and the rate of its hosts' links."""
        return self._allocator is not None

    def knows(self, address: IPv4Address) -> bool:
        """Return whether it is a host of the fabric."""
        return address in self._indices

    @property
    def participants(self) -> int:
        """How many hosts take part."""
        return sum(host.takes_part for host in self.hosts.values())

    def receive(self, demand: Demand, peer: Any, now: int) -> int:
        """Follow a host's demand, whose token was checked; return by how many slots its clock is ahead (or behind, below 0).

        A clock that is off is not rejected: it is by the answers that it comes right. What counts is the arbiter's own clock.

        Args:
            peer: Where it came from.
            now: Monotonic nanoseconds.

        Raises:
            RejectedError: If it is old, of no host of the fabric, names another destination than a host, or follows a later
                arbiter, or if its agent's clock was far ahead.
        """
        index = self._indices.get(demand.host)
        if index is None:
            raise RejectedError("foreign", f"{demand.host} is no host of the fabric")
        if (ahead := demand.run - self._wall()) > MAX_AHEAD_NS:
            text = f"{demand.host}'s clock was {ahead // MAX_AHEAD_NS} days ahead of this machine's when its agent began"
            raise RejectedError("clock", text)
        host = self.hosts.get(index) or HostDemands(index)
        try:
            host.check(demand, now)
        except StaleError as error:
            raise RejectedError("replay", str(error)) from error
        wanted = [(self._destination(entry.destination, index), entry.wanted, entry.sent) for entry in demand.entries]
        over, off = self._over(demand, now)
        self.hosts[index] = host
        self._changed.update((index, destination) for destination in host.follow(demand, wanted, over))
        host.peer, host.sent_at, host.received_at = peer, demand.sent_at, now
        host.takes_part = True
        return off

    def _destination(self, address: IPv4Address, source: int) -> int:
        index = self._indices.get(address)
        if index is None or index == source:
            raise RejectedError("destination", f"it asks for slots to {address}, which is no other host of the fabric")
        return index

    def _over(self, demand: Demand, now: int) -> tuple[int, int]:
        """Return the last slot whose grants do not count any more, and by how many slots the host's clock is off.

        What ended a lease ago does not count in any case, what is still to come does.
        """
        current = now // self.timing.slot_ns
        latest = current - self.timing.lease_ns // self.timing.slot_ns
        if demand.term > self.term > 0:
            text = f"it follows term {demand.term}, which is later than {self.term}: another arbiter has the hosts"
            raise RejectedError("term", text)
        if demand.term != self.term or not demand.through:
            return latest, 0  # its numbers may be those of another clock
        is_off = not latest <= demand.through <= current + SLOTS
        return max(latest, min(demand.through, current)), demand.through - current if is_off else 0

    # -- the batches ----------------------------------------------------------------------------------------------------

    def next_turn(self, now: int) -> int:
        """Return when `turn` has something to do next: at the beginning of the next batch."""
        return (now // self.timing.batch_ns + 1) * self.timing.batch_ns

    def turn(self, now: int) -> list[tuple[HostDemands, Grant]]:
        """Make the batches that are due; return what is to be sent to which host."""
        self._look_at_clock(now)
        self._forget_silent(now)
        if not self.grants:
            self._next = None
            return []
        batch_ns = self.timing.batch_ns
        last = now // batch_ns + AHEAD
        first = -(-(now + MIN_AHEAD_NS) // batch_ns)
        if self._next is None:
            self._next = last + 1  # what was granted before a restart, or by another arbiter on this machine, is over by then
        if self._next < first:
            self.counted["late"] += first - self._next
            self._next = first
        out: list[tuple[HostDemands, Grant]] = []
        while self._next <= last:
            out += self._make_batch(self._next, now)
            self._next += 1
        return out

    def _look_at_clock(self, now: int) -> None:
        if now < self._last_turn - self.timing.lease_ns:
            self.counted["clock"] += 1
            self._next = None
            for host in self.hosts.values():
                self._drop(host)
        self._last_turn = now

    def _forget_silent(self, now: int) -> None:
        for host in self.hosts.values():
            if host.takes_part and now - host.received_at > self.timing.lease_ns:
                self.counted["forgotten"] += 1
                self._drop(host)

    def _drop(self, host: HostDemands) -> None:
        self._changed.update((host.index, destination) for destination in host.forget())

    def _make_batch(self, number: int, now: int) -> list[tuple[HostDemands, Grant]]:
        assert self._allocator is not None
        self._allocator.demand([(source, other, self._cells(source, other)) for source, other in self._changed])
        self._changed.clear()
        self._reserve(self._allocator)
        cells: dict[int, list[CellGrant]] = {}
        for cell in self._allocator.batch():
            cells.setdefault(cell.source, []).append(cell)
        self.counted["batches"] += 1
        share = sum(map(len, cells.values())) / (SLOTS * max(1, len(self._addresses)))
        self.granted_share += (share - self.granted_share) * min(1.0, self.timing.batch_ns / LOAD_NS)
        first = number * SLOTS
        out: list[tuple[HostDemands, Grant]] = []
        for index, host in self.hosts.items():
            if host.takes_part and (index in cells or self._is_due(host, now)):
                host.answered_at = now
                out += self._datagrams(host, first, self._grant(host, first, cells.get(index, ())))
        return out

    def _cells(self, source: int, destination: int) -> int:
        """Return what is left of a pair, in cells."""
        assert self._budgets is not None
        host = self.hosts.get(source)
        need = host.needs.get(destination) if host is not None else None
        if need is None:
            return 0
        most = max(DEMAND_NS // self.timing.slot_ns, (AHEAD + 2) * SLOTS)
        return min(most, -(-need.left // max(1, self._budgets.usual(source, destination))))

    def _reserve(self, allocator: Allocator) -> None:
        for index, load in self._loads.items():
            host = self.hosts.get(index)
            if host is None or not host.takes_part:
                sending, receiving = self._reserved.setdefault(index, _Reserved()).take(load)
                if sending or receiving:
                    allocator.reserve(index, sending, receiving)
                    self.counted["reserved"] += sending + receiving

    def _grant(self, host: HostDemands, first: int, cells: Iterable[CellGrant]) -> list[Granted]:
        """Note what a host is granted in a batch, in the order of slots."""
        assert self._budgets is not None
        entries = []
        for cell in sorted(cells, key=lambda cell: cell.slot):
            slot = first + cell.slot
            budget = self._budgets.on_path(host.index, cell.destination, cell.up1, cell.up2)
            host.granted(slot, cell.destination, budget)
            entries.append(Granted(slot, cell.up1, cell.up2, self._addresses[cell.destination], budget))
        self.counted["cells"] += len(entries)
        return entries

    def _is_due(self, host: HostDemands, now: int) -> bool:
        """Return whether a host without grants is sent a datagram, so that it gets `DATAGRAMS_A_LEASE`."""
        return (now + self.timing.batch_ns - host.answered_at) * DATAGRAMS_A_LEASE > self.timing.lease_ns

    def _datagrams(self, host: HostDemands, first: int, entries: Sequence[Granted]) -> list[tuple[HostDemands, Grant]]:
        out = []
        for start in range(0, max(1, len(entries)), MAX_ENTRIES):
            self._sequences[host.index] = (self._sequences[host.index] + 1) % _SEQUENCES
            grant = Grant(
                self._addresses[host.index],
                self._sequences[host.index],
                self.term,
                self.timing.slot_ns,
                self.timing.lease_ms,
                first,
                SLOTS,
                host.sent_at,
                host.received_at,
                0,  # known when it is sent
                entries[start : start + MAX_ENTRIES],
            )
            out.append((host, grant))
        return out
