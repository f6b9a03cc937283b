"""ECN marks of a lab's switch ports: packet by packet (BPF_PROG_TEST_RUN) against a model, and attached.

That marks arrive is in tests/lab/test_emulation.py, how long the queue is beside the real one in tests/timing/test_queues.py.
"""

import random
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from experiments.emulation.phantom_queues import OBJECT, PhantomQueues, PortCounts, default_threshold, port_value
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside
from tests.bpf.mcs_frames import tos_of
from tests.helpers.frames import ETHERNET, chained6, checksum, ip, tcp
from tests.helpers.veth import PEER_ADDRESS, Pair
from topologies.lab.links import FRAME_BYTES, tbf_burst

NOT_ECT, ECT1, ECT0, CE = range(4)
LOOPBACK = struct.pack("=I", 1)  # the interface of a test run
SLOW_MBIT = 8e-6  # a byte a second: time stands still during a test of less
MSEC, NSEC = 10**6, 10**9
MINUTE_NS = 60 * NSEC
LONG_NS = 1 << 62
SO_SNDBUFFORCE = 32  # asm-generic/socket.h
UNSPEC = 2**32 - 1  # the next filter decides


def sealed(frame: bytes, ecn: int, dscp: int = 0) -> bytes:
    """The frame of a packet with this DSCP and ECN, and of IPv4 with a correct header checksum."""
    if frame[14] >> 4 == 6:
        return frame[:14] + (6 << 12 | dscp << 6 | ecn << 4).to_bytes(2) + frame[16:]
    header = bytearray(frame[14 : 14 + (frame[14] & 15) * 4])
    header[1] = dscp << 2 | ecn
    header[10:12] = b"\0\0"
    header[10:12] = checksum(bytes(header)).to_bytes(2)
    return frame[:14] + bytes(header) + frame[14 + len(header) :]


class Port:
    """The program with one port, the loopback interface's, without attaching it."""

    def __init__(self, program: libbpf.Object) -> None:
        self._program = program.program_fd("phantom_queue")
        self._ports, self._queues = program.map_fd("ports"), program.map_fd("queues")

    def configure(self, rate_mbit: float, queue_packets: int, threshold: int) -> None:
        libbpf.update(self._ports, LOOPBACK, port_value(rate_mbit, queue_packets, threshold))

    def begin(self, empty_ns: int | None = None) -> None:
        """Have the queue be empty from a time on; by default for so long that the bucket is full, even just after a boot."""
        its = time.monotonic_ns() - LONG_NS if empty_ns is None else empty_ns
        libbpf.update(self._queues, LOOPBACK, struct.pack("=8xq", its) + bytes(40))

    def send(self, frame: bytes) -> bytes:
        """Return a frame as it goes on."""
        outcome = libbpf.run_program(self._program, frame, gso_segments=1)
        assert outcome.retval == UNSPEC
        return outcome.data

    @property
    def empty_ns(self) -> int:
        return self._values()[0]

    @property
    def counts(self) -> PortCounts:
        return PortCounts(*self._values()[1:])

    def _values(self) -> tuple[int, ...]:
        found = libbpf.lookup(self._queues, LOOPBACK, 56)
        assert found is not None
        return struct.unpack("=8xqQQQQQ", found)


@pytest.fixture
def port() -> Iterator[Port]:
    build([OBJECT])
    with libbpf.Object(OBJECT) as program:
        yield Port(program)


class Model:
    """A queue in which time stands still, in bytes: below 0 while there are tokens."""

    def __init__(self, bucket: int, limit: int, threshold: int) -> None:
        self.length, self.limit, self.threshold = -bucket, limit, threshold
        self.counts = [0] * 5

    def send(self, size: int, ecn: int | None) -> bool:
        """Return True if a packet is marked."""
        long, fits = self.length > self.threshold, self.length + size <= self.limit
        self.length += size if fits else 0
        marked = long and ecn in (ECT0, ECT1)
        counted = (True, not fits, marked, long and ecn == CE, long and ecn in (None, NOT_ECT))
        self.counts = [before + now for before, now in zip(self.counts, counted, strict=True)]
        return marked


@pytest.mark.parametrize("seed", range(8))
def test_marks_are_those_of_the_model(port: Port, seed: int) -> None:
    begun = None
    while begun is None or time.monotonic() - begun >= 1.0:  # in which the queue gets a byte shorter, which counts
        begun = time.monotonic()
        differences = compare(port, seed)
    assert differences == []


def compare(port: Port, seed: int) -> list[object]:
    """Send through the queue and the model; return where they differ."""
    choose = random.Random(seed)
    queue, threshold = choose.choice([(100, 20), (10, 1), (50, 49), (5, 10)])
    port.configure(SLOW_MBIT, queue, threshold)
    port.begin()
    model = Model(tbf_burst(SLOW_MBIT), queue * FRAME_BYTES, threshold * FRAME_BYTES)
    different: list[object] = []
    for number in range(300):
        size = choose.choice([40, 1460, choose.randrange(8, 1460)])
        ecn = choose.choice([None, NOT_ECT, ECT0, ECT0, ECT0, ECT1, CE])
        if ecn is None:
            frame = ETHERNET + choose.choice([b"\x08\x06", b"\x88\xcc"]) + bytes(size + 20)
        else:
            options = choose.choice([b"", b"\x9e\x04\x00\x01"])
            made = choose.choice([ip(bytes(size), options=options), chained6(bytes(size))])
            frame = sealed(made, ecn, dscp=choose.randrange(64))
        marked = model.send(len(frame), ecn)
        if port.send(frame) != (sealed(frame, CE, dscp=tos_of(frame) >> 2) if marked else frame):
            different.append(number)
    if port.counts != PortCounts(*model.counts) or not model.counts[1] or (model.counts[2] > 0) != (threshold < queue):
        different.append(port.counts)
    return different


def test_the_queue_gets_empty_at_the_links_rate_and_the_bucket_full_not_fuller(port: Port) -> None:
    frame, mbit = sealed(tcp(), ECT0), 0.008  # a byte in a millisecond
    port.configure(mbit, 1000, 20)
    rate, *times = struct.unpack("=QQQQ", port_value(mbit, 1000, 20))
    assert (rate, times) == (1000, [MSEC * size for size in (tbf_burst(mbit), 1000 * FRAME_BYTES, 20 * FRAME_BYTES)])
    bucket_ns, limit_ns, threshold_ns = times

    def sent(queued_ns: int) -> tuple[bool, int]:
        """Return whether a packet that finds such a queue is marked, and by how much it lengthens the queue."""
        begun = time.monotonic_ns() + queued_ns
        port.begin(begun)
        return port.send(frame) != frame, port.empty_ns - begun

    assert sent(threshold_ns - NSEC) == (False, MSEC * len(frame))
    assert sent(limit_ns + MINUTE_NS) == (True, 0)  # beyond its capacity nothing is added
    assert port.counts.full == 1
    before = time.monotonic_ns()
    assert sent(-2 * bucket_ns)[0] is False  # a bucket is never fuller than its size
    assert before - bucket_ns <= port.empty_ns - MSEC * len(frame) <= time.monotonic_ns() - bucket_ns


def test_a_port_without_a_rate_marks_nothing(port: Port) -> None:
    frame = sealed(tcp(), ECT0)
    assert port.send(frame) == frame
    port.begin()
    assert [port.send(frame) for _ in range(200)] == [frame] * 200
    assert port.counts.packets == 0


def test_the_default_is_dctcps_or_half_of_a_short_queue() -> None:
    assert [default_threshold(packets) for packets in (1, 2, 10, 40, 100, 1000)] == [1, 1, 5, 20, 20, 20]


@pytest.fixture
def send(pair: Pair) -> Iterator[Callable[[int], int]]:
    with inside(pair.host):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with made:
        made.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        yield lambda size: made.sendto(bytes(size), (PEER_ADDRESS, 9))


def test_a_rate_follows_and_the_program_goes_with_the_context(pair: Pair, send: Callable[[int], int]) -> None:
    with PhantomQueues({pair.host: {"host0": 1.0}, pair.peer: {"peer0": 1.0}}, 100, 20) as phantom:
        assert phantom.length("host0") < 0
        phantom.set_rate("host0", 0.001)
        for _ in range(30):
            send(1472)
        host, peer = phantom.counts()["host0"], phantom.counts()["peer0"]
        assert (host.packets >= 30, peer.marked) == (True, 0)
        assert 0 < host.marked <= 30 - 20
        assert "phantom_queue" in pair.on_host("tc filter show dev host0 egress")
    shown = pair.on_host("tc filter show dev host0 egress") + pair.on_peer("tc filter show dev peer0 egress")
    assert "phantom_queue" not in shown
