"""Real TCP with MCS at both ends: over paths that differ by milliseconds, and where it must not touch anything."""

from __future__ import annotations

import heapq
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.agent.mcs_peers import Use
from tests.bpf.mcs_programs import ONLY, SETTINGS
from tests.helpers.frames import INTER_POD, table, word_of
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, raw_socket, run, veth_pair
from tests.helpers.waiting import PATIENCE_SECONDS

HERE, PORT = "10.0.0.2", 5001
TCP_MD5SIG = 14
PASSWORD = b"secret"
DELAY, STEP = 0.002, 0.001  # seconds: the first path's, and how much longer each further one takes


@contextmanager
def scattering(*ends: tuple[str, str, str], patience_us: int = 0) -> Iterator[list[Labeller]]:
    """MCS at interfaces, each given by its namespace, its name and the other end's address."""
    with ExitStack() as stack:
        made = []
        for netns, ifname, remote in ends:
            its = stack.enter_context(Labeller(ifname, netns=netns, mcs=McsOptions()))
            its.swap(table()._replace(destinations=(2,) * 8))
            assert its.mcs is not None
            its.mcs.note({IPv4Address(remote): Use.SCATTERS})
            settings = its._object.map_fd("mcs_settings")
            *others, _ = SETTINGS.unpack(libbpf.lookup(settings, ONLY, SETTINGS.size) or b"")
            libbpf.update(settings, ONLY, SETTINGS.pack(*others, patience_us))
            its.attach()
            stack.callback(its.detach)
            made.append(its)
        yield made


class Relay:
    """A network of four paths of different length, for each direction the same, between two packet sockets."""

    def __init__(self, ends: tuple[socket.socket, socket.socket]) -> None:
        self._ends = ends
        self._stopped = False
        self.taken = dict.fromkeys(INTER_POD, 0)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stopped = True
        self._thread.join()

    def _run(self) -> None:
        under_way: list[tuple[float, int, socket.socket, bytes]] = []
        number = 0
        while not self._stopped:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 0.1
            for end in select.select(self._ends, [], [], wait)[0]:
                frame, address = end.recvfrom(10_000)
                if address[2] == socket.PACKET_OUTGOING:
                    continue
                label, number = word_of(frame), number + 1
                at = time.monotonic() + DELAY
                if label is not None:
                    self.taken[label] += 1
                    at += STEP * INTER_POD.index(label)
                heapq.heappush(under_way, (at, number, self._ends[end is self._ends[0]], frame))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, end, frame = heapq.heappop(under_way)
                end.send(frame)


@pytest.fixture
def relayed() -> Iterator[tuple[Pair, Relay]]:
    """Two hosts that send single packets with complete checksums, and the relay between them."""
    with veth_pair() as host, veth_pair() as peer:
        # of the first pair the host, of the second the peer; between their other ends is the relay
        ends = ((host.host, host._host, "host0", PEER_ADDRESS), (peer.peer, peer._peer, "peer0", HERE))
        for _, name, ifname, _ in ends:
            run(f"ip netns exec {name} ethtool -K {ifname} tso off gso off gro off tx off")
            run(f"ip -n {name} link set {ifname} mtu 1500")
        run(f"ip -n {host._peer} addr flush dev peer0")
        run(f"ip -n {peer._host} addr flush dev host0")
        macs = [run(f"ip -n {name} -br link show {ifname}").split()[2] for _, name, ifname, _ in ends]
        for (_, name, ifname, remote), mac in zip(ends, reversed(macs), strict=True):
            run(f"ip -n {name} neigh replace {remote} lladdr {mac} dev {ifname}")
        with (
            raw_socket(host.peer, "peer0", ALL) as one,
            raw_socket(peer.host, "host0", ALL) as other,
            Relay((one, other)) as relay,
        ):
            for netns, ifname in ((host._peer, "peer0"), (peer._host, "host0")):
                run(f"ip -n {netns} link set {ifname} promisc on")
            yield Pair(host._host, peer._peer), relay


def exchange(pair: Pair, size: int, password: bytes = b"") -> tuple[bool, bool]:
    """Send random bytes over one connection both ways at once, signed with a password (RFC 2385); return whether all arrived."""
    data, arrived = (os.urandom(size), os.urandom(size)), [b"", b""]
    with inside(pair.peer):
        server = socket.create_server((PEER_ADDRESS, PORT))
    with inside(pair.host):
        client = socket.socket()
    for end, remote in ((server, HERE), (client, PEER_ADDRESS)) if password else ():
        address, size_of = socket.inet_aton(remote), len(password)
        key = struct.pack("=HH4s120xBBHi80s", socket.AF_INET, 0, address, 0, 0, size_of, 0, password)
        end.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, key)
    with server, client:
        client.settimeout(PATIENCE_SECONDS)
        client.connect((PEER_ADDRESS, PORT))
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(PATIENCE_SECONDS)

            def send(end: socket.socket, what: bytes) -> None:
                end.sendall(what)
                end.shutdown(socket.SHUT_WR)

            def receive(end: socket.socket, at: int) -> None:
                taken = bytearray()
                while piece := end.recv(1 << 16):
                    taken += piece
                arrived[at] = bytes(taken)

            work = [
                (send, (client, data[0])),
                (send, (accepted, data[1])),
                (receive, (accepted, 0)),
                (receive, (client, 1)),
            ]
            threads = [threading.Thread(target=each, args=arguments) for each, arguments in work]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return arrived[0] == data[0], arrived[1] == data[1]


def statistics(run_in: str) -> dict[str, int]:
    """Return what a namespace's TCP has counted."""
    lines = run(f"ip netns exec {run_in} nstat -asz").splitlines()[1:]
    return {name: int(value) for name, value, *_ in map(str.split, lines)}


def test_over_paths_of_different_length_no_tcp_sees_reordering(relayed: tuple[Pair, Relay]) -> None:
    pair, relay = relayed
    both = ((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE))
    # a pause of the relay is no loss
    with scattering(*both, patience_us=10_000_000) as ends:
        assert exchange(pair, 10_000_000) == (True, True)
        assert min(relay.taken.values()) > 1500
        for its in ends:
            assert its.counters()["ack_filtered"] > 100
    for name in (pair._host, pair._peer):
        counted = statistics(name)
        assert counted["TcpExtTCPOFOQueue"] > 1000
        # without the programs' filter thousands; a few after a pause of the relay
        assert counted["TcpExtTCPSACKReorder"] < 100


def test_a_signed_connection_is_not_touched(pair: Pair) -> None:
    with scattering((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE)) as ends:
        assert exchange(pair, 300_000, PASSWORD) == (True, True)
        assert all(its.counters()["scattered"] == 0 for its in ends)
        assert exchange(pair, 300_000) == (True, True)
        assert all(its.counters()["scattered"] > 10 for its in ends)
    assert statistics(pair._peer)["TcpExtTCPMD5Failure"] == 0
