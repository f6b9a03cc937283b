"""Random packets of a few connections for the programs of MCS, each compared with the reference: ``make fuzz ARGS=mcs``.

Compared are the verdict, the frame byte for byte, the connection's state after each packet, and the counters at the end. A run
prints its seed; ``--seed`` repeats it. The first difference ends it, with the frame in hexadecimal.
"""

import random
from collections import Counter
from ipaddress import IPv4Address
from itertools import count

from tests.bpf.fuzz import MIN_OF_IP, Difference, Packets, main, numbered
from tests.bpf.mcs_both import MSS, Both, sack, tcp_header
from tests.bpf.mcs_frames import ACK, FIN, MCO_BYTES, PLACEHOLDER, RST, SYN, TCP, Kind, Wire, option, set_tos
from tests.bpf.mcs_programs import ACCEPTS, ALWAYS_US, NEVER_US, Programs
from tests.bpf.mcs_reference import MAX_CHANNELS, Block, Host, Mco, plus
from tests.helpers.frames import FAR, HERE, INTER_POD, INTER_RACK, NEAR, PREFIX, SAME_RACK, SKIPPED, chained6, ip, table
from topologies.identity import IPV4, Family

CAPACITY = 14
PACKETS_ALIKE = 2000  # with the same settings and tables
UNREACHABLE, ELSEWHERE, LEAVING, WITHOUT_MCS = "10.3.0.2", "192.0.2.1", "10.1.0.3", "10.2.0.2"
PEERS = (FAR, NEAR, SAME_RACK, UNREACHABLE, ELSEWHERE)
LARGE = tuple((up1, up2) for up2 in range(4) for up1 in range(6))
HIDDEN = tuple(SKIPPED.values())
TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(range(8))
FLAGS = (0, SYN, SYN | ACK, FIN | ACK, FIN | ACK, FIN | ACK, FIN, RST, RST | ACK, SYN | FIN, 0x18, 0xFF)
SCALES = (b"\x03\x03\x07\0", b"\x01\x03\x03\x0a", b"\x02\x04\x05\xb4", b"", b"\x03\x03\x0f")
OTHER_OPTIONS = (b"", b"", b"", b"\x01" * 4, b"\x02\x04\x05\xb4", b"\x01\x01\x13\x12" + bytes(16), b"\x00" * 4)


def _six(address: str) -> str:
    """Return the address of the same host of the fabric; of another host, one of elsewhere."""
    if not address.startswith("10."):
        return "2001:db8::1"
    return str(Family(PREFIX).address(IPV4.host(IPv4Address(address))))


class Flow:
    """A connection as its packets are drawn: where both hosts are in their sequences, and the remote's channels."""

    def __init__(self, draw: random.Random, remote: str) -> None:
        self.remote = remote
        self.ends = draw.choice(((HERE, remote), (HERE, remote), (_six(HERE), _six(remote))))
        self.ports = draw.choice((40_000, 40_001, 40_002, 3)), draw.choice((5001, 80, 3))
        starts = [draw.choice((draw.getrandbits(32), 0xFFFFFFFF - draw.randrange(9999))) for _ in "12"]
        self.sent, self.received = starts
        self.told = self.received
        self.local = [draw.getrandbits(32)] * MAX_CHANNELS
        self.channels = draw.randrange(2, MAX_CHANNELS + 1)
        self.channel = 0
        self.timestamps = draw.random() < 0.7
        # channels whose packets are said to have arrived, and how often a mark is: none and never, all and always, in between
        self.alive = draw.choice((0, 0, 0xFFFF, draw.getrandbits(16)))
        self.marking = draw.choice((0.0, 0.05, 0.5))


Packet = tuple[bool, bytes, int, int]
"""Whether it leaves, a frame, and of what burst the kernel is to see it: `gso_size` and segments."""


class Connections(Packets):
    """An endless stream of packets of few connections, both directions: most are as TCP sends them, some have something wrong."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.kind = Kind.PATHS
        self.flows = [self._new_flow() for _ in range(16)]

    def _new_flow(self) -> Flow:
        return Flow(self.draw, self.draw.choice((*PEERS, FAR, FAR, LEAVING, WITHOUT_MCS)))

    def packet(self) -> Packet:
        draw = self.draw
        at = draw.randrange(len(self.flows))
        if draw.random() < 0.003:
            self.flows[at] = self._new_flow()
        flow = self.flows[at]
        outwards = draw.random() < 0.5
        flags = ACK if draw.random() < 0.9 else draw.choice(FLAGS)
        payload = b"" if draw.random() < 0.4 else bytes(draw.choice((1, 100, MSS, 2 * MSS, draw.randrange(MSS))))
        header = self._sent(flow, flags, payload) if outwards else self._received(flow, flags, payload)
        frame = bytearray(self._in_frame(flow, outwards, header + payload))
        for _ in range(draw.choice((0,) * 12 + (1, 2))):
            self._mutate(frame)
        burst = (0, 0)
        if draw.random() < 0.3:
            burst = draw.choice((MSS, 536, 1000, 9000, 0)), draw.choice((1, 2, 3, 44, 300))
        return outwards, bytes(frame).ljust(14, b"\0"), *burst

    def _in_frame(self, flow: Flow, outwards: bool, segment: bytes) -> bytes:
        draw = self.draw
        source, destination = flow.ends if outwards else flow.ends[::-1]
        if ":" in source:
            frame = bytearray(self._in_frame6(source, destination, segment))
        else:
            options = draw.choice((b"",) * 30 + (b"\x94\x04\0\0", b"\x01" * 40))
            fragment, vlan = draw.choice((0x4000,) * 40 + (0, 0x2000, 0x0010, 0x2010)), draw.choice((None,) * 60 + (5,))
            frame = bytearray(ip(segment, src=source, dst=destination, options=options, fragment=fragment, vlan=vlan))
            frame[24:26] = draw.choice((draw.randbytes(2), b"\0\0", b"\xff\xff"))
        set_tos(frame, draw.choice((0, 0, 2, 1, 3, 0xB8, 0xBB)))
        return bytes(frame) + bytes(draw.choice((0,) * 9 + (6,)))

    def _in_frame6(self, source: str, destination: str, segment: bytes) -> bytes:
        """Return a packet of IPv6, a few with an extension header, or with another address."""
        draw = self.draw
        frame = bytearray(chained6(segment, TCP, *draw.choice(((),) * 30 + ((draw.choice(HIDDEN),),)), src=source, dst=destination))
        frame[15:18] = draw.choice((0, draw.getrandbits(20))).to_bytes(3, "big")
        if draw.random() < 0.03:
            at = draw.choice((22, 38))
            frame[at + draw.choice((0, 4, 6, 8, 15))] = draw.choice((0xFE, 0xFF, draw.randrange(256)))
        if not draw.randrange(60):
            frame[12:12] = b"\x81\0\0\5"
        return bytes(frame)

    def _near(self, number: int) -> int:
        draw = self.draw
        if draw.random() < 0.02:
            return draw.getrandbits(32)
        return plus(number, draw.choice((0, 0, 0, 0, 1, -1, MSS, -MSS, 3 * MSS, -5 * MSS, draw.randrange(-9999, 9999))))

    def _header(self, ports: tuple[int, int], seq: int, ack: int, flags: int, options: bytes, reserved: int) -> bytes:
        draw = self.draw
        options = options[:40].ljust((len(options[:40]) + 3) // 4 * 4, b"\0")
        check = draw.choice((draw.getrandbits(16), 0, 0xFFFF))
        window = draw.choice((65535, 0, 1, 500, draw.getrandbits(16)))
        return tcp_header(*ports, seq, ack, flags, window, options, reserved, check)

    def _sent(self, flow: Flow, flags: int, payload: bytes) -> bytes:
        draw = self.draw
        seq = self._near(flow.sent) if draw.random() < 0.2 else flow.sent
        flow.sent = plus(seq, len(payload) + bool(flags & FIN)) if draw.random() < 0.9 else flow.sent
        chance = draw.random()
        if chance < 0.3:
            flow.told = flow.received
        ack = self._near(flow.told) if chance > 0.9 else flow.told
        if flags & SYN:
            return self._header(flow.ports, seq, ack, flags, draw.choice((*SCALES, draw.randbytes(8))), 0)
        options = TIMESTAMPS * flow.timestamps or draw.choice(OTHER_OPTIONS)
        if draw.random() < 0.4:
            options += self._sack(ack)
        if len(options) + MCO_BYTES <= 40 and draw.random() < 0.95:
            options = options.ljust((len(options) + 3) // 4 * 4, b"\x01") + self._perhaps_another(PLACEHOLDER)
        return self._header(flow.ports, seq, ack, flags, options, 0)

    def _sack(self, ack: int) -> bytes:
        """Return blocks behind the acknowledged number, most of the time; one before it reports a packet that came twice."""
        draw = self.draw
        blocks: tuple[Block, ...] = ()
        for _ in range(draw.choice((1, 1, 2, 2, 3, 3, 4))):
            first = plus(ack, draw.choice((MSS, 2 * MSS, 1, 0, 7 * MSS, -MSS if draw.random() < 0.3 else MSS)))
            blocks += ((first, plus(first, MSS)),)
        return sack(blocks)

    def _perhaps_another(self, room: bytes) -> bytes:
        """Return the option, or one of another kind, length or version."""
        draw, changed = self.draw, bytearray(room)
        if draw.random() < 0.05:
            changed[draw.choice((0, 1, 7))] ^= 1 << draw.randrange(8)
        return bytes(changed)

    def _received(self, flow: Flow, flags: int, payload: bytes) -> bytes:
        draw = self.draw
        seq = self._near(flow.received) if draw.random() < 0.2 else flow.received
        size = len(payload) + bool(flags & FIN)
        flow.received = plus(seq, size) if draw.random() < 0.9 else flow.received
        ack = self._near(flow.sent)
        ports = flow.ports[::-1]
        if flags & SYN:
            return self._header(ports, seq, ack, flags, draw.choice((*SCALES, draw.randbytes(8))), 0)
        flow.channel = channel = (flow.channel + 1) % flow.channels
        if draw.random() < 0.05:  # one is lost
            flow.local[channel] = plus(flow.local[channel], MSS)
        into = draw.choice((0, 0, 0, MSS))  # a segment of a super-packet
        mco = Mco(
            draw.choice((1 << draw.randrange(16), draw.getrandbits(16))) if draw.random() < flow.marking else 0,
            flow.alive & draw.getrandbits(16),
            draw.choice((0, 1, 2, 44, draw.randrange(256))),
            channel,
            plus(seq, -into),
            plus(flow.local[channel], -into),
        )
        flow.local[channel] = plus(flow.local[channel], size)
        options = TIMESTAMPS * flow.timestamps + self._sack(ack) * (draw.random() < 0.1)
        options = options[: 40 - MCO_BYTES] + self._perhaps_another(option(mco))
        if draw.random() < 0.03:
            options = options[: draw.randrange(len(options))]
        if self.kind is Kind.PORTS:
            ports = (ports[0] - channel) & 0xFFFF, ports[1]
        return self._header(ports, seq, ack, flags, options, draw.choice((8,) * 30 + (0, 15)))


def fuzz(packets: int, seed: int, say: bool = False) -> Counter[str]:
    """Give packets to the programs and compare with the reference what comes out and what is remembered."""
    stream = Connections(seed)
    peers, leaving = {int(IPv4Address(peer)) for peer in PEERS}, {int(IPv4Address(LEAVING))}
    with Programs(CAPACITY) as programs:
        both = Both(programs, Wire(Host(capacity=CAPACITY, clock_us=count().__next__), peers, leaving))
        programs.add_peer(LEAVING, ACCEPTS)
        for peer in PEERS:
            programs.add_peer(peer)
        for number in numbered(packets, say):
            if number % PACKETS_ALIKE == 0:
                both.compare_all()
                _set(both, stream, first=not number)
            outwards, frame, *burst = stream.packet()
            if len(frame) >= MIN_OF_IP.get(frame[12:14], 0):
                try:
                    (both.out if outwards else both.into)(frame, *burst)
                except Difference as difference:
                    raise Difference(f"seed {seed}, packet {number}, {burst}: {difference}") from None
        both.compare_all()
    return +both.wire.counters


def _set(both: Both, stream: Connections, first: bool) -> None:
    """Begin anew with other settings, without a connection."""
    both.clear()
    draw = stream.draw
    stream.kind = draw.choice((Kind.PATHS, Kind.PATHS, Kind.PORTS))
    both.use(
        stream.kind, draw.choice((8, 8, draw.randrange(2, MAX_CHANNELS + 1))), draw.choice((ALWAYS_US, NEVER_US, NEVER_US)),
        filtering=draw.random() < 0.9, regulating=draw.random() < 0.9,
    )  # fmt: skip
    if not first:  # nor with a path table
        sets = table(seed=draw.getrandbits(32), inter_pod=draw.choice((INTER_POD, INTER_POD[:1], INTER_RACK, LARGE)))
        srv6 = draw.choice((None, None, sets.srv6))
        both.swap(sets._replace(destinations=(0, 1, 2, 2, 2, 2, -1, 2), srv6=srv6))


if __name__ == "__main__":
    main(fuzz, __doc__)
