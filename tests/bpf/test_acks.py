"""Which acknowledgements a sending host leaves out (bpf/ack.h), packet by packet, against a twin."""

import random
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.paths.path_table import Policy
from tests.bpf.mcs_both import sack, tcp_header
from tests.bpf.mcs_reference import plus
from tests.bpf.test_egress import MakeLabeller
from tests.helpers.frames import FAR6, INTER_POD, PREFIX, chained6, ip, table

STOLEN = 4
FIRST = 64
"""Acknowledgements of a connection that are all sent."""
ACK, OTHERS = 0x10, (0x11, 0x12, 0x14, 0x30, 0x50, 0x90)
"""The flags of an acknowledgement; FIN, SYN, RST, URG, ECE and CWR with it."""
TIMESTAMP = b"\1\1\x08\x0a" + bytes(8)
AS_LINUX = (TIMESTAMP, b"")
"""Options before SACK, as Linux has them."""


class Segment(NamedTuple):
    """A TCP segment; blocks are SACK's, by their edges above the acknowledgement number."""

    ack: int
    window: int = 500
    blocks: tuple[tuple[int, int], ...] = ((1448, 2896),)
    flags: int = ACK
    payload: bytes = b""
    options: bytes = TIMESTAMP

    def frame(self, family: int = 4) -> bytes:
        blocks = tuple((plus(self.ack, low), plus(self.ack, high)) for low, high in self.blocks)
        whole = tcp_header(5001, 40000, 7, self.ack, self.flags, self.window, self.options + sack(blocks), 0) + self.payload
        return ip(whole) if family == 4 else chained6(whole, 6, dst=FAR6)


def says_twice(blocks: tuple[tuple[int, int], ...]) -> bool:
    """Tell whether the first block is of data that has come twice (RFC 2883): below the acknowledgement, or within the second."""
    low, high = blocks[0]
    return low < 0 or (len(blocks) > 1 and blocks[1][0] <= low and high <= blocks[1][1])


@dataclass
class Twin:
    """One connection's acknowledgements."""

    count: int = 0
    last: tuple[int, int] | None = None
    left_out: bool = False

    def leaves_out(self, its: Segment) -> bool:
        if its.flags != ACK or its.payload:
            return False
        self.count += 1
        last, left_out = self.last, self.left_out
        self.last, self.left_out = (its.ack, its.window), False
        if self.count < FIRST or left_out or last is None or last[0] != its.ack or its.window > 2 * last[1]:
            return False
        self.left_out = bool(its.blocks) and its.options in AS_LINUX and not says_twice(its.blocks)
        return self.left_out


def segments(rng: random.Random, count: int) -> list[Segment]:
    """A connection's segments: mostly acknowledgements, whose numbers pass 2^32."""
    found, ack = [], 2**32 - 100_000
    for _ in range(count):
        ack = (ack + rng.choice((0, 0, 0, 1448))) % 2**32
        low = rng.choice((-1448, 1448, 1448, 2896, 4344))
        blocks: tuple[tuple[int, int], ...] = ((low, low + 1448), *rng.choice(((), ((1448, 5792),), ((5792, 7240), (8688, 10136)))))
        its = Segment(ack, rng.choice((500, 500, 501, 1003, 200)), rng.choice((blocks, blocks, blocks, ())))
        flags = ACK if rng.random() < 0.9 else rng.choice(OTHERS)
        options = rng.choice((TIMESTAMP, TIMESTAMP, b"", b"\1" * 4, b"\x02\x04\x05\xb4"))
        found.append(its._replace(flags=flags, payload=b"x" * 10 if rng.random() < 0.05 else b"", options=options))
    return found


@pytest.mark.parametrize(("carrier", "family"), [(each, 4) for each in Carrier] + [(Carrier.MAC, 6), (Carrier.SRV6, 6)])
def test_every_second_ack_that_shows_no_more_than_overtaking_is_left_out(
    make_labeller: MakeLabeller, carrier: Carrier, family: int
) -> None:
    labeller, twin = make_labeller(carrier=carrier), Twin()
    labeller.swap(table()._replace(prefix=None if carrier is Carrier.OPTION else PREFIX))
    sent = segments(random.Random(carrier.value + str(family)), 1500)
    ran = [labeller.run(its.frame(family)).retval == STOLEN for its in sent]
    assert ran == [twin.leaves_out(its) for its in sent]
    assert labeller.counters()["ack_filtered"] == sum(ran) > 100


@pytest.mark.parametrize("policy", [Policy.HASH, Policy.FLOWLET, Policy.FLOWCELL])
def test_flows_whose_packets_stay_in_order_have_all_their_acks(make_labeller: MakeLabeller, policy: Policy) -> None:
    labeller = make_labeller()
    labeller.swap(table(policy=policy))
    assert {labeller.run(Segment(1).frame()).retval for _ in range(3 * FIRST)} == {0xFFFFFFFF}


def test_what_is_left_out_takes_no_turn(make_labeller: MakeLabeller) -> None:
    labeller = make_labeller()
    labeller.swap(table())
    carried = [outcome.data[10:12] for _ in range(300) if (outcome := labeller.run(Segment(1).frame())).retval != STOLEN]
    assert 150 < len(carried) < 200
    assert all(len(set(carried[at : at + 4])) == len(INTER_POD) for at in range(len(carried) - 3))
