"""What the labelling program has seen of a host's own packets: retransmissions and used racks (bpf/sent.h, bpf/busy.h)."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.ring_buffer import RingBuffer
from sopa_ryu.agent.paths.path_table import Label

_SLOTS = 512
_PART_BYTES = 8 * 16
"""Slots that are compared together: few of them change."""
_AGAIN = struct.Struct("=I2B2x")
_ERROR = struct.Struct("!HHB3xI")
_UNREACHABLE, _TOO_BIG = 1, 2  # RFC 4443


class SentAgain(NamedTuple):
    """A segment that was sent again: pod and number of the edge switch that its path led to, and the label that it had before."""

    rack: tuple[int, int]
    label: Label


class RouterError(NamedTuple):
    """An ICMPv6 error about a list of uSIDs, of a router on its way (RFC 4443, section 3).

    Attributes:
        router: Its uSID; 0 for this host's own edge switch.
        next: The uSID to which it could not forward.
        mtu: Of a packet that is too big: what fits; None says that there is no way.
    """

    router: int
    next: int
    mtu: int | None


class OwnTraffic:
    """The reader, for one thread.

    Args:
        again, busy, errors: Descriptors of the program's maps of these names, which stay the caller's; ``again`` is None for a
            program that does not remember packets, ``errors`` for one whose packets no router answers.

    Raises:
        BpfMapError: If the kernel refuses.
    """

    def __init__(self, again: int | None, busy: int, errors: int | None = None) -> None:
        self._ring = RingBuffer(again) if again is not None else None
        self._errors: RingBuffer | None = None
        try:
            self._errors = RingBuffer(errors) if errors is not None else None
            self._page = mmap.mmap(busy, 8 * _SLOTS, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, BpfMapError) as error:
            self._close_rings()
            if isinstance(error, BpfMapError):
                raise
            raise BpfMapError(f"cannot map the racks that packets go to: {error.strerror}") from error
        self._seen = bytes(8 * _SLOTS)

    def close(self) -> None:
        """Close it. May be repeated."""
        self._close_rings()
        self._page.close()

    def _close_rings(self) -> None:
        for ring in (self._ring, self._errors):
            if ring is not None:
                ring.close()

    @property
    def errors_fd(self) -> int:
        """What becomes readable when a router has said something; -1 if none can."""
        return -1 if self._errors is None else self._errors.fd

    def router_errors(self) -> set[RouterError]:
        """Return what routers have said since the last call."""
        found = set()
        for record in self._errors.take() if self._errors is not None else ():
            router, towards, kind, parameter = _ERROR.unpack(record)
            if kind in (_UNREACHABLE, _TOO_BIG):
                found.add(RouterError(router, towards, parameter if kind == _TOO_BIG else None))
        return found

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
        found = []
        for at in range(0, len(before), _PART_BYTES):
            now, then = self._seen[at : at + _PART_BYTES], before[at : at + _PART_BYTES]
            if now != then:
                slots = zip(memoryview(now).cast("Q"), memoryview(then).cast("Q"), strict=True)
                found += [(slot >> 8 & 0xFF, slot & 0xFF) for slot, old in slots if slot != old]
        return found
