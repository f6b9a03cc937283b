"""MCS in the whole lab: two hosts run it, a third one does not; what is on the wire between them, and what the controller says."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections import Counter
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

from experiments.emulation.processes import free_ports
from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.agent.kernel.netns import inside
from tests.helpers.sopa_lab import datagrams, host_settings, lost, word_of
from tests.helpers.waiting import eventually

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
