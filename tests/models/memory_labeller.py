"""The agent's kernel side in memory: an interface with its place for a program, and programs with two path tables."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv4Address

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.follower import Follower
from sopa_ryu.agent.host.mending import InterfaceAway, Part
from sopa_ryu.agent.host_agent import HostAgent
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel.changes import InterfaceChange
from sopa_ryu.agent.kernel.libbpf import AttachError, BpfError, BpfMapError
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.agent.scatter.mcs_peers import McsPeers, Use
from tests.models.virtual_clock import VirtualLoop


class MemoryInterface:
    """An interface: the program attached to it labels, also after its agent was killed."""

    def __init__(self) -> None:
        self.attached: MemoryLabeller | None = None
        self.history: list[PathTable | None] = [None]  # by which packets were labelled; None where they went unlabelled
        self.overlaps = 0  # of two threads that have used a program's path tables at the same time
        self.away, self.removed = "", False
        self.wrong: dict[Part, str] = {}
        self.listeners: list[MemoryChanges] = []

    def notify(self, change: InterfaceChange) -> None:
        for changes in self.listeners:
            changes.arrive(change)

    def remove_program(self) -> None:
        """Another program removes the labelling program; the history does not show it."""
        self.attached = None
        self.removed = True
        self.notify(InterfaceChange.TRAFFIC_CONTROL)

    @property
    def in_force(self) -> PathTable | None:
        return self.attached.tables.active if self.attached else None

    def note(self) -> None:
        """Remember the table that is in force, if it is another than before; not that another program removed it."""
        if self.removed:
            return
        if self.in_force != self.history[-1]:
            self.history.append(self.in_force)


class MemoryTables:
    """Two path tables: one is in force, the other must be free of readers before it is filled."""

    def __init__(self, interface: MemoryInterface) -> None:
        self.active: PathTable | None = None
        self.refusals = 0  # how many of the next loads the kernel refuses
        self._interface, self._readers_left = interface, True

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

    def _note_overlap(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # in a thread of its own, as on a real loop
            return
        if isinstance(loop, VirtualLoop):
            self._interface.overlaps += any(getattr(call, "__self__", None) is self for call in loop.in_threads)


class MemoryScattering:
    """What MCS needs besides, as `McsPrograms` has it."""

    def __init__(self) -> None:
        self.uses: dict[IPv4Address, Use] = {}
        self.before: dict[IPv4Address, Use] | None = None  # what they were when the programs were attached
        self.sweeps = 0
        self.refusals = self.sweep_refusals = 0  # the kernel refuses so many of the next changes, and sweeps

    def note(self, uses: Mapping[IPv4Address, Use]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise BpfMapError("cannot write a map element: Cannot allocate memory")
        self.uses = dict(uses)

    def sweep(self) -> None:
        self.sweeps += 1
        if self.sweep_refusals:
            self.sweep_refusals -= 1
            raise BpfError("cannot run the program on its context: Cannot allocate memory")


class MemoryLabeller:
    """The labelling program of an interface, as `Labeller` has it."""

    def __init__(self, interface: MemoryInterface, mcs: MemoryScattering | None = None) -> None:
        self.mcs, self.tables, self.refusals = mcs, MemoryTables(interface), 0
        self._interface, self._was_attached = interface, False

    def is_attached(self) -> bool:
        return not self._was_attached or self._interface.attached is self

    def answers_probes(self) -> bool:
        return Part.PROBES not in self._interface.wrong

    def attach_probes(self) -> None:
        del self._interface.wrong[Part.PROBES]

    def follow(self, fabric_mtu: int, cut_by: int) -> None:
        pass

    def inherits(self) -> bool:
        return self._interface.attached is not None

    def attach(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise AttachError("host0 has another program, foreign, at egress priority 10")
        self._was_attached = True
        self._interface.removed = False
        self._interface.attached = self
        self._interface.note()
        if self.mcs is not None:
            self.mcs.before = dict(self.mcs.uses)

    def detach(self) -> None:
        self._interface.removed = False
        self._interface.attached = None
        self._interface.note()


class MemoryChanges:
    """The notifications of an interface, as `Changes` has them."""

    def __init__(self, interface: MemoryInterface) -> None:
        self._arrived = asyncio.Event()
        self._pending = InterfaceChange.NOTHING
        interface.listeners.append(self)

    def arrive(self, change: InterfaceChange) -> None:
        self._pending |= change
        self._arrived.set()

    def take(self, *ifindexes: int) -> InterfaceChange:
        pending, self._pending = self._pending, InterfaceChange.NOTHING
        self._arrived.clear()
        return pending

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for of Python 3.11 may swallow a cancellation
                await self._arrived.wait()


class MemoryPlace:
    """The interface that was taken, as `Place` has it."""

    ifindex = 2

    def __init__(self, interface: MemoryInterface, address: IPv4Address) -> None:
        self.interface, self.address, self._interface = "host0", address, interface

    def check(self) -> None:
        if self._interface.away:
            raise InterfaceAway(self._interface.away)

    def check_address(self) -> None:
        self.check()


class MemorySettings:
    """What is set for labelling, as `HostSettings` has it."""

    fabric_mtu, cut_by = 1500, 3

    def __init__(self, interface: MemoryInterface) -> None:
        self._interface, self.reads = interface, 0

    def changed(self) -> dict[Part, str]:
        self.reads += 1
        return {part: text for part, text in self._interface.wrong.items() if part is not Part.PROBES}

    def mend(self) -> None:
        for part in [part for part in self._interface.wrong if part is not Part.PROBES]:
            del self._interface.wrong[part]


def host_agent(
    interface: MemoryInterface, address: IPv4Address, options: AgentOptions, mcs: MemoryScattering | None = None
) -> HostAgent:
    """Return an agent of an interface, whose program is loaded and not attached yet."""
    peers = McsPeers(address, options.mcs.kind) if options.mcs is not None else None
    follower = Follower(address, options.controllers, seed=options.seed, peers=peers)
    labeller, place = MemoryLabeller(interface, mcs), MemoryPlace(interface, address)
    keeper = Keeper(place, labeller, MemorySettings(interface), MemoryChanges(interface), Counter())
    return HostAgent(Interface("host0"), options, follower, labeller, keeper)
