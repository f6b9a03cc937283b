"""The whole system with real packets: controller, switches, agents, and what befalls them."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.sopa_lab import (
    UDP_PORT,
    agent_of,
    arriving_sources,
    datagrams,
    drops,
    host_settings,
    in_lab,
    lost,
    run,
    state_files,
)
from tests.helpers.waiting import eventually
from topologies import Failures, Level
from topologies.lab.standstill import standing_still

pytestmark = pytest.mark.lab

SEED = 5
CONSUMED = "02:53:9e:04:ff:ff"  # one address for all paths: the receiver merges packets of a flow
SO_RCVBUFFORCE = 33


def test_one_process_has_the_files_that_all_its_hosts_need() -> None:
    def body(lab: SopaLab) -> None:
        most = 128
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with lab.agent_of(lab.tree.hosts()) as agents:
            agents.wait_until(lambda: lab.controller.agents_know(lab.tree.host_count), "all agents had acknowledged")
            assert len(list(Path(f"/proc/{agents.pid}/fd").iterdir())) > most

    in_lab(body, agents=False)


@pytest.mark.parametrize("policy", ["round-robin", "random", "hash"])
def test_every_packet_carries_exactly_the_path_that_the_seed_decides(policy: str) -> None:
    def body(lab: SopaLab) -> None:
        src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_1_3")
        table = path_table(lab.tree, src, Failures(lab.tree), SEED, Policy.named(policy))
        before = lab.lab.port_packets(Level.CORE)
        for port in (7001, 7002):
            key = FlowKey.of(str(lab.tree.ip(src)), str(lab.tree.ip(dst)), 17, port, UDP_PORT)
            assert datagrams(lab, "h0_0_2", "h2_1_3", 40, port) == [table.choose(key, n) for n in range(40)]
        assert arriving_sources(lab, "h0_0_2", "h2_1_3", 16, 7003) == {CONSUMED: 16}
        if policy == "round-robin":

            def spread() -> dict[str, int]:
                now = lab.lab.port_packets(Level.CORE)
                return {name: now[name] - before[name] for name in now}

            # and the switches obey: 80 packets, 20 over each core switch (ICMP errors come back unevenly, if at all)
            eventually(spread, lambda counts: min(counts.values()) >= 20)

    in_lab(body, agent_options=[f"--policy={policy}", f"--seed={SEED}"])


def test_the_aggregation_switch_changes_on_every_packet_of_a_flow() -> None:
    def body(lab: SopaLab) -> None:
        starts: Counter[object] = Counter()
        for port in range(7100, 7132):
            words = datagrams(lab, "h0_0_2", "h3_0_2", 8, port)
            assert all(a[0] != b[0] for a, b in pairwise(words) if a and b)
            assert set(Counter(words).values()) == {2}
            starts[words[0]] += 1
        assert len(starts) == 4

    in_lab(body)


def test_hosts_of_the_rack_of_the_pod_and_of_other_pods_reach_each_other() -> None:
    def body(lab: SopaLab) -> None:
        hosts = [lab.tree.name(host) for host in lab.tree.hosts()]
        for src, dst in [(hosts[0], dst) for dst in hosts[1:]] + [(src, hosts[0]) for src in hosts[-3:]]:
            assert lost(lab, src, dst, 2) == 0
        assert "02:00:00:00:00:01" in run(lab, hosts[0], "ip", "neigh", "show", "10.0.0.3")

    in_lab(body)


@pytest.mark.parametrize("k", [2, 6])
def test_nothing_knows_about_four(k: int) -> None:
    def body(lab: SopaLab) -> None:
        hosts = [lab.tree.name(host) for host in lab.tree.hosts()]
        for dst in hosts[1 :: max(1, len(hosts) // 6)]:
            assert lost(lab, hosts[0], dst, 2) == 0
        assert len(set(datagrams(lab, hosts[0], hosts[-1], lab.tree.half**2, 7000))) == lab.tree.half**2

    in_lab(body, k=k)


def test_hosts_without_an_agent_are_connected_too() -> None:
    def body(lab: SopaLab) -> None:
        assert datagrams(lab, "h0_0_2", "h2_1_3", 4, 7001) == [None] * 4
        for dst in ("h0_0_3", "h0_1_2", "h1_0_2", "h3_1_3"):
            assert lost(lab, "h0_0_2", dst, 3) == 0

    in_lab(body, agents=False)


def test_a_host_that_sends_from_anothers_address_is_dropped_and_counted() -> None:
    def body(lab: SopaLab) -> None:
        run(lab, "h0_0_2", "ip", "address", "add", "10.3.1.3/32", "dev", "h0_0_2-eth0")
        before = drops(lab, "e0_0", "priority=20,in_port=1")
        assert lost(lab, "h0_0_2", "h2_0_2", 4, source="10.3.1.3", late=1.0) == 4
        eventually(lambda: drops(lab, "e0_0", "priority=20,in_port=1") - before, 4)
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0

    in_lab(body)


def test_a_host_whose_address_is_not_the_plans_is_learned_from_its_arp() -> None:
    def body(lab: SopaLab) -> None:
        for mac in ("06:aa:bb:cc:dd:ee", "06:00:00:00:00:77"):
            run(lab, "h2_0_2", "ip", "link", "set", "h2_0_2-eth0", "address", mac)
            run(lab, "h2_0_2", "ip", "neigh", "flush", "all")
            lost(lab, "h2_0_2", "h0_0_2", 1)  # its ARP is learned, but cached flows follow only after a revalidation
            for _ in range(2):
                lab.lab.ovs.appctl("revalidator/wait")
            assert lost(lab, "h2_0_2", "h0_0_2", 3) == 0
            assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0

    in_lab(body)


def test_an_agent_puts_everything_back_when_it_ends_however_it_ends() -> None:
    def body(lab: SopaLab) -> None:
        host = lab.tree.host("h1_0_3")
        before = host_settings(lab, host)
        assert before["tcp_reordering"] == "3"

        def start() -> object:
            eventually(lambda: lab.controller.get("/agents").json()["agents"], [])
            agent = agent_of(lab, host)
            agent.start()
            lab.controller.wait_agents(1)
            return agent

        agent = start()
        changed = host_settings(lab, host)
        assert (changed["tcp_reordering"], changed["gso_max_segs"]) == ("10", before["gso_max_segs"])
        assert (before["tcp_min_rtt_wlen"], changed["tcp_min_rtt_wlen"]) == ("300", "1")
        assert re.search(r" sopa\d+\b", changed["interfaces"])
        assert "clsact" in changed["qdiscs"]
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM  # type: ignore[attr-defined]
        assert host_settings(lab, host) == before

        agent = start()
        agent.stop(signal.SIGKILL)  # type: ignore[attr-defined]
        # the agents have ended, and still every packet carries its path
        assert None not in datagrams(lab, "h1_0_3", "h2_1_3", 8, 7001)
        agent = start()
        assert None not in datagrams(lab, "h1_0_3", "h2_1_3", 8, 7002)
        assert agent.stop(signal.SIGINT) == 0  # type: ignore[attr-defined]
        assert host_settings(lab, host) == before
        assert state_files(lab.directory / "single") == []
        assert lost(lab, "h1_0_3", "h2_1_3", 3) == 0

    in_lab(body, agents=False)


def test_without_a_controller_the_host_stays_connected() -> None:
    def body(lab: SopaLab) -> None:
        host = lab.tree.host("h0_0_2")
        with agent_of(lab, host, controller="http://127.0.0.1:9") as agent:
            agent.wait_until(lambda: "no controller at http://127.0.0.1:9" in agent.log_tail(), "it said so")
            assert "packets go unlabelled until it answers" in agent.log_tail()
            assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0

    in_lab(body, agents=False)


def test_a_controller_restart_costs_no_packet_and_every_agent_reconnects() -> None:
    def body(lab: SopaLab) -> None:
        with ThreadPoolExecutor(1) as beside:
            unanswered = beside.submit(lost, lab, "h0_0_2", "h3_1_3", 500, 0.01)
            epoch = lab.controller.fabric()["epoch"]
            lab.controller.stop(signal.SIGKILL)
            lab.controller.start()
            lab.controller.wait_connected(lab.tree.switch_count)
            lab.controller.wait_agents(lab.tree.host_count)
            assert lab.controller.fabric()["epoch"] > epoch
        assert unanswered.result() == 0

    in_lab(body)


def test_a_cut_link_is_told_avoided_and_used_again() -> None:
    def body(lab: SopaLab) -> None:
        src, dst = "h0_0_2", "h2_0_2"
        words = datagrams(lab, src, dst, 8, 7001)
        assert (0, 1) in words
        lab.lab.set_link("a2_0-c0_1", up=False)
        eventually(lambda: lab.controller.fabric()["failures"])
        lab.controller.wait_agents(lab.tree.host_count)
        assert set(datagrams(lab, src, dst, 12, 7001)) == {(0, 0), (1, 0), (1, 1)}
        # to another pod that path is as good as ever
        assert set(datagrams(lab, src, "h1_0_2", 12, 7001)) == {(0, 0), (1, 0), (0, 1), (1, 1)}
        assert lost(lab, src, dst, 12) == 0
        lab.lab.set_link("a2_0-c0_1", up=True)
        eventually(lambda: lab.controller.fabric()["failures"], [])
        lab.controller.wait_agents(lab.tree.host_count)
        assert (0, 1) in datagrams(lab, src, dst, 8, 7001)

    in_lab(body)


def test_a_switchs_queue_holds_as_many_frames_as_it_is_told() -> None:
    def body(lab: SopaLab) -> None:
        # two hosts send at full rate to one: what exceeds the rate of its link waits in the edge switch
        count, receiver = 150, lab.tree.host("h0_1_2")
        with inside(lab.lab.netns(receiver)):
            sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with sink, ThreadPoolExecutor(2) as pool:
            sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
            sink.bind(("", UDP_PORT))
            sink.settimeout(5)

            def send(name: str) -> None:
                with inside(lab.lab.netns(name)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                    for _ in range(count):
                        sender.sendto(bytes(1400), (str(lab.tree.ip(receiver)), UDP_PORT))

            for name in ("h0_0_2", "h0_0_3"):
                assert lost(lab, name, "h0_1_2", 1) == 0  # so that no datagram waits for ARP
            list(pool.map(send, ["h0_0_2", "h0_0_3"]))
            arrived = 0
            with contextlib.suppress(TimeoutError):
                for _ in range(2 * count):
                    sink.recv(2000)
                    arrived += 1
            assert arrived == 2 * count

    # one socket's default buffer, which Open vSwitch has for all links, holds some 90
    in_lab(body, rate_mbit=2, queue_packets=400)


def test_switches_that_stand_still_delay_packets_and_lose_none() -> None:
    """What the labs of these tests rely on (`in_lab`): a busy machine may give Open vSwitch no processor for seconds."""

    def body(lab: SopaLab) -> None:
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
        src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")
        with UdpStream(lab.lab, src, dst, per_second=250) as stream:
            eventually(lambda: len(stream.arrived), lambda count: count > 100)
            with standing_still(lab.lab.ovs.pid()):
                # more than a socket keeps by default, and fewer than a processor's backlog (net.core.netdev_max_backlog)
                enough = len(stream.sent_at) + 400
                eventually(lambda: len(stream.sent_at), lambda count: count > enough)
        assert stream.lost() == []
        assert lab.controller.fabric()["failures"] == []

    in_lab(body, bfd_ms=3000)


def test_an_agent_in_a_mininet_host_uses_the_management_network() -> None:
    def body(lab: SopaLab) -> None:
        node = lab.lab.node("h0_0_2")
        command = [sys.executable, "-m", "sopa_ryu.cli", "agent", "--iface", "h0_0_2-eth0", "--controller", lab.url]
        command.append(f"--token-file={lab.controller.agent_token_file}")
        agent = node.popen(command)
        try:
            lab.controller.wait_agents(1)
            assert None not in datagrams(lab, "h0_0_2", "h2_1_3", 4, 7001)
        finally:
            agent.terminate()
            errors = agent.communicate(timeout=20)[1].decode()
        assert agent.returncode == 128 + signal.SIGTERM, errors

    in_lab(body, agents=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--iface", "nowhere0"], "there is no interface nowhere0; there are lo"),
        (["--iface", "lo"], "a host of the fabric has one of 10.0.0.0/8"),
        (["--iface", "a@"], "is no interface: write eth0"),
        (["--iface", "lo@/proc/0/ns/net"], "no network namespace at"),
    ],
)
def test_an_agent_says_clearly_what_is_missing(arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "sopa_ryu.cli", "agent", "--controller", "http://127.0.0.1:9", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [["agent", "--iface", "lo", "--controller", "http://127.0.0.1:9"], ["lab"], ["demo"]]
)
def test_what_needs_root_says_so(command: list[str]) -> None:
    # a user namespace takes root's privileges away and leaves the files readable, wherever this checkout lies
    words = ["unshare", "--user", sys.executable, "-m", "sopa_ryu.cli", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "needs root" in done.stderr
