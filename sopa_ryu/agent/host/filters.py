"""The agent's filters at tc of one interface: their places, a killed predecessor's, putting them there and taking them away."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from enum import Enum

from pyroute2 import IPRoute

from sopa_ryu.agent.kernel import libbpf, link_attributes, tc
from sopa_ryu.agent.kernel.libbpf import AttachError
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.tc import Point

# Fixed: a successor finds a killed agent's filters by them. Below the usual 49152, as a filter before ours may end the list.
HANDLE, PRIORITY, PROBE_PRIORITY = 0x9E04, 10, 9
_CLSACT_PARENTS = (0xFFFFFFF2, 0xFFFFFFF3)  # ingress, egress


class FilterPlace(Enum):
    """A place for one program: point, priority, and the names of programs of any release that are agents' there."""

    EGRESS = Point.EGRESS, PRIORITY, ("sopa_egress", "sopa_option", "sopa_srv6", "sopa_mcs", "sopa_cfr")
    """What labels."""
    INGRESS = Point.INGRESS, PRIORITY, ("sopa_strip", "sopa_mcs_in", "sopa_srv6_in")
    """What takes out again, or takes routers' errors."""
    PROBES = Point.INGRESS, PROBE_PRIORITY, ("sopa_probe",)
    """What turns probes round: before the former, so that it sees them as they came."""

    def __init__(self, point: Point, priority: int, names: tuple[str, ...]) -> None:
        self.point, self.priority, self.names = point, priority, names


class Filters:
    """The filters of one interface.

    Args:
        netns: Path of the interface's network namespace; the caller's own by default.
        owns_clsact: True if a predecessor that could not clean up is known to have added the interface's clsact qdisc.
        on_clsact: Called with True before clsact is added and with False after it is removed.
    """

    def __init__(self, ifname: str, netns: str | None, owns_clsact: bool, on_clsact: Callable[[bool], None]) -> None:
        self.ifname, self.netns = ifname, netns
        self.ifindex = 0
        self._owns_clsact, self._on_clsact = owns_clsact, on_clsact
        self._attached: dict[FilterPlace, int] = {}

    def find(self) -> None:
        """Find the interface; `AttachError` if there is none."""
        with inside(self.netns):
            try:
                self.ifindex = socket.if_nametoindex(self.ifname)
            except OSError as error:
                raise AttachError(f"no interface {self.ifname} in {self.netns or 'this network namespace'}") from error

    def inherits(self, place: FilterPlace) -> bool:
        """Return True if a killed predecessor's program is there."""
        with inside(self.netns):
            return self._there(place)[1] in place.names

    def attach(self, wanted: Mapping[FilterPlace, int | None]) -> None:
        """Put programs into their places, each without a gap where a predecessor's is, and remove those of places without one.

        Raises:
            AttachError: If another program has one of the places, or the kernel refuses.
        """
        with inside(self.netns):
            there = {place: self._own(place) for place in wanted}
            if not _clsact_present(self.ifindex):
                self._on_clsact(True)
                self._owns_clsact = tc.create_clsact(self.ifindex)
                if not self._owns_clsact:  # another program was faster
                    self._on_clsact(False)
            for place, program in wanted.items():
                if program is not None:
                    tc.attach(
                        self.ifindex, program, handle=HANDLE, priority=place.priority, replace=there[place], point=place.point
                    )
                    self._attached[place] = self._there(place)[0] or 0
                elif there[place]:  # of a predecessor with other options
                    self._remove(place)

    def are_attached(self, *places: FilterPlace) -> bool:
        """Return False if another program has removed or replaced what `attach` has put there.

        Raises:
            AttachError: If the kernel refuses the question.
        """
        with inside(self.netns):
            return all(self._there_id(place) == self._attached[place] for place in places if place in self._attached)

    def detach_one(self, place: FilterPlace) -> None:
        """Remove the filter in one place, if it is an agent's."""
        self._attached.pop(place, None)
        with inside(self.netns):
            if link_attributes.alive(self.ifindex) and self._there(place)[1] in place.names:
                self._remove(place)

    def detach(self) -> None:
        """Remove all of them, and clsact if an agent added it and no other filter uses it. May be repeated."""
        self._attached.clear()
        with inside(self.netns):
            if not link_attributes.alive(self.ifindex):
                return  # its filters went with it
            for place in FilterPlace:
                if self._there(place)[1] in place.names:
                    self._remove(place)
            if self._owns_clsact and not _filters_left(self.ifindex):
                tc.destroy_clsact(self.ifindex)
                self._owns_clsact = False
                self._on_clsact(False)

    def _own(self, place: FilterPlace) -> bool:
        """Return True if a predecessor's program is there; `AttachError` if it is a foreign one."""
        identifier, name = self._there(place)
        if identifier is not None and name not in place.names:
            side = place.point.name.lower()
            raise AttachError(
                f"{self.ifname} has another program, {name or identifier}, at {side} priority {place.priority}, handle "
                f"{HANDLE:#x}: remove it with tc filter del dev {self.ifname} {side} prio {place.priority}"
            )
        return identifier is not None

    def _there_id(self, place: FilterPlace) -> int | None:
        """Return the id of the program in a place, in the calling thread's network namespace."""
        return tc.attached(self.ifindex, handle=HANDLE, priority=place.priority, point=place.point)

    def _there(self, place: FilterPlace) -> tuple[int | None, str]:
        """Return the id and the name of that program."""
        identifier = self._there_id(place)
        return identifier, "" if identifier is None else libbpf.program_name(identifier)

    def _remove(self, place: FilterPlace) -> None:
        tc.detach(self.ifindex, handle=HANDLE, priority=place.priority, point=place.point)


def _clsact_present(ifindex: int) -> bool:
    """Return True if the interface of the calling thread's namespace has a clsact qdisc."""
    with IPRoute() as route:
        return any(qdisc.get_attr("TCA_KIND") == "clsact" for qdisc in route.get_qdiscs(index=ifindex))


def _filters_left(ifindex: int) -> bool:
    with IPRoute() as route:
        return any(True for parent in _CLSACT_PARENTS for _ in route.get_filters(index=ifindex, parent=parent))
