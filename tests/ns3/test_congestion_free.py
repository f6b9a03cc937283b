"""CFR in the simulator: slots and paths by the arbiter's library, queues, failures; DCTCP's threshold in bytes, and pings."""

from dataclasses import replace
from functools import partial

import pytest

from experiments.core.records import FlowRecord
from experiments.paper.figures import FIGURES
from experiments.paper.measures import of_queues, port_of
from experiments.workloads import Scale
from experiments.workloads import named as workload_named
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, TREE, permutation, simulated, transfers
from topologies import Clos, FatTree

pytestmark = NEEDS_NS3
SCALE = Scale(1000.0, 0.04)
WHOLE = 0.96 * 970.7
"""Payload in Mbit/s that slots of a link carry: less the guard."""
OPTIONS = {"send_buffer": MEGABYTE, "receive_buffer": MEGABYTE, "least_timeout": 10_000_000, "host_queue": 10_000}


slots = partial(simulated, scheme="cfr", scale=SCALE, queue=250, **OPTIONS)  # type: ignore[arg-type]


def together(flows: list[FlowRecord]) -> float:
    return sum(flow.mbit for flow in flows)


@pytest.mark.parametrize("demand", ["flow", "socket", "packet"])
def test_an_incast_has_no_queue_and_the_rate_of_the_link(demand: str) -> None:
    run, flows = slots("incast", scheme=f"cfr+demand={demand}", spread=1_000_000)
    found = of_queues(run, flows)
    assert found["receiver_queue_p99"] <= 2
    assert run.counters["longest_queue"] <= 3  # with what opens connections, which has no slots
    assert run.counters["dropped"] == 0
    if demand != "packet":
        assert sum(flow.retransmits for flow in flows) == 0
        assert max(flow.mbit for flow in flows) < 3 * min(flow.mbit for flow in flows)
    assert found["receiver_mbit"] > 0.95 * WHOLE


@pytest.mark.parametrize("tree", [FatTree(4), FIGURES["cfr-queues"].parts[0].tree], ids=["k4", "paper"])
def test_a_permutation_uses_every_link_and_has_no_queue(tree: Clos) -> None:
    run, flows = slots("permutation", tree=tree, scale=Scale(1000.0, 0.005))
    assert run.counters["dropped"] == 0
    lengths = sorted(length for port in run.queues.values() for length in port)
    # a cell, acknowledgements, and on links of several cells all of a slot, which do not arrive in the order of slots any more
    assert lengths[int(0.99 * len(lengths))] <= 6
    assert min(flow.mbit for flow in flows) > 0.9 * WHOLE
    assert sum(flow.retransmits + flow.fast_retransmits for flow in flows) == 0


def test_packets_of_a_flow_take_several_paths_and_keep_their_order() -> None:
    plan = permutation(size=400_000, traced=(0,))
    run, flows = slots(plan)
    assert len({(row[2], row[3]) for row in run.arrivals["0"]}) > 1
    assert sum(flow.reordered for flow in flows) == 0
    assert all(flow.completed for flow in flows)


@pytest.mark.parametrize(
    ("setting", "least"),
    [("order=alternating", 500), ("order=smallest", 500), ("paths=next-fit-ga", 100), ("paths=next-fit", 0),
     ("paths=first-fit", 400), ("paths=first-fit-ga", 400), ("slot=16", 500), ("delay=1ms", 500)],
)  # fmt: skip
def test_every_setting_of_the_arbiter_works(setting: str, least: int) -> None:
    run, flows = slots("permutation", scheme=f"cfr+{setting}", scale=Scale(1000.0, 0.02))
    assert run.counters["dropped"] == 0
    assert min(flow.mbit for flow in flows) >= least  # by next fit alone, the same racks always come last


def test_the_guard_costs_what_it_takes() -> None:
    rates = [together(slots("incast+2", scheme=f"cfr+guard={guard}")[1]) for guard in (0, 5, 20)]
    assert [rate / rates[0] for rate in rates[1:]] == pytest.approx([0.95, 0.8], abs=0.01)


def test_random_flows_end_and_queues_stay_short_and_a_slot_of_many_packets_is_wasted_on_small_flows() -> None:
    times = []
    for slot in (1, 64):
        run, flows = slots("uniform-load+60", scheme=f"cfr+slot={slot}", scale=Scale(1000.0, 0.02), patience=20)
        assert all(flow.completed for flow in flows)
        assert run.counters["dropped"] == 0
        assert slot > 1 or run.counters["longest_queue"] <= 20  # connections of many flows open together
        times.append(sorted(flow.seconds for flow in flows)[len(flows) // 2])
    assert times[1] > 1.5 * times[0]


def test_the_way_to_the_arbiter_delays_a_small_flow_and_no_long_one() -> None:
    small = transfers(1_000, "h0_0_2 h1_0_2", seconds=0.04)
    seconds = [slots(small, scheme=f"cfr+delay={delay}")[1][0].seconds for delay in ("0us", "1ms")]
    assert seconds[1] - seconds[0] == pytest.approx(0.002, abs=0.0003)  # to the arbiter and from it
    rates = [together(slots("incast+4", scheme=f"cfr+delay={delay}")[1]) for delay in ("0us", "1ms")]
    assert rates[1] > 0.93 * rates[0]  # of which the first 2 ms


def test_demand_that_is_known_late_costs_a_small_flow_a_way_for_each_round() -> None:
    plan = transfers(100_000, "h0_0_2 h1_0_2", seconds=0.1)
    seconds = [slots(plan, scheme=f"cfr+delay=500us+demand={demand}")[1][0].seconds for demand in ("flow", "packet")]
    assert seconds[1] > seconds[0] + 0.002  # windows of 10, 20 and 40 packets


def test_a_failed_switch_gets_no_slots() -> None:
    plan = replace(workload_named("permutation").build(TREE, 1, SCALE), failed=("a0_0",), fail_after=0.02, traced=(0,))
    run, flows = slots(plan)
    assert flows[0].src.startswith("h0_")
    assert {row[2] for row in run.arrivals["0"] if row[0] > 0.0205} == {1}
    assert run.counters["longest_queue"] <= 5
    assert run.counters["dropped"] < 200  # those that were on their way, or had been granted
    assert min(flow.mbit for flow in flows) > 300


def test_slower_links_carry_fewer_cells() -> None:
    """Two uplinks at the rate of a host each, four hosts: half of what they have, and no queue."""
    tree = Clos(2, 2, 2, 4, 4, mbit={"host": 1000, "edge": 1000, "aggregation": 2000})
    run, flows = slots("permutation", tree=tree)
    assert run.counters["dropped"] == 0
    assert run.counters["longest_queue"] <= 8
    assert together(flows) / len(flows) > 0.8 * 0.5 * WHOLE


def test_tcp_is_ecmp() -> None:
    (tcp, one), (ecmp, other) = (slots(permutation(size=100_000), scheme=scheme) for scheme in ("tcp", "ecmp"))
    assert tcp.counters == ecmp.counters
    assert [replace(flow, scheme="ecmp") for flow in one] == other


def test_a_threshold_in_bytes_is_that_of_dctcp() -> None:
    median = {}
    for kilobytes in (20, 60, 120):
        run, flows = slots("incast+4", scheme=f"dctcp+ecn-bytes={1000 * kilobytes}")
        lengths = sorted(run.queues[port_of(flows[0].dst)])
        median[kilobytes] = lengths[len(lengths) // 2]
        assert run.counters["dropped"] == 0
        assert together(flows) > 900
    # in packets of 1500 bytes
    assert median == {20: pytest.approx(13, abs=4), 60: pytest.approx(40, abs=6), 120: pytest.approx(80, abs=8)}


def test_pings_wait_in_queues() -> None:
    medians = {}
    for scheme in ("cfr", "tcp", "dctcp+ecn-bytes=20000"):
        run, flows = slots("incast", scheme=scheme, ping=500_000)
        assert 600 < run.counters["pings"] < 1800  # 15 senders in 40 ms
        found = of_queues(run, flows)
        assert found["pings_lost"] < 60
        medians[scheme] = found["rtt_p50"]
        # what the same run has without slots: that of cfr is none of a short run or of a small load
        assert scheme != "tcp" or found["receiver_queue_most"] > 200
    assert medians["cfr"] < 60
    assert medians["dctcp+ecn-bytes=20000"] > 3 * medians["cfr"]
    assert medians["tcp"] > 3 * medians["dctcp+ecn-bytes=20000"]


def test_a_ping_without_load_takes_the_time_of_its_links() -> None:
    plan = transfers(None, "h0_0_2 h1_0_2", seconds=0.02)
    run, _ = slots(plan, scheme="sopa", scale=Scale(1000.0, 0.02), ping=100_000, pacing=1)
    # 12 links of 25 ns, 64 bytes and the label
    assert min(run.round_trips) == pytest.approx((12 * 68 * 8 + 12 * 25) / 1e6, rel=1e-3)
