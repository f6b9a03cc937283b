"""Reading an interface's qdiscs from the kernel, whether they keep departure times, and what they drop."""

from __future__ import annotations

import re
import socket

import pytest

from sopa_ryu.agent.departure_times import instead_of_fq
from sopa_ryu.agent.kernel.drops import Drops
from sopa_ryu.agent.kernel.netns import inside
from sopa_ryu.agent.kernel.qdiscs import INGRESS, ROOT, Qdisc, qdiscs
from tests.helpers.frames import FAR
from tests.helpers.veth import Pair


def read(pair: Pair, interface: str = "host0") -> list[Qdisc]:
    """Return what is there, but for what the kernel has numbered by itself."""
    with inside(pair.host):
        return qdiscs(socket.if_nametoindex(interface))


def test_a_tree_is_read_with_its_hidden_leaves(pair: Pair) -> None:
    assert read(pair) == [Qdisc("noqueue", 0, ROOT)]
    pair.on_host("tc qdisc add dev host0 clsact")
    pair.on_host("tc qdisc add dev host0 root handle 1: htb default 10")
    assert sorted(read(pair)) == [Qdisc("clsact", 0xFFFF0000, INGRESS), Qdisc("htb", 0x10000, ROOT, 0x10010)]
    pair.on_host("tc class add dev host0 parent 1: classid 1:10 htb rate 1gbit")
    assert "pfifo" not in pair.on_host("tc qdisc show dev host0")
    hidden = next(its for its in read(pair) if its.parent == 0x10010)
    assert hidden.kind == "pfifo"
    pair.on_host("tc qdisc replace dev host0 parent 1:10 handle 2: bfifo limit 10000")
    assert Qdisc("bfifo", 0x20000, 0x10010) in read(pair)
    assert read(pair, "lo") == [Qdisc("noqueue", 0, ROOT)]


@pytest.mark.parametrize(
    ("commands", "other"),
    [
        ([], "noqueue"),
        (["add dev host0 root pfifo"], "pfifo"),
        (["add dev host0 root handle 1: tbf rate 4mbit burst 4kb latency 50ms"], "bfifo"),
        (["add dev host0 clsact", "add dev host0 root handle 1: tbf rate 4mbit burst 4kb latency 50ms",
          "add dev host0 parent 1:1 pfifo"], "pfifo"),
        (["add dev host0 root handle 1: htb"], "htb"),
        (["add dev two root handle 1: mq", "add dev two parent 1:1 pfifo", "add dev two parent 1:2 pfifo"], "pfifo"),
    ],
)  # fmt: skip
def test_without_fq_there_are_no_departure_times(pair: Pair, commands: list[str], other: str) -> None:
    pair.on_host("ip link add two numtxqueues 2 numrxqueues 2 type veth peer name other numtxqueues 2 numrxqueues 2")
    pair.on_host("ip link set two up")
    for command in commands:
        pair.on_host(f"tc qdisc {command}")
    found = instead_of_fq(read(pair, "two" if "two" in "".join(commands) else "host0"))
    assert found == other


SENT = 100


def test_drops_of_the_interfaces_queue_are_counted_and_those_of_others_are_not(pair: Pair) -> None:
    with inside(pair.host):
        counted = [Drops(socket.if_nametoindex(name), pair.host) for name in ("host0", "lo")]
    before = [one.count() for one in counted]
    pair.on_host("tc qdisc add dev host0 root tbf rate 8kbit burst 3100 limit 5000")
    pair.on_host("tc qdisc add dev host0 clsact")
    with inside(pair.host), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        for _ in range(SENT):
            sender.sendto(b"x" * 1000, (FAR, 5000))
    said = re.search(r"qdisc tbf.*?dropped (\d+)", pair.on_host("tc -s qdisc show dev host0"), re.DOTALL)
    assert said is not None
    after = [one.count() for one in counted]
    assert after[0] - before[0] == int(said[1]) > SENT / 2
    assert after[1] == before[1]
    for one in counted:
        one.close()
    assert counted[0].count() == after[0]  # closed: as last time


def test_drops_at_an_interface_that_is_gone_are_those_of_last_time(pair: Pair) -> None:
    with inside(pair.host):
        counted = Drops(socket.if_nametoindex("host0"), pair.host)
    before = counted.count()
    pair.on_host("ip link del host0")
    assert counted.count() in (0, before)
    counted.close()
