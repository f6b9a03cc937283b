"""What an agent computes by itself is what the controller says over REST."""

from ipaddress import IPv4Address

import pytest

from flowrules import word
from sopa_ryu.agent.pathsets import path_table
from sopa_ryu.agent.pathtable import Policy
from topologies import Failures, FatTree


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("broken", [(), ("a0_0-c0_0",), ("a0_0", "e1_0-a1_0")])
def test_the_table_holds_exactly_the_usable_candidate_paths_of_every_destination(
    k: int, broken: tuple[str, ...]
) -> None:
    tree = FatTree(k)
    failures = Failures(tree, dict.fromkeys(broken, "down"))
    src = next(tree.hosts())
    table = path_table(tree, src, failures, seed=7, policy=Policy.ROUND_ROBIN)
    for dst in tree.hosts():
        usable = [word.hop_bytes(path.up) for path in failures.split(src, dst)[0]]
        assert list(table.candidates(tree.ip(dst)) or ()) == usable


@pytest.mark.parametrize("k", [4, 48, 128])
def test_a_healthy_fabric_needs_three_sets_however_large_it_is(k: int) -> None:
    tree = FatTree(k)
    table = path_table(tree, next(tree.hosts()), Failures(tree), seed=0, policy=Policy.ROUND_ROBIN)
    assert len(table.sets) == 3
    assert len(table.destinations) == k * k // 2
    assert len(table.encode()) < 200_000


@pytest.mark.parametrize("address", ["10.4.0.2", "10.0.2.2", "192.168.0.1", "224.0.0.1", "255.255.255.255"])
def test_what_is_outside_the_fabric_has_no_candidates(address: str) -> None:
    tree = FatTree(4)
    table = path_table(tree, next(tree.hosts()), Failures(tree), seed=0, policy=Policy.ROUND_ROBIN)
    assert table.candidates(IPv4Address(address)) is None
