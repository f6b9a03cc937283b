"""Runs of schemes, as ``sopa experiment`` does them: what is recorded is what happened."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from experiments.core.draws import DrawKind, hits, stream
from experiments.core.records import FlowRecord, Results, RunRecord
from experiments.core.run import Run
from experiments.emulation.dctcp import dctcp
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.measurement.queue_lengths import QueueLengths
from experiments.emulation.measurement.tcp_statistics import tcp_counters
from experiments.emulation.routers.frr_daemons import FRR
from experiments.emulation.traffic.transfers import PORT, TransferError
from experiments.schemes import Fabric, Scheme, named
from experiments.workloads import BadLink, Plan, Scale, Transfer, inter_pod_permutation
from experiments.workloads import named as workload
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import BFD_MS, QUICK, in_isolation, slow_bfd
from tests.helpers.veth import run as run_command
from tests.helpers.waiting import eventually
from tests.timing.controls import Timer
from topologies import Clos, FatTree
from topologies.identity import PREFIX6, Family
from topologies.lab.network import OWN_TABLES
from topologies.srv6 import source_prefix

PODS, THIN, TREE = Clos(2, 2, 2, 4, 2), Clos(2, 1, 2, 4, 2), FatTree(4)
RATE = 4.0
NEEDS_FRR = pytest.mark.skipif(not (FRR / "bgpd").exists(), reason="FRR is missing: make install-peers")
LONG = 8.0
"""Seconds of a run that lasts as long as its plan says: most of them may pass while the machine stands still."""
BOUND = 60.0
"""Seconds after which a run ends that ends once `seen` has seen enough."""
TRIES, STANDSTILL_SECONDS = 10, 2.0
SOON = 10
"""Ticks, two seconds of a machine that does not stand still."""


class RunFabric(EmulatedFabric):
    """The fabric of a scheme that performs plans."""

    def perform(
        self, plan: Plan, name: str = "test", tick: Callable[[float], object] = lambda _seconds: None
    ) -> tuple[RunRecord, list[FlowRecord]]:
        return perform(self, Run(self.tree, plan, name, self.scheme, 1, Scale(RATE, plan.seconds)), tick)

    def perform_undisturbed(self, plan: Plan, tick: Callable[[float], object]) -> tuple[RunRecord, list[FlowRecord]]:
        """Perform a plan, again while this machine stands still meanwhile, or just before it, so that nothing comes at first.

        TCP sends again then.
        """
        for _ in range(TRIES):
            self.await_settled()
            with Timer() as control:
                done = self.perform(plan, tick=tick)
            begun = all(any(done[0].series.get(str(number), ())[:SOON]) for number in range(len(plan.transfers)))
            if begun and control.late < STANDSTILL_SECONDS:
                break
            print(f"a run does not count: this machine stood still for {control.late:.1f} s{'' if begun else ', or before it'}")
        return done


def in_fabric(tree: Clos, scheme: Scheme, bfd_ms: int = BFD_MS) -> Callable[[Callable[[RunFabric], None]], Callable[[], None]]:
    """Run a test inside the fabric of a scheme, which has begun whole; ``bfd_ms`` is for tests that wait for BFD."""
    its = replace(scheme, controller_options=(*scheme.controller_options, *QUICK)) if scheme.fabric is Fabric.OPENFLOW else scheme

    def decorate(test: Callable[[RunFabric], None]) -> Callable[[], None]:
        @in_isolation
        def inside_it() -> None:
            with RunFabric(tree, its, RATE) as fabric:
                if fabric.sopa is not None:
                    slow_bfd(fabric.sopa, bfd_ms)
                test(fabric)

        return inside_it

    return decorate


def seen(what: Callable[[float], object], ticks: int = SOON) -> Callable[[float], bool]:
    """End a run so many ticks after something is so, at its seconds: a machine that stands still makes no ticks."""
    left = ticks

    def tick(seconds: float) -> bool:
        nonlocal left
        if left < ticks or what(seconds):
            left -= 1
        return left < 0

    return tick


def from_all(tree: Clos, seconds: float) -> Plan:
    """Every host sends, all the time; the first flow is traced."""
    pairs = inter_pod_permutation(tree, 1)
    return Plan(tuple(Transfer(src, dst) for src, dst in pairs), seconds, traced=(0,))


@in_fabric(PODS, named("sopa"), bfd_ms=2000)
def test_a_run_of_sopa_records_every_flow_exactly_and_the_failure_in_its_middle(fabric: RunFabric) -> None:
    def told_of_it(seconds: float) -> bool:
        return any(at > 1.0 and "a0_0" in text for at, text in fabric.changes_since(0, time.time() - seconds))

    run, flows = fabric.perform(replace(from_all(PODS, BOUND), failed=("a0_0",), fail_after=1.0), tick=seen(told_of_it))
    assert [flow.flow for flow in flows] == list(range(8))
    assert all(flow.completed and flow.bytes > 0 for flow in flows)
    # the tracepoint's counts of all flows and those of no known flow add up to the kernel's counters
    recoveries = run.counters.get("TcpExtTCPSackRecovery", 0) + run.counters.get("TcpExtTCPRenoRecovery", 0)
    unknown = run.counters.get("FastRetransmitsOfUnknownFlows", 0)
    assert sum(flow.fast_retransmits for flow in flows) + unknown == recoveries
    assert 0 <= unknown <= 0.25 * recoveries + 1
    assert sum(flow.retransmits for flow in flows) == run.counters.get("TcpRetransSegs", 0)
    arrived = run.arrivals["0"]
    assert sorted({packet for _, packet, *_ in arrived})[:50] == list(range(50))
    assert {(up1, up2) for _, _, up1, up2, _ in arrived} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all(delay > 0 for *_, delay in arrived)
    assert {name[0] for name in run.queues} <= set("eac")
    its = run.options
    assert (its["policy"], its["fr_threshold"], its["tcp_recovery"]) == ("round-robin", 10, 1)
    assert len(run.series) == len(run.cwnd) == 8

    [failed] = [at for at, text in run.events if text == "a0_0 fails"]
    told = [at for at, text in run.events if text.startswith("version ") and "a0_0" in text]
    assert any(at >= failed for at in told)
    assert failed == run.failed_at >= 1.0
    # all of them, also those of the pod that has lost a switch, go on
    assert all(sum(run.series[str(flow.flow)][int(10 * failed) :]) > 0 for flow in flows)


@in_fabric(THIN, named("ecmp+congestion=reno"))
def test_runs_of_ecmp_one_after_the_other(fabric: RunFabric) -> None:
    """What is to follow follows; core links have the plan's rate; and a grey link loses what its record says, and is healed."""
    a, b, c = (THIN.host(name) for name in ("h0_0_2", "h1_0_3", "h1_0_2"))
    finite = (
        Transfer(a, b, 100_000, kind="first"),
        Transfer(a, c, 50_000, start=0.5, after=(0,), kind="second"),
        Transfer(c, b, 1, kind="byte"),
    )
    cut = (
        Transfer(b, a, None, start=1.0, kind="endless"),
        Transfer(b, c, 50_000_000, start=2.5, kind="too much"),
        Transfer(a, c, 10, after=(1,), kind="never"),
    )
    grey = workload("grey-link+loss=20").build(THIN, 1, Scale(RATE, LONG))
    core_rates, controls = set[str](), set[str]()

    def look(_seconds: float) -> None:
        core_rates.add(run_command("tc qdisc show dev c0_0-eth1"))
        lines = run_command(f"nsenter --net={fabric.lab.netns(b)} ss -Htin state established dport = {PORT}").splitlines()
        controls.update(line.split()[0] for line in lines[1::2])

    _, (first, second, byte) = fabric.perform(Plan(finite, BOUND, core_rate=0.25))
    assert [flow.kind for flow in (first, second, byte)] == ["first", "second", "byte"]
    assert [flow.bytes for flow in (first, second, byte)] == [100_000, 50_000, 1]
    assert second.start - (first.start + first.seconds) >= 0.5

    _, (endless, too_much) = fabric.perform(Plan(cut, LONG, core_rate=0.25), tick=look)
    assert [flow.kind for flow in (endless, too_much)] == ["endless", "too much"]
    assert endless.start >= 1.0
    assert endless.start + endless.seconds >= LONG - 0.01
    assert not too_much.completed
    assert too_much.bytes < 50_000_000
    assert all(" rate 1Mbit " in shown for shown in core_rates)
    assert core_rates
    assert controls == {"reno"}

    [bad] = grey.bad
    crossed = seen(lambda _seconds: fabric.bad_links.truth(bad)["packets"])
    record, _ = fabric.perform(replace(grey, seconds=BOUND), "grey-link+loss=20", tick=crossed)
    [truth] = record.bad
    assert (truth["link"], truth["towards"], truth["transfers"]) == (bad.link, bad.towards, list(bad.transfers))
    draws = hits(stream(1, bad.link, bad.towards, DrawKind.LOSS), 0.2)
    assert truth["lost"] == len(list(takewhile(lambda number: number < truth["packets"], draws)))
    assert truth["packets"] > 0
    assert truth["at"] >= bad.after
    assert [truth["at"], str(bad)] in [list(event) for event in record.events]
    assert "bad_link" not in run_command("tc filter show dev a0_0-eth2 egress")


@in_fabric(TREE, named("hedera"))
def test_hedera_places_large_flows_and_leaves_small_ones(fabric: RunFabric) -> None:
    small = Transfer(TREE.host("h0_0_2"), TREE.host("h2_0_2"), 20_000, kind="small")
    places = seen(lambda _seconds: any(" placed on " in text for _, text in fabric.changes_since(0, 0.0)))
    run, flows = fabric.perform(Plan((*from_all(TREE, BOUND).transfers, small), BOUND), tick=places)
    placed = {text.split(" at ")[0] for _, text in run.events if " placed on " in text}
    large = [flow for flow in flows if flow.kind != "small"]
    assert placed, (run.events, [flow.mbit for flow in flows])
    assert all(any(flow.src in text and flow.dst in text for flow in large) for text in placed)


@in_fabric(THIN, named("mptcp"))
def test_multipath_tcp_has_its_eight_subflows(fabric: RunFabric) -> None:
    hosts = [fabric.lab.netns(host) for host in THIN.hosts()]
    plan = from_all(THIN, BOUND)
    joined = seen(lambda _seconds: tcp_counters(hosts)["MPTcpExtMPJoinSynAckRx"] > 2 * len(plan.transfers))
    run, flows = fabric.perform(plan, tick=joined)
    subflows = run.options["subflows_seen"]
    assert isinstance(subflows, int)
    # a port that was offered in a packet that is lost is offered again later
    assert 2 * len(flows) < subflows <= 8 * len(flows)
    assert run.counters["MPTcpExtMPJoinSynAckRx"] >= subflows - len(flows)  # some are opened again
    assert min(run.core_packets.values()) > 0


@NEEDS_FRR
@in_fabric(THIN, named("mcs-ports"))
def test_mcs_scatters_one_connection_over_all_core_switches_and_routers_go_around_what_dies(fabric: RunFabric) -> None:
    transfer = Transfer(THIN.host("h0_0_2"), THIN.host("h1_0_3"))
    for name in ("e0_0-a0_0", "a1_0-c0_1", "h0_0_2-e0_0"):
        for failed in (True, False):  # and use again what is back
            fabric.fail(name, failed)
            fabric.await_settled([name] if failed else [])
    plan, receiver = Plan((transfer,), BOUND, failed=("a0_0",), fail_after=2.0), [fabric.lab.netns(transfer.dst)]
    ticks: list[tuple[float, int]] = []

    def arrives_again(seconds: float) -> bool:
        if seconds > 2.0:
            ticks.append((seconds, tcp_counters(receiver)["TcpInSegs"]))
        # the first of them may be before the failure; the assertion looks at what arrives a second after it
        late = [count for at, count in ticks[1:] if at > ticks[1][0] + 1.2]
        return bool(late) and late[-1] > late[0] + 10

    run, [flow] = fabric.perform(plan, tick=arrives_again)
    assert run.failed_at is not None
    assert run.failed_at >= 2.0
    assert sum(run.series["0"][int(10 * run.failed_at) + 10 :]) > 0
    assert min(run.core_packets.values()) > 0
    assert run.counters["McsMcoTaken"] > flow.packets > 0  # its packets, and acknowledgements
    assert run.counters["McsScattered"] > run.counters["McsUnscattered"]  # a burst counts once
    assert (run.options["channels"], run.options["ecn_threshold"]) == (8, 20)


def bytes_of(fabric: EmulatedFabric, host: str) -> tuple[int, int]:
    """Return the bytes that a host's link has counted against its rate, and those that it has sent."""
    netns, interface = fabric.lab.netns(host), fabric.lab.interface(fabric.tree.host(host), 0)

    def shown(*command: str) -> list[dict[str, Any]]:
        return list(json.loads(subprocess.check_output(["nsenter", f"--net={netns}", *command, "show", "dev", interface])))

    [rate] = [qdisc["bytes"] for qdisc in shown("tc", "-s", "-j", "qdisc") if qdisc["kind"] == "tbf"]
    [link] = shown("ip", "-s", "-j", "link")
    return rate, link["stats64"]["tx"]["bytes"]


@in_fabric(PODS, named("sopa-srv6"))
def test_hosts_choose_paths_over_routers_by_lists_of_usids_and_leave_a_cut_one_by_themselves(fabric: RunFabric) -> None:
    plan = replace(from_all(PODS, BOUND), traced=())
    before = fabric.lab.port_packets()
    run, flows = fabric.perform(plan, tick=seen(lambda _seconds: min(fabric.lab.port_packets().values()) > 1000))
    packets = [now - before[name] for name, now in fabric.lab.port_packets().items()]
    assert run.options["carrier"] == "srv6"
    assert min(flow.bytes for flow in flows) > 0
    assert max(packets) - min(packets) < max(packets) / 10  # by hash some carry twice what others do
    counted, sent = bytes_of(fabric, "h0_0_2")
    assert abs(counted - sent) < sent / 100  # without the outer header a host's link would carry 4% more than its rate
    pod = {PODS.name(host) for host in PODS.hosts() if host.pod == 0}

    def reasons() -> dict[str, str]:
        return {line["name"]: line["reason"] for line in fabric.controller.get("/failures").json()["failures"]}

    def left(events: list[tuple[float, str]]) -> set[str]:
        """Return hosts that have left it by themselves; the controller tells those that are later."""
        return {text.split()[0] for _, text in events if "leaves" in text} & pod

    def cut(seconds: float) -> object:
        if seconds > 1 and not fabric.lab._failed:
            fabric.lab.set_link("a0_0-c0_0", False)
            # by the word of the routers at its ends; the controller forgets it with the agents, which end with the run
            eventually(reasons, {"a0_0-c0_0": "silent"})
        return left(fabric.paths_left_since(time.time() - seconds))

    run, flows = fabric.perform(replace(plan, family=6), tick=cut)
    assert min(flow.bytes for flow in flows) > 0
    assert left(run.events)


@in_fabric(TREE, named("sopa-srv6"))
def test_self_probes_over_routers_come_home_and_soon_name_a_link_that_loses_a_tenth(fabric: RunFabric) -> None:
    bad = BadLink("a2_1-c1_0", "c1_0", 0.0, loss=0.1)
    fabric.prepare(1)
    controller = fabric.controller
    assert controller is not None

    def suspects() -> list[str]:
        return [link["name"] for link in controller.get("/health", suspects="1").json()["links"]]

    controller.wait_until(lambda: controller.get("/health").json()["streams"] == 16 * 52, "all hosts had their lists", 120)
    host = fabric.tree.host("h0_0_2")  # the workload has no IPv6, which errors of routers need
    routes = run_command(f"nsenter --net={fabric.lab.netns('e0_0')} ip -6 route show {source_prefix(fabric.tree, host)}")
    assert str(Family(PREFIX6).address(host)) in routes
    with inside(fabric.lab.netns(host)):  # a table of its own: CFR reads it in each slot
        assert Path("/proc/sys/net/ipv4/tcp_ehash_entries").read_text().split() == [*OWN_TABLES.values()]
    fabric.bad_links.begin(bad, 7)
    controller.wait_until(lambda: bool(suspects()), "it was named", 60)  # two seconds, on an idle machine with fast links
    assert suspects() == [bad.link]


@pytest.mark.parametrize("base", ["ecmp", pytest.param("bgp", marks=NEEDS_FRR)])
def test_marks_at_the_port_with_the_long_queue_arrive(base: str) -> None:
    tree = FatTree(2)
    scheme = replace(named(base), ecn=True, ecn_threshold=5, sysctls={"ipv4/tcp_ecn": "1"})

    @in_fabric(tree, scheme)
    def body(fabric: RunFabric) -> None:
        # the aggregation switch's port to the only core switch; its phantom queue has followed the link's lower rate
        port = "a0_0-eth2"
        before = fabric.marked()
        plan = Plan((Transfer(*tree.hosts()),), BOUND, core_rate=0.5)
        run, _ = fabric.perform(plan, tick=seen(lambda _seconds: fabric.marked()[port] != before[port]))
        # another port marks what comes at once after a standstill of the machine
        assert max(run.marked, key=lambda name: run.marked[name]) == port
        arrived = run.counters["IpExtInCEPkts"]
        assert 0 < arrived <= sum(run.marked.values())  # some may be on their way when the run ends
        assert run.options["ecn_threshold"] == 5

    body()


@in_fabric(FatTree(2), named("ecmp+congestion=dctcp"))
def test_dctcp_answers_marks_before_its_queue_is_full(fabric: RunFabric) -> None:
    """Its queue is near the threshold, where other TCP fills all 100 packets. Both ends have it."""
    controls = set[str]()

    def look(_seconds: float) -> None:
        for host in fabric.tree.hosts():
            lines = run_command(
                f"nsenter --net={fabric.lab.netns(host)} ss -Htin state established ( sport = {PORT} or dport = {PORT} )"
            )
            controls.update(line.split()[0] for line in lines.splitlines()[1::2])

    run, [flow] = fabric.perform_undisturbed(Plan((Transfer(*fabric.tree.hosts()),), LONG, core_rate=0.5), look)
    lengths = run.queues["a0_0-eth2"]
    assert controls == {fabric.congestion}
    assert run.options["ecn_threshold"] == 20
    assert run.counters["IpExtInCEPkts"] > 0
    assert flow.retransmits == 0
    assert median(lengths[len(lengths) // 2 :]) <= 40


# Beside the test before it, so that one process runs both: a kernel has one such program.
def test_dctcp_is_there_for_as_long_as_it_is_held() -> None:
    with dctcp() as name, socket.socket() as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        if name != "dctcp":
            with pytest.raises(TransferError, match="another experiment on this machine"), dctcp():
                pass
    if name != "dctcp":  # Linux' own
        with socket.socket() as one, pytest.raises(FileNotFoundError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


@in_isolation
def test_a_queues_length_is_what_the_kernel_says() -> None:
    # Without IPv6 no router solicitation joins the queue, and at 8 bit/s nothing leaves it after the burst.
    commands = """sysctl -eqw net.ipv6.conf.default.disable_ipv6=1
        ip link add va type veth peer name vb
        ip link set va up
        ip link set vb up
        ip address add 10.0.0.1/24 dev va
        ip neighbour add 10.0.0.2 lladdr 02:00:00:00:00:02 dev va
        tc qdisc add dev va root tbf rate 8bit burst 1600 limit 1000000
        tc qdisc add dev va clsact"""
    for command in commands.splitlines():
        run_command(command)
    queues = QueueLengths({None: ["va", "vb"]})
    queues.sample()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(20):
            sender.sendto(bytes(1000), ("10.0.0.2", 9))
    queues.sample()
    shown = json.loads(run_command("tc -s -j qdisc show dev va"))
    [told] = [each["qlen"] for each in shown if each["kind"] == "tbf"]
    queues.close()
    assert queues.series == {"va": [0, told], "vb": [0, 0]}
    assert told >= 15


def test_the_command_writes_the_flows_of_a_run(tmp_path: Path) -> None:
    """That an interrupted experiment goes on where it ended is in `tests/ns3`."""
    words = f"run permutation --k 2 --schemes ecmp --seeds 1 --seconds 1 --out {tmp_path}".split()
    command = [sys.executable, "-m", "sopa_ryu.cli", "experiment", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "no valid run" in done.stderr, done.stderr
    assert len(list(Results(tmp_path).flows())) == 2
