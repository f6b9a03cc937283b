"""Agents of single hosts in a lab: the files they need, and their metrics.

What they change and put back is in `tests/bpf`, that they do so however they end in `tests/switch/test_units.py`.
"""

import os
import resource
import signal
import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import AgentProcess, ProcessError, free_ports
from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.scrape import scrape
from tests.helpers.sopa_lab import agent_of, datagrams, run
from tests.helpers.waiting import eventually


def test_one_process_has_the_files_that_all_its_hosts_need(bare: SopaLab) -> None:
    # room for what this process has open, by tests before it too; the agents need some hundreds
    most, (soft, hard) = 64 + len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    with bare.agent_of(bare.tree.hosts(), "all") as agents:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        agents.wait_until(lambda: bare.controller.agents_know(bare.tree.host_count), "all agents had acknowledged")
        assert len(list(Path(f"/proc/{agents.pid}/fd").iterdir())) > most


SRC, DST = "h0_0_2", "h1_1_3"


def agent_with_metrics(lab: SopaLab) -> tuple[AgentProcess, int]:
    [port] = free_ports(1)
    return agent_of(lab, lab.tree.host(SRC), f"--metrics-port={port}"), port


def samples_at(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by name and its labels' values, without the interface's."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(scrape(port)):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "interface")
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_packets_are_counted_by_path_and_by_why_they_have_none(bare: SopaLab) -> None:
    """And who asks for metrics slowly holds up nobody, not even the agent's end."""
    agent, port = agent_with_metrics(bare)
    with agent, ExitStack() as slow:
        bare.controller.wait_agents(1)
        asking = [slow.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(20)]
        asking[0].sendall(b"GET /met")
        before = samples_at(port)["sopa_agent_path_packets_total"]
        run(bare, SRC, "ip", "neigh", "flush", "all")
        carried = Counter(word for word in datagrams(bare, SRC, DST, 40, 7001) if word)
        after = samples_at(port)
        paths = after["sopa_agent_path_packets_total"]
        words = {(str(up1), str(up2)): packets for (up1, up2), packets in carried.items()}
        assert {labels: paths[labels] - before[labels] for labels in words} == words
        assert sum(paths.values()) - sum(before.values()) == 40
        assert set(paths) == {("none", "none"), ("0", "none"), ("1", "none"), *words}
        assert after["sopa_agent_unlabelled_packets_total"][("not_ipv4",)] > 0  # ARP
        assert after["sopa_agent_version"][()] == bare.controller.fabric()["version"]
        assert (after["sopa_agent_connected"][()], after["sopa_agent_swaps_total"][()]) == (1, 1)
        bare.lab.set_link("a0_0-c0_1", up=False)
        eventually(lambda: samples_at(port)["sopa_agent_swaps_total"][()], lambda swaps: swaps >= 2)
        bare.controller.stop(signal.SIGKILL)
        eventually(lambda: samples_at(port)["sopa_agent_connected"][()], 0)
        assert samples_at(port)["sopa_agent_version"][()] > after["sopa_agent_version"][()]
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    bare.controller.start()
    bare.lab.set_link("a0_0-c0_1", up=True)


def test_a_port_that_is_taken_is_said_and_nothing_stays_changed(bare: SopaLab) -> None:
    agent, port = agent_with_metrics(bare)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ProcessError, match="Address already in use"), agent:
        agent.wait_until(lambda: False, "it had been scraped")
    assert f"metrics cannot be served at 127.0.0.1 port {port}: Address already in use" in agent.log.read_text()
    assert "clsact" not in run(bare, SRC, "tc", "qdisc", "show")
