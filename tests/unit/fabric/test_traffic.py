"""Results from port counters: rates of ports and links, and how evenly uplinks are used."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.fabric.traffic import MIN_BITS_PER_SECOND, PortCounters, Rate, Traffic, ends
from tests.helpers.golden import Script, Step, each_script
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


@each_script(__file__, "traffic")
def test_rates_of_ports(script: Script) -> None:
    its = Measured(8)

    def handle(step: Step) -> str:
        """Have a switch tell, so many seconds later, of ports, ``PORT=RECEIVED,TRANSMITTED,AGE`` in bytes and seconds."""
        switch = its.tree.switch(step.command)
        told = {int(port): counted(*json.loads(f"[{text}]")) for port, text in step.options.items()}
        its.now += float(step.words[0])
        if told:
            its.tell(switch, told)
        rates, totals = its.traffic.port_rates(switch), its.traffic.totals(switch)
        assert rates.keys() <= totals.keys()
        rows = {port: f"{its.receive_bytes} {its.transmit_bytes} bytes" for port, its in totals.items()}
        rows |= {port: f"{rows[port]}, {rate.receive:g} {rate.transmit:g} bit/s" for port, rate in rates.items()}
        return "\n".join(f"{port}: {row}" for port, row in rows.items()) or "nothing is known"

    script.play(handle)


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
    tree = measured.tree
    pairs = [(Link(switch, tree.uplink(switch, index)), rate) for index, rate in enumerate(sent)]
    rates = {tree.port(*link): Rate(90 * RATE, RATE * rate) for link, rate in pairs if rate is not None}
    measured.carry(switch, {1: Rate(0, 90 * RATE), **rates})
    in_use = [rate for link, rate in pairs if failed.isdisjoint((tree.name(link), tree.name(link.upper)))]
    known = [rate for rate in in_use if rate is not None]
    # next to nothing is not judged
    expected = max(known) * len(known) / sum(known) if len(known) > 1 and sum(known) >= len(known) else None
    found = measured.traffic.imbalance(switch, Failures(tree, dict.fromkeys(failed, reason)))
    assert found == (pytest.approx(expected) if expected and known == in_use else None)
    assert measured.traffic.imbalance(Switch(Level.CORE, 0, 0), Failures(tree)) is None  # it has no uplinks
