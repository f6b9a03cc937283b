"""Switches that trim: what a queue has no room for arrives without its data, and is sent again at once, on another path."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest

from experiments.schemes import SchemeError
from experiments.workloads import BadLink
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, simulated, transfers

pytestmark = NEEDS_NS3

TRIM = 10
INCAST = transfers(MEGABYTE, *(f"h{pod}_{edge}_2 h0_0_2" for pod in (1, 2, 3) for edge in (0, 1)))
SLOW = BadLink("a0_0-c0_1", "c0_1", 0.0, rate=0.1)
trimmed = partial(simulated, trim=TRIM)


@pytest.mark.parametrize("scheme", ["ecmp", "sopa", "sopa-skip", "reps"])
def test_an_incast_loses_nothing_and_waits_for_no_timer(scheme: str) -> None:
    run, flows = trimmed(INCAST, scheme)
    assert all(flow.completed and flow.bytes == MEGABYTE for flow in flows)
    assert run.counters["dropped"] == 0
    assert run.counters["trimmed"] > 0
    assert sum(flow.timeouts for flow in flows) == 0
    assert sum(flow.retransmits for flow in flows) >= run.counters["trimmed"]
    assert run.counters["longest_queue"] <= 2 * TRIM  # what has no data, as acknowledgements, is not cut


def test_the_last_hop_makes_windows_smaller_and_a_path_does_not() -> None:
    incast, _ = trimmed(INCAST, "ecmp")
    alone, _ = trimmed(replace(INCAST, transfers=INCAST.transfers[:1]), "ecmp")
    assert alone.counters["trimmed"] == 0
    beside, _ = trimmed(transfers(MEGABYTE, "h0_0_2 h2_0_2", bad=(SLOW,)), "sopa-skip")
    assert beside.counters["trimmed"] > 0

    def fell(windows: list[tuple[float, float]]) -> bool:
        return any(later[1] < 0.9 * earlier[1] for earlier, later in pairwise(windows))

    assert all(fell(windows) for windows in map(list, incast.cwnd.values()))
    assert not any(fell(windows) for windows in map(list, [*alone.cwnd.values(), *beside.cwnd.values()]))


def test_skip_counters_leave_a_path_that_trims_sooner_than_one_that_loses() -> None:
    plan = transfers(4 * MEGABYTE, "h0_0_2 h2_0_2", bad=(SLOW,))
    (lossy, [without]), (run, [flow]) = (simulated(plan, "sopa-skip+fr=100", ecn=0, trim=trim) for trim in (0, TRIM))
    assert lossy.counters.get("trimmed") is None
    assert 0 < run.counters["trimmed"] <= flow.retransmits
    assert flow.fast_retransmits == flow.timeouts == 0
    assert flow.seconds < without.seconds


@pytest.mark.parametrize("scheme", ["mcs", "mptcp", "cfr", "sopa+probes=on"])
def test_schemes_whose_senders_are_no_plain_tcp_have_no_trimming(scheme: str) -> None:
    with pytest.raises(SchemeError, match="--set trim is for senders of plain TCP: leave out"):
        trimmed(INCAST, scheme)
