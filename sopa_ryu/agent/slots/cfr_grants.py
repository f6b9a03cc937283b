"""The grants of the arbiter, at a host: which of them hold, and what the host's gate is to do. Pure.

A grant holds unless it is of a lower term than one seen before, or a repetition. Each renews the lease: after it the gate is open,
and with the next grant it closes from that grant's first slot on. The term of an arbiter that has been silent for long is
forgotten: another arbiter's grants hold then, if they answer demands of after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.agent.slots.cfr_clock import Clock
from sopa_ryu.channel.slots import Grant, Granted

SILENT_NS = 300_000_000_000
"""Longer than any lease: slots that the silent arbiter has granted are over."""
KEPT = 1024
"""Slots that a host keeps at a time (SLOTS of bpf/cfr.h)."""
MIN_SLOT_NS, MAX_SLOT_NS = 100_000, 60_000_000_000
MAX_LEASE_MS = 120_000
LATE_NS = 600_000
"""A packet may end so long after its slot: what a host's timers and scheduling need."""
MAX_AHEAD_NS, AHEAD_PARTS = 1_000_000, 4
"""With departure times data goes to fq so long before its slot, or one part in so many of a slot if that is less: longer than a
thread is late, and as short as acknowledgements and what is sent again may wait behind it."""
_WINDOW = 64
"""Sequence numbers so far below the highest are accepted, once each: datagrams overtake one another (RFC 4303, section 3.4.3)."""


_HALF = 1 << 31


class Rejection(StrEnum):
    """The reason why a datagram is ignored; the value is a metric's label."""

    TOKEN = "token"
    """It is not made with the host's token."""
    MALFORMED = "malformed"
    HOST = "host"
    """It is another host's."""
    TERM = "term"
    """It is of an arbiter that another one has replaced."""
    REPEATED = "repeated"
    SLOT_LENGTH = "slot_length"
    """Its slots are shorter or longer than a host can keep."""
    TOO_FAR = "too_far"
    """Its slots are further ahead than a host keeps."""
    CLOCK = "clock"
    """The clock of this arbiter is not known yet: it has answered no demand."""


class Rejected(ValueError):
    """A grant that is ignored."""

    def __init__(self, reason: Rejection) -> None:
        super().__init__(reason.value)
        self.reason = reason


class Gate(NamedTuple):
    """What the gate goes by: `CfrPrograms.set_gate` writes it for the programs.

    Args:
        slot_ns: The length of a slot in nanoseconds.
        offset_ns: The nanoseconds to add to the host's monotonic clock for the arbiter's.
        open_after: The end of the lease, on the host's clock.
        first_slot: Before it nothing is held.
        late_ns: A packet may end so long after its slot.
        ahead_ns: So long before its slot data goes to the qdisc, which keeps it until then; 0 without departure times.
    """

    slot_ns: int
    offset_ns: int
    open_after: int
    first_slot: int
    late_ns: int
    ahead_ns: int = 0

    def slot_at(self, now: int) -> int:
        """Return the slot that it is at a time of the host's clock."""
        return (now + self.offset_ns) // self.slot_ns

    def begin_of(self, slot: int) -> int:
        """Return the time of the host's clock at which a slot begins."""
        return slot * self.slot_ns - self.offset_ns

    def due(self, slot: int) -> int:
        """Return the time of the host's clock from which on data of a slot may go to the qdisc."""
        return self.begin_of(slot) - self.ahead_ns


def ahead_of(slot_ns: int) -> int:
    """Return `Gate.ahead_ns` with departure times, for slots of that length.

    >>> [ahead_of(slot_ns) for slot_ns in (100_000, 3_200_000, 60_000_000_000)]
    [25000, 800000, 1000000]
    """
    return min(MAX_AHEAD_NS, slot_ns // AHEAD_PARTS)


def used_through(gate: Gate, now: int, pending: Iterable[Granted], used: Callable[[int], int]) -> int:
    """Return the last slot whose grants are used or over: of one that has begun, or whose data goes to the qdisc, if half is used.

    Args:
        now: The host's clock.
        pending: The granted slots that are not over, in order.
        used: Returns the bytes that were sent in a slot.
    """
    last, begun = gate.slot_at(now), gate.slot_at(now + gate.ahead_ns)
    for grant in pending:
        if grant.slot > begun:
            break
        if 2 * used(grant.slot) <= grant.budget:
            return max(0, grant.slot - 1)
        last = grant.slot
    return max(0, last)


class Orders(NamedTuple):
    """What a grant leads to.

    Args:
        gate: To be put in force.
        slots: To be written; none has begun.
        forget: Remove what was granted before: it was of another term.
        closes: The gate was open, and closes from `Gate.first_slot` on.
    """

    gate: Gate
    slots: Sequence[Granted]
    forget: bool
    closes: bool


class Grants:
    """The state of one host.

    Attributes:
        departure_times: Whether the interface's qdisc keeps packets until their departure times; to be set, and False at first.
        clock: The arbiter's.
        term: The highest seen; 0 before the first grant.
        gate: In force.
        batch_ns: The length of the arbiter's batches in nanoseconds; 0 before the first grant.
        lease_ns: The length of its leases.
        batch_bytes: What the host's link carries in a batch by what was granted, in bytes of frames; 0 before the first slot.
        granted, late: Slots that were granted, and of them those that had begun when the datagram came.
        rejected: Datagrams that were ignored.
    """

    def __init__(self, host: IPv4Address) -> None:
        self.host = host
        self.departure_times = False
        self.clock = Clock()
        self.term = 0
        self.gate: Gate | None = None
        self.batch_ns = self.lease_ns = self.batch_bytes = 0
        self.granted = self.late = 0
        self.rejected: Counter[Rejection] = Counter()
        self._highest = 0
        self._seen = 0
        self._of_term = 0
        self._heard = self._forgot_at = 0

    def forget_silent(self, now: int) -> bool:
        """Forget the term if there was no grant of it for `SILENT_NS`; return True if so."""
        if not self.term or now - self._heard < SILENT_NS:
            return False
        self.term, self._forgot_at = 0, now
        return True

    def is_closed(self, now: int) -> bool:
        """Return True while the lease lasts: data waits for its slots."""
        return self.gate is not None and now < self.gate.open_after

    def receive(self, grant: Grant, now: int) -> Orders:
        """Return what a grant leads to.

        Args:
            now: The host's monotonic clock in nanoseconds, when it arrived.

        Raises:
            Rejected: If it is ignored; that is counted.
        """
        try:
            return self._receive(grant, now)
        except Rejected as rejected:
            self.rejected[rejected.reason] += 1
            raise

    def _receive(self, grant: Grant, now: int) -> Orders:
        if grant.host != self.host:
            raise Rejected(Rejection.HOST)
        if not MIN_SLOT_NS <= grant.slot_ns <= MAX_SLOT_NS:
            raise Rejected(Rejection.SLOT_LENGTH)
        self._check_sequence(grant)
        self._heard = now
        if grant.demand_sent_at:
            self.clock.note(asked_at=grant.demand_sent_at, received_at=grant.demand_received_at, answered_at=grant.sent_at, now=now)
        offset = self.clock.offset
        if offset is None:
            raise Rejected(Rejection.CLOCK)
        current = (now + offset) // grant.slot_ns
        if grant.first_slot + grant.slots > current + KEPT:
            raise Rejected(Rejection.TOO_FAR)
        return self._order(grant, now, offset, current)

    def _order(self, grant: Grant, now: int, offset: int, current: int) -> Orders:
        before = self.gate
        fresh = before is None or self._of_term != grant.term or before.slot_ns != grant.slot_ns
        closes = fresh or not self.is_closed(now)
        self.lease_ns = min(grant.lease_ms, MAX_LEASE_MS) * 1_000_000
        self.batch_ns = grant.slots * grant.slot_ns
        self._of_term = grant.term
        first = grant.first_slot if closes or before is None else before.first_slot
        ahead = ahead_of(grant.slot_ns) if self.departure_times else 0
        self.gate = Gate(grant.slot_ns, offset, now + self.lease_ns, first, LATE_NS, ahead)
        slots = [slot for slot in grant.entries if slot.slot > current]
        self.batch_bytes = max(grant.slots * max((entry.budget for entry in slots), default=0), 0 if fresh else self.batch_bytes)
        self.granted += len(grant.entries)
        self.late += len(grant.entries) - len(slots)
        return Orders(self.gate, slots, fresh, closes)

    def _check_sequence(self, grant: Grant) -> None:
        if grant.term < self.term:
            raise Rejected(Rejection.TERM)
        if grant.term > self.term:
            if grant.demand_sent_at < self._forgot_at:
                raise Rejected(Rejection.REPEATED)
            self.term, self._highest, self._seen = grant.term, grant.sequence, 1
            self.clock.reset()
            return
        ahead = (grant.sequence - self._highest + _HALF) % (2 * _HALF) - _HALF  # RFC 1982: the numbers begin again after 2^32
        if ahead > 0:
            self._highest = grant.sequence
            self._seen = (self._seen << ahead | 1) & ((1 << _WINDOW) - 1) if ahead < _WINDOW else 1
            return
        if -ahead >= _WINDOW or self._seen >> -ahead & 1:
            raise Rejected(Rejection.REPEATED)
        self._seen |= 1 << -ahead
