"""Hedera with the SOPA controller on real Open vSwitch: elephants are found by their counters, moved, and released."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.schemes.hedera import OPTIONS_FILE
from flowrules import label
from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.waiting import eventually
from topologies import Host, Level

pytestmark = pytest.mark.switch

OPTIONS = ("--user-flags", str(OPTIONS_FILE), "--sopa-link-mbit=1", "--hedera-interval=1")
APPLICATION = "experiments.schemes.hedera.app"
SRC, DST = Host(0, 0, 2), Host(2, 1, 3)
FLOW = "h0_0_2:40001 -> h2_1_3:5201"
PLACED = re.compile(r"elephant (\S+ -> \S+) at [\d.]+ Mbit/s placed on ([\d,]+) \(was (\S+)\)")


@pytest.fixture
def hedera(tmp_path: Path) -> Iterator[Fabric]:
    with running(4, tmp_path, *OPTIONS, APPLICATION) as fabric:
        edges = [f"e{pod}_{i}" for pod in range(4) for i in range(2)]
        eventually(lambda: [len(entries(fabric, edge, 1)) for edge in edges], [4] * len(edges))
        yield fabric


def entries(fabric: Fabric, switch: str, kind: int) -> list[str]:
    """Hedera's entries at a switch: 1 for those that are always there, 2 for counters, 3 for placed flows."""
    shown = fabric.ovs.ofctl("dump-flows", switch, f"cookie=0x48{kind:02x}000000000000/0xffff000000000000")
    return [line.strip() for line in shown.splitlines() if "cookie=" in line]


def counted(lines: list[str]) -> int:
    return sum(int(number) for line in lines for number in re.findall(r"n_packets=(\d+)", line))


def tcp(fabric: Fabric, src: Host, dst: Host, src_port: int, dst_port: int = 5201) -> str:
    return packet(fabric, src, dst) + f",tcp_src={src_port},tcp_dst={dst_port}"


def walk(fabric: Fabric, src: Host, dst: Host, src_port: int) -> list[str]:
    """Follow a packet of a flow."""
    return fabric.walk(fabric.tree.name(src), tcp(fabric, src, dst, src_port))


def send(fabric: Fabric, src: Host, dst: Host, src_port: int, count: int, size: int = 1400) -> None:
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


def await_placed(fabric: Fabric, src: Host = SRC, dst: Host = DST, src_port: int = 40001) -> tuple[int, ...]:
    """Send a flow until it is placed; the path that the log names."""
    tree = fabric.tree
    name = f"{tree.name(src)}:{src_port} -> {tree.name(dst)}:5201"

    def said() -> str:
        send(fabric, src, dst, src_port, 20)
        return log(fabric)

    def chosen(text: str) -> list[str]:
        return [up for flow, up, _ in PLACED.findall(text) if flow == name]

    found = chosen(eventually(said, chosen, seconds=60))
    edge = tree.name(tree.edge_of(src))
    eventually(lambda: entries(fabric, edge, 3), lambda lines: any(f"tp_src={src_port}" in line for line in lines))
    return tuple(int(index) for index in found[-1].split(","))


def test_a_flow_is_counted_from_its_first_packets_until_it_has_ended(hedera: Fabric) -> None:
    send(hedera, SRC, DST, 50001, 5, 100)
    send(hedera, SRC, DST, 50002, 3, 100)
    eventually(
        lambda: counted([line for line in entries(hedera, "e0_0", 2) if "tp_src=50001" in line]),
        lambda value: value >= 4,
    )
    eventually(
        lambda: counted([line for line in entries(hedera, "e0_0", 2) if "tp_src=50002" in line]),
        lambda value: value >= 2,
    )
    assert all("nw_src=10.0.0.2,nw_dst=10.2.1.3" in line for line in entries(hedera, "e0_0", 2))
    eventually(lambda: entries(hedera, "e0_0", 2), [])
    assert "elephant h" not in log(hedera)


def test_an_elephant_takes_the_chosen_core_switch_and_others_stay_hashed(hedera: Fabric) -> None:
    tree, others = hedera.tree, range(50000, 50016)
    ways = {port: walk(hedera, SRC, DST, port) for port in others}
    up = await_placed(hedera)
    hops = [tree.name(switch) for switch in tree.hops(SRC, DST, up)]
    assert walk(hedera, SRC, DST, 40001) == [*hops, "h2_1_3"]
    assert {port: walk(hedera, SRC, DST, port) for port in others} == ways
    assert len({way[2] for way in ways.values()}) > 1
    # the cached flow of the packets before is not obeyed any more

    def counted_at_its_entry() -> int:
        send(hedera, SRC, DST, 40001, 5)
        return counted(entries(hedera, "e0_0", 3))

    eventually(counted_at_its_entry, lambda value: value >= 5)


def test_a_placed_entry_writes_the_label_and_is_removed_with_its_flow(hedera: Fabric) -> None:
    up = await_placed(hedera)
    traced = hedera.trace(hedera.tree.switch("e0_0"), f"in_port=1,{tcp(hedera, SRC, DST, 40001)}")
    assert label.parse_mac(traced.source) == (label.UNUSED, up[1])  # up1 has been followed
    (line,) = entries(hedera, "e0_0", 3)
    assert "idle_timeout=5" in line
    assert "priority=33" in line
    eventually(lambda: entries(hedera, "e0_0", 3), [])
    assert hedera.controller.fabric()["failures"] == []


def test_two_elephants_of_one_rack_do_not_share_a_link(hedera: Fabric) -> None:
    # their ends have nothing in common, so that each wants a whole link
    first = await_placed(hedera, Host(0, 0, 2), Host(2, 1, 3), 40001)
    second = await_placed(hedera, Host(0, 0, 3), Host(3, 1, 3), 40002)
    assert first[0] != second[0]


def test_an_elephant_within_a_pod_is_given_an_aggregation_switch(hedera: Fabric) -> None:
    dst = Host(0, 1, 3)
    up = await_placed(hedera, SRC, dst)
    assert len(up) == 1
    assert walk(hedera, SRC, dst, 40001) == ["e0_0", f"a0_{up[0]}", "e0_1", "h0_1_3"]
    assert f"02:53:9e:04:{up[0]:02x}:ff" in entries(hedera, "e0_0", 3)[0]


def test_a_placed_elephant_moves_only_when_its_own_path_fails(hedera: Fabric) -> None:
    tree = hedera.tree
    up = await_placed(hedera)
    standing = entries(hedera, "e0_0", 1)
    # a failure elsewhere: new rules at the edge switches, and ours are still there
    elsewhere = tree.switch("a3_0")
    hedera.dummy.set_port(elsewhere, 1, up=False)
    eventually(lambda: any("nw_dst=10.3." in flow for flow in hedera.flows("e0_0")))
    assert len(entries(hedera, "e0_0", 1)) == len(standing)
    assert len(entries(hedera, "e0_0", 3)) == 1
    assert len(PLACED.findall(log(hedera))) == 1
    # a failure on its path: SOPA's own entries lead around it immediately, and the next round places it elsewhere
    core = tree.hops(SRC, DST, up)[2]
    hedera.dummy.set_port(tree.hops(SRC, DST, up)[1], tree.uplink_port(Level.EDGE, core.index), up=False)
    deadline = time.monotonic() + 60
    while len(found := PLACED.findall(log(hedera))) < 2:
        assert time.monotonic() < deadline
        send(hedera, SRC, DST, 40001, 20)
        assert walk(hedera, SRC, DST, 40001)[-1] == "h2_1_3"
    assert found[1][0] == FLOW
    assert found[1][2] == ",".join(map(str, up))
    assert found[1][1] != found[1][2]
    assert len(entries(hedera, "e0_0", 3)) == 1


def test_a_switch_that_reconnects_counts_again_though_it_was_reconciled(hedera: Fabric) -> None:
    await_placed(hedera)
    hedera.ovs.vsctl("del-controller", "e0_0")
    eventually(lambda: hedera.controller.fabric()["connected"], 19)
    hedera.ovs.vsctl("set-controller", "e0_0", hedera.controller.openflow)
    eventually(lambda: hedera.controller.fabric()["connected"], 20)
    eventually(lambda: len(entries(hedera, "e0_0", 1)), 4)
    hedera.ovs.ofctl("del-flows", "e0_0", "cookie=0x4801000000000000/0xffff000000000000")
    eventually(lambda: len(entries(hedera, "e0_0", 1)), 4)
    before = len(PLACED.findall(log(hedera)))
    deadline = time.monotonic() + 60
    while len(PLACED.findall(log(hedera))) == before:
        assert time.monotonic() < deadline
        send(hedera, SRC, DST, 40001, 20)
    assert "a round of Hedera failed" not in log(hedera)


def test_a_packet_that_carries_a_word_already_keeps_it(hedera: Fabric) -> None:
    up = await_placed(hedera)
    other = (1 - up[0], up[1])
    flow = packet(hedera, SRC, DST, other) + ",tcp_src=40001,tcp_dst=5201"
    assert hedera.walk("h0_0_2", flow)[1:3] == [f"a0_{other[0]}", f"c{other[0]}_{other[1]}"]


def test_a_spoofed_source_is_still_dropped(hedera: Fabric) -> None:
    assert hedera.walk("h0_0_2", tcp(hedera, Host(0, 0, 3), DST, 40001)) == ["e0_0"]


def test_simulated_annealing_places_too(tmp_path: Path) -> None:
    with running(
        4, tmp_path, *OPTIONS, "--hedera-placement=simulated-annealing", "--hedera-seed=7", APPLICATION
    ) as fabric:
        up = await_placed(fabric)
        hops = [fabric.tree.name(switch) for switch in fabric.tree.hops(SRC, DST, up)]
        assert walk(fabric, SRC, DST, 40001) == [*hops, "h2_1_3"]
        assert "simulated-annealing every 1 s" in log(fabric)
