"""Real TCP with MCS at both ends: over paths that differ, lose packets or die, and while agents come, are killed and end."""

from __future__ import annotations

import ctypes
import heapq
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from experiments.emulation.processes import AgentProcess, free_ports
from sopa_ryu.agent.kernel import cgroup, libbpf
from sopa_ryu.agent.kernel.netns import cookie, inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import Label
from sopa_ryu.agent.scatter.mcs import DEFAULT_PATIENCE_US, McsOptions
from sopa_ryu.agent.scatter.mcs_peers import Use
from tests.bpf.mcs_frames import mco_of, parse
from tests.helpers.channel_server import ChannelServer, channel_server
from tests.helpers.frames import FAR6, HERE6, INTER_POD, PREFIX, table, word_of
from tests.helpers.scrape import scrape
from tests.helpers.veth import ALL, PEER_ADDRESS, Pair, Stream, frames, raw_socket, run, transfer, veth_pair
from tests.helpers.waiting import PATIENCE_SECONDS, Containing, eventually
from topologies.lab.standstill import standing_still

HERE, PORT = "10.0.0.2", 5001
TCP_MD5SIG = 14
PASSWORD = b"secret"
DELAY, STEP = 0.002, 0.001  # seconds: the first path's, and how much longer each further one takes


@contextmanager
def scattering(
    *ends: tuple[str, str, str], patience_us: int = DEFAULT_PATIENCE_US, forwarded: tuple[str, ...] = ()
) -> Iterator[list[Labeller]]:
    """MCS at interfaces, each given by its namespace, its name and the other end's address; some serve containers, too."""
    with ExitStack() as stack:
        made = []
        for netns, ifname, remote in ends:
            options = McsOptions(patience_us=patience_us, forwarded=ifname in forwarded)
            its = stack.enter_context(Labeller(ifname, netns=netns, mcs=options))
            its.swap(table()._replace(srv6=None, destinations=(2,) * 8, prefix=PREFIX))
            assert its.mcs is not None
            its.mcs.note({IPv4Address(remote): Use.SCATTERS})
            its.attach()
            stack.callback(its.detach)
            made.append(its)
        yield made


class Relay:
    """A network of four paths of different length, for each direction the same, between two packet sockets.

    It loses each so many labelled packets, and all of a path that is dead.
    """

    def __init__(self, ends: tuple[socket.socket, socket.socket]) -> None:
        self._ends = ends
        self._stopped = False
        self.taken = dict.fromkeys(INTER_POD, 0)
        self.loses_each, self.dead = 0, set[Label]()
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
                    if label in self.dead or (self.loses_each and number % self.loses_each == 0):
                        continue
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
        for (_, name, ifname, _), address6 in zip(ends, (HERE6, FAR6), strict=True):
            run(f"ip netns exec {name} ethtool -K {ifname} tso off gso off gro off tx off")
            run(f"ip -n {name} link set {ifname} mtu 1500")
            run(f"ip netns exec {name} sysctl -qw net.ipv6.conf.{ifname}.disable_ipv6=0")
            run(f"ip -n {name} address add {address6}/48 dev {ifname} nodad")
        run(f"ip -n {host._peer} addr flush dev peer0")
        run(f"ip -n {peer._host} addr flush dev host0")
        macs = [run(f"ip -n {name} -br link show {ifname}").split()[2] for _, name, ifname, _ in ends]
        for (_, name, ifname, remote), remote6, mac in zip(ends, (FAR6, HERE6), reversed(macs), strict=True):
            for address in (remote, remote6):
                run(f"ip -n {name} neigh replace {address} lladdr {mac} dev {ifname}")
        with raw_socket(host.peer, "peer0", ALL) as one, raw_socket(peer.host, "host0", ALL) as other, Relay((one, other)) as relay:
            for netns, ifname in ((host._peer, "peer0"), (peer._host, "host0")):
                run(f"ip -n {netns} link set {ifname} promisc on")
            yield Pair(host._host, peer._peer), relay


def exchange(pair: Pair, size: int, password: bytes = b"", target: str = PEER_ADDRESS) -> bool:
    """Send random bytes over one connection both ways at once, signed with a password (RFC 2385); return whether all arrived."""
    data, family = (os.urandom(size), os.urandom(size)), socket.AF_INET6 if ":" in target else socket.AF_INET
    with inside(pair.peer):
        server = socket.create_server(
            (PEER_ADDRESS if family == socket.AF_INET else "", PORT), family=family, dualstack_ipv6=family == socket.AF_INET6
        )
    with inside(pair.host):
        client = socket.socket(family)
    for end, remote in ((server, HERE), (client, PEER_ADDRESS)) if password else ():
        address, size_of = socket.inet_aton(remote), len(password)
        key = struct.pack("=HH4s120xBBHi80s", socket.AF_INET, 0, address, 0, 0, size_of, 0, password)
        end.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, key)

    def send(end: socket.socket, what: bytes) -> None:
        end.sendall(what)
        end.shutdown(socket.SHUT_WR)

    def receive(end: socket.socket) -> bytes:
        return b"".join(iter(lambda: end.recv(1 << 16), b""))

    with server, client:
        client.settimeout(PATIENCE_SECONDS)
        client.connect((target, PORT))
        with server.accept()[0] as accepted, ThreadPoolExecutor(4) as pool:
            accepted.settimeout(PATIENCE_SECONDS)
            for end, what in zip((client, accepted), data, strict=True):
                pool.submit(send, end, what)
            return tuple(pool.map(receive, (accepted, client))) == data


def statistics(run_in: str) -> dict[str, int]:
    """Return what a namespace's TCP has counted."""
    lines = run(f"ip netns exec {run_in} nstat -asz").splitlines()[1:]
    return {name: int(value) for name, value, *_ in map(str.split, lines)}


@pytest.mark.parametrize("target", [PEER_ADDRESS, FAR6])
def test_over_paths_of_different_length_no_tcp_sees_reordering(relayed: tuple[Pair, Relay], target: str) -> None:
    pair, relay = relayed
    both = ((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE))
    # a pause of the relay is no loss
    with scattering(*both, patience_us=10_000_000) as ends:
        assert exchange(pair, 10_000_000, target=target)
        assert min(relay.taken.values()) > 1500
        for its in ends:
            assert its.counters()["ack_filtered"] > 100
    for name in (pair._host, pair._peer):
        counted = statistics(name)
        assert counted["TcpExtTCPOFOQueue"] > 1000
        # without the programs' filter thousands; a few after a pause of the relay
        assert counted["TcpExtTCPSACKReorder"] < 100


@pytest.mark.parametrize("forwarded", [(), ("host0",)])
def test_a_container_behind_the_host_sees_no_reordering_either_where_it_is_served(
    relayed: tuple[Pair, Relay], forwarded: tuple[str, ...]
) -> None:
    pair, relay = relayed
    name = f"sopatest-c-{uuid.uuid4().hex[:8]}"
    run(f"ip netns add {name}")
    try:
        pair.on_host(f"ip link add inner type veth peer name outer netns {name}")
        for command in ("ip address add 172.16.0.1/24 dev inner", "ip link set inner up", "sysctl -qw net.ipv4.ip_forward=1"):
            pair.on_host(command)
        pair.on_host("nft add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }; "
                     "add rule ip nat out oifname host0 masquerade")  # fmt: skip
        for command in ("address add 172.16.0.2/24 dev outer", "link set outer up", "route add default via 172.16.0.1"):
            run(f"ip -n {name} {command}")
        both = ((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE))
        with scattering(*both, patience_us=10_000_000, forwarded=forwarded) as ends:
            data = os.urandom(10_000_000)
            assert transfer(pair, data, source=f"/run/netns/{name}") == data
            counted = ends[0].counters()
        assert (counted["scattered"] > 100) == bool(forwarded)
        # the peer's acknowledgements, which are scattered in either case, are some thousand on each path, too
        assert (sum(relay.taken.values()) > 7000) == bool(forwarded)
        assert statistics(name)["TcpExtTCPSACKReorder"] < 100
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def test_containers_are_served_by_one_interface(pair: Pair) -> None:
    both = ((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE))
    with pytest.raises(libbpf.AttachError, match="serves all containers"), scattering(*both, forwarded=("host0", "peer0")):
        pass
    with scattering(*both, forwarded=("peer0",)):  # nothing is left of the first
        pass


def test_what_is_lost_is_soon_sent_again_and_a_path_that_has_died_is_left(relayed: tuple[Pair, Relay]) -> None:
    pair, relay = relayed
    with scattering((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE)):
        relay.loses_each = 300
        # chance may have it that what is lost of one exchange are acknowledgements, or its last packets
        while not statistics(pair._host)["TcpExtTCPSackRecovery"]:
            assert exchange(pair, 1_000_000)
        relay.loses_each, relay.dead = 0, {INTER_POD[2]}
        before = dict(relay.taken)
        assert exchange(pair, 4_000_000)
    taken = {label: count - before[label] for label, count in relay.taken.items()}
    assert taken.pop(INTER_POD[2]) < min(taken.values()) // 3


def test_a_signed_connection_is_not_touched(pair: Pair) -> None:
    with scattering((pair.host, "host0", PEER_ADDRESS), (pair.peer, "peer0", HERE)) as ends:
        assert exchange(pair, 300_000, PASSWORD)
        assert all(its.counters()["scattered"] == 0 for its in ends)
        assert exchange(pair, 300_000, target=f"::ffff:{PEER_ADDRESS}")  # IPv4 by a socket of IPv6
        assert all(its.counters()["scattered"] > 10 for its in ends)
    assert statistics(pair._peer)["TcpExtTCPMD5Failure"] == 0


FILTERS = ["sopa_mcs", "sopa_mcs_in", "sopa_probe"]


def has_room(frame: bytes) -> bool:
    """Whether a packet has an MCO, or room for one."""
    its = parse(frame)
    return its is not None and mco_of(its.header) is not None


def mcos(captured: list[bytes]) -> list[tuple[int, int, Label | None]]:
    """Channel, source port and label of the host's packets that carry an MCO."""
    parsed = [(parse(frame), word_of(frame)) for frame in captured if frame[26:30] == socket.inet_aton(HERE)]
    return [(its.segment.mco.channel, its.sport, label) for its, label in parsed if its and its.segment.mco]


class Ends:
    """Both ends of the pair, whose addresses are hosts of a k=4 fabric, and their agents."""

    def __init__(self, pair: Pair, controller: ChannelServer, directory: Path) -> None:
        self.pair, self.controller, self._directory = pair, controller, directory
        self.ports = dict(zip(("host", "peer"), free_ports(2), strict=True))

    def agent(self, end: str, *options: str, policy: str = "mcs", further: tuple[str, ...] = ()) -> AgentProcess:
        every = [f"--state-dir={self._directory / end}", f"--policy={policy}", f"--metrics-port={self.ports[end]}"]
        self.log(end).touch()
        return AgentProcess([self.interface(end), *further], self.controller.url, self.log(end), [*every, *options])

    def interface(self, end: str) -> str:
        return f"{end}0@{ {'host': self.pair.host, 'peer': self.pair.peer}[end] }"

    def log(self, end: str) -> Path:
        return self._directory / f"{end}.log"

    def metric(self, end: str, name: str) -> float:
        """The sum of the samples whose name, or name with labels, begins so."""
        found = re.findall(rf"^sopa_agent_{name}[,}}]?.*? (\S+)$", scrape(self.ports[end]), re.MULTILINE)
        return sum(map(float, found))

    def packets(self, end: str, outcome: str) -> float:
        return self.metric(end, f'mcs_packets_total{{.*outcome="{outcome}"')

    @contextmanager
    def at_work(self, *options: str) -> Iterator[tuple[AgentProcess, AgentProcess]]:
        with self.agent("host", *options) as one, self.agent("peer", *options) as other:
            for end in self.ports:
                self.wait_for_hosts(end, 1)
            yield one, other

    def wait_for_hosts(self, end: str, count: int) -> None:
        eventually(lambda: self.metric(end, "mcs_hosts"), count)

    def state(self, end: str = "host") -> list[str]:
        run = {"host": self.pair.on_host, "peer": self.pair.on_peer}[end]
        [link] = json.loads(run(f"ip -d -j link show {end}0"))
        shows = ("sysctl net.ipv4.tcp_reordering net.ipv4.tcp_min_rtt_wlen", f"tc qdisc show dev {end}0", "ip -o link")
        return [str(link["gso_max_segs"]), *map(run, shows)]

    def filters(self, end: str) -> list[str]:
        run = {"host": self.pair.on_host, "peer": self.pair.on_peer}[end]
        shown = "".join(run(f"tc filter show dev {end}0 {side}") for side in ("ingress", "egress"))
        return re.findall(r"(sopa_\w+):\[", shown)

    def sent(self, size: int = 200_000) -> list[bytes]:
        """Transfer data over a connection of its own; return what was on the wire, as the peer's end saw it."""
        data = os.urandom(size)
        with raw_socket(self.pair.peer, "peer0", ALL) as capture:
            assert transfer(self.pair, data, pieces=20) == data
            return [frame for frame in frames(capture) if frame[12:14] == b"\x08\x00" and frame[23] == 6]


def program_of(netns: str) -> int | None:
    """Return the id of the program that has TCP leave room for MCS in a network namespace; None if none does."""
    with inside(netns):
        key = struct.pack("=Q", cookie())
    for program in cgroup.sock_ops_programs():
        if libbpf.program_name(program) != "sopa_mcs_ops":
            continue
        try:
            namespaces = libbpf.open_program_map(program, "mcs_namespaces")
        except libbpf.BpfMapError:  # of another run of these tests, and it has ended
            continue
        try:
            if libbpf.lookup(namespaces, key, 4) is not None:
                return program
        finally:
            os.close(namespaces)
    return None


def detach(program: int) -> None:
    """Detach it, as the end of its link does."""
    number = ctypes.c_uint32(0)
    while not libbpf.call("bpf_link_get_next_id", number, ctypes.byref(number)):
        link = libbpf.call("bpf_link_get_fd_by_id", number)
        if link < 0:
            continue  # it is gone
        try:
            info, length = ctypes.create_string_buffer(16), ctypes.c_uint32(16)
            libbpf.check(libbpf.call("bpf_obj_get_info_by_fd", link, info, ctypes.byref(length)), "link")
            if struct.unpack_from("=8xI", info.raw)[0] == program:
                libbpf.check(libbpf.call("bpf_link_detach", link), "detach")
        finally:
            os.close(link)


@pytest.fixture
def ends(pair: Pair, tmp_path: Path) -> Iterator[Ends]:
    with channel_server() as controller:
        yield Ends(pair, controller, tmp_path)


def test_the_program_at_the_sockets_is_put_back_and_nothing_is_left_of_it(ends: Ends) -> None:
    """What two agents scatter: tests/lab/test_emulation.py."""
    before = ends.state()
    with ends.at_work() as (one, other):
        detached = program_of(ends.pair.host)
        assert detached is not None
        with standing_still(one.pid):  # or it may have attached it again before the connection is made
            detach(detached)
            assert not any(map(has_room, ends.sent()))
        eventually(lambda: program_of(ends.pair.host), detached)
        assert mcos(ends.sent())
        eventually(ends.log("host").read_text, Containing("put right"))
        for agent in (one, other):
            assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert ends.state() == before
    assert not any(map(has_room, ends.sent()))


def stream(pair: Pair) -> Stream:
    return Stream(pair.host, pair.peer, PEER_ADDRESS, pause=0.002)


def flows(its: Stream) -> None:
    """Wait until data arrives that is sent from now on."""
    target = its.sent + 100_000
    eventually(lambda: its.received >= target)


@pytest.mark.parametrize("kind", ["paths", "ports"])
def test_connections_survive_a_killed_agent_and_its_successor_scatters_again(ends: Ends, kind: str) -> None:
    """And the end of the other host's agent, after which, by ports, nothing is scattered any more."""
    before = ends.state()
    options = f"--channel-kind={kind}", "--channels=4"
    with ends.at_work(*options) as (one, other):
        seen = mcos(ends.sent())
        first = max(port for _, port, _ in seen)
        if kind == "ports":
            assert set(seen) == {(channel, first - channel, None) for channel in range(4)}
        else:
            assert {(channel, port) for channel, port, _ in seen} == {(channel, first) for channel in range(4)}
            assert {label for _, _, label in seen} == set(INTER_POD)
        with stream(ends.pair) as flow:
            survive(ends, flow, one, other, options)
    assert ends.state() == before


def survive(ends: Ends, flow: Stream, one: AgentProcess, other: AgentProcess, options: tuple[str, ...]) -> None:
    flows(flow)
    one.stop(signal.SIGKILL)
    flows(flow)
    assert sorted(ends.filters("host")) == FILTERS
    scattered = ends.packets("peer", "mco_taken")
    flows(flow)
    assert ends.packets("peer", "mco_taken") == scattered  # nothing leaves room any more
    with ends.agent("host", *options) as successor:
        for end in ends.ports:
            ends.wait_for_hosts(end, 1)
        eventually(lambda: ends.packets("host", "scattered") > 100)
        eventually(lambda: ends.packets("peer", "mco_taken") > scattered)
        flows(flow)
        assert other.stop(signal.SIGTERM) == 128 + signal.SIGTERM
        assert ends.filters("peer") == []
        flows(flow)
        if "--channel-kind=ports" in options:  # by paths a host that is gone is listed for a minute
            ends.wait_for_hosts("host", 0)
            flows(flow)
            scattered = ends.packets("host", "scattered")
            flows(flow)
            assert ends.packets("host", "scattered") == scattered
        assert successor.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    flows(flow)


def test_mcs_takes_the_place_of_a_killed_agent_of_another_policy_and_puts_its_settings_back(ends: Ends) -> None:
    before = ends.state()
    with ends.agent("host", policy="round-robin") as killed:
        eventually(ends.controller.acknowledged, 1)
        killed.stop(signal.SIGKILL)
    assert sorted(ends.filters("host")) == ["sopa_egress", "sopa_probe"]
    with ends.agent("host") as agent:
        eventually(lambda: sorted(ends.filters("host")), FILTERS)
        assert [item for item in ends.state() if "clsact" not in item] == [before[0], before[1], before[3]]
        agent.stop(signal.SIGKILL)
    with ends.agent("host", policy="round-robin") as last:
        eventually(lambda: sorted(ends.filters("host")), ["sopa_egress", "sopa_probe"])
        last.stop(signal.SIGTERM)
    assert ends.state() == before


def test_all_interfaces_of_a_process_have_one_program_at_the_machines_sockets(ends: Ends) -> None:
    """And only one in a network namespace, of that process or of another one."""
    ends.pair.on_host("ip link add other type veth peer name other-peer")
    for command in ("ip addr add 10.1.0.2/32 dev other", "ip link set other up", "ip link set other-peer up"):
        ends.pair.on_host(command)
    second, refusal = f"other@{ends.pair.host}", "another interface in this network namespace has --policy mcs"
    assert refusal in rejected(ends.agent("host", further=(second,)))
    assert ends.filters("host") == []
    assert program_of(ends.pair.host) is None
    with ends.agent("host", further=(ends.interface("peer"),)) as agent:
        ends.wait_for_hosts("host", 2)
        program = program_of(ends.pair.host)
        assert program is not None
        assert program_of(ends.pair.peer) == program
        assert {channel for channel, _, _ in mcos(ends.sent())} == set(range(8))
        options = ["--policy=mcs", f"--state-dir={ends.log('other').with_suffix('')}"]
        assert refusal in rejected(AgentProcess([second], ends.controller.url, ends.log("other"), options))
        assert sorted(ends.filters("host")) == FILTERS
        assert agent.stop(signal.SIGTERM) == 128 + signal.SIGTERM
    assert program_of(ends.pair.host) is None
    assert not any(map(has_room, ends.sent()))


def rejected(agent: AgentProcess) -> str:
    done = subprocess.run(agent.command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 1
    return done.stderr
