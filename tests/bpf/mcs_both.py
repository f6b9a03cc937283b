"""Frames of one connection, and the programs beside the reference: whatever is done to both has the same outcome."""

import struct
from ipaddress import IPv4Address

from sopa_ryu.agent.paths.flow_hash import IPV6_KEY
from sopa_ryu.agent.paths.path_table import PathTable
from tests.bpf.fuzz import Difference
from tests.bpf.mcs_frames import ACK, L4, LINK, PLACEHOLDER, RESERVED, TCP, Kind, Wire, l4_of, mco_of, option, parse, set_tos
from tests.bpf.mcs_programs import NEVER_US, Programs, named, pack
from tests.bpf.mcs_reference import Block, Connection, Key, Mco, Verdict
from tests.helpers.frames import FAR, FAR6, HERE, HERE6, chained6, ip, summed

LAST = 0xFFFFFFFF
MSS = 1448
CAPACITY = 64
SPORT, DPORT = 40000, 5001
KEY = Key(int(IPv4Address(HERE)), int(IPv4Address(FAR)), SPORT, DPORT)
KEYS = {4: KEY, 6: KEY._replace(proto=TCP | IPV6_KEY)}
ENDS = {4: (HERE, FAR), 6: (HERE6, FAR6)}
"""The addresses of this host and the other one."""
TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)
BLOCKS: tuple[Block, ...] = ((5000, 6000), (7000, 8000), (9000, 9500), (9600, 9700))
D_SACK: Block = (100, 200)


def tcp_sum(frame: bytes) -> int:
    """Return what a TCP segment with its pseudo-header sums up to: 0xffff if its checksum is right."""
    l4 = l4_of(frame)
    data = frame[l4:]
    total = summed(frame[26 if l4 == L4 else 22 : l4]) + 6 + len(data) + summed(data)
    return total % 0xFFFF or 0xFFFF


def tcp_frame(header: bytes, payload: int, source: str, destination: str, tos: int = 0) -> bytes:
    """Return a frame with right checksums."""
    data, six = header + bytes(payload), ":" in source
    frame = bytearray(chained6(data, TCP, src=source, dst=destination) if six else ip(data, src=source, dst=destination))
    set_tos(frame, tos)
    l4 = l4_of(frame)
    if not six:
        struct.pack_into("!H", frame, LINK + 10, 0xFFFF - (summed(frame[LINK:L4]) % 0xFFFF or 0xFFFF))
    struct.pack_into("!H", frame, l4 + 16, 0xFFFF - tcp_sum(bytes(frame)) % 0xFFFF)
    return bytes(frame)


def tcp_header(
    sport: int, dport: int, seq: int, ack: int, flags: int, window: int, options: bytes, reserved: int, check: int = 0
) -> bytes:
    offset = (5 + len(options) // 4) << 4 | reserved
    return struct.pack("!HHIIBBHHH", sport, dport, seq, ack, offset, flags, window, check, 0) + options


def sack(blocks: tuple[Block, ...]) -> bytes:
    data = b"".join(struct.pack("!II", *block) for block in blocks)
    return b"\x01\x01\x05" + bytes([2 + len(data)]) + data if blocks else b""


def sent(
    seq: int = 1000, ack: int = 4000, payload: int = 0, flags: int = ACK, *,
    blocks: tuple[Block, ...] = (), room: bytes = PLACEHOLDER, before: bytes = TIMESTAMPS, tos: int = 0, window: int = 500,
    family: int = 4,
) -> bytes:  # fmt: skip
    """A frame of this host's TCP."""
    header = tcp_header(SPORT, DPORT, seq, ack, flags, window, before + sack(blocks) + room, 0)
    return tcp_frame(header, payload, *ENDS[family], tos)


def received(
    seq: int = 4000, ack: int = 1000, payload: int = 0, flags: int = ACK, *,
    mco: Mco | None = None, version: int = 1, reserved: int = RESERVED, tos: int = 0, window: int = 60_000,
    source_port: int = DPORT, before: bytes = TIMESTAMPS, family: int = 4,
) -> bytes:  # fmt: skip
    """A frame of the other host's programs."""
    its = mco or Mco(0, 0, 0, 0, seq, 0)
    header = tcp_header(source_port, SPORT, seq, ack, flags, window, before + option(its, version), reserved)
    return tcp_frame(header, payload, *ENDS[family][::-1], tos)


def option_of(frame: bytes) -> Mco:
    """Return the MCO that a frame has been given."""
    its = parse(frame)
    assert its is not None
    assert its.scattered
    found = mco_of(its.header)
    assert found is not None
    assert found[1] == 1
    return found[0]


class Both:
    """The programs and the reference; whatever is done to both has the same outcome, or a `Difference` says what has not.

    The connection that is begun and read is the one of its family.
    """

    def __init__(self, programs: Programs, wire: Wire, family: int = 4) -> None:
        self.programs, self.wire, self.family = programs, wire, family

    def use(self, kind: Kind = Kind.PATHS, channels: int = 8, patience_us: int = NEVER_US, **without: bool) -> None:
        self.wire.set(channels, kind, patience_us=patience_us, **without)
        self.programs.set(channels, kind, patience_us=patience_us, **without)

    def swap(self, its: PathTable) -> None:
        self.wire.table = its
        self.programs.swap(its)

    def begin(self, its: Connection) -> None:
        self.wire.host.connections[KEYS[self.family]] = its
        self.programs.set_connection(KEYS[self.family], its)

    def clear(self) -> None:
        self.wire.host.connections.clear()
        self.programs.clear()

    def out(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> tuple[Verdict, bytes]:
        wanted = self.wire.egress(frame, gso_size, gso_segments)
        got = self.programs.egress(frame, gso_size, gso_segments)
        self._compare("egress", frame, wanted, got)
        return got

    def sent(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> bytes:
        """Send a frame that is not dropped."""
        verdict, out = self.out(frame, gso_size, gso_segments)
        assert verdict is Verdict.PASS
        return out

    def into(self, frame: bytes, gso_size: int = 0, gso_segments: int = 0) -> bytes:
        wanted = self.wire.ingress(frame, gso_size, gso_segments)
        got = self.programs.ingress(frame, gso_size, gso_segments)
        self._compare("ingress", frame, (Verdict.PASS, wanted), (Verdict.PASS, got))
        return got

    def _compare(self, way: str, frame: bytes, wanted: tuple[Verdict, bytes], got: tuple[Verdict, bytes]) -> None:
        its = self.wire.host.connections.get(self.wire.key)
        remembered, state = pack(its) if its else None, self.programs.state(self.wire.key)
        if (wanted, remembered) == (got, state):
            return
        lines = [way, f"frame     {frame.hex()}"]
        for name, (verdict, made), known in (("reference", wanted, remembered), ("program  ", got, state)):
            lines += [f"{name} {made.hex()} {verdict}", f"{name} {'no connection' if known is None else named(known)}"]
        raise Difference("\n".join(lines))

    def compare_all(self) -> None:
        """Compare all connections, also those that the last packets were none of, and what has been counted."""
        known = {key: self.programs.state(key) for key in self.programs.known_keys()}
        wanted = {key: pack(its) for key, its in self.wire.host.connections.items()}
        if (known, self.programs.counters()) != (wanted, +self.wire.counters):
            raise Difference(f"known: {known}, not {wanted}; {self.programs.counters()}, not {+self.wire.counters}")

    @property
    def its(self) -> Connection:
        """As the programs have it, too, since each packet's outcome is compared."""
        return self.wire.host.connections[KEYS[self.family]]
