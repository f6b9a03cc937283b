"""What the labelling program has seen of a host's own packets: retransmissions and used racks (bpf/sent.h, bpf/busy.h)."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.ring_buffer import RingBuffer
from sopa_ryu.agent.paths.path_table import Label

_SLOTS = 512
_AGAIN = struct.Struct("=I2B2x")


class SentAgain(NamedTuple):
    """A segment that was sent again: pod and number of the edge switch that its path led to, and the label that it had before."""

    rack: tuple[int, int]
    label: Label


class OwnTraffic:
    """The reader, for one thread.

    Args:
        again, busy: Descriptors of the program's maps of these names, which stay the caller's; ``again`` is None for a program
            that does not remember packets.

    Raises:
        BpfMapError: If the kernel refuses.
    """

    def __init__(self, again: int | None, busy: int) -> None:
        self._ring = RingBuffer(again) if again is not None else None
        try:
            self._page = mmap.mmap(busy, 8 * _SLOTS, mmap.MAP_SHARED, mmap.PROT_READ)
        except OSError as error:
            if self._ring is not None:
                self._ring.close()
            raise BpfMapError(f"cannot map the racks that packets go to: {error.strerror}") from error
        self._seen = bytes(8 * _SLOTS)

    def close(self) -> None:
        """Close it. May be repeated."""
        if self._ring is not None:
            self._ring.close()
        self._page.close()

    def sent_again(self) -> list[SentAgain]:
        """Return the retransmissions since the last call, as far as the ring had room for them."""
        found = []
        for record in self._ring.take() if self._ring is not None else ():
            address, up1, up2 = _AGAIN.unpack(record)
            found.append(SentAgain((address >> 16 & 0xFF, address >> 8 & 0xFF), (up1, up2)))
        return found

    def busy(self) -> list[tuple[int, int]]:
        """Return the racks to which packets were sent since the last call, each as its pod and its edge switch's number."""
        before, self._seen = self._seen, self._page[:]
        if before == self._seen:
            return []
        slots = zip(memoryview(self._seen).cast("Q"), memoryview(before).cast("Q"), strict=True)
        return [(now >> 8 & 0xFF, now & 0xFF) for now, then in slots if now != then]
