"""Queues: a phantom queue is as long as the real one, and a receiver merges sprayed packets about as well as others."""

import random
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from experiments.bench.host_pair import switched
from experiments.emulation.measurement.queue_lengths import QueueLengths
from experiments.emulation.phantom_queues import PhantomQueues
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from tests.helpers.frames import table
from tests.helpers.veth import PEER_ADDRESS, Pair, transfer, veth_pair
from tests.timing.controls import Timer
from tests.timing.judge import Timing
from topologies.lab.links import FRAME_BYTES, shaper

SO_SNDBUFFORCE = 32
DATA = bytes(3_000_000)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        yield made


def test_a_phantom_queue_is_as_long_as_the_real_one(timing: Timing, pair: Pair) -> None:
    mbit, queue_packets, threshold = 20.0, 100, 20
    pair.on_host("ip link set host0 mtu 1500")
    pair.on_host(f"tc {shaper('host0', mbit, queue_packets)}")
    choose = random.Random(1)
    with (
        PhantomQueues({pair.host: {"host0": mbit}}, queue_packets, threshold) as phantom,
        closing(QueueLengths({pair.host: ["host0"]})) as real,
        inside(pair.host),
    ):

        def apart() -> float:
            """Return by how many packets both differ, in nine of ten looks, while the queue is long, short and empty by turns."""
            found = []
            for _ in range(100):
                real.sample()
                if real.series["host0"][-1] < choose.randrange(30):
                    for _ in range(choose.randrange(60)):
                        sender.sendto(bytes(1472), (PEER_ADDRESS, 9))
                real.sample()
                queued, computed = real.series["host0"][-1] * FRAME_BYTES, phantom.length("host0")
                found.append(abs(computed - queued if queued else max(0.0, computed)) / FRAME_BYTES)
                time.sleep(0.01)  # the link sends meanwhile: 16 packets
            return sorted(found)[90]

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 24)
            timing.at_most(3, apart, what="packets by which queues differ", control=Timer(), tolerated=0.02)


def test_the_receiver_merges_sprayed_packets_as_it_does_unsprayed_ones(timing: Timing, pair: Pair, tmp_path: Path) -> None:
    pair.on_host("ethtool -K host0 tso off")  # a veth pair merges only what cannot be a burst
    pair.on_peer("ethtool -K peer0 gro on")
    pair.on_peer("ip addr add 192.0.2.1/32 dev peer0")
    pair.on_host("ip route add 192.0.2.1 dev host0")

    def merged(target: str) -> float:
        """Return the mean number of packets that TCP got at once."""
        before = received(pair)
        assert transfer(pair, DATA, target=target) == DATA
        packets, deliveries = (now - past for now, past in zip(received(pair), before, strict=True))
        return packets / deliveries

    with (
        HostSettings("host0", state_dir=tmp_path, netns=pair.host) as settings,
        Labeller("host0", netns=pair.host, fabric_mtu=settings.fabric_mtu, cut_by=settings.cut_by) as labeller,
        inside(pair.host),
        switched("host0"),
    ):
        labeller.swap(table())
        labeller.attach()
        unsprayed = "192.0.2.1"
        what = "packets at once"
        timing.at_least(3, lambda: merged(unsprayed), what=what, control=Timer(), tolerated=0.05)
        timing.at_least(
            0.5, lambda: merged(PEER_ADDRESS) / merged(unsprayed), what=f"{what}, sprayed to unsprayed",
            control=Timer(), tolerated=0.05,
        )  # fmt: skip


def received(pair: Pair) -> tuple[int, int]:
    """Return the frames that have come to the peer's interface, and the packets of which its IP has heard."""
    counters = [line.split() for line in pair.on_peer("cat /proc/net/snmp").splitlines() if line.startswith("Ip:")]
    deliveries = dict(zip(*counters, strict=True))["InReceives"]
    return int(pair.on_peer("cat /sys/class/net/peer0/statistics/rx_packets")), int(deliveries)
