"""Grey, corrupting and slow links at a real interface, packet by packet against the twin in Python."""

import socket
import struct
from itertools import takewhile

import pytest

from experiments.core.draws import DrawKind, drawn, hits, stream
from experiments.emulation.bad_links import BadLinks, Count
from sopa_ryu.agent.kernel import tc
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.frames import UDP, ip, ports
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, arrives, frames, raw_socket
from topologies import Clos, FatTree, Host, Switch, TopologyError

QUIET_SECONDS = 0.3
FRAME = ip(ports(40000, 9), proto=UDP)
LINK, LOWER, UPPER = "a0_0-c0_1", "a0_0", "c0_1"


def expected(seed: int, probability: float, packets: int) -> list[int]:
    return list(takewhile(lambda number: number < packets, hits(seed, probability)))


def test_directions_links_kinds_and_seeds_have_sequences_of_their_own() -> None:
    ways = [(link, towards) for link in (LINK, "a0_0-c0_0") for towards in link.split("-")]
    seeds = {stream(seed, link, towards, kind) for seed in range(20) for link, towards in ways for kind in DrawKind}
    assert len(seeds) == 20 * 2 * 2 * 2


class TwoEnds:
    """A fabric's link of which both ends are those of a `Pair`."""

    def __init__(self, pair: Pair) -> None:
        self.tree: Clos = FatTree(4)
        self.pair, self.shares = pair, list[tuple[str, float]]()

    def interface(self, node: Host | Switch, _port: int) -> str:
        return {LOWER: "host0", UPPER: "peer0"}[self.tree.name(node)]

    def netns(self, switch: Switch) -> str:
        return {LOWER: self.pair.host, UPPER: self.pair.peer}[self.tree.name(switch)]

    def set_share(self, interface: str, share: float) -> None:
        self.shares.append((interface, share))


def exchange(pair: Pair, count: int) -> tuple[list[int], list[int]]:
    """Send numbered datagrams both ways; return the numbers that arrive at the peer, and at the host."""
    addresses, ends = {pair.host: "10.0.0.2", pair.peer: PEER_ADDRESS}, []
    for netns, address in addresses.items():
        with inside(netns):
            ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        ends[-1].bind((address, 9))
        ends[-1].setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
    for number in range(count):
        for end, to in zip(ends, (PEER_ADDRESS, "10.0.0.2"), strict=True):
            end.sendto(struct.pack("!I", number), (to, 9))
    arrived: list[list[int]] = [[], []]
    for end, got in zip(ends, arrived, strict=True):
        with end:
            # the kernel may deliver a little later than it takes; what is lost nobody can wait for
            while arrives(end, QUIET_SECONDS):
                got.append(struct.unpack("!I", end.recv(64))[0])
    return arrived[1], arrived[0]


@pytest.mark.parametrize("loss", [0.01, 0.5, 1.0])
def test_a_seed_and_a_number_decide_which_packets_are_lost_and_of_the_others_which_bit_is_flipped(pair: Pair, loss: float) -> None:
    packets, corruption, seeds = (2000, 0.3, [stream(7, LINK, UPPER, kind) for kind in (DrawKind.LOSS, DrawKind.CORRUPTION)])
    with (
        BadLinks(TwoEnds(pair), TwoEnds(pair).netns) as bad,
        raw_socket(pair.peer, "peer0", ALL) as wire,
        raw_socket(pair.host, "host0", 0) as sender,
    ):
        bad.set_loss(LINK, UPPER, loss, seed=7)
        bad.set_corruption(LINK, UPPER, corruption, seed=7)
        for _ in range(packets):
            sender.send(FRAME)
        arrived = frames(wire, QUIET_SECONDS)
        counts = bad.lost(LINK, UPPER), bad.corrupted(LINK, UPPER)
    lost, flipped = expected(seeds[0], loss, packets), expected(seeds[1], corruption, len(arrived))
    assert len(arrived) == packets - len(lost)
    assert counts == (Count(packets, len(lost)), Count(len(arrived), len(flipped)))
    for number, frame in enumerate(arrived):
        wanted = bytearray(FRAME)
        if number in flipped:
            place = drawn(drawn(seeds[1], number), 0) % (8 * len(FRAME))
            wanted[place // 8] ^= 1 << place % 8
        assert frame == wanted


@pytest.fixture
def ends(pair: Pair) -> TwoEnds:
    exchange(pair, 1)  # ARP
    return TwoEnds(pair)


def test_one_direction_loses_exactly_what_is_counted_until_it_is_healed(pair: Pair, ends: TwoEnds) -> None:
    shows = ("tc qdisc show dev host0 clsact", "tc filter show dev host0 egress")
    before = [pair.on_host(show) for show in shows]
    with BadLinks(ends, ends.netns) as bad:
        bad.set_loss(LINK, UPPER, 0.1, seed=5)
        up, down = exchange(pair, 500)
        lost = expected(stream(5, LINK, UPPER, DrawKind.LOSS), 0.1, 500)
        assert down == list(range(500))
        assert sorted({*range(500)} - {*up}) == lost
        assert (bad.lost(LINK, UPPER), bad.lost(LINK, LOWER)) == (Count(500, len(lost)), Count(0, 0))
        bad.set_loss(LINK, UPPER, 0.0, seed=5)
        assert exchange(pair, 100) == (list(range(100)), list(range(100)))
        assert bad.lost(LINK, UPPER) == Count(500, len(lost))  # the truth stays
        bad.set_loss(LINK, LOWER, 0.5, seed=6)
        bad.set_loss(LINK, UPPER, 0.5, seed=6)
        up, down = exchange(pair, 200)
        assert sorted({*range(200)} - {*down}) == expected(stream(6, LINK, LOWER, DrawKind.LOSS), 0.5, 200)
        assert bad.lost(LINK, UPPER).hit == 200 - len(up)
    assert exchange(pair, 100) == (list(range(100)), list(range(100)))
    assert [pair.on_host(show) for show in shows] == before


def test_a_clsact_that_was_there_stays_with_what_it_has(pair: Pair, ends: TwoEnds) -> None:
    pair.on_host("tc qdisc add dev host0 clsact")
    pair.on_host("tc filter add dev host0 egress pref 3 protocol ip u32 match u32 0 0 flowid 1:1")
    with BadLinks(ends, ends.netns) as bad:
        bad.set_loss(LINK, UPPER, 1.0, seed=1)
        assert "bad_link" in pair.on_host("tc filter show dev host0 egress")
    shown = pair.on_host("tc filter show dev host0 egress")
    assert ("pref 3" in shown, "bad_link" in shown) == (True, False)
    with inside(pair.host):
        assert not tc.create_clsact(socket.if_nametoindex("host0"))


def test_what_cannot_be_bad_is_refused_and_changes_nothing(pair: Pair, ends: TwoEnds) -> None:
    with BadLinks(ends, ends.netns) as bad:
        wrong = [(LINK, UPPER, probability, ValueError, "from 0 to 1") for probability in (1.1, -0.1, float("nan"))]
        for name, towards, probability, error, message in (
            *wrong,
            (LINK, "c1_1", 0.1, TopologyError, "not an end"),
            ("h0_0_2-e0_0", "e0_0", 0.1, TopologyError, "is a host's link"),
            ("a0_0-c9_9", "a0_0", 0.1, TopologyError, "c9_9"),
        ):
            with pytest.raises(error, match=message):
                bad.set_loss(name, towards, probability, seed=1)
        bad.set_loss(LINK, UPPER, 0.0, seed=1)
        assert bad.lost(LINK, UPPER) == Count(0, 0)
        assert "bad_link" not in pair.on_host("tc filter show dev host0 egress")
    assert ends.shares == []


def test_a_slow_direction_has_its_rate_again_on_leaving(ends: TwoEnds) -> None:
    with BadLinks(ends, ends.netns) as bad:
        bad.set_rate(LINK, UPPER, 0.25)
        bad.set_rate(LINK, LOWER, 0.5)
    assert ends.shares == [("host0", 0.25), ("peer0", 0.5), ("host0", 1.0), ("peer0", 1.0)]
