"""Runs of schemes, as ``sopa experiment`` does them: what is recorded is what happened."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.core.records import FlowRecord, Results, RunRecord
from experiments.core.run import Run
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.emulation.lab_run import perform
from experiments.emulation.measurement.queue_lengths import QueueLengths
from experiments.emulation.routers.frr_daemons import FRR
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer, inter_pod_permutation
from tests.helpers.waiting import eventually
from topologies import FatTree
from topologies.lab.isolation import isolated

pytestmark = pytest.mark.lab

TREE = FatTree(4)
RATE = 4.0
SOPA = [sys.executable, "-m", "sopa_ryu.cli"]
NEEDS_FRR = pytest.mark.skipif(not (FRR / "bgpd").exists(), reason="FRR is missing: make install-peers")
Check = Callable[[RunRecord, list[FlowRecord]], None]


def all_hosts(seconds: float, seed: int = 1) -> Plan:
    """Every host sends, all the time; the first flow is traced."""
    pairs = inter_pod_permutation(TREE, seed)
    return Plan(tuple(Transfer(src, dst) for src, dst in pairs), seconds, traced=(0,))


def performed(scheme: str, plan: Plan, check: Check) -> None:
    """Run a plan in a lab, and look at what is recorded; what fails there fails the test."""

    def main() -> int:
        with EmulatedFabric(TREE, named(scheme), RATE) as fabric:
            check(*perform(fabric, Run(TREE, plan, "test", named(scheme), 1, Scale(RATE, plan.seconds))))
        return 0

    assert isolated(main) == 0


def test_a_run_of_sopa_records_every_flow_exactly() -> None:
    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        assert [flow.flow for flow in flows] == list(range(16))
        assert all(flow.completed and flow.bytes > 0 for flow in flows)
        # the tracepoint's counts of all flows and those of no known flow add up to the kernel's counters
        recoveries = run.counters.get("TcpExtTCPSackRecovery", 0) + run.counters.get("TcpExtTCPRenoRecovery", 0)
        unknown = run.counters.get("FastRetransmitsOfUnknownFlows", 0)
        assert sum(flow.fast_retransmits for flow in flows) + unknown == recoveries
        assert 0 <= unknown <= 0.25 * recoveries + 1
        assert sum(flow.retransmits for flow in flows) == run.counters.get("TcpRetransSegs", 0)
        arrived = run.arrivals["0"]
        assert len(arrived) > 0.9 * flows[0].packets
        assert sorted({packet for _, packet, *_ in arrived})[:50] == list(range(50))
        paths = Counter((up1, up2) for _, _, up1, up2, _ in arrived)
        assert set(paths) == {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert max(paths.values()) < 1.05 * min(paths.values())
        assert all(0 < delay < 2000 for *_, delay in arrived)
        assert len(next(iter(run.queues.values()))) == 60
        assert {name[0] for name in run.queues} <= set("eac")
        assert (run.options["policy"], run.options["fr_threshold"], run.options["tcp_recovery"]) == (
            "round-robin",
            10,
            1,
        )
        assert len(run.series) == len(run.cwnd) == 16

    performed("sopa", all_hosts(3.0), check)


def test_what_is_to_follow_follows_and_ends_with_its_last_byte() -> None:
    a, b, c = (TREE.host(name) for name in ("h0_0_2", "h2_1_3", "h1_0_2"))
    transfers = (
        Transfer(a, b, 200_000, kind="first"),
        Transfer(a, c, 50_000, start=0.5, after=(0,), kind="second"),
        Transfer(c, b, 1, kind="byte"),
        Transfer(b, a, None, start=1.0, kind="endless"),
        Transfer(b, c, 50_000_000, start=2.5, kind="too much"),
        Transfer(a, c, 10, after=(4,), kind="never"),
    )

    def check(_run: RunRecord, flows: list[FlowRecord]) -> None:
        by_kind = {flow.kind: flow for flow in flows}
        assert set(by_kind) == {"first", "second", "byte", "endless", "too much"}
        assert [by_kind[kind].bytes for kind in ("first", "second", "byte")] == [200_000, 50_000, 1]
        first, second = by_kind["first"], by_kind["second"]
        # how much later than at once depends on the machine
        assert 0.5 <= second.start - (first.start + first.seconds) < 2.0
        assert first.seconds > 0.3  # 0.4 s at 4 Mbit/s
        endless = by_kind["endless"]
        assert endless.start >= 1.0
        assert endless.start + endless.seconds == pytest.approx(3.0, abs=0.01)
        assert not by_kind["too much"].completed
        assert by_kind["too much"].bytes < 50_000_000

    performed("ecmp", Plan(transfers, 3.0), check)


def test_hedera_places_large_flows_and_leaves_small_ones() -> None:
    small = Transfer(TREE.host("h0_0_2"), TREE.host("h2_0_2"), 20_000, kind="small")

    def main() -> int:
        with EmulatedFabric(TREE, named("hedera"), RATE) as fabric:
            plan = Plan((*all_hosts(5.0).transfers, small), 5.0)
            run, flows = perform(fabric, Run(TREE, plan, "test", named("hedera"), 1, Scale(RATE, 5.0)))
            placed = {text.split(" at ")[0] for _, text in run.events if " placed on " in text}
            large = [flow for flow in flows if flow.kind != "small"]
            assert len(placed) >= len(large) // 2, run.events
            assert all(any(flow.src in text and flow.dst in text for flow in large) for text in placed)
            assert not any("h0_0_2" in text and "h2_0_2" in text for text in placed)
            assert min(run.core_packets.values()) > 0
        return 0

    assert isolated(main) == 0


def test_multipath_tcp_has_its_eight_subflows() -> None:
    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        subflows = run.options["subflows_seen"]
        assert isinstance(subflows, int)
        assert (
            6 * len(flows) < subflows <= 8 * len(flows)
        )  # a port that was offered in a packet that is lost is offered again later
        assert run.counters["MPTcpExtMPJoinSynAckRx"] >= subflows - len(flows)  # some are opened again
        assert min(run.core_packets.values()) > 0.5 * max(run.core_packets.values())

    performed("mptcp", all_hosts(6.0), check)


@NEEDS_FRR
def test_routers_use_every_core_and_go_around_one_that_dies() -> None:
    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        assert min(run.core_packets.values()) > 0.1 * max(run.core_packets.values())
        assert run.failed_at is not None
        assert 3.0 <= run.failed_at < 5.0
        assert all(sum(run.series[str(flow.flow)][60:70]) > 0 for flow in flows)

    performed("bgp", Plan(all_hosts(7.0).transfers, 7.0, failed=("a0_0",), fail_after=3.0), check)


@NEEDS_FRR
def test_routers_use_a_link_again_that_was_down() -> None:
    def main() -> int:
        with EmulatedFabric(TREE, named("bgp"), RATE) as fabric:
            for name in ("e0_0-a0_0", "a1_0-c0_1", "h0_0_2-e0_0"):
                for failed in (True, False):
                    fabric.fail(name, failed)
                    fabric.await_settled([name] if failed else [])
        return 0

    assert isolated(main) == 0


def test_a_failure_in_the_middle_is_recorded_and_gone_around() -> None:
    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        [failed] = [at for at, text in run.events if text == "a0_0 fails"]
        told = [at for at, text in run.events if text.startswith("version ") and "a0_0" in text]
        assert told
        assert told[0] >= failed
        # all of them, also those of the pod that has lost a switch, send and receive at the end
        assert all(sum(run.series[str(flow.flow)][50:60]) > 0 for flow in flows)

    performed("sopa", Plan(all_hosts(6.0).transfers, 6.0, failed=("a0_0",), fail_after=2.0), check)


def test_a_plans_oversubscription_is_the_core_links_rate() -> None:
    a, b = TREE.host("h0_0_2"), TREE.host("h2_1_3")

    def check(_run: RunRecord, flows: list[FlowRecord]) -> None:
        assert 0.3 < flows[0].mbit < 1.1  # how far below a quarter of 4 Mbit/s depends on the machine

    # one path for one flow: a quarter of the link's rate is all that there is
    performed("ecmp", Plan((Transfer(a, b),), 4.0, core_rate=0.25), check)


@pytest.mark.parametrize("scheme", ["mcs", pytest.param("mcs-ports", marks=NEEDS_FRR)])
def test_mcs_scatters_one_connection_over_all_core_switches(scheme: str) -> None:
    transfer = Transfer(TREE.host("h0_0_2"), TREE.host("h2_1_3"))

    def check(run: RunRecord, flows: list[FlowRecord]) -> None:
        [flow] = flows
        assert min(run.core_packets.values()) > 0.05 * sum(run.core_packets.values())
        assert run.counters["McsMcoTaken"] > flow.packets > 300  # its packets, and acknowledgements
        assert run.counters["McsScattered"] > 20 * run.counters["McsUnscattered"]  # a burst counts once
        assert (run.options["channels"], run.options["ecn_threshold"]) == (8, 20)
        assert flow.retransmits < 0.05 * flow.packets
        assert flow.mbit > 0.4 * RATE  # with the beginning of the connection, on a busy machine

    performed(scheme, Plan((transfer,), 4.0), check)


@pytest.mark.parametrize("base", ["ecmp", pytest.param("bgp", marks=NEEDS_FRR)])
def test_marks_at_the_port_with_the_long_queue_arrive(base: str) -> None:
    tree = FatTree(2)
    a, b = tree.hosts()
    scheme = replace(named(base), ecn=True, ecn_threshold=5, sysctls={"ipv4/tcp_ecn": "1"})
    plan = Plan((Transfer(a, b),), 3.0, core_rate=0.5)

    def main() -> int:
        with EmulatedFabric(tree, scheme, RATE) as fabric:
            run, [flow] = perform(fabric, Run(tree, plan, "test", scheme, 1, Scale(RATE, plan.seconds)))
        # the aggregation switch's port to the only core switch; its phantom queue has followed the link's lower rate
        assert list(run.marked) == ["a0_0-eth2"]
        arrived = run.counters["IpExtInCEPkts"]
        assert arrived > 10
        assert arrived <= run.marked["a0_0-eth2"] <= arrived + 5  # some may be on their way when the run ends
        assert run.options["ecn_threshold"] == 5
        # a machine that stands still lets TCP send again what is late, and takes a part of the rate
        assert flow.retransmits < 0.05 * flow.packets
        assert 0.5 * RATE / 2 < flow.mbit < 1.05 * 0.95 * RATE / 2
        return 0

    assert isolated(main) == 0


def test_a_queues_length_is_what_the_kernel_says() -> None:
    def main() -> int:
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
            subprocess.run(command.split(), check=True)
        queues = QueueLengths({None: ["va", "vb"]})
        queues.sample()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(20):
                sender.sendto(bytes(1000), ("10.0.0.2", 9))
        queues.sample()
        shown = json.loads(
            subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", "va"], capture_output=True, check=True).stdout
        )
        [told] = [each["qlen"] for each in shown if each["kind"] == "tbf"]
        queues.close()
        assert queues.series == {"va": [0, told], "vb": [0, 0]}
        assert told >= 15
        return 0

    assert isolated(main) == 0


# -- the command ------------------------------------------------------------------------------------------------------


def sopa(*words: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SOPA, "experiment", *words], capture_output=True, text=True, timeout=seconds, check=False)


def test_an_interrupted_experiment_goes_on_where_it_ended(tmp_path: Path) -> None:
    words = [
        "run",
        "permutation",
        "--schemes",
        "sopa",
        "--seeds",
        "3",
        "--seconds",
        "2",
        "--out",
        str(tmp_path / "out"),
    ]
    with subprocess.Popen(
        [*SOPA, "experiment", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        eventually(lambda: (tmp_path / "out/sopa-1.jsonl").exists() or process.poll() is not None, seconds=150)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode != 0
    before = (tmp_path / "out/sopa-1.jsonl").read_text()
    results = Results(tmp_path / "out")
    valid = results.has("sopa", 1)
    done = sopa(*words, seconds=250)
    assert done.returncode == 0 or "no valid run" in done.stderr, done.stderr
    assert {file.name for file in (tmp_path / "out").glob("*.jsonl")} == {f"sopa-{seed}.jsonl" for seed in (1, 2, 3)}
    assert not list((tmp_path / "out").glob(".*"))
    if valid:
        assert (tmp_path / "out/sopa-1.jsonl").read_text() == before
        assert "of 3 runs are already complete" in done.stderr
    flows = list(results.flows())
    assert Counter(flow.seed for flow in flows) == {1: 16, 2: 16, 3: 16}
    line = json.loads(before.splitlines()[0])
    assert {"scheme", "k", "seed", "src", "dst", "mbit", "bytes", "seconds"} <= set(line)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["permutation", "--schemes", "sopaa"], "did you mean sopa"),
        (["permutatoin"], "did you mean permutation"),
        (["permutation", "--schemes", "sopa,sopa"], "contains a scheme twice"),
        (["permutation", "--schemes", "sopa+fr=0"], "write +fr=N"),
        (["permutation", "--k", "5"], "must be an even number"),
        (["four-flows", "--k", "2"], "k"),
        (["permutation", "--backend", "ns3", "--schemes", "bgp"], "bgp"),
        (["permutation", "--backend", "ns2"], "ns2"),
        (["permutation", "--set", "spread=1ms"], "add --backend ns3"),
        (["permutation", "--schemes", "mcs+ecn=50", "--queue", "50"], "no queue of 50 packets gets so long"),
        (["permutation", "--schemes", "mcs", "--carrier", "option"], "leave out --carrier"),
        (["permutation", "--backend", "ns3", "--set", "spraed=1ms"], "did you mean spread"),
        (["production", "--k", "8", "--rate", "1000", "--seconds", "6"], "ports of the lab"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_started(words: list[str], said: str, tmp_path: Path) -> None:
    done = sopa("run", *words, "--out", str(tmp_path / "out"))
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_matrix_with_a_foreign_host_and_a_used_directory_are_rejected(tmp_path: Path) -> None:
    matrix = tmp_path / "mine.csv"
    matrix.write_text("src,dst,bytes\nh0_0_2,h9_0_2,1000\n")
    done = sopa("run", str(matrix), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "h9_0_2" in done.stderr
    assert "line 2" in done.stderr
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters/letter.txt").write_text("dear")
    done = sopa("run", "permutation", "--out", str(tmp_path / "letters"))
    assert done.returncode == 1
    assert "contains other files" in done.stderr
    assert [file.name for file in (tmp_path / "letters").iterdir()] == ["letter.txt"]
