"""Agents of single hosts in a lab: what they change and put back, their metrics, and MCS between two of them."""

from __future__ import annotations

import os
import re
import resource
import select
import signal
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import AgentProcess, ProcessError, free_ports
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import agent_of, datagrams, host_settings, lost, run, state_files, word_of
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


# -- metrics, read as Prometheus reads them ---------------------------------------------------------------------------


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


# -- MCS: two hosts run it, a third one does not ----------------------------------------------------------------------


ONE, OTHER, PLAIN = "h0_0_2", "h1_0_2", "h1_1_2"
SCATTERED, KIND = 0x08, 253


class Shape(NamedTuple):
    """What of a packet is the same in every connection, if nothing on the host changes packets."""

    source: bytes
    tos: int
    offset_and_reserved: int
    options: tuple[int, ...]


def options_of(frame: bytes) -> list[bytes]:
    """The options of a TCP header, without NOPs."""
    found, at, end = [], 54, 34 + (frame[46] >> 4) * 4
    while at < end and frame[at]:
        length = 1 if frame[at] == 1 else frame[at + 1]
        if frame[at] != 1:
            found.append(frame[at : at + length])
        at += length
    return found


def has_data(frame: bytes) -> bool:
    return int.from_bytes(frame[16:18], "big") > 20 + (frame[46] >> 4) * 4


def shape_of(frame: bytes) -> Shape:
    return Shape(frame[6:12], frame[15], frame[46], tuple(option[0] for option in options_of(frame)))


def transfer(lab: SopaLab, src: str, dst: str, size: int = 60_000) -> list[bytes]:
    """Send data over TCP; return the packets of the connection that left the sender, as its interface saw them."""
    sender, receiver = lab.tree.host(src), lab.tree.host(dst)
    data, received, address = os.urandom(size), bytearray(), str(lab.tree.ip(receiver))
    with inside(lab.lab.netns(receiver)):
        server = socket.create_server((address, 0))
    port = server.getsockname()[1]

    def receive() -> None:
        connection, _ = server.accept()
        with connection:
            while chunk := connection.recv(1 << 16):
                received.extend(chunk)

    with inside(lab.lab.netns(sender)):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        wire.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
        wire.bind((lab.lab.interface(sender, 0), 0x0003))
        thread = threading.Thread(target=receive)
        thread.start()
        with server, socket.create_connection((address, port), 60) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            thread.join()
    assert bytes(received) == data
    captured = []
    with wire:
        while select.select([wire], [], [], 0.5)[
            0
        ]:  # what the connection has sent was there when its last byte arrived
            frame, origin = wire.recvfrom(70000)
            is_ours = frame[12:14] == b"\x08\x00" and frame[23] == 6 and frame[36:38] == port.to_bytes(2, "big")
            if origin[2] == socket.PACKET_OUTGOING and is_ours:
                captured.append(frame)
    return captured


def outcomes(metrics: int, host: str) -> Counter[str]:
    """What an agent has counted of a host's packets with MCS."""
    text = httpx.get(f"http://127.0.0.1:{metrics}/metrics", timeout=60).text
    counted: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.labels.get("interface", "").startswith(f"{host}-") and sample.name.startswith("sopa_agent_mcs_"):
                counted[sample.labels.get("outcome", sample.name)] = int(sample.value)
    return counted


def test_two_hosts_scatter_to_each_other_and_a_third_one_sees_no_difference(bare: SopaLab) -> None:
    hosts = [bare.tree.host(name) for name in (ONE, OTHER)]
    before = set(map(shape_of, transfer(bare, ONE, PLAIN)))
    settings = host_settings(bare, hosts[0])
    [metrics] = free_ports(1)
    with bare.agent_of(hosts, options=["--policy=mcs", f"--metrics-port={metrics}"]):
        bare.controller.wait_agents(2)
        for name in (ONE, OTHER):
            eventually(lambda name=name: outcomes(metrics, name)["sopa_agent_mcs_hosts"], 1)
        policies = {agent["host"]: agent["policy"] for agent in bare.controller.get("/agents").json()["agents"]}
        assert policies == {ONE: "mcs", OTHER: "mcs"}
        now = host_settings(bare, hosts[0])
        assert all(now[name] == settings[name] for name in settings if name not in ("qdiscs", "filters"))

        sent = transfer(bare, ONE, OTHER, 400_000)
        scattered = [frame for frame in sent if frame[46] & SCATTERED]
        own = [option for frame in scattered for option in options_of(frame) if option[0] == KIND]
        assert len(own) == len(scattered)
        # SYN, and what the kernel says for a connection that is closed (TIME_WAIT), have no room for an option
        assert not any(map(has_data, set(sent) - set(scattered)))
        assert any(map(has_data, scattered))
        assert all(len(option) == 16 and option[7] >> 4 == 1 for option in own)
        assert {option[7] & 15 for option in own} == set(range(8))
        assert {word_of(frame) for frame in scattered} == {(0, 0), (0, 1), (1, 0), (1, 1)}
        counted = outcomes(metrics, ONE)
        assert 0 < counted["scattered"] <= len(scattered)  # the kernel cuts bursts behind the program
        assert all(outcomes(metrics, OTHER)[outcome] > 0 for outcome in ("scattered", "mco_taken"))
        assert counted["mco_taken"] > 0
        eventually(lambda: outcomes(metrics, ONE)["sopa_agent_mcs_connections"], 0)

        for src, dst in ((ONE, PLAIN), (PLAIN, ONE)):
            plain = transfer(bare, src, dst)
            assert not any(frame[46] & SCATTERED or word_of(frame) for frame in plain)
            if src == ONE:
                assert set(map(shape_of, plain)) <= before
        assert outcomes(metrics, ONE)["scattered"] == counted["scattered"]
        assert datagrams(bare, ONE, OTHER, 4, 7005) == [None] * 4
        assert lost(bare, ONE, OTHER, 2) == lost(bare, ONE, PLAIN, 2) == 0
        for outcome in ("mco_unknown", "mco_malformed", "no_connection"):
            assert counted[outcome] == 0
    assert host_settings(bare, hosts[0]) == settings
    assert not any(frame[46] & SCATTERED for frame in transfer(bare, ONE, OTHER))
