"""What the labelling program remembers of a host's own packets, packet by packet, against a reference that has all of them."""

import random
import struct
import time
from ipaddress import IPv4Address, IPv4Network

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.own_traffic import RouterError, SentAgain
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FlowKey, flow_hash
from sopa_ryu.agent.paths.path_table import Label, PathTable, WayOut
from tests.helpers.frames import FAR, HERE, INTER_POD, NEAR, TCP, UDP, chained6, ip, label_of, ports, table, tcp
from tests.helpers.golden import Script, Step, each_script

RINGS, SEGMENTS, WINDOW = 512, 128, 1 << 30
ROOM = 1023
ACK, SYN = 0x10, 0x02


@pytest.fixture
def labeller(fresh: Labeller) -> Labeller:
    """A program that remembers nothing, with a path table."""
    fresh.swap(table())
    return fresh


def segment(seq: int, size: int, *, sport: int = 40000, dst: str = FAR, flags: int = ACK, options: int = 0) -> bytes:
    header = struct.pack("!HHIIBBHHH", sport, 5001, seq % (1 << 32), 1, (5 + options // 4) << 4, flags, 500, 0, 0)
    return ip(header + bytes(options) + bytes(size), dst=dst)


def send(labeller: Labeller, frame: bytes, segments: int = 0) -> Label:
    label = label_of(labeller.run(frame, gso_segments=segments).data)
    assert label is not None
    return label


def again(labeller: Labeller) -> list[SentAgain]:
    assert labeller.own is not None
    return labeller.own.sent_again()


def busy(labeller: Labeller) -> list[tuple[int, int]]:
    assert labeller.own is not None
    return labeller.own.busy()


class Reference:
    """All that was sent, of all flows, and the last flow that has had each ring."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rings: dict[int, tuple[int, list[tuple[int, int, Label]], int]] = {}

    def send(self, key: FlowKey, seq: int, size: int, label: Label) -> SentAgain | None:
        """Note a segment; return what its retransmission tells."""
        hash_ = flow_hash(key, self.seed)
        owner, sent, highest = self.rings.get(hash_ % RINGS, (-1, [], 0))
        found = None
        if owner != hash_ or not sent or abs(seq - highest) > WINDOW:
            sent, highest = [], seq
        elif seq < highest:
            before = (its for first, bytes_, its in reversed(sent[-SEGMENTS:]) if first <= seq < first + bytes_)
            lost = next(before, None)
            _, pod, edge, _ = IPv4Address(key.daddr).packed
            found = None if lost is None else SentAgain((pod, edge), lost)
        self.rings[hash_ % RINGS] = hash_, [*sent, (seq, min(size, 0xFFFF), label)], max(highest, seq + size)
        return found


@pytest.mark.parametrize("carrier", Carrier)
def test_program_and_reference_agree_on_random_flows_that_meet_in_rings(carrier: Carrier) -> None:
    seed = len(carrier.name)
    draw = random.Random(f"{seed} own traffic")
    with Labeller("lo", carrier=carrier, fabric_mtu=9000) as labeller:
        labeller.swap(table(seed=seed))
        reference = Reference(seed)
        flows = [(sport, draw.choice((FAR, NEAR)), draw.choice((0, 12))) for sport in range(41000, 41060)]
        starts = {sport: draw.choice((0, draw.randrange(1 << 32), (1 << 32) - 5000)) for sport, _, _ in flows}
        following, wanted = dict(starts), []
        for _ in range(6000):
            sport, dst, options = draw.choice(flows if draw.random() < 0.3 else flows[:3])
            size = draw.choice((1, 20, 700, 1448))
            seq = following[sport]
            if draw.random() < 0.2:  # some of it again, also what the ring does not have any more
                seq = max(starts[sport], seq - draw.choice((1, 100, 1448, 5000, 200_000)))
            label = send(labeller, segment(seq, size, sport=sport, dst=dst, options=options))
            following[sport] = max(following[sport], seq + size)
            found = reference.send(FlowKey.of(HERE, dst, TCP, sport, 5001), seq, size, label)
            if found is not None:
                wanted.append(found)
        assert len(wanted) > 500
        assert again(labeller) == wanted[:ROOM]  # the ring's room


@each_script(__file__, "own_traffic")
def test_script(labeller: Labeller, script: Script) -> None:
    """``send`` says the label, ``again`` what was sent again: the rack, and the label before; ``busy`` racks that packets go to."""

    def handle(step: Step) -> str:
        if step.command == "again":
            return "\n".join(f"{its.rack} {its.label}" for its in again(labeller))
        if step.command == "busy":
            time.sleep(0.02)  # a jiffy has 10 ms at most
            return "\n".join(map(str, sorted(busy(labeller))))
        its = step.options
        flags = ACK | SYN * ("syn" in step.words)
        frame = segment(int(its["seq"], 0), int(its.get("size", 100)), dst=its.get("to", FAR), flags=flags)
        if "udp" in step.words:
            frame = ip(ports(40000, 5001), proto=UDP)
        return str(send(labeller, frame, int(its.get("segments", 0))))

    script.play(handle)


def test_more_than_the_ring_has_room_for_is_left_out_and_costs_nothing_else(labeller: Labeller) -> None:
    send(labeller, segment(0, 100))
    labeller.run(segment(0, 100), repeat=5000)
    assert len(again(labeller)) == ROOM
    send(labeller, segment(0, 100))
    assert len(again(labeller)) == 1


def test_packets_on_their_way_out_count_for_the_gateways_rack(labeller: Labeller) -> None:
    way_out = WayOut(bytes.fromhex("02000a030102"), INTER_POD)
    labeller.swap(PathTable(IPv4Network("10.0.0.0/8"), 2, ((),), (-1,) * 8, 1, ways_out=(way_out,)))
    first = send(labeller, segment(0, 100, dst="192.0.2.9"))
    send(labeller, segment(0, 100, dst="192.0.2.9"))
    assert again(labeller) == [SentAgain((3, 1), first)]
    assert busy(labeller) == [(3, 1)]


# -- routers' ICMPv6 errors (the carrier srv6) ----------------------------------------------------------------------------

BLOCK = bytes.fromhex("fcbbbb00")
STOLEN, PASSED = 2, 0xFFFFFFFF


def said(source: bytes, destination: bytes, about: bytes, kind: int = 1, parameter: int = 0, header: int = 58) -> bytes:
    """A frame with an ICMPv6 error (RFC 4443, section 2.1) about a packet to a list."""
    quoted = struct.pack("!IHBB", 6 << 28, 100, 4, 64) + bytes(16) + about.ljust(16, b"\0") + bytes(20)
    error = struct.pack("!BBHI", kind, 0, 0, parameter) + quoted
    head = struct.pack("!IHBB", 6 << 28, len(error), header, 64) + source.ljust(16, b"\0") + destination
    return bytes(12) + b"\x86\xdd" + head + error


@pytest.mark.parametrize("cfr", [False, True])
def test_a_router_s_error_about_a_list_is_the_agent_s_and_nobody_else_can_make_one(cfr: bool) -> None:
    with Labeller("lo", carrier=Carrier.SRV6, cfr=cfr) as its:
        its.swap(table())
        assert its.own is not None
        own = label_source(its)
        assert own[8:] == its.outer_secret
        router, onward = BLOCK + bytes.fromhex("4001"), BLOCK + bytes.fromhex("81001081")
        taken = {
            said(router, own, onward): RouterError(0x4001, 0x8100, None),
            said(router, own, onward, kind=2, parameter=1280): RouterError(0x4001, 0x8100, 1280),
            said(bytes.fromhex("fd53"), own, BLOCK + bytes.fromhex("4001")): RouterError(0, 0x4001, None),
        }
        for frame, error in taken.items():
            assert its.strip(frame).retval == STOLEN
            assert its.own.router_errors() == {error}
        guessed = own[:8] + bytes(8)
        unfit = [
            said(router, guessed, onward), said(router, own, bytes.fromhex("fd53")), said(router, own, onward)[:90],
            said(router, own, onward, kind=3), said(router, own, onward, kind=128),
        ]  # fmt: skip
        for frame in unfit:
            assert its.strip(frame).retval == STOLEN
        others = [said(router, bytes(16), onward), said(router, own, onward, header=6), tcp(), chained6(bytes(20), TCP)]
        for frame in others:
            assert its.strip(frame).retval == PASSED
        assert its.own.router_errors() == set()


def label_source(its: Labeller) -> bytes:
    """The source of the outer header that the program writes."""
    return its.run(tcp()).data[22:38]
