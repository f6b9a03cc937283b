"""Which path a packet takes by each policy, which flows are sprayed, and that every other flow keeps its path."""

import random
import struct
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Address

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.label.spray import Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, IPV6_KEY, FlowKey, flow_hash, random_choice, scaled
from sopa_ryu.agent.paths.path_table import Label, Policy, WayOut
from tests.bpf.test_own_traffic import send
from tests.helpers.frames import (
    FAR,
    HERE,
    ICMP,
    INTER_POD,
    INTER_RACK,
    INTRA_RACK,
    PREFIX,
    SCTP,
    TCP,
    UDP,
    chained6,
    ip,
    label_of,
    ports,
    table,
    tcp,
)
from tests.helpers.path_tables import flow_positions, set_flow

GAP_NS = 100 * 10**9
"""Longer than a test stands still; a machine may run for less, and the clock's difference is right all the same."""
MANY = tuple((up1, up2) for up2 in range(24) for up1 in range(24))
WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), labels) for pod, labels in enumerate((INTRA_RACK, INTER_POD, INTER_RACK)))
GRE = 47
RULES = ("tcp", "udp", "sctp,icmp", "udp:5001", "tcp,udp:4000-4003,udp:9", "132,1,6,udp:0-65535")
CHOICES, LOOKS_BACK = 8, 65_536
LONGER_THAN_A_TEST = 1 << 62  # nanoseconds of a gap, or bytes of a cell


class Twin:
    """What becomes of each packet on one processor; another table may take the place of the one in force at any time.

    ``turns`` has how often each flow has had a turn, ``kept`` the path of each that keeps one.
    """

    def __init__(self, spray: Spray) -> None:
        self.table, self.spray = table(), spray
        self.turns, self.kept = Counter[FlowKey](), dict[FlowKey, Label]()
        self._ways: dict[FlowKey, WayOut | None] = {}
        self._load = Counter[Label]()  # by word, the bytes that `Policy.LEAST_USED` compares

    def way(self, key: FlowKey) -> WayOut | None:
        """Return the gateway of a flow: all tables have the same ones."""
        if key not in self._ways:
            self._ways[key] = way = self.table.way_out(self.spray.hashed(key))
            assert self.table._replace(seed=77).way_out(self.spray.hashed(key)) == way  # the agent restarts
        return self._ways[key]

    def choose(self, key: FlowKey, size: int) -> Label | None:
        its, policy = self.table, self.table.policy
        way = self.way(key)
        candidates = way.labels if way else its.candidates(key.daddr)
        if not candidates:
            return None
        start = its.choose(self.spray.hashed(key), 0)
        assert start is not None
        if key.proto & FRAGMENT_KEY or policy is Policy.HASH:
            chosen = start
        elif not self.spray.sprays(key):
            by_hash = candidates[scaled(flow_hash(key, its.seed), len(candidates))]
            chosen = self.kept[key] if self.kept.get(key) in candidates else by_hash
            if len(candidates) > 1 or key in self.kept:
                self.kept[key] = chosen
        elif len(candidates) == 1 or policy in (Policy.FLOWLET, Policy.FLOWCELL):
            chosen = start
        else:
            turn, self.turns[key] = self.turns[key], self.turns[key] + 1
            chosen = its.choose(key, turn) or start
            if policy is Policy.LEAST_USED:
                first = random_choice(flow_hash(key, its.seed), turn, len(candidates))
                compared = [*candidates[first:], *candidates[:first]][:CHOICES]
                chosen = min(compared, key=self._load.__getitem__)  # the first of equal ones
                self._load[chosen] = max(self._load[chosen], max(self._load[word] for word in compared) - LOOKS_BACK)
        self._load[chosen] += size
        return chosen


def random_flows(rng: random.Random, count: int) -> list[tuple[bytes, FlowKey]]:
    """Packets of flows within the fabric and to the outside, by both families, and fragments."""
    flows = []
    for _ in range(count):
        src, dst = (f"10.{rng.randrange(4)}.{rng.randrange(2)}.{rng.randrange(2, 255)}" for _ in range(2))
        dst = rng.choice((dst, dst, str(IPv4Address(rng.randrange(11 << 24, 0xE << 28)))))
        sport, dport = (rng.choice((rng.randrange(65536), rng.randrange(*few))) for few in ((3999, 4005), (9, 10)))
        proto, dport = rng.choice((TCP, UDP, UDP, SCTP, ICMP, GRE)), rng.choice((dport, 5001))
        payload = ports(sport, dport, rng.choice((20, 40, 700, 1400)))
        shape = rng.choice(({}, {"options": bytes(8)}, {"vlan": 9}, {"options": bytes(32), "vlan": 9}))  # the same flow
        if proto not in (ICMP, GRE) and rng.random() < 0.5:
            flows.append(random_flow6(rng, proto, payload))
            continue
        key = FlowKey.of(src, dst, proto, *((0, 0) if proto == GRE else (sport, dport)))
        if proto == ICMP:
            payload, key = struct.pack("!BBHHH", 8, 0, 0, sport, 1), FlowKey.of(src, dst, ICMP, 0, sport)
        if rng.random() < 0.2:
            shape, key = {"fragment": 0x2000, "ident": sport}, FlowKey.of(src, dst, proto | FRAGMENT_KEY, 0, sport)
        flows.append((ip(payload, src=src, dst=dst, proto=proto, **shape), key))
    return flows


def random_flow6(rng: random.Random, proto: int, payload: bytes) -> tuple[bytes, FlowKey]:
    src, dst = (f"fd53:4f50:4100:{rng.randrange(4) << 8 | rng.randrange(2):x}::{rng.randrange(2, 255):x}" for _ in range(2))
    dst = rng.choice((dst, f"2001:db8::{rng.randrange(1 << 16):x}"))
    headers = rng.choice(([], [(0, bytes(8))], [(60, bytes(8))], [(44, bytes(8))]))  # the last is an atomic fragment
    sport, dport = struct.unpack_from("!HH", payload)
    key = FlowKey.of(src, dst, proto, sport, dport, PREFIX)
    if rng.random() < 0.2:
        headers = [(44, struct.pack("!HHI", 0, 1, sport))]
        key = FlowKey.of(src, dst, proto | FRAGMENT_KEY, 0, sport, PREFIX)
    return chained6(payload, proto, *headers, src=src, dst=dst), key


EVERY = [
    *((policy, carrier, "all") for policy in Policy if policy is not Policy.SOPA_SKIP for carrier in Carrier),
    *((Policy.ROUND_ROBIN, Carrier.MAC, rules) for rules in RULES),
    *((Policy.ROUND_ROBIN, carrier, RULES[4]) for carrier in Carrier),
    (Policy.LEAST_USED, Carrier.MAC, RULES[4]),
]


@pytest.mark.parametrize(("policy", "carrier", "rules"), EVERY)
def test_program_and_twin_choose_alike_whatever_is_sent_and_swapped(
    make_labeller: Callable[..., Labeller], policy: Policy, carrier: Carrier, rules: str
) -> None:
    """After a swap a flow goes on over other candidates; out of the fabric its packets go to one gateway."""
    rng, spray = random.Random(f"{policy} {carrier} {rules}"), Spray.of(rules)
    labeller, twin = make_labeller(carrier=carrier, fabric_mtu=9000, spray=spray), Twin(spray)
    prefix, before = None if carrier is Carrier.OPTION else PREFIX, labeller.counters()["hashed"]
    flows = [(frame, key) for frame, key in random_flows(rng, 150) if prefix or not key.proto & IPV6_KEY]
    hashed, several = 0, set[FlowKey]()
    for number in range(1200):
        if number % 100 == 0:
            paths = rng.choice((INTER_POD, INTER_POD * 3, INTER_POD[1:], INTER_POD[::2], INTER_POD[:1], MANY, MANY[::3]))
            its = table(policy=policy, inter_pod=paths)._replace(parameter=LONGER_THAN_A_TEST, prefix=prefix, ways_out=WAYS)
            twin.table = its._replace(sets=(INTRA_RACK, INTER_RACK[: rng.randrange(1, 3)], paths))
            labeller.swap(twin.table)
        frame, key = rng.choice(flows)
        labelled, way = labeller.run(frame).data, twin.way(key)
        is_left = carrier is Carrier.SRV6 and frame[12:14] == b"\x81\x00"
        choice = None if is_left else twin.choose(key, len(frame))
        assert label_of(labelled) == (None if carrier is Carrier.SRV6 and choice == INTRA_RACK[0] else choice), (number, key)
        assert labelled[:6] == (frame[:6] if way is None or carrier is Carrier.SRV6 else way.mac)
        hashed += not spray.sprays(key)
        if len(way.labels if way else twin.table.candidates(key.daddr) or ()) > 1:
            several.add(key)
    found = flow_positions(labeller)
    assert {key: count for key, count in found.items() if count and spray.sprays(key)} == +twin.turns
    assert not [key for key in found if key.proto & FRAGMENT_KEY or key not in several], "these need no state"
    counted = labeller.counters()["hashed"] - before
    assert counted <= hashed  # flows with one candidate are the rest
    assert counted > 0 or rules == "all"


def frame_of(size: int, sport: int = 40000, **fields: object) -> bytes:
    """A TCP packet of so many bytes with its Ethernet header."""
    return ip(ports(sport, 5001, size - 34), **fields)  # type: ignore[arg-type]


def key_of(sport: int, dst: str = FAR) -> FlowKey:
    return FlowKey.of(HERE, dst, TCP, sport, 5001)


def test_a_gap_is_time_since_the_last_packet_of_its_own_flow(labeller: Labeller) -> None:
    its = table(policy=Policy.FLOWLET, inter_pod=MANY)._replace(parameter=GAP_NS)
    labeller.swap(its)
    draw, ended = random.Random(3), Counter[int]()
    for number in range(1500):
        sport = draw.randrange(5)
        if draw.random() < 0.5 and number > 100:
            tenths = draw.choice((6, 6, 20))  # less than the gap each, more in all; and more
            set_flow(labeller, key_of(sport), mark=(time.monotonic_ns() - GAP_NS * tenths // 10) % (1 << 64))
            ended[sport] += tenths > 10
        assert send(labeller, frame_of(60, sport)) == its.choose(key_of(sport), ended[sport])


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize("cell", [1, 1514, 10_000, 65_536])
def test_the_path_changes_with_the_first_packet_behind_a_flowcells_border(
    make_labeller: Callable[..., Labeller], cell: int, carrier: Carrier
) -> None:
    """Flows have cells of their own, and a super-packet counts in full."""
    labeller = make_labeller(carrier=carrier, fabric_mtu=9000)
    its = table(policy=Policy.FLOWCELL)._replace(parameter=cell)
    labeller.swap(its)
    draw, sent = random.Random(4), Counter[int]()
    for _ in range(600):
        size, sport = draw.choice((60, 1514, 3000)), draw.randrange(3)
        taken = label_of(labeller.run(frame_of(size, sport), gso_segments=3 if size == 3000 else 0).data)
        assert taken == its.choose(key_of(sport), sent[sport] // cell)
        sent[sport] += size


def test_with_skip_counters_fragments_and_a_rack_with_one_path_need_no_state(labeller: Labeller) -> None:
    labeller.swap(its := table(policy=Policy.SOPA_SKIP))
    for ident in range(20):
        key = FlowKey.of(HERE, FAR, TCP | FRAGMENT_KEY, 0, ident)
        for fragment in (0x2000, 0x2010, 0x0020):
            assert send(labeller, frame_of(60, ident, fragment=fragment, ident=ident)) == its.choose(key, 0)
    labeller.run(tcp(dst="10.0.0.3"))
    assert flow_positions(labeller) == {}


def test_policies_have_the_command_lines_names() -> None:
    assert [Policy.named(policy.option_name) for policy in Policy] == list(Policy)
    with pytest.raises(ValueError, match="choose from round-robin, random, hash, least-used, flowlet, flowcell, sopa-skip"):
        Policy.named("rr")


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_written_as_they_are_read(rules: str) -> None:
    assert Spray.of(str(Spray.of(rules))) == Spray.of(rules)
    assert str(Spray.of("TCP, udp:53", forwarded=True)) == "tcp,udp:53,forwarded"
