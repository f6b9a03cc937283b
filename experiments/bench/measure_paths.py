"""The time to compute the candidate paths of one pair at k=48, with a shortest-path search over the graph as baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import networkx

from topologies import FatTree, Host

K = 48
ROUNDS = 50


def measure() -> dict[str, Any]:
    """Compute all 576 candidate paths of one inter-pod pair from the structure, and by a search of networkx.

    Returns:
        ``structure_ms``, the median of `ROUNDS`; ``search_ms``, the median of 3; and ``paths``.
    """
    tree = FatTree(K)
    src, dst = Host(0, 0, 2), Host(K - 1, K // 2 - 1, 2)
    structure = _timed(lambda: tree.candidate_paths(src, dst), ROUNDS)
    graph = tree.graph()
    search = _timed(lambda: list(networkx.all_shortest_paths(graph, tree.name(src), tree.name(dst))), 3)
    return {
        "k": K,
        "paths": len(tree.candidate_paths(src, dst)),
        "structure_ms": round(1000 * structure, 3),
        "search_ms": round(1000 * search, 1),
        "limit_ms": 1.0,
    }


def _timed(work: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return median(seconds)
