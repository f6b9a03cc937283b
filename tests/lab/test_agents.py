"""Agents of single hosts in a lab: what they change and put back, and their metrics."""

import re
import resource
import signal
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import AgentProcess, ProcessError, free_ports
from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.sopa_lab import agent_of, datagrams, host_settings, lost, run, state_files, without
from tests.helpers.waiting import Containing, eventually


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
    with without(bare, "a1_0-c0_1"):
        words = datagrams(bare, src, dst, 8, 7001)
        assert (0, 1) in words
        assert None not in words
        assert lost(bare, src, dst, 12) == 0
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


SRC, DST = "h0_0_2", "h1_1_3"


def agent_with_metrics(lab: SopaLab, *options: str) -> tuple[AgentProcess, str]:
    [port] = free_ports(1)
    agent = agent_of(lab, lab.tree.host(SRC), f"--metrics-port={port}", *options)
    return agent, f"http://127.0.0.1:{port}/metrics"


def port_of(url: str) -> int:
    return httpx.URL(url).port or 0


def scrape(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by name and its labels' values, without the interface's."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(httpx.get(url, timeout=60).raise_for_status().text):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "interface")
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_packets_are_counted_by_path_and_by_why_they_have_none(bare: SopaLab) -> None:
    """And who asks for metrics slowly holds up nobody, not even the agent's end."""
    settings = host_settings(bare, bare.tree.host(SRC))
    agent, url = agent_with_metrics(bare)
    with agent, ExitStack() as slow:
        bare.controller.wait_agents(1)
        asking = [slow.enter_context(socket.create_connection(("127.0.0.1", port_of(url)))) for _ in range(20)]
        asking[0].sendall(b"GET /met")
        before = scrape(url)["sopa_agent_path_packets_total"]
        run(bare, SRC, "ip", "neigh", "flush", "all")
        carried = Counter(word for word in datagrams(bare, SRC, DST, 40, 7001) if word)
        after = scrape(url)
        paths = after["sopa_agent_path_packets_total"]
        words = {(str(up1), str(up2)): packets for (up1, up2), packets in carried.items()}
        assert {labels: paths[labels] - before[labels] for labels in words} == words
        assert sum(paths.values()) - sum(before.values()) == 40
        assert set(paths) == {("none", "none"), ("0", "none"), ("1", "none"), *words}
        assert after["sopa_agent_unlabelled_packets_total"][("not_ipv4",)] > 0  # ARP
        assert after["sopa_agent_version"][()] == bare.controller.fabric()["version"]
        assert (after["sopa_agent_connected"][()], after["sopa_agent_swaps_total"][()]) == (1, 1)
        bare.lab.set_link("a0_0-c0_1", up=False)
        eventually(lambda: scrape(url)["sopa_agent_swaps_total"][()], lambda swaps: swaps >= 2)
        bare.controller.stop(signal.SIGKILL)
        eventually(lambda: scrape(url)["sopa_agent_connected"][()], 0)
        assert scrape(url)["sopa_agent_version"][()] > after["sopa_agent_version"][()]
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert host_settings(bare, bare.tree.host(SRC)) == settings
    bare.controller.start()
    bare.lab.set_link("a0_0-c0_1", up=True)


def test_a_port_that_is_taken_is_said_and_nothing_stays_changed(bare: SopaLab) -> None:
    before = host_settings(bare, bare.tree.host(SRC))
    agent, url = agent_with_metrics(bare)
    port = port_of(url)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ProcessError, match="Address already in use"), agent:
        agent.wait_until(lambda: False, "it had been scraped")
    assert f"metrics cannot be served at 127.0.0.1 port {port}: Address already in use" in agent.log.read_text()
    assert host_settings(bare, bare.tree.host(SRC)) == before
