"""The policies that look at more than a packet's number: least-used, flowlet, flowcell."""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, FlowKey, flow_hash, random_choice
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy
from tests.bpf.labelling import label_of
from tests.helpers.frames import FAR, HERE, INTER_POD, INTER_RACK, INTRA_RACK, NEAR, TCP, ip, ports, table, tcp
from tests.helpers.path_tables import flow_positions, set_flow

GAP_NS = 100 * 10**9
"""Longer than a test stands still; a machine may run for less, and the clock's difference is right all the same."""
MANY = tuple((up1, up2) for up2 in range(24) for up1 in range(24))


CHOICES, LOOKS_BACK = 8, 65_536


class LeastUsed:
    """`Policy.LEAST_USED` on one processor; another table may take the place of the one in force at any time."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self._load: Counter[Label] = Counter()  # by word, the bytes that a choice compares
        self._turns: Counter[FlowKey] = Counter()

    def choose(self, key: FlowKey, size: int) -> Label:
        candidates = self.table.candidates(key.daddr)
        assert candidates
        if len(candidates) == 1:
            chosen = candidates[0]
        elif key.proto & FRAGMENT_KEY:
            chosen = self.table.choose(key, 0) or candidates[0]
        else:
            start = random_choice(flow_hash(key, self.table.seed), self._turns[key], len(candidates))
            self._turns[key] += 1
            compared = [*candidates[start:], *candidates[:start]][:CHOICES]
            chosen = min(compared, key=self._load.__getitem__)  # the first of equal ones
            self._load[chosen] = max(self._load[chosen], max(self._load[word] for word in compared) - LOOKS_BACK)
        self._load[chosen] += size
        return chosen


def frame_of(size: int, sport: int = 40000, **fields: object) -> bytes:
    """A TCP packet of so many bytes with its Ethernet header."""
    return ip(ports(sport, 5001, size - 34), **fields)  # type: ignore[arg-type]


def word(labeller: Labeller, frame: bytes) -> Label:
    taken = label_of(labeller.run(frame).data)
    assert taken is not None
    return taken


def key_of(sport: int, dst: str = FAR) -> FlowKey:
    return FlowKey.of(HERE, dst, TCP, sport, 5001)


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize("inter_pod", [INTER_POD, MANY], ids=len)
def test_program_and_model_choose_alike_whatever_is_sent_and_swapped(
    make_labeller: Callable[..., Labeller], inter_pod: tuple[Label, ...], carrier: Carrier
) -> None:
    labeller = make_labeller(carrier=carrier, fabric_mtu=9000)
    its = table(policy=Policy.LEAST_USED, inter_pod=inter_pod)
    lone = its._replace(sets=(INTRA_RACK, INTER_RACK, inter_pod, inter_pod[:1]), destinations=(0, 1, 2, 2, 3, 2, 2, 2))
    fewer = its._replace(sets=(INTRA_RACK, INTER_RACK[:1], inter_pod[1::2]))
    draw, model = random.Random(len(inter_pod)), LeastUsed(its)
    for number in range(6000):
        if number % 500 == 0:
            model.table = draw.choice((its, lone, fewer))
            labeller.swap(model.table)
        size, sport, dst = draw.choice((60, 700, 1514)), draw.randrange(9), draw.choice((FAR, FAR, NEAR, "10.2.0.2"))
        if draw.random() < 0.1:
            key = FlowKey.of(HERE, dst, TCP | FRAGMENT_KEY, 0, number)
            assert word(labeller, frame_of(size, dst=dst, fragment=0x2000, ident=number)) == model.choose(key, size)
        else:
            assert word(labeller, frame_of(size, sport, dst=dst)) == model.choose(key_of(sport, dst), size)


def set_last_packet(labeller: Labeller, sport: int, ago_ns: int) -> None:
    set_flow(labeller, key_of(sport), mark=(time.monotonic_ns() - ago_ns) % (1 << 64))


def test_flows_have_gaps_of_their_own(labeller: Labeller) -> None:
    its = table(policy=Policy.FLOWLET, inter_pod=MANY)._replace(parameter=GAP_NS)
    labeller.swap(its)
    draw, ended = random.Random(3), Counter[int]()
    for number in range(1500):
        sport = draw.randrange(5)
        if draw.random() < 0.2 and number > 100:
            set_last_packet(labeller, sport, 2 * GAP_NS)
            ended[sport] += 1
        assert word(labeller, frame_of(60, sport)) == its.choose(key_of(sport), ended[sport])


def test_the_gap_is_time_since_the_flows_last_packet(labeller: Labeller) -> None:
    labeller.swap(table(policy=Policy.FLOWLET)._replace(parameter=GAP_NS))
    labeller.run(tcp())
    [begun] = flow_positions(labeller).values()
    for _ in range(3):  # less than the gap each, more in all
        set_last_packet(labeller, 40000, GAP_NS * 6 // 10)
        labeller.run(tcp())
    assert flow_positions(labeller) == {key_of(40000): begun}
    labeller.swap(table(policy=Policy.FLOWLET)._replace(parameter=50_000_000))
    time.sleep(0.2)  # the gap itself, by the kernel's clock
    labeller.run(tcp())
    assert flow_positions(labeller) == {key_of(40000): begun + 1}


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


@pytest.mark.parametrize("policy", Policy)
def test_fragments_and_a_rack_with_one_path_need_no_state(labeller: Labeller, policy: Policy) -> None:
    """All fragments of a datagram take one path."""
    its = table(policy=policy)
    labeller.swap(its)
    for ident in range(20):
        key = FlowKey.of(HERE, FAR, TCP | FRAGMENT_KEY, 0, ident)
        for fragment in (0x2000, 0x2010, 0x0020):
            assert word(labeller, frame_of(60, ident, fragment=fragment, ident=ident)) == its.choose(key, 0)
    labeller.run(tcp(dst="10.0.0.3"))
    assert flow_positions(labeller) == {}


def test_policies_have_the_command_lines_names() -> None:
    assert [Policy.named(policy.option_name) for policy in Policy] == list(Policy)
    with pytest.raises(ValueError, match="choose from round-robin, random, hash, least-used, flowlet, flowcell, sopa-skip"):
        Policy.named("rr")
