"""The eBPF programs of MCS, loaded and attached to nothing, and the state of their connections."""

import struct
from collections import Counter
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Network

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import MCS
from sopa_ryu.agent.kernel.counters import Counters
from sopa_ryu.agent.kernel.libbpf import Object
from sopa_ryu.agent.kernel.path_maps import PathTables
from sopa_ryu.agent.paths.path_table import PathTable
from sopa_ryu.agent.scatter.mcs import sweep
from tests.bpf.mcs_frames import MTU, Kind
from tests.bpf.mcs_reference import DEFAULT_CHANNELS, Connection, Key, Verdict
from tests.helpers.frames import PREFIX, table
from topologies.structure import FABRIC_NETWORK

VERDICTS = {0xFFFFFFFF: Verdict.PASS, 4: Verdict.DROP}  # TC_ACT_UNSPEC, TC_ACT_STOLEN
ONLY = struct.pack("=I", 0)
SCATTERS, ACCEPTS = 1, 2  # enum host_use
SETTINGS, KEY = struct.Struct("=BBHIQII"), struct.Struct("=IIII")
WITHOUT_WINDOW, WITHOUT_FILTER = 1, 2
STATE = struct.Struct("=IIIIQIIHHHHBBBBIIHHHxxIQ16I16I")
GAP, SEEN = slice(60, 64), slice(64, 72)
NEVER_US, ALWAYS_US = 0xFFFFFFFF, 1
"""Patience that does not depend on how fast the tests run."""
NAMES = "lock nsn msn ws skv wv fv cb ab alpha mss cc scale flags rp lan rsn rb rcb initialised gap seen"
LISTS = [f"{name}{channel}" for name in ("nlsn", "expected") for channel in range(16)]
UNKNOWN_SCALE = 0xFF
SCALE = struct.Struct("=BBxx")


def vector(values: list[int], bits: int) -> int:
    return sum(value << bits * channel for channel, value in enumerate(values))


def pack(its: Connection) -> bytes:
    """Return the bytes of ``struct mcs_connection`` (bpf/mcs.h); of times only whether there is one, and not of the last packet."""
    bits = (its.slow_start, its.loss, its.lan is not None, its.closed_out, its.closed_in, its.resent)
    return STATE.pack(
        0, its.nsn, its.msn, its.ws, vector(its.skv, 4), vector(its.wv, 2), vector(its.fv[: its.channels], 2),
        its.cb, its.ab, its.alpha, its.mss, its.cc, UNKNOWN_SCALE if its.scale is None else its.scale,
        vector([*map(int, bits)], 1), its.rp, its.lan or 0, its.rsn, its.rb, its.rcb,
        vector([each is not None for each in its.expected], 1), its.gap_since is not None, 0,
        *its.nlsn, *(each or 0 for each in its.expected),
    )  # fmt: skip


def named(state: bytes) -> dict[str, int]:
    """The parts of a ``struct mcs_connection``, by the reference's names."""
    return dict(zip(NAMES.split() + LISTS, STATE.unpack(state), strict=True))


class Programs(ExitStack):
    """The programs of one host."""

    def __init__(self, capacity: int = 1024) -> None:
        super().__init__()
        self._object = its = self.enter_context(Object(MCS, {"mcs_connections": capacity}))
        self._out, self._in, self._sweep = map(its.program_fd, ("sopa_mcs", "sopa_mcs_in", "sopa_mcs_sweep"))
        self._connections, self._scales, self.busy = map(its.map_fd, ("mcs_connections", "mcs_scales", "busy"))
        self._counters = Counters(its.map_fd("counters"), its.map_fd("path_packets"))
        self._counted = Counter[str]()
        self._tables = PathTables(its.map_fd("path_tables"), its.map_fd("turn"))
        self.callback(self._tables.close)
        libbpf.update(its.map_fd("fabric_mtu"), ONLY, struct.pack("=I", MTU))
        self.set()

    def set(
        self, channels: int = DEFAULT_CHANNELS, kind: Kind = Kind.PATHS, *, filtering: bool = True, regulating: bool = True,
        patience_us: int = NEVER_US, prefix: IPv6Network | None = PREFIX,
    ) -> None:  # fmt: skip
        without = (not regulating) * WITHOUT_WINDOW | (not filtering) * WITHOUT_FILTER
        networks = table()._replace(prefix=prefix).prefix_bits, int(FABRIC_NETWORK.network_address)
        settings = SETTINGS.pack(channels, kind.value, without, patience_us, *networks, 0)
        libbpf.update(self._object.map_fd("mcs_settings"), ONLY, settings)

    def add_peer(self, address: str, use: int = SCATTERS) -> None:
        key = struct.pack("=I", int(IPv4Address(address)))
        libbpf.update(self._object.map_fd("mcs_hosts"), key, struct.pack("=I", use))

    def swap(self, table: PathTable) -> None:
        self._tables.swap(table)

    def egress(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0, repeat: int = 1) -> tuple[Verdict, bytes]:
        out = libbpf.run_program(self._out, frame, gso_size=gso_size, gso_segments=gso_segments, repeat=repeat)
        return VERDICTS[out.retval], out.data

    def ingress(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0, repeat: int = 1) -> bytes:
        out = libbpf.run_program(self._in, frame, gso_size=gso_size, gso_segments=gso_segments, repeat=repeat)
        assert VERDICTS[out.retval] is Verdict.PASS
        return out.data

    def state(self, key: Key) -> bytes | None:
        """Return a connection's state, of times only whether there is one; None if there is no such connection."""
        found = libbpf.lookup(self._connections, self._packed(key), STATE.size)
        if found is None:
            return None
        gap = struct.pack("=I", found[GAP] != bytes(4))
        return found[: GAP.start] + gap + bytes(8) + found[SEEN.stop :]

    def connection(self, key: Key) -> dict[str, int]:
        found = self.state(key)
        assert found is not None
        return named(found)

    def set_connection(self, key: Key, its: Connection) -> None:
        state = pack(its)
        state = state[: GAP.start] + struct.pack("=I", its.gap_since or 0) + state[GAP.stop :]
        libbpf.update(self._connections, self._packed(key), state)

    def known_keys(self) -> list[Key]:
        found = [KEY.unpack(key) for key in libbpf.keys(self._connections, KEY.size)]
        return [Key(local, remote, ports >> 16, ports & 0xFFFF, proto) for local, remote, ports, proto in found]

    def known_scales(self) -> int:
        return len(list(libbpf.keys(self._scales, KEY.size)))

    def clear(self) -> None:
        self.sweep(1 << 63)

    def reset(self) -> None:
        """Forget everything but hosts and path table."""
        self.clear()
        for key in libbpf.keys(self._scales, KEY.size):
            libbpf.update(self._scales, key, SCALE.pack(0, 0))
        self.set()
        self._counted = self._read_counters()

    def sweep(self, before_ns: int) -> tuple[int, int]:
        """Run the clean-up; return how many connections it has removed, and how many are left."""
        return sweep(self._sweep, before_ns)

    def counters(self) -> Counter[str]:
        """Return what has been counted since the last `reset`, by the names of `Reason`."""
        return self._read_counters() - self._counted

    def _read_counters(self) -> Counter[str]:
        return +Counter({reason.name.lower(): count for reason, count in self._counters.by_reason().items()})

    @staticmethod
    def _packed(key: Key) -> bytes:
        return KEY.pack(key.local, key.remote, key.local_port << 16 | key.remote_port, key.proto)
