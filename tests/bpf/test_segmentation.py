"""Bursts that the segmentation device cuts before they are labelled, with real TCP on a real interface."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import segmentation
from sopa_ryu.agent.kernel.counters import Reason
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.cli.doctor_host import check_bursts
from tests.bpf.labelling import label_of, labelling
from tests.helpers.frames import INTER_POD
from tests.helpers.path_tables import flow_positions
from tests.helpers.veth import IPV4, Pair, frames, raw_socket, transfer
from topologies import FatTree

CARRIERS = pytest.mark.parametrize("carrier", list(Carrier))
DATA = os.urandom(3_000_000)


@CARRIERS
@pytest.mark.parametrize("offload", ["on", "off"])
def test_every_packet_of_a_burst_takes_the_next_path(
    pair: Pair, tmp_path: Path, carrier: Carrier, offload: str
) -> None:
    pair.on_host(f"ethtool -K host0 tso {offload} gso {offload}")
    wire = raw_socket(pair.peer, "peer0", IPV4)
    with wire, labelling(pair, tmp_path, carrier) as labeller:
        assert transfer(pair, DATA) == DATA
        packets, paths = labeller.counted.by_reason(), labeller.counted.by_path(FatTree(8))
        got = [frame for frame in frames(wire) if frame[26:30] == bytes([10, 0, 0, 2])]
        [position] = flow_positions(labeller).values()
    assert packets[Reason.CUT] > 0
    assert packets[Reason.GSO] == packets[Reason.FORWARDED] == 0
    used = Counter({label: count for label, count in paths.items() if count})
    assert used == Counter(map(label_of, got))
    assert max(map(len, got)) <= 14 + 9000
    assert set(used) == set(INTER_POD)
    assert max(used.values()) - min(used.values()) <= 1
    assert used.total() == packets[Reason.LABELLED] == position > len(DATA) / 9000


@CARRIERS
def test_bursts_of_a_limited_size_have_one_label_each(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    with labelling(pair, tmp_path, carrier, segments=4) as labeller:
        assert transfer(pair, DATA) == DATA
        packets = labeller.counted.by_reason()
    assert packets[Reason.CUT] == 0
    assert 0 < packets[Reason.GSO] <= packets[Reason.LABELLED]
    segments = len(DATA) / 8948
    assert segments / 4 <= packets[Reason.LABELLED] < segments


def test_bursts_that_get_no_label_are_not_cut(pair: Pair, tmp_path: Path) -> None:
    pair.on_peer("ip addr add 192.0.2.1/32 dev peer0")
    pair.on_host("ip route add 192.0.2.1 dev host0")
    with labelling(pair, tmp_path) as labeller:
        assert transfer(pair, DATA, target="192.0.2.1") == DATA
        packets = labeller.counted.by_reason()
    assert packets[Reason.CUT] == packets[Reason.LABELLED] == 0
    assert 0 < packets[Reason.OUTSIDE] < len(DATA) / 9000


@CARRIERS
def test_a_transfer_outlives_its_segmentation_device(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    """While it is not there, bursts have one label each: the kernel itself takes the device out of the program's map."""
    big, cut = DATA * 20, 0
    with labelling(pair, tmp_path, carrier) as labeller:

        def remove() -> None:
            nonlocal cut
            cut = labeller.counted.by_reason()[Reason.CUT]
            with inside(pair.host):
                segmentation.remove(ifindex(pair))

        assert transfer(pair, big, pieces=60, halfway=remove) == big
        assert cut > 20
        assert labeller.counted.by_reason()[Reason.GSO] > 0


@pytest.mark.parametrize(
    ("segments", "change", "text", "is_right"),
    [
        (1, "true", "bursts are cut by sopa{}", True),
        (1, "ip link set sopa{} down", "sopa{} was set down", False),
        (1, "ip link del sopa{}", "up to 65535 packets of a burst share a label", False),
        (16, "true", "up to 16 packets of a burst share a label", True),
    ],
)
def test_the_doctor_says_what_is_done_about_bursts(
    pair: Pair, tmp_path: Path, segments: int, change: str, text: str, is_right: bool
) -> None:
    with labelling(pair, tmp_path, segments=segments):
        pair.on_host(change.format(ifindex(pair)))
        with inside(pair.host):
            finding = check_bursts("host0")
    assert (finding.right, finding.text) == (is_right, text.format(ifindex(pair)))


def ifindex(pair: Pair) -> int:
    return int(pair.on_host("cat /sys/class/net/host0/ifindex"))
