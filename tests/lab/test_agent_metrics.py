"""``sopa agent --metrics-port``, read as Prometheus reads it, of an agent at work."""

from __future__ import annotations

import signal
import socket
from collections import Counter

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import AgentProcess, ProcessError, free_ports
from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.sopa_lab import agent_of, datagrams, host_settings
from tests.helpers.waiting import eventually

SRC, DST = "h0_0_2", "h1_1_3"


def agent_with_metrics(lab: SopaLab, *options: str) -> tuple[AgentProcess, str]:
    [port] = free_ports(1)
    agent = agent_of(lab, lab.tree.host(SRC), f"--metrics-port={port}", *options)
    return agent, f"http://127.0.0.1:{port}/metrics"


def scrape(url: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Every sample by name and its labels' values, without the interface's."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(httpx.get(url, timeout=60).raise_for_status().text):
        for sample in family.samples:
            labels = tuple(value for name, value in sorted(sample.labels.items()) if name != "interface")
            samples.setdefault(sample.name, {})[labels] = sample.value
    return samples


def test_packets_are_counted_by_path_and_by_why_they_have_none(bare: SopaLab) -> None:
    agent, url = agent_with_metrics(bare)
    with agent:
        bare.controller.wait_agents(1)
        before = scrape(url)["sopa_agent_path_packets_total"]
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
    bare.controller.start()
    bare.lab.set_link("a0_0-c0_1", up=True)


def test_who_asks_slowly_holds_up_nobody_not_even_the_agents_end(bare: SopaLab) -> None:
    before = host_settings(bare, bare.tree.host(SRC))
    agent, url = agent_with_metrics(bare)
    with agent:
        bare.controller.wait_agents(1)
        port = httpx.URL(url).port
        assert port is not None
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        slow[0].sendall(b"GET /met")
        assert scrape(url)["sopa_agent_connected"][()] == 1
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        for one in slow:
            one.close()
    assert host_settings(bare, bare.tree.host(SRC)) == before


def test_a_port_that_is_taken_is_said_and_nothing_stays_changed(bare: SopaLab) -> None:
    before = host_settings(bare, bare.tree.host(SRC))
    agent, url = agent_with_metrics(bare)
    port = httpx.URL(url).port
    taken = socket.create_server(("127.0.0.1", port or 0))
    with taken, pytest.raises(ProcessError, match="Address already in use"), agent:
        agent.wait_until(lambda: False, "it had been scraped")
    assert f"metrics cannot be served at 127.0.0.1 port {port}: Address already in use" in agent.log.read_text()
    assert host_settings(bare, bare.tree.host(SRC)) == before
