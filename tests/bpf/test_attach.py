"""The program on a real interface: what reaches the other end of a veth pair, and what is left behind."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EGRESS, EMPTY, FLAGS, _multiarch
from sopa_ryu.agent.kernel.netns import NetnsError, cookie, inside
from sopa_ryu.agent.labeller import Labeller
from tests.bpf.labelling import kill_agent, label_of, labelling
from tests.helpers.frames import FAR, INTER_POD, table, tcp, word_of
from tests.helpers.veth import IPV4, Pair, frames, raw_socket
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


def state_of(pair: Pair) -> list[str]:
    shows = ("sysctl net.ipv4.tcp_reordering", "ip -d link show dev host0", "tc qdisc show dev host0")
    return [pair.on_host(show) for show in shows]


@pytest.mark.parametrize("carrier", Carrier)
@pytest.mark.parametrize("successor", Carrier)
def test_the_successor_of_a_killed_agent_labels_from_packet_to_packet_and_restores_the_saved_settings(
    pair: Pair, tmp_path: Path, carrier: Carrier, successor: Carrier
) -> None:
    pair.on_host("sysctl -qw net.ipv4.tcp_reordering=4")
    pair.on_host("ip link set host0 gso_max_segs 44")
    before = state_of(pair)
    for _ in range(2):  # killed twice: the second must not save the first one's values as the host's own
        kill_agent(pair, tmp_path, carrier)
    done, sent = threading.Event(), 0

    def keep_sending() -> None:
        nonlocal sent
        while not done.is_set():
            send_datagrams(pair, 1)
            sent += 1
            time.sleep(0.001)  # what nobody reads meanwhile has to fit

    with raw_socket(pair.peer, "peer0", IPV4) as capture:
        sender = threading.Thread(target=keep_sending)
        sender.start()
        eventually(lambda: sent >= 2 * len(INTER_POD))  # by the killed agent's program
        with labelling(pair, tmp_path, successor, paths=table(inter_pod=((7, 7), (8, 8)))) as labeller:
            eventually(lambda: labeller.counters()["labelled"])
            assert ("sopa_strip" in pair.on_host("tc filter show dev host0 ingress")) is bool(successor.overhead)
            done.set()
            sender.join()
        taken = {label_of(frame) for frame in frames(capture)}
    assert {*INTER_POD} <= taken <= {*INTER_POD, (7, 7), (8, 8)}
    assert state_of(pair) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"ifname": "nowhere0"}, libbpf.AttachError, "no interface nowhere0"),
        ({"object_file": Path("missing.o")}, libbpf.BpfLoadError, r"python -m sopa_ryu\.agent\.kernel\.build"),
        ({"object_file": "damaged"}, libbpf.BpfLoadError, r"cannot read .*damaged\.o"),
        ({"object_file": EMPTY}, libbpf.BpfLoadError, "no map flows"),
        ({"flows": 0}, ValueError, "at least one flow"),
        ({"netns": "/run/netns/sopatest-none"}, NetnsError, "no network namespace at /run/netns/sopatest-none"),
    ],
)
def test_errors_say_what_to_do(tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    damaged = tmp_path / "damaged.o"
    damaged.write_bytes(EGRESS.read_bytes()[:200])
    if options.get("object_file") == "damaged":
        options = {"object_file": damaged}
    with pytest.raises(error, match=message):
        Labeller(**{"ifname": "lo", **options}).load()


def test_a_refusal_by_the_verifier_comes_with_its_log(tmp_path: Path) -> None:
    source = tmp_path / "wild.c"
    program = 'SEC("tc") int wild(struct __sk_buff *skb) { return *(__u8 *)(long)skb->data; }'
    source.write_text(f"#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n{program}\n")
    words = ["clang", *FLAGS, f"-I/usr/include/{_multiarch()}", "-c", source, "-o", tmp_path / "wild.o"]
    subprocess.run(words, check=True)
    with pytest.raises(libbpf.BpfLoadError, match="invalid access to packet"):
        libbpf.Object(tmp_path / "wild.o").load()


def test_without_privileges_the_error_says_so() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); from sopa_ryu.agent.labeller import Labeller; Labeller('lo').load()"
    # a user namespace takes the privileges away and leaves the files readable, wherever this checkout lies
    command = ["unshare", "--user", sys.executable, "-c", program, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "BpfUnavailable" in done.stderr
    assert "Run as root" in done.stderr


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
