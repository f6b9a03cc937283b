"""Results from port counters: rates of ports and links, and how evenly uplinks are used."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.fabric.traffic import MIN_BITS_PER_SECOND, PortCounters, Rate, Traffic, ends
from topologies import Failures, FatTree, Level, Link, Switch
from topologies.failures import Reason

FRESH_SECONDS = 15.0
SIZES = [4, 6, 8]
RATE = MIN_BITS_PER_SECOND
"""Of an uplink, in bits per second: enough to be judged, and a whole number of bytes."""


class Clock:
    """A clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Measured:
    """The traffic of a fabric, with one method for each event."""

    def __init__(self, k: int = 4) -> None:
        self.tree = FatTree(k)
        self.clock = Clock()
        self.traffic = Traffic(self.tree, FRESH_SECONDS, self.clock)

    def tell(self, switch: Switch, ports: Mapping[int, PortCounters], after: float = 0.0) -> None:
        """Some seconds later a switch tells its counters."""
        self.clock.now += after
        self.traffic.take(switch, ports, self.clock.now)

    def carry(self, switch: Switch, ports: Mapping[int, Rate]) -> None:
        """Make a switch tell within one second of counters that give those rates."""
        self.tell(switch, {port: counted(0, 0) for port in ports})
        now = {port: counted(int(rate.receive) // 8, int(rate.transmit) // 8) for port, rate in ports.items()}
        self.tell(switch, now, after=1)

    def send_up(self, switch: Switch, rates: Mapping[int, float]) -> None:
        """Make a switch transmit at those rates, by the index of its uplinks."""
        self.carry(switch, {self.tree.uplink_port(Level.EDGE, index): Rate(0, rate) for index, rate in rates.items()})

    def imbalance(self, switch: Switch, *failed: str, reason: str = "down") -> float | None:
        return self.traffic.imbalance(switch, Failures(self.tree, dict.fromkeys(failed, reason)))


def counted(receive: int | None, transmit: int | None, seconds: float | None = None) -> PortCounters:
    """A port that has received and transmitted so many bytes."""
    return PortCounters(receive, transmit, 0, 0, 0, 0, 0, 0, seconds)


EDGE = Switch(Level.EDGE, 0, 0)
ABOVE = Switch(Level.AGGREGATION, 0, 0)


# -- ports ------------------------------------------------------------------------------------------------------------


def test_a_rate_is_known_from_the_second_sample_on() -> None:
    its = Measured()
    assert its.traffic.port_rates(EDGE) == {}
    its.tell(EDGE, {1: counted(10, 20)})
    assert its.traffic.port_rates(EDGE) == {}
    its.tell(EDGE, {1: counted(110, 2020)}, after=4)
    assert its.traffic.port_rates(EDGE) == {1: Rate(receive=8 * 100 / 4, transmit=8 * 2000 / 4)}


def test_a_rate_is_that_of_the_last_two_samples() -> None:
    its = Measured()
    for total in (0, 1000, 1500):
        its.tell(EDGE, {1: counted(total, 2 * total)}, after=1)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 500, 8 * 1000)}


def test_a_port_that_carries_nothing_has_a_rate_of_nothing() -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(0, 0)})
    assert its.traffic.port_rates(EDGE) == {1: Rate(0, 0)}


def test_a_missing_sample_makes_the_next_rate_one_over_a_longer_time() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(0, 0)})
    its.tell(EDGE, {1: counted(5_000, 10_000)}, after=10)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 500, 8 * 1000)}


@pytest.mark.parametrize("reset", [counted(99, 300), counted(300, 199), counted(0, 0)], ids=str)
def test_a_counter_that_falls_gives_no_rate_until_the_next_sample(
    reset: PortCounters,
) -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(8 * 100, 8 * 200)})
    its.tell(EDGE, {1: reset}, after=1)
    assert its.traffic.port_rates(EDGE) == {}
    its.tell(EDGE, {1: counted(400, 500)}, after=1)
    assert reset.receive_bytes is not None
    assert reset.transmit_bytes is not None
    expected = Rate(8 * (400 - reset.receive_bytes), 8 * (500 - reset.transmit_bytes))
    assert its.traffic.port_rates(EDGE) == {1: expected}


def test_a_port_younger_than_before_gives_no_rate() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(100, 100, seconds=3.0)})
    its.tell(EDGE, {1: counted(900, 900, seconds=2.5)}, after=5)
    assert its.traffic.port_rates(EDGE) == {}
    its.tell(EDGE, {1: counted(1000, 1100, seconds=7.5)}, after=5)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 100 / 5, 8 * 200 / 5)}


def test_a_port_recreated_between_two_samples_gives_no_rate() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(1000, 1000, seconds=2.0)})
    its.tell(EDGE, {1: counted(5_000_000, 5_000_000, seconds=3.9)}, after=5)
    assert its.traffic.port_rates(EDGE) == {}


@pytest.mark.parametrize(("before", "now"), [(3.0, 8.0), (3.0, 3.0), (None, 1.0), (9.0, None), (None, None)])
def test_a_port_that_is_not_younger_or_does_not_tell_has_a_rate(before: float | None, now: float | None) -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(0, 0, before)})
    its.tell(EDGE, {1: counted(100, 200, now)}, after=1)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 100, 8 * 200)}


def test_a_port_that_was_set_back_leaves_the_others_alone() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(100, 100), 2: counted(100, 100), 3: counted(100, 100, 9.0)})
    its.tell(EDGE, {1: counted(0, 0), 2: counted(200, 300), 3: counted(100, 100, 1.0)}, after=1)
    assert its.traffic.port_rates(EDGE) == {2: Rate(8 * 100, 8 * 200)}


def test_a_new_port_has_no_rate_before_its_second_sample() -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(0, 0), 2: counted(0, 0)})
    its.tell(EDGE, {2: counted(100, 100), 3: counted(100, 100)}, after=1)
    assert set(its.traffic.port_rates(EDGE)) == {2}
    assert set(its.traffic.totals(EDGE)) == {2, 3}


@pytest.mark.parametrize("uncounted", [counted(None, 100), counted(100, None), counted(None, None)], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_what_a_switch_does_not_count_has_no_rate_but_the_rest_is_told(uncounted: PortCounters, first: bool) -> None:
    its = Measured()
    samples = [uncounted, counted(500, 500)] if first else [counted(50, 50), uncounted]
    for sample in samples:
        its.tell(EDGE, {1: sample}, after=1)
    assert its.traffic.port_rates(EDGE) == {}
    assert its.traffic.totals(EDGE) == {1: samples[-1]}


def test_a_rate_asks_for_nothing_but_bytes() -> None:
    its = Measured()
    for total in (0, 100):
        its.tell(EDGE, {1: PortCounters(total, total, None, None, None, None, None, None)}, after=1)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 100, 8 * 100)}


@pytest.mark.parametrize("after", [0.0, -1.0])
def test_two_samples_of_one_moment_or_in_the_wrong_order_give_no_rate(after: float) -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(0, 0)})
    its.tell(EDGE, {1: counted(100, 100)}, after=after)
    assert its.traffic.port_rates(EDGE) == {}


# -- totals, and for how long a switch is believed ----------------------------------------------------------------------


def test_totals_are_what_the_switch_told_last() -> None:
    its = Measured()
    assert its.traffic.totals(EDGE) == {}
    for port in (counted(5, 6, 1.0), counted(7, 8, 2.0)):
        its.tell(EDGE, {1: port}, after=1)
        assert its.traffic.totals(EDGE) == {1: port}


def test_a_sample_expires_after_its_time() -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(8, 8)})
    its.clock.now += FRESH_SECONDS
    assert its.traffic.totals(EDGE) == {1: counted(1, 1)}
    assert its.traffic.port_rates(EDGE) == {1: Rate(8, 8)}
    its.clock.now += 0.001
    assert its.traffic.totals(EDGE) == {}
    assert its.traffic.port_rates(EDGE) == {}


@pytest.mark.parametrize(("silent", "known"), [(FRESH_SECONDS, True), (FRESH_SECONDS + 0.001, False)])
def test_a_sample_too_old_to_be_believed_is_no_start_of_a_rate(silent: float, known: bool) -> None:
    its = Measured()
    its.tell(EDGE, {1: counted(0, 0)})
    its.tell(EDGE, {1: counted(100, 100)}, after=silent)
    assert (1 in its.traffic.port_rates(EDGE)) == known
    its.tell(EDGE, {1: counted(200, 300)}, after=1)
    assert its.traffic.port_rates(EDGE) == {1: Rate(8 * 100, 8 * 200)}


def test_a_switch_that_is_gone_is_forgotten_at_once_and_begins_anew() -> None:
    its = Measured()
    its.carry(EDGE, {1: Rate(8, 8)})
    its.carry(ABOVE, {1: Rate(8, 8)})
    its.traffic.forget(EDGE)
    assert (its.traffic.totals(EDGE), its.traffic.port_rates(EDGE)) == ({}, {})
    assert its.traffic.port_rates(ABOVE) == {1: Rate(8, 8)}
    its.tell(EDGE, {1: counted(100, 100)}, after=1)
    assert its.traffic.port_rates(EDGE) == {}


def test_forgetting_a_switch_that_never_told_anything_is_nothing() -> None:
    its = Measured()
    its.traffic.forget(EDGE)
    assert its.traffic.totals(EDGE) == {}


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", SIZES)
def test_the_ends_of_a_link_are_its_switches_and_ports_the_lower_first(k: int) -> None:
    tree = FatTree(k)
    for link in tree.links():
        named = [(switch, tree.neighbour(switch, port)) for switch, port in ends(tree, link)]
        there_and_back = [(link.lower, link.upper), (link.upper, link.lower)]
        assert named == [(here, there) for here, there in there_and_back if isinstance(here, Switch)]


@pytest.mark.parametrize("k", SIZES)
def test_a_link_carries_up_what_its_lower_switch_transmits(k: int) -> None:
    its = Measured(k)
    for link in its.tree.links():
        if isinstance(link.lower, Switch):
            assert its.traffic.rates(link) is None
            its.carry(link.lower, {its.tree.port(link.lower, link.upper): Rate(receive=8 * 10, transmit=8 * 20)})
            assert its.traffic.rates(link) == (8 * 20, 8 * 10)


@pytest.mark.parametrize("k", SIZES)
def test_a_hosts_link_carries_up_what_its_edge_switch_receives(k: int) -> None:
    its = Measured(k)
    for host in its.tree.hosts():
        edge = its.tree.edge_of(host)
        assert its.traffic.rates(Link(host, edge)) is None
        its.carry(edge, {its.tree.port(edge, host): Rate(receive=8 * 10, transmit=8 * 20)})
        assert its.traffic.rates(Link(host, edge)) == (8 * 10, 8 * 20)


@pytest.mark.parametrize("k", SIZES)
def test_a_link_without_lower_statistics_is_measured_at_its_upper_end(k: int) -> None:
    its = Measured(k)
    for link in its.tree.links():
        if isinstance(link.lower, Switch):
            its.carry(link.upper, {its.tree.port(link.upper, link.lower): Rate(receive=8 * 30, transmit=8 * 40)})
            assert its.traffic.rates(link) == (8 * 30, 8 * 40)


def _stale(its: Measured) -> None:
    its.clock.now += FRESH_SECONDS + 1
    its.carry(ABOVE, {1: Rate(8 * 30, 8 * 40)})


def _forgotten(its: Measured) -> None:
    its.traffic.forget(EDGE)


def _set_back(its: Measured) -> None:
    its.tell(EDGE, {3: counted(0, 0)}, after=1)


def _unplugged(its: Measured) -> None:
    its.tell(EDGE, {4: counted(0, 0)}, after=1)


@pytest.mark.parametrize("lose", [_stale, _forgotten, _set_back, _unplugged])
def test_the_lower_end_is_believed_until_its_rate_is_not_known_any_more(lose: Callable[[Measured], None]) -> None:
    its = Measured()
    link = Link(EDGE, ABOVE)
    assert (its.tree.port(EDGE, ABOVE), its.tree.port(ABOVE, EDGE)) == (3, 1)
    its.carry(ABOVE, {1: Rate(receive=8 * 30, transmit=8 * 40)})
    its.carry(EDGE, {3: Rate(receive=8 * 10, transmit=8 * 20)})
    assert its.traffic.rates(link) == (8 * 20, 8 * 10)
    lose(its)
    assert its.traffic.rates(link) == (8 * 30, 8 * 40)


def test_a_link_at_both_ends_of_which_nothing_is_known_has_no_rate() -> None:
    its = Measured()
    its.carry(EDGE, {3: Rate(8, 8)})
    its.carry(ABOVE, {1: Rate(8, 8)})
    its.clock.now += FRESH_SECONDS + 1
    assert its.traffic.rates(Link(EDGE, ABOVE)) is None


# -- how evenly uplinks are used --------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [Level.EDGE, Level.AGGREGATION])
@pytest.mark.parametrize("k", SIZES)
def test_uplinks_that_all_carry_the_same_are_perfectly_even(k: int, level: Level) -> None:
    its = Measured(k)
    for switch in its.tree.switches(level):
        its.send_up(switch, dict.fromkeys(range(k // 2), 3 * RATE))
        assert its.imbalance(switch) == 1


@pytest.mark.parametrize("level", [Level.EDGE, Level.AGGREGATION])
@pytest.mark.parametrize("k", SIZES)
def test_all_on_one_uplink_is_as_uneven_as_there_are_uplinks(k: int, level: Level) -> None:
    its = Measured(k)
    switch = Switch(level, 1, 1)
    for used in range(k // 2):
        its.send_up(switch, {index: k * RATE if index == used else 0 for index in range(k // 2)})
        assert its.imbalance(switch) == k / 2


@given(st.sampled_from(SIZES).flatmap(lambda k: st.lists(st.integers(1, 1000), min_size=k // 2, max_size=k // 2)))
def test_unevenness_is_the_largest_rate_over_the_mean(loads: list[int]) -> None:
    its = Measured(2 * len(loads))
    its.send_up(EDGE, {index: load * RATE for index, load in enumerate(loads)})
    imbalance = its.imbalance(EDGE)
    assert imbalance == pytest.approx(max(loads) * len(loads) / sum(loads))
    assert imbalance is not None
    assert 1 <= imbalance <= len(loads)


def test_unevenness_counts_only_what_uplinks_transmit() -> None:
    its = Measured()
    rates = {1: Rate(0, 90 * RATE), 2: Rate(0, 0), 3: Rate(90 * RATE, 2 * RATE), 4: Rate(0, 2 * RATE)}
    its.carry(EDGE, rates)
    assert its.imbalance(EDGE) == 1


@pytest.mark.parametrize("reason", ["down", "silent", Reason.DRAINED])
@pytest.mark.parametrize("failed", ["e0_0-a0_2", "a0_2"])
@pytest.mark.parametrize("k", [6, 8])
def test_an_uplink_that_has_failed_or_leads_to_what_has_is_left_out(k: int, failed: str, reason: str) -> None:
    its = Measured(k)
    its.send_up(EDGE, {index: 0 if index == 2 else RATE * k for index in range(k // 2)})
    assert its.imbalance(EDGE) == pytest.approx((k / 2) / (k / 2 - 1))
    assert its.imbalance(EDGE, failed, reason=reason) == 1


def test_an_aggregation_switch_leaves_out_the_core_switch_that_has_failed() -> None:
    its = Measured(6)
    switch = Switch(Level.AGGREGATION, 4, 1)
    its.send_up(switch, {0: 4 * RATE, 1: 2 * RATE, 2: 0})
    for failed in ("c1_2", "a4_1-c1_2"):
        assert its.imbalance(switch, failed) == pytest.approx(4 / 3)
    assert its.imbalance(switch, "c2_1", "c0_2", "a3_1-c1_2") == 2


def test_what_a_failed_uplink_still_sends_is_left_out_too() -> None:
    its = Measured(6)
    its.send_up(EDGE, {0: RATE, 1: RATE, 2: 100 * RATE})
    assert its.imbalance(EDGE, "a0_2") == 1


def test_failures_elsewhere_change_nothing() -> None:
    its = Measured(6)
    its.send_up(EDGE, {0: 3 * RATE, 1: 0, 2: 0})
    assert its.imbalance(EDGE, "a1_1", "e0_1-a0_1", "c0_0", "a0_0-c0_0", "h0_0_2-e0_0") == 3


@pytest.mark.parametrize("failed", [("a0_0", "a0_1"), ("a0_0", "e0_0-a0_1"), ("a0_0", "a0_1", "a0_2")], ids=str)
def test_with_fewer_than_two_uplinks_in_use_there_is_nothing_to_compare(failed: tuple[str, ...]) -> None:
    its = Measured(6)
    its.send_up(EDGE, dict.fromkeys(range(3), 9 * RATE))
    assert its.imbalance(EDGE, *failed) is None


def test_the_one_uplink_of_the_smallest_fabric_is_not_compared() -> None:
    its = Measured(2)
    its.send_up(EDGE, {0: 9 * RATE})
    assert its.imbalance(EDGE) is None


def test_unevenness_is_unknown_while_a_usable_uplink_has_no_rate() -> None:
    its = Measured(6)
    its.send_up(EDGE, {0: RATE, 2: RATE})
    assert its.imbalance(EDGE) is None
    assert its.imbalance(EDGE, "a0_2") is None
    assert its.imbalance(EDGE, "a0_1") == 1


def test_it_is_not_known_once_the_switch_has_been_silent_for_too_long() -> None:
    its = Measured()
    its.send_up(EDGE, {0: RATE, 1: RATE})
    assert its.imbalance(EDGE) == 1
    its.clock.now += FRESH_SECONDS + 1
    assert its.imbalance(EDGE) is None


@pytest.mark.parametrize("k", SIZES)
def test_uplinks_that_carry_next_to_nothing_on_average_are_not_judged(k: int) -> None:
    its = Measured(k)
    uplinks = k // 2
    its.send_up(EDGE, {0: uplinks * RATE, **dict.fromkeys(range(1, uplinks), 0)})
    assert its.imbalance(EDGE) == uplinks
    its.send_up(EDGE, {0: uplinks * RATE - 8, **dict.fromkeys(range(1, uplinks), 0)})
    assert its.imbalance(EDGE) is None
    its.send_up(EDGE, dict.fromkeys(range(uplinks), 0))
    assert its.imbalance(EDGE) is None


def test_failed_uplinks_do_not_count_into_that_average() -> None:
    its = Measured(8)
    its.send_up(EDGE, {0: RATE, 1: RATE, 2: 0, 3: 0})
    assert its.imbalance(EDGE) is None
    assert its.imbalance(EDGE, "a0_2", "a0_3") == 1


@pytest.mark.parametrize("k", SIZES)
def test_a_core_switch_has_no_uplinks_to_compare(k: int) -> None:
    its = Measured(k)
    for core in its.tree.switches(Level.CORE):
        its.carry(core, {port: Rate(RATE, port * RATE) for port in range(1, k + 1)})
        assert its.imbalance(core) is None
