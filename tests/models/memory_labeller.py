"""The agent's kernel side in memory: an interface with its place for a program, and programs with two path tables."""

from __future__ import annotations

import asyncio

from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.paths.path_table import PathTable
from tests.models.virtual_clock import VirtualLoop


class MemoryInterface:
    """An interface: the program attached to it labels, also after its agent was killed.

    Attributes
    ----------
    attached : MemoryLabeller or None
    history : list of PathTable or None
        Every table by which packets were labelled, in order; None where they went unlabelled.
    overlaps : int
        How often two threads have used a program's path tables at the same time.
    """

    def __init__(self) -> None:
        self.attached: MemoryLabeller | None = None
        self.history: list[PathTable | None] = [None]
        self.overlaps = 0

    @property
    def in_force(self) -> PathTable | None:
        """The table by which packets are labelled now; None if they are not."""
        return self.attached.tables.active if self.attached else None

    def note(self) -> None:
        """Remember the table that is in force, if it is another than before."""
        if self.in_force != self.history[-1]:
            self.history.append(self.in_force)


class MemoryTables:
    """Two path tables: one is in force, the other must be free of readers before it is filled.

    Attributes
    ----------
    refusals : int
        How many of the next loads the kernel refuses.
    """

    def __init__(self, interface: MemoryInterface) -> None:
        self.active: PathTable | None = None
        self.refusals = 0
        self.settled = 0
        self._interface = interface
        self._readers_left = True

    def ready_for(self, table: PathTable) -> bool:
        return not self._readers_left

    def swap(self, table: PathTable) -> None:
        self._note_overlap()
        if self.refusals:
            self.refusals -= 1
            raise BpfMapError("cannot create map path_table of 64 entries: Cannot allocate memory")
        self.active = table
        self._readers_left = True
        self._interface.note()

    def settle(self) -> None:
        self._note_overlap()
        if self.refusals:
            raise BpfMapError("cannot create map path_table of 64 entries: Cannot allocate memory")
        self._readers_left = False
        self.settled += 1

    def _note_overlap(self) -> None:
        loop = asyncio.get_running_loop()
        self._interface.overlaps += isinstance(loop, VirtualLoop) and loop.in_threads > 0


class MemoryLabeller:
    """The labelling program of an interface, as `Labeller` has it."""

    def __init__(self, interface: MemoryInterface) -> None:
        self.tables = MemoryTables(interface)
        self._interface = interface

    def inherits(self) -> bool:
        return self._interface.attached is not None

    def attach(self) -> None:
        self._interface.attached = self
        self._interface.note()

    def detach(self) -> None:
        self._interface.attached = None
        self._interface.note()
