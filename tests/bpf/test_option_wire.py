"""The ``option`` carrier on real interfaces: what is on the wire, what sockets get, and what is left behind; ``sopa parser``."""

import os
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowrules.label import Carrier
from sopa_ryu.agent.kernel.build import EMPTY
from sopa_ryu.agent.kernel.netns import Interface, inside
from sopa_ryu.agent.label import edge_parser
from sopa_ryu.agent.label.edge_parser import Mode
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.cli import main
from tests.bpf.labelling import labelling
from tests.helpers.frames import FAR, HERE, INTER_POD, UDP, ip, label_of, ports, tcp, word_of
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.veth import ALL, Pair, frames, raw_socket, veth_pair
from tests.helpers.waiting import PATIENCE_SECONDS

Ends = tuple[Labeller, Labeller]
IP_RECVOPTS = 6
SOL_PACKET, PACKET_AUXDATA = 263, 8


@pytest.fixture
def pair() -> Iterator[Pair]:
    with veth_pair() as made:
        made.on_host("ip link set host0 mtu 1500")
        made.on_peer("ip link set peer0 mtu 1500")
        yield made


@pytest.fixture
def ends(pair: Pair, tmp_path: Path) -> Iterator[tuple[Labeller, Labeller]]:
    """The host writes options, the peer takes them out."""
    with labelling(pair, tmp_path, Carrier.OPTION) as host, Labeller("peer0", netns=pair.peer, carrier=Carrier.OPTION) as peer:
        peer.attach()
        yield host, peer


@contextmanager
def connected(pair: Pair) -> Iterator[list[socket.socket]]:
    """UDP sockets of the host, which sends, and of the peer."""
    with ExitStack() as stack:
        made = []
        for netns, address in ((pair.host, HERE), (pair.peer, FAR)):
            with inside(netns):
                made.append(stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            made[-1].bind((address, 5000))
            made[-1].settimeout(PATIENCE_SECONDS)
        made[0].connect((FAR, 5000))
        yield made


def packets(capture: socket.socket, wait: float = 0.5) -> list[bytes]:
    """The IPv4 packets that came in: seen as a switch sees them, before tc ingress."""
    return [frame for frame in frames(capture, wait) if frame[12:14] == b"\x08\x00"]


def test_the_wire_has_the_word_and_the_socket_has_no_option_but_without_an_agent(pair: Pair, ends: Ends) -> None:
    host, peer = ends
    with raw_socket(pair.peer, "peer0", ALL) as wire, connected(pair) as (sender, receiver):
        receiver.setsockopt(socket.IPPROTO_IP, IP_RECVOPTS, 1)
        for n in range(8):
            sender.send(b"%d" % n)
            data, ancillary, _, _ = receiver.recvmsg(100, 100)
            assert data == b"%d" % n
            assert all(kind != IP_RECVOPTS or not options for _, kind, options in ancillary)
        words = [label_of(frame) for frame in packets(wire)]
        peer.detach()
        sender.send(b"hello")
        data, [(_, _, options)], _, _ = receiver.recvmsg(100, 100)
        assert (data, options[:2]) == (b"hello", b"\x9e\x04")
    assert Counter(words) == dict.fromkeys(INTER_POD, 2)
    assert (host.counters()["labelled"], peer.counters()["stripped"]) == (9, 8)


def test_a_tag_that_is_in_the_frame_is_still_on_it_when_it_arrives(pair: Pair, ends: Ends) -> None:
    frame = ip(ports(4000, 5000), proto=UDP, vlan=0x6005)
    with raw_socket(pair.peer, "peer0", ALL) as wire, raw_socket(pair.host, "host0", 0) as sender:
        wire.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        sender.send(frame)
        data, [(_, _, auxiliary)], _, _ = wire.recvmsg(2000, 100)
    assert label_of(data) in INTER_POD
    assert struct.unpack_from("=IIIHHHH", auxiliary)[5] == 0x6005  # tp_vlan_tci


@pytest.mark.parametrize("mode", [None, Mode.NATIVE, Mode.GENERIC])
def test_the_switch_sees_the_word_in_the_source_address(pair: Pair, ends: Ends, mode: Mode | None) -> None:
    port = Interface("peer0", pair.peer)
    assert edge_parser.attach(port, mode) is (mode or Mode.NATIVE)
    forged = bytearray(tcp())
    forged[6:12] = bytes.fromhex("02539e040101")
    with raw_socket(pair.peer, "peer0", ALL) as switch, connected(pair) as (sender, receiver):
        for _ in range(8):
            sender.send(b"hello")
            assert receiver.recv(100) == b"hello"
        seen = packets(switch)
        with raw_socket(pair.host, "host0", 0) as host:
            ends[0].detach()  # a host that writes a word into its address itself
            host.send(forged)
        [refused] = packets(switch)
    assert (word_of(refused), refused[12:]) == (None, forged[12:])
    assert [word_of(frame) for frame in seen] == [label_of(frame[:6] + bytes(6) + frame[12:]) for frame in seen]
    assert len(seen) == 8
    status = edge_parser.status(port)
    assert status is not None
    found = status.mode, status.counters["believed"], status.counters["forged"]
    assert found == (mode or Mode.NATIVE, 8, 1)


def test_no_packet_passes_unseen_while_it_is_replaced(pair: Pair, ends: Ends) -> None:
    port = Interface("peer0", pair.peer)
    edge_parser.attach(port)
    done = threading.Event()
    with raw_socket(pair.peer, "peer0", ALL) as switch, connected(pair) as (sender, _):

        def keep_sending() -> None:
            while not done.is_set():
                sender.send(b"x")

        thread = threading.Thread(target=keep_sending)
        thread.start()
        for _ in range(20):
            edge_parser.attach(port)
        done.set()
        thread.join()
        seen = packets(switch)
    assert len(seen) > 100
    assert all(word_of(frame) is not None for frame in seen if frame[23] == UDP)


@each_script(__file__, "parser")
def test_script(pair: Pair, script: Script) -> None:
    """``sopa parser``, typed as an operator types it; ``host`` and ``peer`` are commands there."""
    names = {"HOST": f"host0@{pair.host}", "PEER": f"peer0@{pair.peer}", "NOWHERE": f"nowhere0@{pair.peer}"}

    def handle(step: Step) -> str:
        if step.command in ("host", "peer"):
            on = {"host": pair.on_host, "peer": pair.on_peer}[step.command]
            on(" ".join(step.words).replace("EMPTY", str(EMPTY)))
            return ""
        words = [names.get(word, word) for word in step.words] + [f"{edge}={its}" for edge, its in step.options.items()]
        done = CliRunner().invoke(main, ["parser", step.command, *words])
        said = f"{done.output}\nexit status {done.exit_code}"
        for name, text in [*names.items(), ("NETNS", pair.peer)]:
            said = said.replace(text, name)
        return re.sub(r"  +", " ", re.sub(r"\b[1-9]\d+\b|\b[2-9]\b", "some", said.replace("─", "")))

    script.play(handle)


@pytest.mark.parametrize("verb", ["attach", "detach", "status"])
def test_without_root_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    done = CliRunner().invoke(main, ["parser", verb, "--iface", "lo"])
    assert done.exit_code == 1
    assert "sopa parser needs root" in done.output
