"""Demand estimation (Hedera, section 4.2): an example of four hosts, and what holds for every set of flows."""

import random
from collections import Counter

import pytest

from experiments.schemes.hedera.demand import estimate
from topologies import FatTree, Host

HOSTS = list(FatTree(4).hosts())
A, B, C, D = HOSTS[:4]


def test_the_example_of_four_hosts() -> None:
    """In the manner of the paper's figure 4: the third host's second flow takes what its first, limited one leaves."""
    flows = [(A, B), (A, C), (A, D), (B, A), (B, A), (B, C), (C, A), (C, D), (D, B), (D, B)]
    third = 1 / 3
    assert estimate(flows) == pytest.approx([third] * 7 + [2 * third] + [third] * 2)
    # a receiver's small flow leaves the rest to its large one
    assert estimate([(A, B), (A, C), (A, D), (B, D)]) == pytest.approx([third, third, third, 2 * third])
    assert estimate([]) == []


def drawn(seed: int) -> list[tuple[Host, Host]]:
    choose = random.Random(seed)
    hosts = HOSTS[: choose.randint(2, len(HOSTS))]
    return [(pair[0], pair[1]) for pair in (choose.sample(hosts, 2) for _ in range(choose.randint(1, 60)))]


@pytest.mark.parametrize("seed", range(60))
def test_every_flow_is_limited_by_an_interface_that_is_not_exceeded_and_the_order_of_flows_does_not_matter(
    seed: int,
) -> None:
    flows = drawn(seed)
    demands = estimate(flows)
    sent: Counter[Host] = Counter()
    received: Counter[Host] = Counter()
    by_pair: dict[tuple[Host, Host], float] = {}
    for (src, dst), demand in zip(flows, demands, strict=True):
        assert 0 < demand <= 1 + 1e-6
        assert by_pair.setdefault((src, dst), demand) == pytest.approx(demand)
        sent[src] += demand  # type: ignore[assignment]
        received[dst] += demand  # type: ignore[assignment]
    assert max(*sent.values(), *received.values()) <= 1 + 1e-6
    for src, dst in flows:
        assert max(sent[src], received[dst]) == pytest.approx(1)
    order = list(range(len(flows)))
    random.Random(-seed - 1).shuffle(order)
    assert estimate([flows[at] for at in order]) == pytest.approx([demands[at] for at in order])
