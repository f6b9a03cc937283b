"""Candidate paths and rules of large fabrics: the time and memory to compute them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial

import networkx

from experiments.bench.frame import Results, median_ms, peak_mib
from flowrules.switch_rules import fabric_rules
from topologies import FatTree, Host

K = 48
PATHS_ROUNDS, SEARCH_ROUNDS = 50, 3


def paths() -> Results:
    """Compute all 576 candidate paths of one inter-pod pair from the structure, and by a search of networkx; return the medians."""
    tree = FatTree(K)
    src, dst = Host(0, 0, 2), Host(K - 1, K // 2 - 1, 2)
    graph, ends = tree.graph(), (tree.name(src), tree.name(dst))
    return {
        "k": K,
        "paths": len(tree.candidate_paths(src, dst)),
        "structure_ms": round(median_ms(partial(tree.candidate_paths, src, dst), PATHS_ROUNDS), 3),
        "search_ms": round(median_ms(lambda: list(networkx.all_shortest_paths(graph, *ends)), SEARCH_ROUNDS), 1),
        "limit_ms": 1.0,
    }


def rules() -> Results:
    """Compute all rules in a process of their own, so that its memory is theirs; ``python_mib`` is that before."""
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=True)
    results: Results = json.loads(done.stdout)
    return results


def _rules_here() -> Results:
    before = peak_mib()
    started = time.perf_counter()
    all_rules = dict(fabric_rules(FatTree(K))).values()
    seconds = time.perf_counter() - started
    return {
        "k": K,
        "switches": len(all_rules),
        "flows": sum(len(rules.flows) for rules in all_rules),
        "groups": sum(len(rules.groups) for rules in all_rules),
        "seconds": round(seconds, 3),
        "limit_seconds": 10.0,
        "mib": peak_mib(),
        "limit_mib": 1024.0,
        "python_mib": before,
    }


if __name__ == "__main__":
    print(json.dumps(_rules_here()))
