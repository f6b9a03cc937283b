"""Hedera with the SOPA controller on real Open vSwitch: elephants are found by their counters, placed, and released.

When one moves is in `tests/unit/experiments/test_hedera.py`.
"""

import re
from collections.abc import Iterator

import pytest

from experiments.schemes.hedera import OPTIONS_FILE
from flowrules import label
from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.waiting import eventually
from topologies import Host, Level

pytestmark = pytest.mark.switch

HEALED_AT_ONCE = ("--sopa-hold-down=0", "--sopa-hold-down-max=0", "--sopa-lldp-interval=0")
OPTIONS = ("--user-flags", str(OPTIONS_FILE), "--sopa-link-mbit=1", "--hedera-interval=1", *HEALED_AT_ONCE)
APPLICATION = "experiments.schemes.hedera.app"
SRC, DST = Host(0, 0, 2), Host(2, 1, 3)
IDLE_SECONDS = 5
PLACED = re.compile(r"elephant (\S+ -> \S+) at [\d.]+ Mbit/s placed on ([\d,]+) \(was (\S+)\)")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with running(4, tmp_path_factory.mktemp("hedera"), *OPTIONS, APPLICATION) as fabric:
        eventually(lambda: [len(entries(fabric, edge, 1)) for edge in edges(fabric)], [4] * 8)
        yield fabric


@pytest.fixture
def hedera(started: Fabric) -> Iterator[Fabric]:
    """A fabric without flows, in which a test's flows end with it: their entries expire, by Open vSwitch's clock."""
    yield started
    started.ovs.appctl("time/warp", f"{1000 * (IDLE_SECONDS + 1)}")
    eventually(lambda: [line for edge in edges(started) for kind in (2, 3) for line in entries(started, edge, kind)], [])
    eventually(lambda: started.controller.fabric()["failures"], [])
    assert "a round of Hedera failed" not in log(started)


def edges(fabric: Fabric) -> list[str]:
    return [fabric.tree.name(edge) for edge in fabric.tree.switches(Level.EDGE)]


def entries(fabric: Fabric, switch: str, kind: int) -> list[str]:
    """Hedera's entries at a switch: 1 for those that are always there, 2 for counters, 3 for placed flows."""
    shown = fabric.ovs.ofctl("dump-flows", switch, f"cookie=0x48{kind:02x}000000000000/0xffff000000000000")
    return [line.strip() for line in shown.splitlines() if "cookie=" in line]


def counted(lines: list[str]) -> int:
    return sum(int(number) for line in lines for number in re.findall(r"n_packets=(\d+)", line))


def tcp(fabric: Fabric, src: Host, dst: Host, src_port: int, dst_port: int = 5201) -> str:
    return packet(fabric, src, dst) + f",tcp_src={src_port},tcp_dst={dst_port}"


def walk(fabric: Fabric, src: Host, dst: Host, src_port: int) -> list[str]:
    return fabric.walk(fabric.tree.name(src), tcp(fabric, src, dst, src_port))


def send(fabric: Fabric, src: Host, dst: Host, src_port: int, count: int = 20, size: int = 1400) -> None:
    """Have packets of a TCP flow come in at its host's port."""
    tree = fabric.tree
    flow = (
        f"in_port(1),eth(src={tree.mac(src)},dst=02:00:00:00:00:01),eth_type(0x0800),"
        f"ipv4(src={tree.ip(src)},dst={tree.ip(dst)},proto=6,tos=0,ttl=64,frag=no),tcp(src={src_port},dst=5201)"
    )
    edge = tree.edge_of(src)
    interface = fabric.dummy.interface(edge, tree.port(edge, src))
    # by one command: with one for each, a busy machine makes an elephant a mouse
    fabric.ovs.appctl("netdev-dummy/receive", interface, *[flow, "--len", str(size)] * count)


def log(fabric: Fabric) -> str:
    return fabric.controller.log.read_text()


def placed(fabric: Fabric, src: Host, dst: Host, src_port: int) -> list[tuple[tuple[int, ...], str]]:
    """Return each path on which a flow was placed so far, with what it had before."""
    name = f"{fabric.tree.name(src)}:{src_port} -> {fabric.tree.name(dst)}:5201"
    return [(tuple(map(int, up.split(","))), was) for flow, up, was in PLACED.findall(log(fabric)) if flow == name]


def takes_its_path(fabric: Fabric, src: Host, dst: Host, src_port: int) -> tuple[int, ...]:
    """Send a flow until it takes the path on which it was placed last, and return that.

    It is sent all the time: an entry without packets expires.
    """
    tree = fabric.tree

    def taken() -> tuple[int, ...] | None:
        send(fabric, src, dst, src_port)
        if not (found := placed(fabric, src, dst, src_port)):
            return None
        hops = [tree.name(switch) for switch in tree.hops(src, dst, found[-1][0])]
        its = [line for line in entries(fabric, hops[0], 3) if f"tp_src={src_port}" in line]
        return found[-1][0] if its and walk(fabric, src, dst, src_port) == [*hops, tree.name(dst)] else None

    up = eventually(taken)
    assert up is not None
    return up


def test_an_elephant_takes_the_chosen_core_switch_and_others_stay_hashed(hedera: Fabric) -> None:
    others = range(50000, 50016)
    ways = {port: walk(hedera, SRC, DST, port) for port in others}
    up = takes_its_path(hedera, SRC, DST, 40001)
    assert {port: walk(hedera, SRC, DST, port) for port in others} == ways
    assert len({way[2] for way in ways.values()}) > 1

    def shown() -> tuple[int, str, str]:
        """Return what the placed entry has counted, the entry, and the source with which a packet leaves the switch."""
        send(hedera, SRC, DST, 40001, 5)
        (line,) = entries(hedera, "e0_0", 3) or [""]
        flow = f"in_port=1,{tcp(hedera, SRC, DST, 40001)}"
        return counted([line]), line, hedera.trace(hedera.tree.switch("e0_0"), flow).source

    # the cached flow of the packets before is not obeyed any more
    _, line, source = eventually(shown, lambda its: its[0] >= 5)
    assert label.parse_mac(source) == (label.UNUSED, up[1])  # up1 has been followed
    assert f"idle_timeout={IDLE_SECONDS}" in line
    assert "priority=33" in line
    # a packet that carries a word already keeps it, and a spoofed source is still dropped
    other = (1 - up[0], up[1])
    flow = packet(hedera, SRC, DST, other) + ",tcp_src=40001,tcp_dst=5201"
    assert hedera.walk("h0_0_2", flow)[1:3] == [f"a0_{other[0]}", f"c{other[0]}_{other[1]}"]
    assert hedera.walk("h0_0_2", tcp(hedera, Host(0, 0, 3), DST, 40001)) == ["e0_0"]


def test_a_switch_that_reconnects_counts_again_though_it_was_reconciled(hedera: Fabric) -> None:
    hedera.lead(["e0_0"])
    eventually(lambda: hedera.controller.fabric()["connected"], 19)
    hedera.lead(["e0_0"], hedera.controller.openflow)
    eventually(lambda: hedera.controller.fabric()["connected"], 20)
    eventually(lambda: len(entries(hedera, "e0_0", 1)), 4)
    hedera.ovs.ofctl("del-flows", "e0_0", "cookie=0x4801000000000000/0xffff000000000000")
    eventually(lambda: len(entries(hedera, "e0_0", 1)), 4)
    takes_its_path(hedera, SRC, DST, 40005)
