"""The ``option`` carrier on real interfaces: what is on the wire, what sockets get, what is refused, and what is left behind."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent import edge_parser
from sopa_ryu.agent.edge_parser import Mode
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel import xdp
from sopa_ryu.agent.kernel.build import EMPTY
from sopa_ryu.agent.kernel.libbpf import AttachError, Object
from sopa_ryu.agent.kernel.netns import Interface, inside
from sopa_ryu.agent.labeller import Labeller
from tests.helpers.frames import FAR, HERE, INTER_POD, UDP, checksum, ip, ports, table, tcp, word_of
from tests.helpers.killed_agent import leave_behind
from tests.helpers.veth import ALL, Pair, frames, raw_socket, transfer, veth_pair
from tests.helpers.waiting import PATIENCE_SECONDS

IP_MTU_DISCOVER, IP_PMTUDISC_DO, IP_PMTUDISC_DONT, IP_RECVOPTS = 10, 2, 0, 6
SOL_PACKET, PACKET_AUXDATA = 263, 8


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A pair with Ethernet's MTU."""
    with veth_pair() as made:
        made.on_host("ip link set host0 mtu 1500")
        made.on_peer("ip link set peer0 mtu 1500")
        yield made


class Ends:
    """Both ends' agents, so to say: the host writes options, the peer takes them out."""

    def __init__(self, pair: Pair, state_dir: Path, apply: bool = True) -> None:
        self.pair = pair
        self.settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, overhead=4)
        self._stack = ExitStack()
        if apply:
            self._stack.enter_context(self.settings)
        self.host = self._stack.enter_context(
            Labeller("host0", netns=pair.host, carrier=Carrier.OPTION, cut_by=self.settings.cut_by)
        )
        self.peer = self._stack.enter_context(Labeller("peer0", netns=pair.peer, carrier=Carrier.OPTION))
        self.host.swap(table())
        for end in (self.host, self.peer):
            end.attach()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def ends(pair: Pair, tmp_path: Path) -> Iterator[Ends]:
    its = Ends(pair, tmp_path)
    yield its
    its.close()


@contextmanager
def udp(netns: str, address: str, port: int) -> Iterator[socket.socket]:
    with inside(netns):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.bind((address, port))
    opened.settimeout(PATIENCE_SECONDS)
    with opened:
        yield opened


def packets(capture: socket.socket, wait: float = 0.5) -> list[bytes]:
    """The IPv4 packets that came in: seen as a switch sees them, before tc ingress."""
    return [frame for frame in frames(capture, wait) if frame[12:14] == b"\x08\x00"]


def option_of(frame: bytes) -> tuple[int, int] | None:
    """The hops of the word that is an IPv4 frame's first option."""
    return (frame[36], frame[37]) if frame[14] > 0x45 and frame[34:36] == b"\x9e\x04" else None


def link_mtu(run: object, ifname: str) -> int:
    return int(run(f"ip -o link show {ifname}").split(" mtu ")[1].split()[0])  # type: ignore[operator]


# -- on the wire and at the socket ------------------------------------------------------------------------------------------


def test_the_wire_has_the_word_and_the_socket_has_no_option(pair: Pair, ends: Ends) -> None:
    with (
        raw_socket(pair.peer, "peer0", ALL) as wire,
        udp(pair.host, HERE, 4000) as sender,
        udp(pair.peer, FAR, 5000) as receiver,
    ):
        receiver.setsockopt(socket.IPPROTO_IP, IP_RECVOPTS, 1)
        for n in range(8):
            sender.sendto(b"%d" % n, (FAR, 5000))
            data, ancillary, _, _ = receiver.recvmsg(100, 100)
            assert data == b"%d" % n
            assert all(kind != IP_RECVOPTS or not options for _, kind, options in ancillary)
        words = [option_of(frame) for frame in packets(wire)]
    start = INTER_POD.index(words[0])  # type: ignore[arg-type]
    assert words == [INTER_POD[(start + n) % 4] for n in range(8)]
    assert ends.host.counters()["labelled"] == ends.peer.counters()["stripped"] == 8


def test_a_receiver_without_an_agent_takes_the_packets_too(pair: Pair, ends: Ends) -> None:
    ends.peer.detach()
    with udp(pair.host, HERE, 4000) as sender, udp(pair.peer, FAR, 5000) as receiver:
        receiver.setsockopt(socket.IPPROTO_IP, IP_RECVOPTS, 1)
        sender.sendto(b"hello", (FAR, 5000))
        data, [(_, _, options)], _, _ = receiver.recvmsg(100, 100)
    assert data == b"hello"
    assert options[:2] == b"\x9e\x04"


@pytest.mark.parametrize("offload", ["on", "off"])
@pytest.mark.parametrize("bursts", [True, False])
def test_tcp_arrives_whole_in_packets_that_fit(pair: Pair, tmp_path: Path, bursts: bool, offload: str) -> None:
    pair.on_host(f"ethtool -K host0 tx {offload}")
    ends = Ends(pair, tmp_path)
    if bursts:
        ends.host.follow(ends.host.fabric_mtu, 0)
    data = os.urandom(400_000)
    with raw_socket(pair.peer, "peer0", ALL) as wire:
        assert transfer(pair, data) == data
        got = [frame for frame in packets(wire) if frame[26:30] == bytes([10, 0, 0, 2])]
    counters = ends.host.counters()
    ends.close()
    words = Counter(option_of(frame) for frame in got)
    assert set(words) == {*INTER_POD}
    assert (counters["gso"] > 0) is bursts
    if offload == "off" or not bursts:  # else bursts reach the other end of a veth pair uncut
        assert max(len(frame) for frame in got) <= 14 + 1500
    if not bursts:
        assert counters["labelled"] == words.total()
        assert max(words.values()) - min(words.values()) <= 1


def test_all_fragments_of_a_datagram_take_one_path_and_arrive_as_one(pair: Pair, ends: Ends) -> None:
    with (
        raw_socket(pair.peer, "peer0", ALL) as wire,
        udp(pair.host, HERE, 4000) as sender,
        udp(pair.peer, FAR, 5000) as receiver,
    ):
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        taken = set()
        for n in range(16):
            data = bytes([n]) * 4000
            sender.sendto(data, (FAR, 5000))
            assert receiver.recv(5000) == data
            fragments = packets(wire, 0.05)
            assert len(fragments) == 3
            assert max(map(len, fragments)) <= 14 + 1500
            [word] = {option_of(frame) for frame in fragments}
            taken.add(word)
    assert len(taken) > 1


def test_a_tag_that_is_in_the_frame_is_still_on_it_when_it_arrives(pair: Pair, ends: Ends) -> None:
    frame = ip(ports(4000, 5000), proto=UDP, vlan=0x6005)
    with raw_socket(pair.peer, "peer0", ALL) as wire, raw_socket(pair.host, "host0", 0) as sender:
        wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        sender.send(frame)
        data, [(_, _, auxiliary)], _, _ = wire.recvmsg(2000, 100)
    assert option_of(data) in INTER_POD
    assert struct.unpack_from("=IIIHHHH", auxiliary)[5] == 0x6005  # tp_vlan_tci


# -- what does not fit ------------------------------------------------------------------------------------------------------


def test_what_would_not_fit_is_refused_as_linux_refuses_it(pair: Pair, ends: Ends) -> None:
    with udp(pair.host, HERE, 4000) as sender, udp(pair.peer, FAR, 5000) as receiver:
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.sendto(b"x" * 1468, (FAR, 5000))
        assert len(receiver.recv(2000)) == 1468
        with pytest.raises(OSError, match="Message too long") as refused:
            sender.sendto(b"x" * 1469, (FAR, 5000))
        assert refused.value.errno == errno.EMSGSIZE
        assert ends.host.counters()["too_big"] == 0


def test_a_relayed_packet_is_answered_with_fragmentation_needed(pair: Pair, ends: Ends) -> None:
    pair.on_host("sysctl -qw net.ipv4.ip_forward=1")
    pair.on_host("ip link add guest0 type veth peer name guest1")
    pair.on_host("ip address add 10.0.0.129/25 dev guest0")
    pair.on_host("ip link set guest0 up")
    pair.on_host("ip link set guest1 up")
    # a frame from a guest, larger than what the host's interface takes
    packet = bytearray(ip(b"\x08\x00\x00\x00" + bytes(1473), proto=1, src="10.0.0.130"))
    packet[24:26] = struct.pack("!H", checksum(packet[14:34]))
    with raw_socket(pair.host, "guest1", ALL) as guest:
        mac = pair.on_host("ip -o link show guest0").split(" link/ether ")[1].split()[0]
        pair.on_host("ip neigh add 10.0.0.130 lladdr 02:00:00:00:00:99 dev guest0")
        guest.send(bytes.fromhex(mac.replace(":", "")) + packet[6:])
        answers = [frame for frame in packets(guest) if frame[23] == 1 and frame[34:36] == b"\x03\x04"]
    assert len(answers) == 1
    assert struct.unpack_from("!H", answers[0], 40)[0] == 1496


def test_an_mtu_that_somebody_has_raised_again_makes_no_packet_too_large(pair: Pair, ends: Ends) -> None:
    pair.on_host("ip link set host0 mtu 1500")
    with udp(pair.host, HERE, 4000) as sender, udp(pair.peer, FAR, 5000) as receiver:
        sender.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        sender.sendto(b"x" * 1472, (FAR, 5000))
        assert len(receiver.recv(2000)) == 1472
    assert (ends.host.counters()["too_big"], ends.host.counters()["labelled"]) == (1, 0)


# -- what is left behind ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("successor", Carrier)
def test_the_successor_of_a_killed_agent_restores_the_mtu(pair: Pair, tmp_path: Path, successor: Carrier) -> None:
    for _ in range(2):
        leave_behind(HostSettings("host0", state_dir=tmp_path, netns=pair.host, overhead=4))
        killed = Labeller("host0", netns=pair.host, carrier=Carrier.OPTION)
        killed.load()
        killed.swap(table())
        killed.attach()
        killed.close()
    assert link_mtu(pair.on_host, "host0") == 1496
    settings = HostSettings("host0", state_dir=tmp_path, netns=pair.host, overhead=successor.overhead)
    settings.apply()
    assert settings.fabric_mtu == 1500
    assert link_mtu(pair.on_host, "host0") == 1500 - successor.overhead
    with Labeller("host0", netns=pair.host, carrier=successor) as labeller:
        assert labeller.inherits()
        labeller.swap(table())
        labeller.attach()
        ingress = pair.on_host("tc filter show dev host0 ingress")
        assert ("sopa_strip" in ingress) is (successor is Carrier.OPTION)
    settings.restore()
    assert link_mtu(pair.on_host, "host0") == 1500
    assert "sopa" not in pair.on_host("tc filter show dev host0 egress") + pair.on_host(
        "tc filter show dev host0 ingress"
    )


# -- the parser -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, Mode.NATIVE, Mode.GENERIC])
def test_the_switch_sees_the_word_in_the_source_address(pair: Pair, ends: Ends, mode: Mode | None) -> None:
    port = Interface("peer0", pair.peer)
    assert edge_parser.attach(port, mode) is (mode or Mode.NATIVE)
    with raw_socket(pair.peer, "peer0", ALL) as switch, udp(pair.host, HERE, 4000) as sender:
        with udp(pair.peer, FAR, 5000) as receiver:
            for _ in range(8):
                sender.sendto(b"hello", (FAR, 5000))
                assert receiver.recv(100) == b"hello"
        seen = packets(switch)
    assert [word_of(frame) for frame in seen] == [option_of(frame) for frame in seen]
    assert len(seen) == 8
    status = edge_parser.status(port)
    assert status is not None
    assert (status.mode, status.counters["believed"]) == (mode or Mode.NATIVE, 8)


@pytest.mark.parametrize("mode", Mode)
def test_a_host_cannot_write_a_word_into_its_address_itself(pair: Pair, mode: Mode) -> None:
    port = Interface("peer0", pair.peer)
    edge_parser.attach(port, mode)
    forged = bytearray(tcp())
    forged[6:12] = bytes.fromhex("02539e040101")
    with raw_socket(pair.peer, "peer0", ALL) as switch, raw_socket(pair.host, "host0", 0) as host:
        host.send(forged)
        [seen] = packets(switch)
    assert word_of(seen) is None
    assert seen[12:] == forged[12:]
    status = edge_parser.status(port)
    assert status is not None
    assert status.counters["forged"] == 1


def test_attaching_again_replaces_the_parser_and_detaching_leaves_nothing(pair: Pair) -> None:
    port = Interface("peer0", pair.peer)
    before = pair.on_peer("ip -d link show peer0")
    seen = []
    for mode in (Mode.NATIVE, None, Mode.GENERIC, None, Mode.NATIVE):
        seen.append(edge_parser.attach(port, mode))
        status = edge_parser.status(port)
        assert status is not None
        assert status.mode is seen[-1]
    assert seen == [Mode.NATIVE, Mode.NATIVE, Mode.GENERIC, Mode.GENERIC, Mode.NATIVE]
    assert edge_parser.detach(port) is True
    assert edge_parser.detach(port) is False
    assert edge_parser.status(port) is None
    assert pair.on_peer("ip -d link show peer0") == before


def test_no_packet_passes_unseen_while_it_is_replaced(pair: Pair, ends: Ends) -> None:
    port = Interface("peer0", pair.peer)
    edge_parser.attach(port)
    done = threading.Event()
    with raw_socket(pair.peer, "peer0", ALL) as switch, udp(pair.host, HERE, 4000) as sender:

        def keep_sending() -> None:
            while not done.is_set():
                sender.sendto(b"x", (FAR, 5000))

        thread = threading.Thread(target=keep_sending)
        thread.start()
        for _ in range(20):
            edge_parser.attach(port)
        done.set()
        thread.join()
        seen = packets(switch)
    assert len(seen) > 100
    assert all(word_of(frame) == option_of(frame) is not None for frame in seen if frame[23] == UDP)


def test_another_xdp_program_is_left_alone(pair: Pair) -> None:
    with Object(EMPTY) as stranger, inside(pair.peer):
        index = socket.if_nametoindex("peer0")
        xdp.attach(index, stranger.program_fd("empty_xdp"), Mode.GENERIC, None)
    port = Interface("peer0", pair.peer)
    for act in (edge_parser.attach, edge_parser.detach):
        with pytest.raises(
            AttachError, match=r"another XDP program, empty_xdp, .* ip link set dev peer0 xdpgeneric off"
        ):
            act(port)
    assert edge_parser.status(port) is None
    pair.on_peer("ip link set dev peer0 xdpgeneric off")
    assert edge_parser.attach(port) is Mode.NATIVE


def test_an_interface_that_is_not_there_is_an_error() -> None:
    for act in (edge_parser.attach, edge_parser.detach, edge_parser.status):
        with pytest.raises(AttachError, match="no interface nowhere0 in this network namespace"):
            act(Interface("nowhere0"))
