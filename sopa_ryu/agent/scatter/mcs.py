"""What MCS needs besides its programs at tc: their settings, the hosts to scatter to, room in TCP's headers, the clean-up."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from enum import IntFlag
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.netns import cookie, inside
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.agent.scatter.mcs_peers import Use
from sopa_ryu.agent.scatter.mcs_room import OTHERS, ROOM
from sopa_ryu.channel import mcs
from sopa_ryu.channel.mcs import ChannelKind, Variant

IDLE_NS = 1_000_000_000
"""A connection's state is removed after so long without a packet (paper, section IV.G)."""
DEFAULT_PATIENCE_US = 20_000
"""As PATIENCE_US of bpf/mcs_algorithms.h."""
_SETTINGS = struct.Struct("=BBHIQII")  # struct mcs_settings of bpf/mcs_option.h
_SWEEP, _ETHERNET = struct.Struct("=QII"), 14
_KINDS = (ChannelKind.PATHS, ChannelKind.PORTS)  # enum channel_kind


class Without(IntFlag):
    """The part of MCS that is left out, for comparison (enum mcs_without of bpf/mcs.h)."""

    NOTHING = 0
    WINDOW = 1
    """Windows are not lowered."""
    FILTER = 2
    """Duplicate ACKs are sent."""


class McsOptions(NamedTuple):
    """The options of the policy ``mcs``.

    Args:
        kind: What is different between channels.
        without: What is left out.
        patience_us: Microseconds after which data that is missing before later data counts as lost.
        forwarded: Connections of containers are scattered, too: of sockets in all network namespaces without MCS of their own.
    """

    channels: int = mcs.DEFAULT_CHANNELS
    kind: ChannelKind = ChannelKind.PATHS
    without: Without = Without.NOTHING
    patience_us: int = DEFAULT_PATIENCE_US
    forwarded: bool = False

    @property
    def variant(self) -> Variant:
        """The hosts that name the same are scattered to."""
        return Variant(mcs.VERSION, self.kind)


class McsPrograms:
    """The programs of an object that is loaded, apart from those at tc.

    Args:
        loaded: Its descriptors stay the caller's.
        netns: Path of the interface's network namespace, whose sockets get room for the option.

    Attributes:
        connections: The connections that had a state at the last clean-up.
    """

    def __init__(self, loaded: libbpf.Object, options: McsOptions, netns: str | None) -> None:
        self.connections = 0
        self._object = loaded
        self._served: list[int] = []  # cookies of namespaces
        self._options, self._networks = options, (0, 0)
        self._noted: dict[IPv4Address, Use] = {}
        with inside(netns):
            self._namespace = cookie()
        self._write_settings()

    def follow(self, table: PathTable) -> None:
        """Tell hosts of the fabric by the addresses that a path table has for them.

        Raises:
            BpfMapError: If the kernel refuses.
        """
        networks = table.prefix_bits, int(table.network.network_address)
        if networks != self._networks:
            self._networks = networks
            self._write_settings()

    def _write_settings(self) -> None:
        its = self._options
        settings = _SETTINGS.pack(its.channels, _KINDS.index(its.kind), its.without, its.patience_us, *self._networks, 0)
        libbpf.update(self._object.map_fd("mcs_settings"), struct.pack("=I", 0), settings)

    def attach(self) -> None:
        """Let TCP leave room for the option in headers. The kernel ends this with the process. May be repeated.

        Raises:
            AttachError: If another interface has MCS for these sockets, or the kernel refuses.
        """
        for namespace in [self._namespace, *[OTHERS] * self._options.forwarded]:
            ROOM.leave(namespace, self._object.map_fd("mcs_hosts"), self._object.map_fd("mcs_settings"))
            if namespace not in self._served:
                self._served.append(namespace)

    def is_attached(self) -> bool:
        """Return False if another program has ended what `attach` has begun."""
        return not self._served or ROOM.is_left()

    def detach(self) -> None:
        """End that: TCP writes headers as ever. May be repeated."""
        while self._served:
            ROOM.end(self._served.pop())

    def note(self, uses: Mapping[IPv4Address, Use]) -> None:
        """Write what may be done with which host; those that are not named are unknown.

        Raises:
            BpfMapError: If the kernel has no room.
        """
        hosts = self._object.map_fd("mcs_hosts")
        for host in self._noted.keys() - uses.keys():
            libbpf.delete(hosts, _key(host))
            del self._noted[host]
        for host, use in uses.items():
            if self._noted.get(host) is not use:
                libbpf.update(hosts, _key(host), struct.pack("=I", use))
                self._noted[host] = use

    @property
    def hosts(self) -> int:
        """The number of hosts that packets are scattered to."""
        return sum(use is Use.SCATTERS for use in list(self._noted.values()))

    @property
    def knows_hosts(self) -> bool:
        """True if any host may scatter to this one."""
        return bool(self._noted)

    def sweep(self) -> None:
        """Remove the state of connections that have been idle.

        Raises:
            BpfError: If the kernel refuses.
        """
        _, self.connections = sweep(self._object.program_fd("sopa_mcs_sweep"), max(0, time.monotonic_ns() - IDLE_NS))


def sweep(program: int, before_ns: int) -> tuple[int, int]:
    """Remove the connections without a packet since a time of CLOCK_MONOTONIC; return how many, and how many are left.

    Raises:
        BpfError: If the kernel refuses.
    """
    done = libbpf.run_program(program, bytes(_ETHERNET) + _SWEEP.pack(before_ns, 0, 0))
    _, removed, left = _SWEEP.unpack(done.data[_ETHERNET:])
    return removed, left


def _key(host: IPv4Address) -> bytes:
    return struct.pack("=I", int(host))
