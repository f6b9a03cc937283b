"""The simulator: its fabric is the one of `topologies`, its schemes do what they are called, and bad input is refused."""

import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest

from experiments.core.run import Run
from experiments.ns3 import SIMULATED, SimulatorError, build, simulate
from experiments.ns3.run_lines import fabric_lines
from experiments.ns3.simulate import MAX_WINDOWS, SAMPLES
from experiments.report.statistics import ideal_seconds
from experiments.schemes import named
from experiments.workloads import BadLink, Plan, Scale, Transfer
from experiments.workloads import named as workload_named
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.simulator import MEGABYTE, NEEDS_NS3, SCALE, TREE, permutation, said, simulated, taken, transfers
from topologies import Clos, Failures, FatTree, Host
from topologies.identity import Node
from topologies.weights import weights

LEAF_SPINE = Clos(pods=1, edges=4, aggregations=2, cores=0, hosts=3)
UNEVEN = Clos(
    pods=3, edges=2, aggregations=3, cores=6, hosts=2, mbit={"host": 10_000, "edge": 20_000, "aggregation": 40_000},
    links={"a0_0-c0_1": 10_000, "e1_0-a1_1": "absent", "a2_2-c2_0": "absent", "h0_0_3-e0_0": 1_000, "e0_1-a0_2": 5_000},
)  # fmt: skip
pytestmark = NEEDS_NS3


@pytest.fixture(scope="module")
def program() -> Path:
    return build()


SMALL = MEGABYTE // 8
INCAST = transfers(MEGABYTE, "h1_0_2 h0_0_2", "h2_0_2 h0_0_2", "h3_0_2 h0_0_2")
"""Three hosts to one, whose link's queue cannot hold what they begin with."""


@pytest.mark.parametrize("tree", [*(FatTree(k) for k in (2, 4, 6)), LEAF_SPINE, UNEVEN], ids=lambda tree: tree.title)
def test_hosts_addresses_cables_and_rates_are_those_of_the_topology(program: Path, tree: Clos) -> None:
    run = Run(tree, Plan((), 1.0), "test", named("sopa"), 1, SCALE)
    text = "\n".join(fabric_lines(run))
    dumped = subprocess.run([program, "dump"], input=text, capture_output=True, text=True, check=True)
    lines = dumped.stdout.splitlines()
    hosts = [tuple(line.split()[1:]) for line in lines if line.startswith("host ")]
    assert hosts == [(tree.name(host), str(tree.ip(host))) for host in tree.hosts()]
    links = {port: (peer, int(rate)) for _, port, peer, rate in (line.split() for line in lines if line[:4] == "link")}

    def bits(one: Node, other: Node) -> int:
        return round(1e9 * tree.capacity(tree.link(one, other)) / tree.mbit.get("host", 1.0))

    ends = [(host, 0, tree.edge_of(host)) for host in tree.hosts()]
    ends += [(switch, port, peer) for switch in tree.switches() for port, peer in tree.ports(switch).items()]
    assert links == {f"{tree.name(its)}-eth{port}": (tree.name(peer), bits(its, peer)) for its, port, peer in ends}


@pytest.mark.parametrize(("scheme", "recovery"), [("ecmp", "ns-3.37"), ("ecmp", "ns-3.20"), ("drb", "ns-3.37")])
def test_a_full_queue_drops_and_tcp_delivers_all_the_same(scheme: str, recovery: str) -> None:
    run, flows = simulated(INCAST, scheme, loss_recovery=recovery)
    assert run.counters["dropped"] > 0
    assert all(flow.completed and flow.bytes == MEGABYTE for flow in flows)
    assert sum(flow.retransmits for flow in flows) >= run.counters["dropped"]
    assert max(run.queues["e0_0-eth1"]) in (100, 101)


def alone(size: int = 5 * MEGABYTE) -> Plan:
    return transfers(size, "h0_0_2 h3_1_3", traced=(0,))


def test_a_paced_connection_sends_evenly_and_no_more_than_it_may() -> None:
    run, [flow] = simulated(alone(), "ecmp", pacing=500)
    assert flow.mbit == pytest.approx(500, rel=0.01)
    gaps = [b[0] - a[0] for a, b in pairwise(run.arrivals["0"])]
    assert sorted(gaps)[len(gaps) // 2] == pytest.approx(8 * 1460 / 500e6, rel=0.01)
    assert max(run.queues.get("e0_0-eth3", [0])) <= 1


def test_legacy_newreno_retransmits_once_per_partial_acknowledgement() -> None:
    """RFC 2582, section 3. What was only late arrives twice: so much and no more comes again, and nothing waits for a timer."""
    plan = workload_named("single-flow-4:1").build(TREE, 1, Scale(1000.0, 0.1))
    _, [without_sack] = simulated(plan, "rps+sack=off")
    run, [flow] = simulated(plan, "rps", loss_recovery="ns-3.20")
    assert flow.completed
    assert min(window for _, window in run.cwnd["0"]) >= 2
    assert flow.timeouts == 0
    assert flow.fast_retransmits < flow.retransmits < flow.packets / 10 < without_sack.retransmits
    _, [same] = simulated(plan, "rps+sack=off", loss_recovery="ns-3.20")
    assert replace(same, scheme=flow.scheme) == flow  # it knows no selective acknowledgements
    _, [patient] = simulated(plan, "rps+fr=300", loss_recovery="ns-3.20")
    assert patient.reordered > 0
    assert (patient.fast_retransmits, patient.retransmits) == (0, 0)
    assert patient.mbit > 1.5 * flow.mbit


def test_a_longer_link_takes_longer() -> None:
    for delay in (25, 20_000):
        run, _ = simulated(alone(2_000), "ecmp", delay=delay)
        [first, *_] = run.arrivals["0"]
        assert first[4] == pytest.approx(6 * (12_000 + delay) / 1e6, rel=1e-6)


def test_starts_are_spread_over_as_long_as_is_asked() -> None:
    starts = [flow.start for flow in simulated(permutation(size=1_000), spread=1_000_000)[1]]
    assert len(set(starts)) == 16
    assert 0 <= min(starts) < max(starts) < 0.001
    assert {flow.start for flow in simulated(permutation(size=1_000))[1]} == {0.0}


def test_the_initial_window_and_the_slow_start_threshold_can_be_set() -> None:
    run, _ = simulated(alone(), "ecmp", initial_window=2, delay=1_000_000)
    first = [row[0] for row in run.arrivals["0"]]
    assert first[1] - first[0] < 0.001 < first[2] - first[1]  # two, and nothing more for a round trip
    limit = 65_535
    run, _ = simulated(alone(), "ecmp", slow_start_threshold=limit, delay=1_000_000)
    windows = [size for _, size in run.cwnd["0"]]
    grown = [b / a for a, b in pairwise(windows) if a > limit / 1460]
    assert grown
    assert max(grown) < 1.1


def test_transfers_are_given_up_when_patience_ends() -> None:
    plan = replace(alone(20 * MEGABYTE), seconds=0.02)
    for patience, complete in ((2, False), (9, True)):
        _, [flow] = simulated(plan, "ecmp", patience=patience)
        assert flow.completed is complete
    assert flow.seconds == pytest.approx(8 * 20 / 973.3, rel=0.01)


def test_transfers_follow_others_until_the_run_is_over_or_to_the_last() -> None:
    [one] = alone(10 * MEGABYTE).transfers
    plan = Plan((one, replace(one, after=(0,)), replace(one, after=(1,))), 0.1)
    for all_of_them, count in ((0, 2), (1, 3)):
        _, flows = simulated(plan, "ecmp", patience=9, all_transfers=all_of_them)
        assert len(flows) == count
        assert all(flow.completed for flow in flows)


def test_queues_are_sampled_for_twice_the_planned_time() -> None:
    plan = replace(alone(10 * MEGABYTE), seconds=0.01)
    run, [flow] = simulated(plan, "ecmp", patience=1000)
    assert flow.seconds > 8 * plan.seconds
    assert {len(lengths) for lengths in run.queues.values()} == {2 * SAMPLES + 1}


@pytest.mark.parametrize("rule", ["sender", "receiver", "hash", "random", "zero"])
def test_where_flows_begin_on_their_paths(rule: str) -> None:
    run, flows = simulated(permutation(size=10_000, traced=tuple(range(16))), first_path=rule)
    by_pod: dict[str, set[tuple[float, ...]]] = {}
    for flow in flows:
        end = flow.dst if rule == "receiver" else flow.src
        first = min(run.arrivals[str(flow.flow)], key=lambda row: row[1])
        by_pod.setdefault(end.split("_")[0], set()).add(tuple(first[2:4]))
    if rule in ("zero", "random", "hash"):
        assert (len(set.union(*by_pod.values())) == 1) == (rule == "zero")
    else:
        assert {len(its) for its in by_pod.values()} == {4}  # no two hosts of a pod begin on the same path


@pytest.mark.parametrize("scheme", [*SIMULATED, "sopa+probes=on"])
def test_no_scheme_is_faster_than_its_links_and_a_seed_decides_everything(scheme: str) -> None:
    plan = permutation(size=SMALL)
    run, flows = simulated(plan, scheme)
    assert all(0 < flow.mbit < 1000 for flow in flows)
    again, same = simulated(plan, scheme)
    assert same == flows
    assert again.counters == run.counters
    _, other = simulated(plan, scheme, seed=2)
    alike = [flow.mbit for flow in other] == [flow.mbit for flow in flows]
    assert not alike or scheme in ("sopa", "sopa+probes=on", "sopa-skip", "flowcell", "presto", "drb", "per-packet", "cfr")


# the option takes four bytes of each packet, and the outer header 20
@pytest.mark.parametrize(
    ("scheme", "payload", "order"), [("sopa", 1456, "aggregation"), ("sopa", 1456, "core"), ("drb", 1440, "aggregation")]
)
def test_packets_are_sent_over_all_paths_in_order(scheme: str, payload: int, order: str) -> None:
    run, flows = simulated(permutation(traced=(0,)), scheme, order=order)
    choices = TREE.choices("inter-pod") if order == "aggregation" else tuple(sorted(TREE.choices("inter-pod")))
    assert choices[1] == ((1, 0) if order == "aggregation" else (0, 1))
    sent = [(up1, up2) for _, _, up1, up2, _ in sorted(run.arrivals["0"], key=lambda packet: packet[1])]
    first = choices.index(sent[0])
    assert sent == [choices[(first + place) % 4] for place in range(len(sent))]
    assert len(sent) == flows[0].packets == -(-MEGABYTE // payload)
    if scheme == "drb":  # whose receiver hides what is late
        assert sum(flow.reordered for flow in flows) > 0
        assert sum(flow.fast_retransmits for flow in flows) == 0  # at a threshold of 3


def test_ecmp_uses_every_way_unless_all_switches_hash_alike() -> None:
    for rule, count in (("own", 16), ("same", 4)):
        run, _ = simulated(permutation(8, 20_000, traced=tuple(range(128))), "ecmp", FatTree(8), hash=rule)
        taken = {(up1, up2) for packets in run.arrivals.values() for _, _, up1, up2, _ in packets}
        assert len(taken) == count  # alike: who chose the same at the edge does so at the aggregation switch


def test_hedera_moves_elephants_to_paths_of_their_own() -> None:
    # two of one rack to two of another: there are two ways out of a rack
    plan = transfers(None, "h0_0_2 h1_0_2", "h0_0_3 h1_0_3", seconds=0.5, traced=(0, 1))
    collided = 0
    for seed in (2, 3):
        run, flows = simulated(plan, "hedera", seed=seed)
        first, last = ([run.arrivals[flow][at][2] for flow in ("0", "1")] for at in (0, -1))
        collided += first[0] == first[1]
        assert last[0] != last[1]
        assert min(flow.mbit for flow in flows) > 500  # more than two on one link
    assert collided > 0


def test_sopa_reorders_less_than_spraying_for_which_a_higher_threshold_spares_fast_retransmits() -> None:
    sopa, rps, ten, twenty = (simulated(permutation(), name)[1] for name in ("sopa", "rps", "rps+fr=10", "rps+fr=20"))
    mean = [sum(flow.mbit for flow in flows) / 16 for flows in (sopa, rps)]
    assert mean[0] > 1.29 * mean[1]  # the paper's margin at K=24
    assert sum(flow.reordered for flow in sopa) < 0.3 * sum(flow.reordered for flow in rps)
    assert sum(flow.retransmits for flow in sopa) == 0
    first, second, third = (sum(flow.fast_retransmits for flow in flows) for flows in (rps, ten, twenty))
    assert first > second > third


def across(tree: Clos, size: int | None = SMALL) -> Plan:
    """Every host sends to the host at its place half of the racks further."""
    hosts = list(tree.hosts())
    away = len(hosts) // tree.hosts_per_edge // 2 * tree.hosts_per_edge
    pairs = zip(hosts, hosts[away:] + hosts[:away], strict=True)
    return Plan(tuple(Transfer(src, dst, size) for src, dst in pairs), 1.0, traced=tuple(range(len(hosts))))


@pytest.mark.parametrize("scheme", SIMULATED)
@pytest.mark.parametrize(
    ("tree", "failed"), [(TREE, ()), (TREE, ("a2_1", "a3_0-c0_1", "c1_1", "e0_0-a0_1")), (LEAF_SPINE, ()), (UNEVEN, ())]
)
def test_every_scheme_delivers_by_candidate_paths(scheme: str, tree: Clos, failed: tuple[str, ...]) -> None:
    plan = replace(across(tree), failed=failed)
    failures = Failures(tree, dict.fromkeys(failed, "down"))
    run, flows = simulated(plan, scheme, tree)
    assert all(flow.completed and flow.bytes == SMALL for flow in flows)
    assert run.counters["unroutable"] == 0
    for number, one in enumerate(plan.transfers):
        usable = {path.up for path in failures.split(one.src, one.dst)[0]}
        ways = taken(run, number)
        assert ways.keys() <= usable
        if scheme in ("sopa", "drb", "rps", "plts-rr", "least-used"):
            assert ways.keys() == usable
        elif scheme in ("ecmp", "tcp", "dctcp"):
            assert len(ways) == 1
        if scheme in ("plts-rr", "least-used") and tree is TREE:
            assert max(ways.values()) - min(ways.values()) <= 4


@pytest.mark.parametrize(("scheme", "evens_ports"), [("plts-cnt", True), ("plts-rr", False), ("least-used", False)])
def test_what_counts_bytes_by_port_evens_ports_and_not_flows(scheme: str, evens_ports: bool) -> None:
    run, flows = simulated(permutation(traced=tuple(range(16))), scheme)
    edges: dict[str, Counter[float]] = {}
    spreads = []
    for flow in flows:
        ways = Counter(up1 for _, _, up1, _, _ in run.arrivals[str(flow.flow)])
        edges.setdefault(flow.src.rpartition("_")[0], Counter()).update(ways)
        spreads.append(abs(ways[0] - ways[1]))
    of_ports = [abs(ways[0] - ways[1]) for ways in edges.values()]
    assert (max(spreads) > max(of_ports) + 4) == evens_ports
    assert max(of_ports if evens_ports else spreads) <= 4


def test_drbs_outer_header_ends_at_the_spine() -> None:
    pair = Plan((Transfer(Host(0, 0, 2), Host(0, 1, 2), 10_000),), 1.0, traced=(0,))
    run, _ = simulated(pair, "drb", LEAF_SPINE)
    assert run.arrivals["0"][0][4] == pytest.approx((2 * 12_000 + 2 * 11_840 + 4 * 25) / 1e6, rel=1e-6)


HALF = Clos(1, 4, 2, 0, 2, links={f"e0_{leaf}-a0_1": 0.5 for leaf in range(4)})
"""Two spines, the second of half the rate."""


@pytest.mark.parametrize(("scheme", "share"), [("sopa", 2 / 3), ("sopa+weights=off", 1 / 2), ("drb", 1 / 2), ("flowcell", 2 / 3)])
def test_senders_take_paths_in_proportion_to_their_weights(scheme: str, share: float) -> None:
    pair = Plan((Transfer(Host(0, 0, 2), Host(0, 1, 2), 4 * MEGABYTE),), 1.0, traced=(0,))
    run, [flow] = simulated(pair, scheme, HALF)
    assert flow.completed
    assert taken(run)[0,] / taken(run).total() == pytest.approx(share, abs=0.02)


def test_weights_follow_a_failure_when_it_comes() -> None:
    begin = 0.01
    plan = transfers(4 * MEGABYTE, "h0_0_2 h1_0_2", failed=("a0_0-c0_0",), fail_after=begin, traced=(0,))
    [flow] = plan.transfers
    run, [its] = simulated(plan)
    assert its.completed
    before, after = (
        Counter(tuple(row[2:4]) for row in run.arrivals["0"] if first <= row[0] < last)
        for first, last in ((0.0, begin), (begin + 0.002, its.seconds))
    )
    for counts, failures in ((before, Failures(TREE)), (after, Failures(TREE, {"a0_0-c0_0": "down"}))):
        ups = [path.up for path in failures.split(flow.src, flow.dst)[0]]
        expected = dict(zip(ups, weights(failures, flow.src, flow.dst), strict=True))
        for up, weight in expected.items():
            assert counts[up] / counts.total() == pytest.approx(weight, abs=0.03)


def test_the_flows_of_a_host_that_may_not_label_have_one_path_each() -> None:
    tree = Clos(4, 2, 2, 4, 2, no_label=["h0_0_2"])
    pairs = [*["h0_0_2 h1_0_2"] * 8, *["h0_0_3 h1_0_2"] * 8]
    plan = transfers(MEGABYTE // 4, *pairs, traced=tuple(range(16)))
    run, flows = simulated(plan, "sopa", tree)
    assert all(flow.completed for flow in flows)
    assert all(len(taken(run, flow)) == 1 for flow in range(8))
    assert len({next(iter(taken(run, flow))) for flow in range(8)}) > 1
    assert all(len(taken(run, flow)) == 4 for flow in range(8, 16))


def test_hedera_places_what_a_fast_uplink_carries() -> None:
    """Both flows of a rack fit on one uplink of twice the rate, whose other one has failed."""
    tree = Clos(1, 2, 2, 0, 2, mbit={"host": 1000, "edge": 2000})
    _, flows = simulated(replace(across(tree, None), seconds=0.1, failed=("e0_0-a0_1",)), "hedera", tree)
    assert min(flow.mbit for flow in flows) > 900


def test_a_transfer_starts_after_the_last_that_it_waits_for_and_a_collective_operation_ends_with_its_last() -> None:
    scale = Scale(1000.0, 0.05)
    plan = workload_named("all-reduce-halving+8").build(LEAF_SPINE, 1, scale)
    last = replace(plan.transfers[-1], start=0.001)
    plan = replace(plan, transfers=(*plan.transfers[:-1], last))
    run, flows = simulated(plan, "sopa", LEAF_SPINE, scale=scale)
    assert len(flows) == len(plan.transfers)
    assert all(flow.completed for flow in flows)
    for flow, transfer in zip(flows, plan.transfers, strict=True):
        ends = [flows[before].start + flows[before].seconds for before in transfer.after]
        assert flow.start == pytest.approx(max(ends, default=0.0) + transfer.start, abs=1e-9)
    assert run.collective["seconds"] == pytest.approx(max(flow.start + flow.seconds for flow in flows))


def test_windows_of_the_first_flows_are_recorded() -> None:
    run, flows = simulated(transfers(20_000, *["h0_0_2 h1_0_2"] * (MAX_WINDOWS + 1)), "ecmp")
    assert len(flows) == MAX_WINDOWS + 1
    assert [*map(int, run.cwnd)] == [*range(MAX_WINDOWS)]


@pytest.mark.parametrize("scheme", ["sopa", "ecmp"])
def test_transfers_alone_take_little_longer_than_the_ideal(scheme: str) -> None:
    """The report's ideal is a bound, and a close one: it leaves out SOPA's option and TCP's."""
    ends = [("h0_0_2", "h0_0_3"), ("h0_0_2", "h0_1_2"), ("h0_0_2", "h1_0_2")]
    sizes = (100, 20_000, MEGABYTE)
    alone = [
        Transfer(TREE.host(src), TREE.host(dst), size, 0.02 * number)
        for number, ((src, dst), size) in enumerate(product(ends, sizes))
    ]
    run, flows = simulated(Plan(tuple(alone), 0.2), scheme)
    for flow in flows:
        slow = flow.seconds / ideal_seconds(flow, TREE, delay=run.options["link_delay_ns"] / 1e9)
        assert 1 <= slow < (1.25 if flow.size == 100 else 1.01), (flow.src, flow.dst, flow.size, slow)


@each_script(__file__, "refused")
def test_what_makes_no_sense_is_refused_in_words(program: Path, script: Script) -> None:
    def handle(step: Step) -> str:
        done = said(program, "".join(f"{line}\n" for line in (step.command, *step.words)))
        return f"{done.returncode}: {done.stderr.strip()}{done.stdout}"

    script.play(handle)


def test_results_that_cannot_be_written_are_an_error(program: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([program], input="transfer 0 5 1000 0 -1 0\n", stdout=full, stderr=-1, text=True)
    assert done.returncode == 1
    assert "could not be written" in done.stderr


def test_a_simulator_that_is_killed_is_an_error() -> None:
    run = Run(FatTree(8), permutation(8), "test", named("sopa"), 1, SCALE)
    with pytest.raises(SimulatorError, match="the simulator failed"):
        simulate(run, started=lambda process: process.kill())


def test_acknowledgements_wait_behind_data_unless_they_go_first() -> None:
    """The receiver of a small flow sends a long one, whose window is in its own queue."""
    long, small = (TREE.host(name) for name in ("h0_0_2", "h1_0_2"))
    plan = Plan((Transfer(long, TREE.host("h2_0_2"), 5 * MEGABYTE), Transfer(small, long, SMALL, 0.01)), 1.0)
    (_, [_, waiting]), (_, [_, first]) = (simulated(plan, "ecmp", acks_first=on) for on in (0, 1))
    assert first.seconds < waiting.seconds / 2


def test_swift_answers_delay_on_all_paths_and_not_on_one() -> None:
    (lossy, _), (run, flows) = (simulated(INCAST, "ecmp", congestion=control) for control in ("LinuxReno", "Swift"))
    assert lossy.counters["dropped"] > 0
    assert (run.counters["dropped"], run.counters["longest_queue"] < 75) == (0, True)
    assert all(flow.completed for flow in flows)
    slow = BadLink("a0_0-c0_1", "c0_1", 0.0, rate=0.1)
    one, other = (
        simulated(transfers(MEGABYTE, "h0_0_2 h2_0_2", bad=(slow,)), "sopa-skip+fr=100", congestion=control)
        for control in ("LinuxReno", "Swift")
    )
    assert one[1] == other[1]


def test_timeouts_are_as_short_as_the_least_one() -> None:
    """Also below the millisecond that ns-3 adds to a round trip by itself."""
    bad = BadLink("e0_0-a0_0", "a0_0", 0.0, loss=1.0)
    plan = transfers(20_000, "h0_0_2 h1_0_2", bad=(bad,))
    flows = [simulated(plan, "sopa+fr=100", least_timeout=least, delayed_ack=10_000)[1][0] for least in (100_000, 5_000_000)]
    assert all(flow.completed and flow.timeouts for flow in flows)
    assert flows[0].seconds < 0.05 * flows[1].seconds
