"""Packets that a host passes on for a container behind it: the switches hash their flows, whatever way they take there."""

from __future__ import annotations

import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.counters import Reason
from sopa_ryu.agent.kernel.netns import inside
from tests.bpf.labelling import labelling
from tests.helpers.frames import FAR, table
from tests.helpers.veth import IPV4, Pair, frames, raw_socket, run, transfer
from tests.helpers.waiting import PATIENCE_SECONDS

CARRIERS = pytest.mark.parametrize("carrier", Carrier)
BYTES = 4_000_000
DATA = bytes(BYTES)
ROUTER = ["ip addr add 172.16.0.1/24 dev inner", "sysctl -qw net.ipv4.ip_forward=1"]
# How the container is connected: its address, and the commands in the host's namespace, the container's and the peer's.
WAYS = {
    "routed": (
        "172.16.0.2",
        ROUTER,
        ["ip route add default via 172.16.0.1"],
        ["ip route add 172.16.0.0/24 via 10.0.0.2"],
    ),
    "bridged": (
        "10.0.0.5",
        ["ip link add br0 type bridge", "ip link set br0 up", "ip link set host0 master br0", "ip link set inner master br0",
         "ip addr del 10.0.0.2/8 dev host0", "ip addr add 10.0.0.2/8 dev br0"],
        ["ip route add 10.0.0.0/8 dev outer"],
        [],
    ),
    "tunnelled": (
        "172.16.0.2",
        [
            *ROUTER,
            "ip link add tun type vxlan id 7 remote 10.2.1.3 local 10.0.0.2 dstport 4789 dev host0",
            "ip addr add 192.168.7.1/24 dev tun",
            "ip link set tun up",
        ],
        ["ip route add default via 172.16.0.1"],
        [
            "ip link add tun type vxlan id 7 remote 10.0.0.2 local 10.2.1.3 dstport 4789 dev peer0",
            "ip addr add 192.168.7.2/24 dev tun",
            "ip link set tun up",
            "ip route add 172.16.0.0/24 via 192.168.7.1",
        ],
    ),
}  # fmt: skip


@pytest.fixture(params=WAYS)
def container(pair: Pair, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A namespace behind the host, connected by a veth pair, and the peer's address for it, as `transfer` takes them."""
    name = f"sopatest-c-{uuid.uuid4().hex[:8]}"
    address, on_host, on_container, on_peer = WAYS[request.param]
    run(f"ip netns add {name}")
    try:
        # room for the option, since a bridge drops what is too large for a port
        pair.on_host(f"ip link add inner mtu 8996 type veth peer name outer mtu 8996 netns {name}")
        pair.on_host("ip link set inner up")
        for command in (f"addr add {address}/24 dev outer", "link set outer up", "link set lo up"):
            run(f"ip -n {name} {command}")
        for command in on_host:
            pair.on_host(command)
        for command in on_container:
            run(f"ip netns exec {name} {command}")
        for command in on_peer:
            pair.on_peer(command)
        yield {"source": f"/run/netns/{name}", "target": "192.168.7.2" if request.param == "tunnelled" else FAR}
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@CARRIERS
def test_a_containers_flow_is_left_to_the_switches_and_its_threshold_alone(
    pair: Pair, container: dict[str, str], tmp_path: Path, carrier: Carrier
) -> None:
    with labelling(pair, tmp_path, carrier) as labeller:
        assert transfer(pair, DATA, **container) == DATA
        packets = labeller.counted.by_reason()
        assert packets[Reason.FORWARDED] > 0
        assert packets[Reason.LABELLED] == packets[Reason.GSO] == 0
        if carrier is Carrier.MAC:  # bursts, which the kernel cuts behind the program
            assert packets[Reason.FORWARDED] < BYTES // 9000
        with inside(container["source"]):
            assert Path("/proc/sys/net/ipv4/tcp_reordering").read_text().strip() == "3"
        # and the host's own flows are labelled as ever
        assert transfer(pair, DATA) == DATA
        after = labeller.counted.by_reason()
        if labeller.cut_by:
            assert after[Reason.LABELLED] > after[Reason.CUT] > after[Reason.GSO] == 0
        else:  # a bridge's port
            assert after[Reason.LABELLED] > after[Reason.GSO]
        assert after[Reason.FORWARDED] == packets[Reason.FORWARDED]


@CARRIERS
def test_all_that_the_host_itself_sends_is_labelled(pair: Pair, tmp_path: Path, carrier: Carrier) -> None:
    with labelling(pair, tmp_path, carrier) as labeller:
        with raw_socket(pair.peer, "peer0", IPV4) as capture:
            with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(b"x", (FAR, 5000))  # answered by ICMP
                sender.sendto(bytes(20_000), (FAR, 5000))  # fragments
            pair.on_host(f"ping -c 2 -i 0.2 {FAR}")
            pair.on_peer("ping -c 2 -i 0.2 10.0.0.2")
            with inside(pair.peer):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):  # answered by RST and by ICMP
                    with socket.socket(socket.AF_INET, kind) as prober:
                        prober.settimeout(PATIENCE_SECONDS)
                        with pytest.raises(ConnectionRefusedError):
                            assert prober.connect(("10.0.0.2", 9)) or prober.send(b"x") == prober.recv(1)
            sent = [frame for frame in frames(capture) if frame[26:30] == bytes([10, 0, 0, 2])]
        packets = labeller.counted.by_reason()
        assert packets[Reason.FORWARDED] == 0
        assert packets[Reason.LABELLED] == len(sent) >= 1 + 3 + 4 + 2


@CARRIERS
@pytest.mark.parametrize("container", ["routed"], indirect=True)
def test_a_gateway_labels_each_packet_that_it_brings_in_from_outside(
    pair: Pair, container: dict[str, str], tmp_path: Path, carrier: Carrier
) -> None:
    with labelling(pair, tmp_path, carrier, paths=table()._replace(leads_out=True)) as labeller:
        assert transfer(pair, DATA, **container) == DATA
        packets = labeller.counted.by_reason()
        assert packets[Reason.FORWARDED] == packets[Reason.GSO] == 0
        assert packets[Reason.LABELLED] > BYTES / 9000
