"""The weights that a controller gives candidate paths, against the linear program over the graph."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import networkx
import numpy as np
from scipy.optimize import linprog

from tests.faults.oracle import Label, word

LEAST_PART = 0.85
"""Of the best bandwidth that all-to-all traffic can have: what weights have to give it."""

Pair = tuple[str, str]
"""Two edge switches."""
Path = tuple[str, ...]
"""The switches of a path."""


class Shares:
    """The weights of the candidate paths between racks, as ``GET /paths`` has them for some of their hosts."""

    def __init__(self, graph: networkx.Graph[str]) -> None:
        self.graph = graph
        self.of: dict[Pair, dict[Path, float]] = {}
        self.problems: list[str] = []

    def take(self, src: str, dst: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        """Note the answer for two hosts."""
        if not candidates:
            return
        weights = {tuple(path["hops"]): float(path["weight"]) for path in candidates}
        first = next(iter(weights))
        pair = first[0], first[-1]
        if abs(sum(weights.values()) - 1) > 1e-6:
            self.problems.append(f"weights from {src} to {dst} sum to {sum(weights.values())}: {weights}")
        if any(abs(self.of.setdefault(pair, weights).get(path, 0) - weight) > 1e-9 for path, weight in weights.items()):
            self.problems.append(f"weights from {src} to {dst} are {weights}; other hosts there have {self.of[pair]}")

    def wrong_turns(self, host: str, pair: Pair, turns: Iterable[Label]) -> list[str]:
        """Tell in words if a host's path set has not as many turns for each path as its weight says."""
        counts = Counter(turns)
        right = {word(list(path)): weight for path, weight in self.of.get(pair, {}).items()}
        found = {label: count / counts.total() for label, count in counts.items()}
        if not right or all(abs(found.get(label, 0) - weight) < 1e-6 for label, weight in right.items()):
            return []
        return [f"{host} takes paths to {pair[1]} in shares of {found}; their weights are {right}"]

    def wrong_weights(self) -> list[str]:
        """Tell in words what is wrong with the weights: of all, all-to-all traffic must get nearly the best bandwidth."""
        between = {pair: weights for pair, weights in self.of.items() if pair[0] != pair[1]}
        if not between:
            return self.problems
        limit = self._hosts(between)
        load: defaultdict[Pair, float] = defaultdict(float)
        for (src, dst), weights in between.items():
            for path, weight in weights.items():
                for hop in pairwise(path):
                    load[hop] += weight * self._demand(src, dst)
        reached = min(limit, *(self._capacity(hop) / carried for hop, carried in load.items() if carried))
        best = min(limit, self._optimum(between))
        if reached < LEAST_PART * best:
            return [*self.problems, f"weights give all-to-all traffic {reached:g} Mbit/s a pair, {best:g} are possible"]
        return self.problems

    def _optimum(self, between: Mapping[Pair, Mapping[Path, float]]) -> float:
        """Return the most that every pair of hosts can send at a time over its candidate paths."""
        paths = [(pair, path) for pair, weights in between.items() for path in weights]
        hops = sorted({hop for _, path in paths for hop in pairwise(path)})
        row = {hop: number for number, hop in enumerate(hops)}
        loads = np.zeros((len(hops), len(paths) + 1))
        sums = np.zeros((len(between), len(paths) + 1))
        number = {pair: at for at, pair in enumerate(between)}
        for column, (pair, path) in enumerate(paths):
            sums[number[pair], column] = 1
            for hop in pairwise(path):
                loads[row[hop], column] = 1
        for pair, at in number.items():
            sums[at, -1] = -self._demand(*pair)
        aim = np.zeros(len(paths) + 1)
        aim[-1] = -1
        limits = [self._capacity(hop) for hop in hops]
        answer = linprog(aim, loads, limits, sums, np.zeros(len(between)), method="highs")
        assert answer.success, answer.message
        return float(-answer.fun)

    def _demand(self, src: str, dst: str) -> int:
        return len(self._hosts_of(src)) * len(self._hosts_of(dst))

    def _hosts(self, between: Iterable[Pair]) -> float:
        """Return the bandwidth of a pair that the hosts' own links leave."""
        peers = Counter(src for src, dst in between for _ in self._hosts_of(dst))
        return min(self._capacity((host, src)) / count for src, count in peers.items() for host in self._hosts_of(src))

    def _hosts_of(self, edge: str) -> list[str]:
        return [other for other in self.graph.neighbors(edge) if self.graph.nodes[other]["level"] == "host"]

    def _capacity(self, hop: Pair) -> float:
        return float(self.graph.edges[hop]["capacity"])
