"""The whole system with real packets: labels and the switches that obey them, hosts as they are, and agents of one host."""

from __future__ import annotations

import re
import resource
import signal
import sys
from pathlib import Path

from experiments.emulation.processes import AgentProcess
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from tests.helpers.sopa_lab import (
    GONE_SECONDS,
    UDP_PORT,
    agent_of,
    arriving_sources,
    datagrams,
    drops,
    host_settings,
    lost,
    run,
    state_files,
)
from tests.helpers.waiting import Containing, eventually
from tests.lab.conftest import NO_LABEL, SEED
from topologies import Failures, Level
from topologies.lab.standstill import standing_still

CONSUMED = "02:53:9e:04:ff:ff"  # one address for all paths: the receiver merges packets of a flow


def test_every_packet_carries_exactly_the_path_that_the_seed_decides(lab: SopaLab) -> None:
    src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_1_3")
    table = path_table(lab.tree, src, Failures(lab.tree), SEED, Policy.ROUND_ROBIN)
    before = lab.lab.port_packets(Level.CORE)
    for port in (7001, 7002):
        key = FlowKey.of(str(lab.tree.ip(src)), str(lab.tree.ip(dst)), 17, port, UDP_PORT)
        assert datagrams(lab, "h0_0_2", "h2_1_3", 40, port) == [table.choose(key, n) for n in range(40)]
    assert arriving_sources(lab, "h0_0_2", "h2_1_3", 16, 7003) == {CONSUMED: 16}

    def spread() -> dict[str, int]:
        now = lab.lab.port_packets(Level.CORE)
        return {name: now[name] - before[name] for name in now}

    # and the switches obey: 80 packets, 20 over each core switch (ICMP errors come back unevenly, if at all)
    eventually(spread, lambda counts: min(counts.values()) >= 20)


def test_hosts_of_the_rack_of_the_pod_and_of_other_pods_reach_each_other(lab: SopaLab) -> None:
    hosts = [lab.tree.name(host) for host in lab.tree.hosts()]
    for src, dst in [(hosts[0], dst) for dst in hosts[1:]] + [(src, hosts[0]) for src in (NO_LABEL, *hosts[-3:])]:
        assert lost(lab, src, dst, 2) == 0
    assert "02:00:00:00:00:01" in run(lab, hosts[0], "ip", "neigh", "show", "10.0.0.3")


def test_a_host_that_sends_from_anothers_address_is_dropped_and_counted(lab: SopaLab) -> None:
    run(lab, "h0_0_2", "ip", "address", "add", "10.3.1.3/32", "dev", "h0_0_2-eth0")
    before = drops(lab, "e0_0", "priority=20,in_port=1")
    assert lost(lab, "h0_0_2", "h2_0_2", 4, source="10.3.1.3", late=GONE_SECONDS) == 4
    eventually(lambda: drops(lab, "e0_0", "priority=20,in_port=1") - before, 4)
    assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
    run(lab, "h0_0_2", "ip", "address", "del", "10.3.1.3/32", "dev", "h0_0_2-eth0")


def test_a_host_whose_address_is_not_the_plans_is_learned_from_its_arp(lab: SopaLab) -> None:
    for mac in ("06:aa:bb:cc:dd:ee", "06:00:00:00:00:77", str(lab.tree.mac(lab.tree.host("h2_0_2")))):
        run(lab, "h2_0_2", "ip", "link", "set", "h2_0_2-eth0", "address", mac)
        run(lab, "h2_0_2", "ip", "neigh", "flush", "all")
        # its ARP is learned, but cached flows follow only after a revalidation
        eventually(lambda: lost(lab, "h2_0_2", "h0_0_2", 1, late=GONE_SECONDS), 0)
        for _ in range(2):
            lab.lab.ovs.appctl("revalidator/wait")
        assert lost(lab, "h2_0_2", "h0_0_2", 3) == 0
        assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0


def test_switches_that_stand_still_delay_packets_and_lose_none(lab: SopaLab) -> None:
    """What the labs of these tests rely on (`whole`): a busy machine may give Open vSwitch no processor for seconds."""
    assert lost(lab, "h0_0_2", "h2_0_2", 3) == 0
    src, dst = lab.tree.host("h0_0_2"), lab.tree.host("h2_0_2")
    with UdpStream(lab.lab, src, dst, per_second=250) as stream:
        eventually(lambda: len(stream.arrived), lambda count: count > 100)
        with standing_still(lab.lab.ovs.pid()):
            # more than a socket keeps by default, and fewer than a processor's backlog (net.core.netdev_max_backlog)
            enough = len(stream.sent_at) + 400
            eventually(lambda: len(stream.sent_at), lambda count: count > enough)
        eventually(lambda: len(stream.arrived), lambda count: count > enough)
    assert stream.lost() == []
    assert lab.controller.fabric()["failures"] == []


# -- agents of one host -----------------------------------------------------------------------------------------------


def test_hosts_without_an_agent_are_connected_too(bare: SopaLab) -> None:
    assert datagrams(bare, "h0_0_2", "h1_1_3", 4, 7001) == [None] * 4
    for dst in ("h0_0_3", "h0_1_2", "h1_0_2", "h1_1_3"):
        assert lost(bare, "h0_0_2", dst, 3) == 0


def started(lab: SopaLab, host: str) -> AgentProcess:
    """Start an agent for one host, and wait until it is the only one."""
    eventually(lambda: lab.controller.get("/agents").json()["agents"], [])
    agent = agent_of(lab, lab.tree.host(host))
    agent.start()
    lab.controller.wait_agents(1)
    return agent


def test_an_agent_puts_everything_back_when_it_ends_however_it_ends(bare: SopaLab) -> None:
    src, dst = "h0_0_3", "h1_1_3"
    before = host_settings(bare, bare.tree.host(src))
    assert before["tcp_reordering"] == "3"
    agent = started(bare, src)
    changed = host_settings(bare, bare.tree.host(src))
    assert (changed["tcp_reordering"], changed["gso_max_segs"]) == ("10", before["gso_max_segs"])
    assert (before["tcp_min_rtt_wlen"], changed["tcp_min_rtt_wlen"]) == ("300", "1")
    assert re.search(r" sopa\d+\b", changed["interfaces"])
    assert "clsact" in changed["qdiscs"]
    assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert host_settings(bare, bare.tree.host(src)) == before

    started(bare, src).stop(signal.SIGKILL)
    # it has ended, and still every packet carries its path: also a dead one, instead of which switches take another
    bare.lab.set_link("a1_0-c0_1", up=False)
    eventually(lambda: bare.controller.fabric()["failures"])
    eventually(lambda: bare.controller.get("/changes").json()["changes"][0]["installed_ms"] is not None)
    words = datagrams(bare, src, dst, 8, 7001)
    assert (0, 1) in words
    assert None not in words
    assert lost(bare, src, dst, 12) == 0
    bare.lab.set_link("a1_0-c0_1", up=True)
    agent = started(bare, src)
    assert None not in datagrams(bare, src, dst, 8, 7002)
    assert agent.stop(signal.SIGINT) == 0
    assert host_settings(bare, bare.tree.host(src)) == before
    assert state_files(bare.directory / "single") == []
    assert lost(bare, src, dst, 3) == 0


def test_without_a_controller_the_host_stays_connected(bare: SopaLab) -> None:
    with agent_of(bare, bare.tree.host("h0_0_2"), controller="http://127.0.0.1:9") as agent:
        agent.wait_until(lambda: "no controller at http://127.0.0.1:9" in agent.log_tail(), "it said so")
        assert "packets go unlabelled until it answers" in agent.log_tail()
        assert lost(bare, "h0_0_2", "h1_0_2", 3) == 0


def test_an_agent_in_a_mininet_host_uses_the_management_network(bare: SopaLab) -> None:
    node = bare.lab.node("h0_0_2")
    command = [sys.executable, "-m", "sopa_ryu.cli", "agent", "--iface", "h0_0_2-eth0", "--controller", bare.url]
    command += [f"--token-file={bare.controller.agent_token_file}", "--no-probes"]
    agent = node.popen(command)
    try:
        bare.controller.wait_agents(1)
        assert None not in datagrams(bare, "h0_0_2", "h1_1_3", 4, 7001)
    finally:
        agent.terminate()
        errors = agent.communicate(timeout=60)[1].decode()
    assert agent.returncode == 128 + signal.SIGTERM, errors


def test_one_process_has_the_files_that_all_its_hosts_need(bare: SopaLab) -> None:
    most, (soft, hard) = 64, resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    with bare.agent_of(bare.tree.hosts(), "all") as agents:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        agents.wait_until(lambda: bare.controller.agents_know(bare.tree.host_count), "all agents had acknowledged")
        assert len(list(Path(f"/proc/{agents.pid}/fd").iterdir())) > most


def test_an_agent_of_the_other_carrier_is_a_warning_and_stays_connected(bare: SopaLab) -> None:
    host = bare.tree.host("h0_0_2")
    with agent_of(bare, host, "--carrier=option"):
        bare.controller.wait_agents(1)
        [agent] = bare.controller.get("/agents").json()["agents"]
        assert agent["carrier"] == "option"
        eventually(bare.controller.log.read_text, Containing("agent of h0_0_2 writes labels by carrier option"))
        assert lost(bare, "h0_0_2", "h1_0_2", 4) == 0  # hashed, as any unlabelled packet
