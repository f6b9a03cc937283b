"""The best possible rates of flows over all their candidate paths at once: a linear program, without TCP and headers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog

from topologies import Clos, Host
from topologies.structure import Node

_SLACK = 1e-7

Hop = tuple[Node, Node]
"""A link in one direction."""


def max_min(tree: Clos, pairs: Sequence[tuple[Host, Host]]) -> list[float]:
    """Return max-min fair rates of flows, each split over its candidate paths as is best, in the unit of the fabric's capacities.

    Rates rise together until no split lets all rise further; those that cannot rise alone are settled, and the others go on (Nace,
    Pioro: Max-Min Fairness and Its Applications to Routing and Load-Balancing. IEEE Communications Surveys 10, 2008). A pair
    without a path has 0.
    """
    program = _Program(tree, pairs)
    settled: dict[int, float] = {flow: 0.0 for flow in range(len(pairs)) if not program.paths_of[flow]}
    while len(settled) < len(pairs):
        rate = program.most(settled, None)
        rising = [flow for flow in range(len(pairs)) if flow not in settled]
        stuck = [flow for flow in rising if program.most(settled, flow, rate) <= rate * (1 + 1e-6) + _SLACK]
        settled |= dict.fromkeys(stuck or rising, rate)
    return [settled[flow] for flow in range(len(pairs))]


class _Program:
    """The constraints: what all paths over a link carry is at most its capacity."""

    def __init__(self, tree: Clos, pairs: Sequence[tuple[Host, Host]]) -> None:
        self.paths_of: list[list[int]] = []
        users: dict[Hop, list[int]] = {}
        paths = 0
        for src, dst in pairs:
            of_flow = []
            for up in tree.choices_between(src, dst):
                nodes: list[Node] = [src, *tree.hops(src, dst, up), dst]
                for hop in pairwise(nodes):
                    users.setdefault(hop, []).append(paths)
                of_flow.append(paths)
                paths += 1
            self.paths_of.append(of_flow)
        self._paths = paths
        self._limits = np.array([tree.capacity(tree.link(*hop)) for hop in users])
        self._loads = np.zeros((len(users), paths + 1))
        for row, of_link in enumerate(users.values()):
            self._loads[row, of_link] = 1.0

    def most(self, settled: dict[int, float], alone: int | None, floor: float = 0.0) -> float:
        """Return the highest rate that all flows which are not settled can have, or ``alone`` if the others have ``floor``."""
        rows, limits = [self._loads], [self._limits]
        for flow, paths in enumerate(self.paths_of):
            row = np.zeros((1, self._paths + 1))
            row[0, paths] = -1.0
            rises = flow not in settled and alone in (None, flow)
            row[0, self._paths] = float(rises)
            rows.append(row)
            limits.append(np.array([0.0 if rises else -settled.get(flow, floor) * (1 - 1e-9)]))
        aim = np.zeros(self._paths + 1)
        aim[self._paths] = -1.0
        solution = linprog(aim, np.vstack(rows), np.concatenate(limits), method="highs")
        if not solution.success:
            raise ArithmeticError(f"the linear program failed: {solution.message}")
        return float(-solution.fun)
