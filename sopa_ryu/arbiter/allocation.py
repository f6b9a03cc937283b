"""Slots and paths for hosts' demands: the arbiter's library (``allocator/arbiter.h``) for Python."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Iterable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint32, c_uint64, c_void_p
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from sopa_ryu.arbiter.budgets import Capacities
from sopa_ryu.arbiter.build import LIBRARY

NO_HOP = 0xFF
MAX_BATCH = 64
MAX_CELLS = (1 << 32) - 1
"""The largest demand; more is as good as this."""
_GRANT = struct.Struct("=IIHBB")
_DEMAND = struct.Struct("=III")


class Order(StrEnum):
    """In which order demands get slots."""

    MIN_MAX_MIN = "min-max-min"
    """The smallest and the largest in turn, as in the paper."""
    ALTERNATING = "alternating"
    """The smallest first in one batch, the largest first in the next."""
    SMALLEST = "smallest"
    """The smallest first. Large demands can starve."""


class Paths(StrEnum):
    """How paths are found."""

    COLOURING = "colouring"
    """Without conflict, wherever links are even."""
    NEXT_FIT_GA = "next-fit-ga"
    """By next fit with a genetic algorithm, as section 4.2 of the paper has it: many cells find none and wait."""
    NEXT_FIT = "next-fit"
    """By next fit, racks by decreasing demand."""
    FIRST_FIT = "first-fit"
    """By first fit, as the paper's algorithm 3 prints it."""
    FIRST_FIT_GA = "first-fit-ga"
    """By first fit with the genetic algorithm."""


class Cell(NamedTuple):
    """A cell that may be sent in a slot.

    Args:
        source, destination: Hosts, in the order of addresses (`sopa_ryu.arbiter.budgets.host_index`).
        slot: Of the batch, from 0 on.
        up1, up2: The path as in a label; `NO_HOP` for a hop that is not taken.
    """

    source: int
    destination: int
    slot: int
    up1: int
    up2: int


class Statistics(NamedTuple):
    """What has been allocated so far.

    Args:
        granted: Cells.
        unplaced: Cells that had a slot, but no path: they stay demanded.
    """

    slots: int
    granted: int
    unplaced: int


class AllocationError(ValueError):
    """The library refuses what it was asked for, or is not there; the text says why."""


class Allocation:
    """Demands of hosts, and the slots and paths that they get.

    Args:
        capacities: What links carry, as of `sopa_ryu.arbiter.budgets.capacities`.
        batch: Slots that are allocated at a time, 1 to `MAX_BATCH`.
        seed: Decides what is left to chance; the same calls with the same seed have the same results.

    Raises:
        AllocationError: If the capacities or the batch are not possible, or the library is not built.

    >>> from sopa_ryu.arbiter.budgets import capacities
    >>> from topologies import FatTree, Failures
    >>> its = Allocation(capacities(Failures(FatTree(4))), batch=2)
    >>> its.demand([(0, 1, 5)])
    >>> its.batch()
    [Cell(source=0, destination=1, slot=0, up1=255, up2=255), Cell(source=0, destination=1, slot=1, up1=255, up2=255)]
    >>> its.statistics()
    Statistics(slots=2, granted=2, unplaced=0)
    """

    def __init__(
        self,
        capacities: Capacities,
        *,
        order: Order = Order.MIN_MAX_MIN,
        paths: Paths = Paths.COLOURING,
        batch: int = 4,
        seed: int = 1,
    ) -> None:
        self._library = _library()
        self.slots = batch
        self._arbiter = self._library.sopa_arbiter_new(
            _fabric(capacities), list(Order).index(order), list(Paths).index(paths), batch, seed
        )
        if not self._arbiter:
            raise self._error()
        weakref.finalize(self, self._library.sopa_arbiter_free, self._arbiter)

    def follow(self, capacities: Capacities) -> None:
        """Go on with other capacities of the same fabric."""
        self._check(self._library.sopa_arbiter_follow(self._arbiter, _fabric(capacities)))

    def demand(self, demands: Iterable[tuple[int, int, int]]) -> None:
        """Set what is left to send, from the next batch on.

        Args:
            demands: Source, destination and cells; 0 cells removes the demand. Those before one that is refused are set.
        """
        try:
            entries = b"".join(_DEMAND.pack(*pair, min(cells, MAX_CELLS)) for *pair, cells in demands)
        except struct.error as error:
            raise AllocationError(f"hosts and cells must not be negative: {error}") from error
        count = len(entries) // _DEMAND.size
        self._check(self._library.sopa_arbiter_demand(self._arbiter, entries, count))

    def reserve(self, host: int, sending: int, receiving: int) -> None:
        """Leave so many cells of a host's link free in the next batch, for traffic that asks for no slots."""
        self._check(self._library.sopa_arbiter_reserve(self._arbiter, host, sending, receiving))

    def batch(self) -> list[Cell]:
        """Allocate the next batch, by slots; what is granted is taken off the demands."""
        granted = c_void_p()
        count = self._library.sopa_arbiter_batch(self._arbiter, ctypes.byref(granted))
        self._check(count)
        return list(map(Cell._make, _GRANT.iter_unpack(ctypes.string_at(granted, count * _GRANT.size))))

    def statistics(self) -> Statistics:
        """Return what has been allocated so far."""
        counts = (c_uint64 * len(Statistics._fields))()
        self._library.sopa_arbiter_statistics(self._arbiter, counts)
        return Statistics(*counts)

    def _check(self, result: int) -> None:
        if result < 0:
            raise self._error()

    def _error(self) -> AllocationError:
        return AllocationError(self._library.sopa_arbiter_error().decode())


class _Fabric(ctypes.Structure):
    _fields_ = (
        ("pods", c_uint32),
        ("edges", c_uint32),
        ("aggregations", c_uint32),
        ("cores", c_uint32),
        ("hosts", c_uint32),
        ("host", c_char_p),
        ("edge_uplink", c_char_p),
        ("aggregation_uplink", c_char_p),
    )


def _fabric(capacities: Capacities) -> _Fabric:
    shape = capacities.shape
    racks = shape.pods * shape.edges
    lengths = (racks * shape.hosts, racks * shape.aggregations, shape.pods * shape.cores)
    if tuple(map(len, capacities[1:])) != lengths:
        raise AllocationError(f"a fabric of {shape} has {lengths} links, not {tuple(map(len, capacities[1:]))}")
    return _Fabric(*shape, capacities.host, capacities.edge_uplink, capacities.aggregation_uplink)


@cache
def _library() -> ctypes.CDLL:
    if not LIBRARY.exists():
        raise AllocationError(f"{LIBRARY} has not been built: python -m sopa_ryu.arbiter.build")
    library = ctypes.CDLL(str(LIBRARY))
    for name, result, arguments in (
        ("new", c_void_p, (POINTER(_Fabric), c_uint32, c_uint32, c_uint32, c_uint64)),
        ("free", None, (c_void_p,)),
        ("follow", c_int, (c_void_p, POINTER(_Fabric))),
        ("demand", c_int, (c_void_p, c_char_p, c_uint32)),
        ("reserve", c_int, (c_void_p, c_uint32, c_uint32, c_uint32)),
        ("batch", c_int64, (c_void_p, POINTER(c_void_p))),
        ("statistics", None, (c_void_p, POINTER(c_uint64))),
        ("error", c_char_p, ()),
    ):
        function = library[f"sopa_arbiter_{name}"]
        function.restype, function.argtypes = result, arguments
        setattr(library, f"sopa_arbiter_{name}", function)
    return library
