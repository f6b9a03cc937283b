"""The orders in which senders of the simulator use candidate paths of unequal weight. Pure.

The simulator knows no formula of weights: `topologies.weights` is the only one. It gets the orders that differ from the plain one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from experiments.core.run import Run
from topologies import Failures, Reason, Switch
from topologies.weights import sequence, weights_from

WEIGHTED = ("sopa", "flowcell", "mcs", "sopa-feedback")
"""Schemes that use candidate paths in proportion to their weights. All others ignore weights."""
_NS = 1_000_000_000
_HOP_NOT_TAKEN = 255


def order_lines(run: Run) -> Iterator[str]:
    """Yield the orders of candidate paths between the racks of a run's transfers, and when they come into force.

    A line ``order J I J I ...`` has the uplink indices of one order, and ``use SOURCE DESTINATION NS NUMBER`` says that senders
    of a rack use it from a time on; number -1 is the plain order again.
    """
    if run.scheme.name.partition("+")[0] not in WEIGHTED or not run.scheme.weights:
        return
    plan, tree = run.plan, run.tree
    every = Failures(tree, dict.fromkeys(plan.failed, Reason.DOWN))
    phases = [(0, every)] if plan.fail_after is None else [(0, Failures(tree)), (round(plan.fail_after * _NS), every)]
    known: dict[tuple[tuple[int, ...], ...], int] = {}
    in_force: dict[tuple[Switch, Switch], int] = {}
    for begin, failures in phases:
        if tree.even and not failures:
            continue  # every weight is equal
        for src, racks in _rack_pairs(run).items():
            pods = {rack.pod for rack in racks}
            choices, weights = failures.choices_from(src, pods), weights_from(failures, src, pods)
            for dst in sorted(racks):
                order = sequence(choices[dst], weights[dst])
                number = -1
                if order != choices[dst]:
                    if order not in known:
                        known[order] = len(known)
                        yield f"order {' '.join(f'{j} {i[0] if i else _HOP_NOT_TAKEN}' for j, *i in order)}"
                    number = known[order]
                if in_force.get((src, dst), -1) != number:
                    in_force[src, dst] = number
                    ends = (rack.pod * tree.edges + rack.index for rack in (src, dst))
                    yield f"use {' '.join(map(str, ends))} {begin} {number}"


def _rack_pairs(run: Run) -> dict[Switch, set[Switch]]:
    """Return, for each rack with a sender of data or acknowledgements, the racks that it sends to."""
    pairs: defaultdict[Switch, set[Switch]] = defaultdict(set)
    for transfer in run.plan.transfers:
        src, dst = run.tree.edge_of(transfer.src), run.tree.edge_of(transfer.dst)
        if src != dst:
            pairs[src].add(dst)
            pairs[dst].add(src)
    return dict(sorted(pairs.items()))
