"""The program on a real interface: what reaches the other end of a veth pair, and what is left behind."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from sopa_ryu.agent.filters import HANDLE, PRIORITY
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import EGRESS, EMPTY, FLAGS, _multiarch
from sopa_ryu.agent.kernel.netns import NetnsError, cookie, inside
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PathTable
from tests.helpers.frames import FAR, INTER_POD, table, tcp, word_of
from tests.helpers.killed_agent import abandon
from tests.helpers.veth import ALL, IPV4, Pair, frames, raw_socket, transfer, veth_pair
from tests.helpers.waiting import eventually

ROOT = Path(__file__).parents[2]


def send_datagrams(pair: Pair, count: int) -> None:
    with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.bind(("10.0.0.2", 4000))
        for _ in range(count):
            sender.sendto(b"x" * 100, (FAR, 5000))


def clsact(pair: Pair) -> bool:
    return "clsact" in pair.on_host("tc qdisc show dev host0")


def egress_filters(pair: Pair) -> str:
    return pair.on_host("tc filter show dev host0 egress")


def test_datagrams_carry_labels_in_turn_and_arp_has_the_hosts_mac(pair: Pair) -> None:
    with raw_socket(pair.peer, "peer0", ALL) as capture, Labeller("host0", netns=pair.host) as labeller:
        labeller.swap(table())
        labeller.attach()
        send_datagrams(pair, 40)
        got = frames(capture)
        counters = labeller.counters()
    taken = [word_of(frame) for frame in got if frame[12:14] == b"\x08\x00" and frame[23] == 17]
    start = INTER_POD.index(taken[0])
    assert taken == [INTER_POD[(start + n) % 4] for n in range(40)]
    arp = [frame for frame in got if frame[12:14] == b"\x08\x06"]
    assert arp
    assert all(frame[6:12] == frame[22:28] and word_of(frame) is None for frame in arp)
    assert counters["labelled"] == 40
    assert counters["not_ipv4"] == len(arp)


@pytest.mark.parametrize("cut_first", [True, False])
def test_tcp_is_labelled_packet_by_packet_once_bursts_are_cut(pair: Pair, tmp_path: Path, cut_first: bool) -> None:
    data = os.urandom(400_000)
    settings = HostSettings("host0", state_dir=tmp_path, netns=pair.host)
    if cut_first:
        settings.apply()
    with (
        raw_socket(pair.peer, "peer0", IPV4) as capture,
        Labeller("host0", netns=pair.host, cut_by=settings.cut_by) as labeller,
    ):
        labeller.swap(table())
        labeller.attach()
        assert transfer(pair, data) == data
        got = frames(capture)
        counters = labeller.counters()
    settings.restore()
    words = Counter(word_of(frame) for frame in got if frame[26:30] == bytes([10, 0, 0, 2]))
    assert set(words) == set(INTER_POD)
    assert max(words.values()) - min(words.values()) <= 1
    assert counters["labelled"] == words.total()
    assert (counters["gso"] == 0) is (counters["cut"] > 0) is cut_first


def test_frames_too_short_for_a_header_go_out_as_they_are(pair: Pair) -> None:
    short = [tcp()[:length] for length in (14, 15, 33, 37)]
    with (
        raw_socket(pair.peer, "peer0", ALL) as capture,
        raw_socket(pair.host, "host0", 0) as sender,
        Labeller("host0", netns=pair.host) as labeller,
    ):
        labeller.swap(table())
        labeller.attach()
        frames(capture, 0.1)
        for frame in short:
            sender.send(frame)
        assert frames(capture) == short
        assert labeller.counters()["malformed"] == len(short)


def test_headers_outside_the_linear_part_of_the_buffer_are_read(pair: Pair) -> None:
    frame = tcp().ljust(6000, b"z")  # more than a page, or the kernel makes it linear anyway
    with (
        raw_socket(pair.peer, "peer0", IPV4) as capture,
        raw_socket(pair.host, "host0", 0) as sender,
        Labeller("host0", netns=pair.host) as labeller,
    ):
        labeller.swap(table())
        labeller.attach()
        sender.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        sender.send(struct.pack("=BBHHHH", 0, 0, 14, 0, 0, 0) + frame)  # linear: the Ethernet header only
        [got] = frames(capture)
        assert word_of(got) in INTER_POD
        assert got[12:] == frame[12:]
        assert labeller.counters()["labelled"] == 1


def test_detach_leaves_nothing(pair: Pair) -> None:
    before = pair.on_host("tc qdisc show dev host0")
    noted: list[bool] = []
    labeller = Labeller("host0", netns=pair.host, on_clsact=noted.append)
    labeller.load()
    assert pair.on_host("tc qdisc show dev host0") == before  # loading alone changes nothing
    labeller.attach()
    labeller.attach()
    assert egress_filters(pair).count("sopa_egress:[") == 1
    labeller.detach()
    labeller.detach()
    labeller.close()
    assert pair.on_host("tc qdisc show dev host0") == before
    assert noted == [True, False]


@pytest.mark.parametrize("stranger", ["ingress", "egress", None])
@pytest.mark.parametrize("ours", [False, True])
def test_a_clsact_that_somebody_else_uses_or_made_survives(pair: Pair, stranger: str | None, ours: bool) -> None:
    if not ours:
        pair.on_host("tc qdisc add dev host0 clsact")
    with Labeller("host0", netns=pair.host) as labeller:
        labeller.attach()
        if stranger:
            pair.on_host(f"tc filter add dev host0 {stranger} protocol ip prio 77 u32 match u32 0 0 flowid 1:1")
    assert clsact(pair) is (stranger is not None or not ours)
    if stranger:
        assert "pref 77 u32" in pair.on_host(f"tc filter show dev host0 {stranger}")
    assert not clsact(pair) or "sopa" not in egress_filters(pair)


def test_a_strangers_program_in_our_place_is_left_alone(pair: Pair) -> None:
    with libbpf.Object(EMPTY) as stranger, inside(pair.host):
        index = socket.if_nametoindex("host0")
        tc.create_clsact(index)
        tc.attach(index, stranger.program_fd("empty"), handle=HANDLE, priority=PRIORITY, replace=False)
    with (
        pytest.raises(libbpf.AttachError, match="another program, empty, at egress"),
        Labeller("host0", netns=pair.host) as labeller,
    ):
        labeller.attach()
    assert "empty" in egress_filters(pair)


def test_the_successor_of_a_killed_agent_labels_from_packet_to_packet_and_restores_the_saved_settings(
    pair: Pair, tmp_path: Path
) -> None:
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=4")
    pair.on_host("ip link set host0 gso_max_segs 44")
    for _ in range(2):  # killed twice: the second must not save the first one's values as the host's own
        settings, killed = agent_of(pair, tmp_path, table(), fr_threshold=20)
        abandon(settings)
        killed.close()  # as the kernel closes a killed agent's descriptors
    assert "sopa_egress" in egress_filters(pair)
    assert pair.on_host("sysctl -n net.ipv4.tcp_reordering").strip() == "20"

    done = threading.Event()
    with raw_socket(pair.peer, "peer0", IPV4) as capture:
        sent = 0

        def keep_sending() -> None:
            nonlocal sent
            while not done.is_set():
                send_datagrams(pair, 1)
                sent += 1
                time.sleep(0.001)  # what nobody reads meanwhile has to fit

        sender = threading.Thread(target=keep_sending)
        sender.start()
        eventually(lambda: sent >= 2 * len(INTER_POD))  # by the killed agent's program
        settings, labeller = agent_of(pair, tmp_path, table(inter_pod=((7, 7), (8, 8))))
        eventually(lambda: labeller.counters()["labelled"])
        done.set()
        sender.join()
        words = {word_of(frame) for frame in frames(capture)}
    assert {*INTER_POD} <= words <= {*INTER_POD, (7, 7), (8, 8)}

    labeller.detach()
    labeller.close()
    settings.restore()
    assert not clsact(pair)
    assert pair.on_host("sysctl -n net.ipv4.tcp_reordering").strip() == "4"
    assert "gso_max_segs 44 " in pair.on_host("ip -d link show host0")
    assert list(tmp_path.iterdir()) == []


def agent_of(pair: Pair, state_dir: Path, paths: PathTable, **options: int) -> tuple[HostSettings, Labeller]:
    """The settings and the program of an agent at work."""
    settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, **options)
    settings.apply()
    labeller = Labeller("host0", netns=pair.host, owns_clsact=settings.clsact_added, on_clsact=settings.note_clsact)
    labeller.load()
    labeller.swap(paths)
    labeller.attach()
    return settings, labeller


# -- what cannot work -------------------------------------------------------------------------------------------------


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(libbpf.AttachError, match="no interface nowhere0"):
        Labeller("nowhere0").load()
    with pytest.raises(libbpf.BpfLoadError, match=r"python -m sopa_ryu\.agent\.kernel\.build"):
        Labeller("lo", object_file=tmp_path / "missing.o").load()
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(EGRESS.read_bytes()[:200])
    with pytest.raises(libbpf.BpfLoadError, match=r"cannot read .*damaged\.o"):
        Labeller("lo", object_file=damaged).load()
    with pytest.raises(libbpf.BpfLoadError, match="no map flows"):
        Labeller("lo", object_file=EMPTY).load()
    with pytest.raises(ValueError, match="at least one flow"):
        Labeller("lo", flows=0)
    with pytest.raises(NetnsError, match="no network namespace at /run/netns/sopatest-none"):
        Labeller("lo", netns="/run/netns/sopatest-none").load()


def test_a_refusal_by_the_verifier_comes_with_its_log(tmp_path: Path) -> None:
    source = tmp_path / "wild.c"
    source.write_text(
        """
        #include <linux/bpf.h>
        #include <bpf/bpf_helpers.h>
        SEC("tc") int wild(struct __sk_buff *skb) { return *(__u8 *)(long)skb->data; }
        """
    )
    subprocess.run(
        ["clang", *FLAGS, f"-I/usr/include/{_multiarch()}", "-c", source, "-o", tmp_path / "wild.o"], check=True
    )
    with pytest.raises(libbpf.BpfLoadError, match="invalid access to packet"):
        libbpf.Object(tmp_path / "wild.o").load()


def test_without_privileges_the_error_says_so() -> None:
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n" + (
        "from sopa_ryu.agent.kernel import libbpf; from sopa_ryu.agent.labeller import Labeller\n"
        "try: Labeller('lo').load()\n"
        "except libbpf.BpfUnavailable as error: print(error)\n"
    )
    # a user namespace takes the privileges away and leaves the files readable, wherever this checkout lies
    command = ["unshare", "--user", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Run as root" in done.stdout, done.stderr


def test_inside_returns_to_the_threads_own_namespace(pair: Pair) -> None:
    home = cookie()
    with inside(pair.host):
        there = cookie()
        with inside(pair.peer):
            assert cookie() not in (home, there)
        assert cookie() == there
    assert cookie() == home
    with pytest.raises(RuntimeError, match="boom"), inside(pair.host):
        raise RuntimeError("boom")
    assert cookie() == home
    with veth_pair() as other, inside(other.host):
        assert cookie() not in (home, there)
