"""Which flows are sprayed, and that every other flow keeps its path for as long as it is a candidate."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.label.spray import Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, FlowKey, flow_hash, scaled
from sopa_ryu.agent.paths.path_table import Label, PathTable, Policy
from tests.bpf.labelling import label_of
from tests.helpers.frames import FAR, HERE, ICMP, INTER_POD, INTER_RACK, INTRA_RACK, NEAR, SCTP, TCP, UDP, echo, ip, ports, table

RULES = ("tcp", "all", "udp", "sctp,icmp", "udp:5001", "tcp,udp:4000-4003,udp:9", "132,1,6,udp:0-65535")
MANY = tuple((up1, up2) for up2 in range(24) for up1 in range(24))


class Model:
    """What becomes of each packet; another table may take the place of the one in force at any time."""

    def __init__(self, table: PathTable, spray: Spray) -> None:
        self.table, self.spray = table, spray
        self._turns: Counter[FlowKey] = Counter()
        self._kept: dict[FlowKey, Label] = {}

    def choose(self, key: FlowKey) -> Label | None:
        candidates = self.table.candidates(key.daddr)
        if not candidates:
            return None
        by_hash = candidates[scaled(flow_hash(self.spray.hashed(key), self.table.seed), len(candidates))]
        if self.table.policy is Policy.HASH or key.proto & FRAGMENT_KEY:
            return by_hash
        if self.spray.sprays(key):
            if len(candidates) > 1 or key in self._turns:
                self._turns[key] += len(candidates) > 1
            return self.table.choose(key, self._turns[key] - (len(candidates) > 1))
        path = self._kept.get(key)
        path = path if path in candidates else by_hash
        if len(candidates) > 1 or key in self._kept:
            self._kept[key] = path
        return path


def packet(draw: random.Random) -> tuple[bytes, FlowKey]:
    """A packet of one of some hundred flows, or a fragment, with its key."""
    dst, proto = draw.choice((FAR, FAR, "10.2.0.2", NEAR)), draw.choice((TCP, UDP, UDP, SCTP, ICMP, 47))
    sport, dport, ident = draw.randrange(3999, 4005), draw.choice((9, 5001, 7000)), draw.randrange(1 << 16)
    if proto == ICMP:
        return echo(sport, dst=dst), FlowKey.of(HERE, dst, ICMP, 0, sport)
    if draw.random() < 0.1:
        return ip(ports(sport, dport), dst=dst, proto=proto, fragment=0x2000, ident=ident), FlowKey.of(
            HERE, dst, proto | FRAGMENT_KEY, 0, ident
        )
    key = FlowKey.of(HERE, dst, proto, sport, dport) if proto != 47 else FlowKey.of(HERE, dst, proto, 0, 0)
    return ip(ports(sport, dport), dst=dst, proto=proto), key


@pytest.mark.parametrize(
    ("rules", "carrier"),
    [*((its, Carrier.MAC) for its in RULES), *(("tcp,udp:4000-4003,udp:9", its) for its in Carrier if its != "mac")],
)
def test_program_and_model_choose_alike_whatever_is_sent_and_swapped(
    make_labeller: Callable[..., Labeller], rules: str, carrier: Carrier
) -> None:
    spray = Spray.of(rules)
    labeller = make_labeller(carrier=carrier, fabric_mtu=9000, spray=spray)
    its = table(inter_pod=INTER_POD * 3)
    tables = [
        its,
        its._replace(sets=(INTRA_RACK, INTER_RACK, MANY)),
        its._replace(sets=(INTRA_RACK, INTER_RACK[:1], INTER_POD[:1])),
    ]
    tables += [its._replace(sets=(INTRA_RACK, INTER_RACK[1:], tuple(x for x in MANY if x[1] != gone))) for gone in (0, 1, 20)]
    draw, model, before = random.Random(rules), Model(its, spray), labeller.counters()["hashed"]
    hashed = 0
    for number in range(4000):
        if number % 200 == 0:
            model.table = draw.choice(tables)
            labeller.swap(model.table)
        frame, key = packet(draw)
        assert label_of(labeller.run(frame).data) == model.choose(key), (number, key)
        hashed += not spray.sprays(key)
    counted = labeller.counters()["hashed"] - before
    assert counted <= hashed  # flows with one candidate are the rest
    assert counted > 0 or rules == "all"


def test_a_failure_moves_only_the_flows_whose_paths_it_takes_and_its_end_moves_none(make_labeller: Callable[..., Labeller]) -> None:
    labeller = make_labeller(spray=Spray.of("tcp"))
    whole = table(inter_pod=MANY)
    fewer = table(inter_pod=tuple(path for path in MANY if path[0] != 3))
    frames = [ip(ports(sport, 443), proto=UDP) for sport in range(2000)]

    def paths(its: PathTable) -> list[Label | None]:
        labeller.swap(its)
        return [label_of(labeller.run(frame).data) for frame in frames]

    first, second, third = paths(whole), paths(fewer), paths(whole)
    assert len(set(first)) > 500
    moved = [index for index, path in enumerate(first) if path != second[index]]
    assert moved == [index for index, path in enumerate(first) if path is not None and path[0] == 3]
    assert third == second


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_written_as_they_are_read(rules: str) -> None:
    assert Spray.of(str(Spray.of(rules))) == Spray.of(rules)
    assert str(Spray.of("TCP, udp:53", forwarded=True)) == "tcp,udp:53,forwarded"
