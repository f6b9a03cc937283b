"""Results from port counters: rates of ports and links, and how evenly uplinks are used."""

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.fabric.traffic import MIN_BITS_PER_SECOND, PortCounters, Rate, Traffic, ends
from topologies import Failures, FatTree, Level, Link, Switch
from topologies.failures import Reason

FRESH_SECONDS = 15.0
SIZES = [4, 6]
RATE = MIN_BITS_PER_SECOND
"""Of an uplink, in bits per second: enough to be judged, and a whole number of bytes."""

EDGE = Switch(Level.EDGE, 0, 0)
ABOVE, FAR = Switch(Level.AGGREGATION, 0, 0), Switch(Level.AGGREGATION, 4, 1)


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

    def send_up(self, switch: Switch, rates: Mapping[int, float]) -> None:
        self.carry(switch, {self.tree.uplink_port(Level.EDGE, index): Rate(0, rate) for index, rate in rates.items()})

    def imbalance(self, switch: Switch, *failed: str, reason: str = "down") -> float | None:
        return self.traffic.imbalance(switch, Failures(self.tree, dict.fromkeys(failed, reason)))


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
def test_a_rate_is_that_of_the_last_two_samples_of_a_count(
    samples: list[Sample], rate: tuple[float, float] | None
) -> None:
    its = Measured()
    for after, receive, transmit, seconds in samples:
        its.tell(EDGE, {1: counted(receive, transmit, seconds)}, after)
    assert its.traffic.port_rates(EDGE) == ({} if rate is None else {1: pytest.approx(Rate(*rate))})
    assert its.traffic.totals(EDGE) == {1: counted(*samples[-1][1:])}


def test_a_port_that_was_set_back_or_is_new_leaves_the_others_alone() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(100, 100), 2: counted(100, 100), 3: counted(100, 100, 9.0), 5: counted(1, 1)})
    its.tell(EDGE, {1: counted(0, 0), 2: counted(200, 300), 3: counted(100, 100, 1.0), 4: counted(9, 9)}, after=1)
    assert its.traffic.port_rates(EDGE) == {2: Rate(8 * 100, 8 * 200)}
    assert set(its.traffic.totals(EDGE)) == {1, 2, 3, 4}


def test_a_sample_expires_after_its_time() -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(8, 8)})
    its.now += FRESH_SECONDS
    assert (its.traffic.totals(EDGE), its.traffic.port_rates(EDGE)) == ({1: counted(1, 1)}, {1: Rate(8, 8)})
    its.now += 0.001
    assert (its.traffic.totals(EDGE), its.traffic.port_rates(EDGE)) == ({}, {})


def test_a_switch_that_is_gone_is_forgotten_at_once_and_begins_anew() -> None:
    its = Measured()
    its.traffic.forget(EDGE)  # of which nothing is known
    for switch in (EDGE, ABOVE):
        its.carry(switch, {1: Rate(8, 8)})
    its.traffic.forget(EDGE)
    assert (its.traffic.totals(EDGE), its.traffic.port_rates(EDGE)) == ({}, {})
    assert its.traffic.port_rates(ABOVE) == {1: Rate(8, 8)}
    its.tell(EDGE, {1: counted(100, 100)}, after=1)
    assert its.traffic.port_rates(EDGE) == {}


@pytest.mark.parametrize("k", SIZES)
def test_a_link_is_measured_at_its_lower_switch_and_without_that_at_its_upper_end(k: int) -> None:
    its = Measured(k)
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
        its.traffic.forget(link.upper)
        if isinstance(link.lower, Switch):
            its.traffic.forget(link.lower)


def _stale(its: Measured) -> None:
    its.now += FRESH_SECONDS + 1
    its.carry(ABOVE, {1: Rate(8 * 30, 8 * 40)})


LOSSES: dict[str, Callable[[Measured], None]] = {
    "stale": _stale,
    "forgotten": lambda its: its.traffic.forget(EDGE),
    "set back": lambda its: its.tell(EDGE, {3: counted(0, 0)}, after=1),
    "unplugged": lambda its: its.tell(EDGE, {4: counted(0, 0)}, after=1),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_the_lower_end_is_believed_until_its_rate_is_not_known_any_more(lose: Callable[[Measured], None]) -> None:
    its = Measured()
    link = Link(EDGE, ABOVE)
    its.carry(ABOVE, {1: Rate(receive=8 * 30, transmit=8 * 40)})
    its.carry(EDGE, {3: Rate(receive=8 * 10, transmit=8 * 20)})
    assert its.traffic.rates(link) == (8 * 20, 8 * 10)
    lose(its)
    assert its.traffic.rates(link) == (8 * 30, 8 * 40)
    its.now += FRESH_SECONDS + 1
    assert its.traffic.rates(link) is None


@given(
    st.sampled_from([4, 6, 8]).flatmap(lambda k: st.lists(st.integers(0, 1000), min_size=k // 2, max_size=k // 2)),
    st.sampled_from([EDGE, ABOVE, Switch(Level.AGGREGATION, 1, 1)]),
)
def test_unevenness_is_the_largest_rate_over_the_mean(loads: list[int], switch: Switch) -> None:
    its = Measured(2 * len(loads))
    its.send_up(switch, {index: load * RATE for index, load in enumerate(loads)})
    if sum(loads) < len(loads):  # next to nothing is not judged
        assert its.imbalance(switch) is None
    else:
        assert its.imbalance(switch) == pytest.approx(max(loads) * len(loads) / sum(loads))


def test_unevenness_counts_only_what_uplinks_transmit() -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(0, 90 * RATE), 2: Rate(0, 0), 3: Rate(90 * RATE, 2 * RATE), 4: Rate(0, 2 * RATE)})
    assert its.imbalance(EDGE) == 1


# k=6, what the three uplinks of an edge or aggregation switch carry, what has failed, and the unevenness
UPLINKS: list[tuple[Switch, dict[int, float], tuple[str, ...], float | None]] = [
    (EDGE, {0: 6, 1: 6, 2: 0}, (), 1.5),
    (EDGE, {0: 6, 1: 6, 2: 0}, ("e0_0-a0_2",), 1),
    (EDGE, {0: 6, 1: 6, 2: 0}, ("a0_2",), 1),
    (EDGE, {0: 3, 1: 0, 2: 0}, (), 3),
    (EDGE, {0: 3 - 8 / RATE, 1: 0, 2: 0}, (), None),  # just less than enough on average
    (EDGE, {0: 1, 1: 1, 2: 0}, (), None),
    (EDGE, {0: 1, 1: 1, 2: 0}, ("a0_2",), 1),  # failed uplinks do not count into the average
    (EDGE, {0: 1, 1: 1, 2: 100}, ("a0_2",), 1),  # nor what they still send
    (EDGE, {0: 3, 1: 0, 2: 0}, ("a1_1", "e0_1-a0_1", "c0_0", "a0_0-c0_0", "h0_0_2-e0_0"), 3),  # failures elsewhere
    (EDGE, {0: 9, 1: 9, 2: 9}, ("a0_0", "a0_1"), None),  # with one uplink there is nothing to compare
    (EDGE, {0: 9, 1: 9, 2: 9}, ("a0_0", "e0_0-a0_1"), None),
    (EDGE, {0: 9, 1: 9, 2: 9}, ("a0_0", "a0_1", "a0_2"), None),
    (EDGE, {0: 1, 2: 1}, (), None),  # a usable uplink without a rate
    (EDGE, {0: 1, 2: 1}, ("a0_2",), None),
    (EDGE, {0: 1, 2: 1}, ("a0_1",), 1),
    (FAR, {0: 4, 1: 2, 2: 0}, ("c1_2",), 4 / 3),
    (FAR, {0: 4, 1: 2, 2: 0}, ("a4_1-c1_2",), 4 / 3),
    (FAR, {0: 4, 1: 2, 2: 0}, ("c2_1", "c0_2", "a3_1-c1_2"), 2),
]


@pytest.mark.parametrize(("switch", "rates", "failed", "imbalance"), UPLINKS)
@pytest.mark.parametrize("reason", ["down", Reason.DRAINED])
def test_an_uplink_that_has_failed_or_leads_to_what_has_is_left_out(
    switch: Switch, rates: dict[int, float], failed: tuple[str, ...], imbalance: float | None, reason: str
) -> None:
    its = Measured(6)
    its.send_up(switch, {index: rate * RATE for index, rate in rates.items()})
    assert its.imbalance(switch, *failed, reason=reason) == (imbalance and pytest.approx(imbalance))


def test_a_core_switch_and_one_with_one_uplink_have_none_to_compare() -> None:
    its, least = Measured(), Measured(2)
    core = its.tree.switch("c0_0")
    its.carry(core, {port: Rate(RATE, port * RATE) for port in range(1, 5)})
    least.send_up(EDGE, {0: 9 * RATE})
    assert (its.imbalance(core), least.imbalance(EDGE)) == (None, None)
