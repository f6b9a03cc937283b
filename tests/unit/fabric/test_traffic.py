"""Results from port counters: rates of ports and links, and how evenly uplinks are used."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.fabric.traffic import MIN_BITS_PER_SECOND, PortCounters, Rate, Traffic, ends
from topologies import Failures, FatTree, Level, Link, Switch
from topologies.failures import Reason

FRESH_SECONDS = 15.0
RATE = MIN_BITS_PER_SECOND
"""Of an uplink, in bits per second: enough to be judged, and a whole number of bytes."""

EDGE, FAR = Switch(Level.EDGE, 0, 0), Switch(Level.AGGREGATION, 4, 1)


class Measured:
    def __init__(self, k: int = 4) -> None:
        self.tree = FatTree(k)
        self.now = 1000.0
        self.traffic = Traffic(self.tree, FRESH_SECONDS, lambda: self.now)

    def tell(self, switch: Switch, ports: Mapping[int, PortCounters], after: float = 0.0) -> None:
        self.now += after
        self.traffic.take(switch, ports, self.now)

    def carry(self, switch: Switch, ports: Mapping[int, Rate]) -> None:
        """Make a switch tell within one second of counters that give those rates."""
        self.tell(switch, {port: counted(0, 0) for port in ports})
        now = {port: counted(int(rate.receive) // 8, int(rate.transmit) // 8) for port, rate in ports.items()}
        self.tell(switch, now, after=1)


def counted(receive: int | None, transmit: int | None, seconds: float | None = None) -> PortCounters:
    """A port that has received and transmitted so many bytes, and nothing else; for so long."""
    return PortCounters(receive, transmit, None, None, None, None, None, None, seconds)


Sample = tuple[float, int | None, int | None, float | None]
"""Seconds after the one before, bytes received and transmitted, and the age of the port."""
START: Sample = (0, 100, 200, None)
RATES: dict[str, tuple[list[Sample], tuple[float, float] | None]] = {
    "one sample": ([START], None),
    "two samples": ([START, (4, 200, 2200, None)], (8 * 100 / 4, 8 * 2000 / 4)),
    "the last two": ([START, (1, 1000, 2000, None), (1, 1500, 3000, None)], (8 * 500, 8 * 1000)),
    "nothing is carried": ([START, (1, 100, 200, None)], (0, 0)),
    "receive falls": ([START, (1, 99, 300, None)], None),
    "transmit falls": ([START, (1, 300, 199, None)], None),
    "after a fall": ([START, (1, 0, 0, None), (1, 300, 500, None)], (8 * 300, 8 * 500)),
    "younger": ([(0, 100, 100, 3.0), (5, 900, 900, 2.5)], None),
    "after a younger one": ([(0, 100, 100, 3.0), (5, 900, 900, 2.5), (5, 1000, 1100, 7.5)], (160, 320)),
    "recreated meanwhile": ([(0, 100, 100, 2.0), (5, 5_000_000, 5_000_000, 3.9)], None),
    "older": ([(0, 0, 0, 3.0), (1, 100, 200, 8.0)], (800, 1600)),
    "as old": ([(0, 0, 0, 3.0), (1, 100, 200, 3.0)], (800, 1600)),
    "no age before": ([(0, 0, 0, None), (1, 100, 200, 1.0)], (800, 1600)),
    "no age now": ([(0, 0, 0, 9.0), (1, 100, 200, None)], (800, 1600)),
    "receive uncounted first": ([(0, None, 100, None), (1, 500, 500, None)], None),
    "transmit uncounted now": ([START, (1, 500, None, None)], None),
    "at one moment": ([START, (0, 300, 300, None)], None),
    "in the wrong order": ([START, (-1, 300, 300, None)], None),
    "as long as it is believed": ([START, (FRESH_SECONDS, 250, 500, None)], (80, 160)),
    "too old to be believed": ([START, (FRESH_SECONDS + 0.001, 200, 400, None)], None),
    "after one too old": ([START, (FRESH_SECONDS + 1, 200, 400, None), (1, 300, 600, None)], (800, 1600)),
}


@pytest.mark.parametrize(("samples", "rate"), RATES.values(), ids=RATES)
def test_a_rate_is_that_of_the_last_two_samples_of_a_count(samples: list[Sample], rate: tuple[float, float] | None) -> None:
    its = Measured()
    for after, receive, transmit, seconds in samples:
        its.tell(EDGE, {1: counted(receive, transmit, seconds)}, after)
    assert its.traffic.port_rates(EDGE) == ({} if rate is None else {1: pytest.approx(Rate(*rate))})
    assert its.traffic.totals(EDGE) == {1: counted(*samples[-1][1:])}
    its.now += FRESH_SECONDS + 0.001
    assert (its.traffic.totals(EDGE), its.traffic.port_rates(EDGE)) == ({}, {})


def test_a_port_that_was_set_back_or_is_new_leaves_the_others_alone() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(100, 100), 2: counted(100, 100), 3: counted(100, 100, 9.0), 5: counted(1, 1)})
    its.tell(EDGE, {1: counted(0, 0), 2: counted(200, 300), 3: counted(100, 100, 1.0), 4: counted(9, 9)}, after=1)
    assert its.traffic.port_rates(EDGE) == {2: Rate(8 * 100, 8 * 200)}
    assert set(its.traffic.totals(EDGE)) == {1, 2, 3, 4}


def test_a_link_is_measured_at_its_lower_switch_and_while_that_is_not_known_at_its_upper_end() -> None:
    its = Measured()
    tree = its.tree
    for link in tree.links():
        found = [(switch, tree.neighbour(switch, port)) for switch, port in ends(tree, link)]
        there_and_back = [(link.lower, link.upper), (link.upper, link.lower)]
        assert found == [(here, there) for here, there in there_and_back if isinstance(here, Switch)]
        assert its.traffic.rates(link) is None
        its.carry(link.upper, {tree.port(link.upper, link.lower): Rate(receive=8 * 30, transmit=8 * 40)})
        assert its.traffic.rates(link) == (8 * 30, 8 * 40)
        if isinstance(link.lower, Switch):
            its.carry(link.lower, {tree.port(link.lower, link.upper): Rate(receive=8 * 10, transmit=8 * 20)})
            assert its.traffic.rates(link) == (8 * 20, 8 * 10)
            its.traffic.forget(link.lower)
            assert its.traffic.rates(link) == (8 * 30, 8 * 40)
        its.traffic.forget(link.upper)


NEAR = ["a0_0", "a0_1", "a0_2", "e0_0-a0_0", "e0_0-a0_2", "c1_0", "c1_2", "a4_1-c1_1", "a4_1-c1_2"]
ELSEWHERE = ["a1_1", "e0_1-a0_1", "c0_0", "a0_0-c0_0", "h0_0_2-e0_0", "a3_1-c1_2"]
SENT = st.none() | st.sampled_from([0, 1 - 8 / RATE, 1, 2, 3, 9])


@settings(max_examples=400)
@given(
    st.sampled_from([EDGE, FAR]),
    st.lists(SENT, min_size=3, max_size=3),
    st.sets(st.sampled_from(NEAR + ELSEWHERE), max_size=3),
    st.sampled_from(["down", Reason.DRAINED]),
)
def test_unevenness_is_the_largest_rate_that_uplinks_in_use_send_over_their_mean(
    switch: Switch, sent: list[float | None], failed: set[str], reason: str
) -> None:
    measured = Measured(6)
    uplinks = [Link(switch, measured.tree.uplink(switch, index)) for index in range(3)]
    rates = {
        measured.tree.port(*link): Rate(90 * RATE, RATE * rate)
        for link, rate in zip(uplinks, sent, strict=True)
        if rate is not None
    }
    measured.carry(switch, {1: Rate(0, 90 * RATE), **rates})
    in_use = [
        rate
        for link, rate in zip(uplinks, sent, strict=True)
        if failed.isdisjoint((measured.tree.name(link), measured.tree.name(link.upper)))
    ]
    known = [rate for rate in in_use if rate is not None]
    # next to nothing is not judged
    expected = max(known) * len(known) / sum(known) if len(known) > 1 and sum(known) >= len(known) else None
    found = measured.traffic.imbalance(switch, Failures(measured.tree, dict.fromkeys(failed, reason)))
    assert found == (pytest.approx(expected) if expected and known == in_use else None)
    assert measured.traffic.imbalance(Switch(Level.CORE, 0, 0), Failures(measured.tree)) is None  # it has no uplinks
