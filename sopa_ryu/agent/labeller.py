"""The labelling program of one interface: loading, attaching, and swapping its path table."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from pathlib import Path

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.host.filters import FilterPlace, Filters
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import CFR, EGRESS, MCS, OPTION, SRV6
from sopa_ryu.agent.kernel.counters import Counters
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.own_traffic import OwnTraffic
from sopa_ryu.agent.kernel.path_maps import PathTables
from sopa_ryu.agent.label.spray import EVERYTHING, Spray
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.programs import ProbeProgram
from sopa_ryu.agent.scatter.mcs import McsOptions, McsPrograms
from sopa_ryu.agent.slots.cfr_programs import CfrPrograms
from sopa_ryu.channel.mcs import ChannelKind

ETHERNET_MTU = 1500
_OBJECTS = {Carrier.MAC: EGRESS, Carrier.OPTION: OPTION, Carrier.ID: EGRESS, Carrier.SRV6: SRV6}
_LABELS = {carrier: path.stem for carrier, path in _OBJECTS.items()}
_TAKES_IN = {Carrier.OPTION: "sopa_strip", Carrier.SRV6: "sopa_srv6_in"}
_SCATTERS, _GATHERS = "sopa_mcs", "sopa_mcs_in"
_TIMED = "sopa_cfr"
_TABLES_MAP, _ACTIVE_MAP = "path_tables", "turn"  # an agent of another release, or a killed one, knows these names


class Labeller:
    """The labelling program of one interface, loaded for as long as the context lasts, and detached at its end.

    Nothing changes on the interface before `attach`.

    Args:
        ifname: The interface.
        flows: Flows whose position is kept; beyond that the least recently used start anew. Some 100 bytes each.
        object_file: The compiled program.
        netns: Path of the interface's network namespace, such as ``/proc/PID/ns/net``; the caller's own by default.
        owns_clsact: True if a predecessor that could not clean up is known to have added the interface's clsact qdisc.
        on_clsact: Called with True before clsact is added and with False after it is removed, for keeping that knowledge.
        carrier: Where the label is written. With `Carrier.OPTION` options that come in are taken out, too.
        fabric_mtu: For carriers that make packets longer: the largest packet, in bytes, that fits through the fabric; what
            would be larger goes unlabelled.
        cut_by: The index of the segmentation device, which cuts bursts into packets; 0 if each burst has one label.
        mcs: Scatter TCP connections instead of labelling each packet in turn.
        cfr: Send TCP's data in granted slots, on the paths granted with them.
        probes: Answer probes, and take the answers to those of this host.
        spray: The flows that are labelled packet by packet; the others keep one candidate path.

    Raises:
        ValueError: For fewer flows than 1.

    Attributes:
        outer_secret: With `Carrier.SRV6`: the last half of its outer headers' source address.
        tables: While it is loaded: the two path tables, of which one is in force.
        counted: While it is loaded: what the program has counted.
        mcs: While it is loaded: what MCS needs besides.
        cfr: While it is loaded: what CFR needs besides.
        probes: While it is loaded: the program that answers probes.
        own: While it is loaded: what it has seen of the host's own packets: with MCS racks only, and None with channels of
            ports.
    """

    tables: PathTables
    counted: Counters
    mcs: McsPrograms | None = None
    cfr: CfrPrograms | None = None
    probes: ProbeProgram | None = None
    own: OwnTraffic | None = None

    def __init__(
        self,
        ifname: str,
        *,
        flows: int = AgentOptions.flows,
        object_file: Path | None = None,
        netns: str | None = None,
        owns_clsact: bool = False,
        on_clsact: Callable[[bool], None] | None = None,
        carrier: Carrier = Carrier.MAC,
        fabric_mtu: int = ETHERNET_MTU,
        cut_by: int = 0,
        mcs: McsOptions | None = None,
        cfr: bool = False,
        probes: Ends | None = None,
        spray: Spray = EVERYTHING,
    ) -> None:
        if flows < 1:
            raise ValueError(f"room for at least one flow is needed, not {flows}")
        self.ifname, self.netns = ifname, netns
        self.carrier, self.fabric_mtu, self.cut_by = carrier, fabric_mtu, cut_by
        self.outer_secret = secrets.token_bytes(8)
        self._spray = spray
        self._filters = Filters(ifname, netns, owns_clsact, on_clsact or (lambda added: None))
        self._mcs_options, self._is_timed, self._probe_ends = mcs, cfr, probes
        # MCS keeps connections instead of flows
        sizes = {"flows": flows} if mcs is None else {"flows": 1, "mcs_connections": flows, "mcs_scales": flows}
        self._egress = _TIMED if cfr else _LABELS[carrier] if mcs is None else _SCATTERS
        self._object = libbpf.Object(object_file or (CFR if cfr else _OBJECTS[carrier] if mcs is None else MCS), sizes)

    def __enter__(self) -> Labeller:
        self.load()
        return self

    def __exit__(self, *_exception: object) -> None:
        try:
            self.detach()
        finally:
            self.close()

    def load(self) -> None:
        """Load the program.

        Raises:
            AttachError: If there is no such interface.
            BpfUnavailable, BpfLoadError: If the program cannot be loaded.
        """
        self._filters.find()
        self._object.load()
        try:
            bpf_object = self._object
            if self._mcs_options is not None:
                self.mcs = McsPrograms(bpf_object, self._mcs_options, self.netns)
            follows = (self.mcs.follow,) if self.mcs is not None else ()
            self.tables = PathTables(bpf_object.map_fd(_TABLES_MAP), bpf_object.map_fd(_ACTIVE_MAP), *follows)
            self.counted = Counters(bpf_object.map_fd("counters"), bpf_object.map_fd("path_packets"))
            self.follow(self.fabric_mtu, self.cut_by)
            if self._mcs_options is None:
                libbpf.update(bpf_object.map_fd("spray"), struct.pack("=I", 0), self._spray.encode())
            if self.carrier is Carrier.SRV6:
                libbpf.update(bpf_object.map_fd("outer_secret"), struct.pack("=I", 0), self.outer_secret)
            if self._is_timed:
                self.cfr = CfrPrograms(bpf_object, self.netns)
            if self._mcs_options is None or self._mcs_options.kind is ChannelKind.PATHS:
                again = bpf_object.map_fd("again") if self._mcs_options is None else None
                errors = bpf_object.map_fd("router_errors") if self.carrier is Carrier.SRV6 else None
                self.own = OwnTraffic(again, bpf_object.map_fd("busy"), errors)
            if self._probe_ends is not None:
                self.probes = ProbeProgram(self._probe_ends)
        except BaseException:
            self._object.close()
            raise

    def close(self) -> None:
        """Close the program's descriptors; if it is attached it goes on working. May be repeated."""
        if self.mcs is not None:
            self.mcs.detach()
        if self.cfr is not None:
            self.cfr.close()
        if self.probes is not None:
            self.probes.close()
        if self.own is not None:
            self.own.close()
            self.own = None
        if self._object.loaded:
            self.tables.close()
            self._object.close()

    @property
    def program_fd(self) -> int:
        """The descriptor of the program at tc egress, which writes labels."""
        return self._object.program_fd(self._egress)

    @property
    def strip_fd(self) -> int | None:
        """The descriptor of the program at tc ingress; None if there is none.

        It takes options out, or what MCS has done, or routers' errors.
        """
        if self._mcs_options is not None:
            return self._object.program_fd(_GATHERS)
        takes_in = _TAKES_IN.get(self.carrier)
        return None if takes_in is None else self._object.program_fd(takes_in)

    def inherits(self) -> bool:
        """Return True if the interface still has the program of a killed predecessor."""
        return self._filters.inherits(FilterPlace.EGRESS)

    def attach(self) -> None:
        """Begin to label. A killed predecessor's program labels until this one replaces it.

        With a table swapped in before, no packet goes unlabelled in between.

        Raises:
            AttachError: If another program has our place, or the kernel refuses.
        """
        self._filters.attach(
            {
                FilterPlace.PROBES: None if self.probes is None else self.probes.program_fd,
                FilterPlace.INGRESS: self.strip_fd,
                FilterPlace.EGRESS: self.program_fd,
            }
        )
        if self.mcs is not None:
            self.mcs.attach()  # TCP leaves room once there is what fills it
        if self.cfr is not None:
            self.cfr.attach()

    def is_attached(self) -> bool:
        """Return True if what `attach` has attached is still there, and False if another program has removed or replaced it.

        Raises:
            AttachError: If the kernel refuses the question.
        """
        return self._filters.are_attached(FilterPlace.INGRESS, FilterPlace.EGRESS) and (self.mcs is None or self.mcs.is_attached())

    def answers_probes(self) -> bool:
        """Return False if another program has removed the one that answers probes; `AttachError` if the kernel refuses."""
        return self._filters.are_attached(FilterPlace.PROBES)

    def attach_probes(self) -> None:
        """Attach that one again; errors as of `attach`."""
        if self.probes is not None:
            self._filters.attach({FilterPlace.PROBES: self.probes.program_fd})

    def stop_scattering(self) -> None:
        """With MCS: send packets as TCP makes them, and go on taking in what others scatter."""
        if self.mcs is None:
            return
        self.mcs.detach()
        self._filters.detach_one(FilterPlace.EGRESS)

    def follow(self, fabric_mtu: int, cut_by: int) -> None:
        """Note another MTU of the fabric, in bytes, for carriers that make packets longer, and another segmentation device."""
        self.fabric_mtu, self.cut_by = fabric_mtu, cut_by
        only = struct.pack("=I", 0)
        with inside(self.netns):  # where the kernel looks for the device
            libbpf.update(self._object.map_fd("cut_by"), only, struct.pack("=I", cut_by))
        if self.carrier.overhead:
            libbpf.update(self._object.map_fd("fabric_mtu"), only, struct.pack("=I", fabric_mtu))

    def detach(self) -> None:
        """Stop labelling: remove our filters, and clsact if an agent added it and no other filter uses it. May be repeated."""
        if self.mcs is not None:
            self.mcs.detach()
        if self.cfr is not None:
            self.cfr.detach()
        self._filters.detach()

    def swap(self, table: PathTable) -> None:
        """Put a path table in force: `PathTables.swap`."""
        self.tables.swap(table)

    def counters(self) -> dict[str, int]:
        """Return the packets since loading by `Reason`, in lower case: ``{"labelled": 12, "not_ipv4": 1, ...}``."""
        return {reason.name.lower(): packets for reason, packets in self.counted.by_reason().items()}

    def strip(self, frame: bytes, *, repeat: int = 1) -> libbpf.RunOutcome:
        """Run the ingress program on a frame (BPF_PROG_TEST_RUN), with `Carrier.OPTION`, `Carrier.SRV6` or MCS only."""
        if self.strip_fd is None:
            raise ValueError("only the carriers option and srv6, and MCS, have an ingress program")
        return libbpf.run_program(self.strip_fd, frame, repeat=repeat)

    def run(self, frame: bytes, *, repeat: int = 1, gso_segments: int = 0) -> libbpf.RunOutcome:
        """Run the program on a frame without sending it (BPF_PROG_TEST_RUN); it counts, and flows advance."""
        return libbpf.run_program(self.program_fd, frame, repeat=repeat, gso_segments=gso_segments)
