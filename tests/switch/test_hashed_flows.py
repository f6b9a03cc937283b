"""The way of a flow without a label as it is computed, against Open vSwitch's own answers (ofproto/trace)."""

import random
from pathlib import Path

import pytest

from flowrules.hashed_way import hashed_way
from flowrules.vswitch_hash import FiveTuple
from sopa_ryu.cli.local_switches import way_of
from tests.helpers.fabrics import Fabric, packet, running
from tests.helpers.random_fabrics import random_fabric, some_pairs
from tests.helpers.waiting import eventually
from topologies import Clos, Host
from topologies.failures import Failures

pytestmark = pytest.mark.switch

FLOWS = 25
"""Of each fabric and each state of it."""


def random_flows(tree: Clos, count: int, seed: int) -> list[tuple[Host, Host, FiveTuple]]:
    choose = random.Random(seed)
    drawn = []
    for src, dst in some_pairs(tree, count, seed):
        protocol = choose.choice((6, 6, 17, 17, 132, 1))
        ports = (0, 0) if protocol == 1 else (choose.randrange(65536), choose.randrange(65536))
        drawn.append((src, dst, FiveTuple(tree.ip(src), tree.ip(dst), protocol, *ports)))
    return drawn


def asked(fabric: Fabric, src: Host, dst: Host, flow: FiveTuple) -> list[str]:
    """The way that Open vSwitch itself gives for the flow."""
    name = {1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"}[flow.protocol]
    ports = "" if flow.protocol == 1 else f",{name}_src={flow.sport},{name}_dst={flow.dport}"
    return fabric.walk(fabric.tree.name(src), packet(fabric, src, dst, rest=name) + ports)


def compare(fabric: Fabric, failures: Failures, seed: int) -> None:
    tree, ways = fabric.tree, set()
    for number, (src, dst, flow) in enumerate(random_flows(tree, FLOWS, seed)):
        way = hashed_way(failures, src, dst, flow)
        if way.up is None:  # no path is left between these racks
            assert not way.reachable
            assert asked(fabric, src, dst, flow)[-1] != tree.name(dst)
            continue
        assert way.up in way.reachable
        hops = [tree.name(switch) for switch in tree.hops(src, dst, way.up)]
        assert asked(fabric, src, dst, flow) == [*hops, tree.name(dst)], (flow, dict(failures))
        if number < 5:  # as the command asks
            assert way_of(tree, src, dst, *flow[2:]) == [*hops, tree.name(dst)]
        ways.add(way.up)
    assert len(ways) > 2


@pytest.mark.parametrize("size", [4, "irregular"])
def test_a_computed_way_is_that_of_open_vswitch_with_and_without_failures(
    size: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree: Clos | int = random_fabric(13, most=30) if size == "irregular" else int(size)
    with running(tree, tmp_path) as fabric:
        tree = fabric.tree
        monkeypatch.setenv("OVS_RUNDIR", str(fabric.ovs.directory))
        compare(fabric, Failures(tree), seed=1)
        links = [tree.name(link) for link in tree.switch_links()]
        failed = random.Random(2).sample(links, 2)
        for name in failed:
            link = tree.element(name)
            fabric.dummy.set_port(link.upper, tree.port(link.upper, link.lower), up=False)  # type: ignore[union-attr]
        eventually(lambda: {each["name"] for each in fabric.controller.fabric()["failures"]}, set(failed))
        fabric.await_installed()
        compare(fabric, Failures(tree, dict.fromkeys(failed, "down")), seed=3)
