"""What hosts have asked for, less what was granted since: from cumulative demands, of which any may be lost. Pure.

What is left of a pair of hosts is what the sender wants to send, less what it has sent by the end of slot `Demand.through`, less
the budgets of its grants for later slots. A grant that was lost, or not used, counts again as soon as a demand comes from behind
its slot; a demand that was lost is contained in the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sopa_ryu.channel.slots import Demand

SILENT_NS = 300_000_000_000
"""An agent's run is forgotten if its host was silent for so long: its clock may have been ahead when that began."""
_SEQUENCES = 1 << 32


class StaleError(ValueError):
    """A demand that is a repetition, or from before others that have arrived."""


@dataclass(slots=True)
class Need:
    """What a host has to send to one destination, in bytes: wanted and sent since its agent started, and granted since."""

    wanted: int = 0
    sent: int = 0
    granted: int = 0

    @property
    def left(self) -> int:
        """Bytes that no slot is granted for; 0 if more was granted than is needed."""
        return max(0, self.wanted - self.sent - self.granted)


@dataclass(slots=True, eq=False)
class HostDemands:
    """What one host has asked for.

    Attributes:
        index: Its number, in the order of addresses.
        peer: Where its last demand came from; opaque here.
        run, sequence: Of its last demand; -1 before the first.
        sent_at, received_at: The host's clock in its last demand, and the arbiter's when that arrived.
        takes_part: Whether it was heard within a lease.
        needs: By the destination's number.
        answered_at: When it was sent its last datagram.
    """

    index: int
    peer: Any = None
    run: int = -1
    sequence: int = -1
    sent_at: int = 0
    received_at: int = 0
    takes_part: bool = False
    answered_at: int = 0
    needs: dict[int, Need] = field(default_factory=dict)
    _granted: deque[tuple[int, int, int]] = field(default_factory=deque)

    def check(self, demand: Demand, now: int) -> None:
        """Raise `StaleError` for a demand that is not newer than the last one (RFC 1982 for the numbers of a run)."""
        if demand.run < self.run and now - self.received_at < SILENT_NS:
            raise StaleError(f"it is of run {demand.run}, but the agent has started run {self.run} since")
        if demand.run == self.run and not 0 < (demand.sequence - self.sequence) % _SEQUENCES < _SEQUENCES // 2:
            raise StaleError(f"it has number {demand.sequence}, after number {self.sequence}")

    def follow(self, demand: Demand, wanted: list[tuple[int, int, int]], over: int) -> set[int]:
        """Take over a demand that was checked.

        Args:
            wanted: Its entries: the destination's number, bytes wanted and bytes sent.
            over: The last slot whose grants do not count any more.

        Returns:
            The destinations for which something may have changed.
        """
        changed = {destination for destination, _, _ in wanted}
        if demand.run != self.run:
            changed |= self.needs.keys()
            self.needs.clear()
            self._granted.clear()
        self.run, self.sequence = demand.run, demand.sequence
        changed.update(self._forget_granted(over))
        for destination, total, sent in wanted:
            need = self.needs.setdefault(destination, Need())
            need.wanted, need.sent = total, sent
        return changed

    def _forget_granted(self, over: int) -> Iterator[int]:
        while self._granted and self._granted[0][0] <= over:
            _, destination, budget = self._granted.popleft()
            need = self.needs.get(destination)
            if need is not None:
                need.granted = max(0, need.granted - budget)
                yield destination

    def granted(self, slot: int, destination: int, budget: int) -> None:
        """Note that a slot was granted; in the order of slots."""
        self.needs.setdefault(destination, Need()).granted += budget
        self._granted.append((slot, destination, budget))

    def forget(self) -> list[int]:
        """Forget what it has asked for and what was granted, but not which demands are old; return its destinations."""
        destinations = list(self.needs)
        self.needs.clear()
        self._granted.clear()
        self.takes_part = False
        return destinations
