"""The traffic patterns are what their names say, and repeat."""

import pytest

from experiments.workloads import inter_pod_permutation
from topologies import FatTree


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_everyone_sends_to_another_pod_and_receives_once(k: int, seed: int) -> None:
    tree = FatTree(k)
    pairs = inter_pod_permutation(tree, seed)
    hosts = set(tree.hosts())
    assert {src for src, _ in pairs} == {dst for _, dst in pairs} == hosts
    assert len(pairs) == len(hosts)
    assert all(src.pod != dst.pod for src, dst in pairs)
    assert pairs == inter_pod_permutation(tree, seed)


def test_another_seed_gives_another_permutation() -> None:
    assert inter_pod_permutation(FatTree(4), 1) != inter_pod_permutation(FatTree(4), 2)
