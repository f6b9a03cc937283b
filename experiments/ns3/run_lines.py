"""What the simulator reads of a run: its fabric, its scheme, and the orders of candidate paths of unequal weight. Pure.

The simulator knows no formula of weights: `topologies.weights` is the only one. It gets the orders that differ from the plain one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from experiments.core.run import Run
from experiments.ns3.simulation_options import MARK_ABOVE
from experiments.schemes import Scheme
from experiments.schemes.scheme import Slots
from topologies import Failures, Reason, Switch
from topologies.cabling import ABSENT, LINK_LEVELS
from topologies.weights import sequence, weights_from

LABELLED = ("sopa", "sopa-skip", "flowcell", "mcs", "sopa-feedback", "cfr")
"""Schemes whose senders write labels, if they may."""


def fabric_lines(run: Run) -> Iterator[str]:
    """Yield the lines of a run's fabric for ``src/settings.cc``: hosts' links have the run's rate, others one in proportion."""
    tree = run.tree
    scale = run.scale.rate_mbit * 1e6 / tree.level_rate("host")

    def rate(mbit: float) -> int:
        return max(1, round(scale * mbit))

    yield f"fabric {' '.join(map(str, tree.shape))}"
    yield f"rates {' '.join(str(rate(tree.level_rate(level))) for level in LINK_LEVELS)}"
    yield f"core-share {run.plan.core_rate:g}"
    for name, mbit in tree.document().get("links", {}).items():
        yield f"absent {name}" if mbit == ABSENT else f"link {name} {rate(mbit)}"
    if tree.no_label and run.scheme.name.partition("+")[0] in LABELLED:
        yield from (f"no-label {number}" for number, host in enumerate(tree.hosts()) if host in tree.no_label)


MARKED = ("mcs", "mcs-ports", "sopa-feedback", "sopa-skip", "ecmp-vcc", "per-packet", "mptcp", "plb", "reps", "conweave", "dctcp")
"""Schemes that answer marks of ECN: the queues of all switches mark with them."""
DCTCP = ("per-packet", "mptcp", "plb", "reps", "conweave", "dctcp")
OTHER_NAMES = {"tcp": "ecmp", "dctcp": "ecmp"}
"""Schemes whose paths are those of another one."""
PROBED = ("sopa",)
"""Schemes with ``+probes=on``."""
BURSTS = ("sopa", "mcs", "mcs-ports")
"""Schemes with ``+segments=N``."""
FAST_MBIT = 10_000.0
MARK_ABOVE_FAST = 65
"""Packets in a queue above which it marks from 10 Gbit/s on; below that `MARK_ABOVE` (DCTCP, SIGCOMM 2010, section 3.4)."""
_OPTION_BYTES = {"sopa": 4, "sopa-skip": 4, "flowcell": 4, "mcs": 4, "sopa-feedback": 4, "cfr": 4, "drb": 20}
"""Bytes that the path takes in each packet: the SOPA option, or IP in IP."""


def base_of(scheme: Scheme) -> str:
    """Return the name of a scheme without its settings."""
    return scheme.name.partition("+")[0]


def overhead(scheme: Scheme) -> int:
    """Return the bytes that a scheme adds to the headers of each packet, as ``src/`` does."""
    shim = 0 if not scheme.channels else 12 if scheme.channels <= 8 else 16
    return shim + _OPTION_BYTES.get(base_of(scheme), 0)


def scheme_lines(scheme: Scheme, rate_mbit: float, options: Mapping[str, int | str]) -> Iterator[str]:
    """Yield the lines of a scheme that ``src/settings.cc`` reads, without those that the options of a run have."""
    base = base_of(scheme)
    yield f"scheme {OTHER_NAMES.get(base, base)}"
    if scheme.probes:
        yield "probes 1"
    if scheme.slots:
        yield from _slot_lines(scheme.slots)
    if scheme.channels:
        yield f"channels {scheme.channels}"
    if scheme.subflows:
        yield f"subflows {scheme.subflows}"
    if base in DCTCP and "congestion" not in options:
        yield "congestion Dctcp"
    if scheme.ecn_bytes and "ecn" not in options:
        yield f"ecn-bytes {scheme.ecn_bytes}"
    elif base in MARKED and "ecn" not in options and (scheme.ecn or not scheme.channels):
        yield f"ecn {scheme.ecn_threshold or (MARK_ABOVE_FAST if rate_mbit >= FAST_MBIT else MARK_ABOVE)}"


def _slot_lines(slots: Slots) -> Iterator[str]:
    yield f"slot-packets {slots.packets or 1}"
    yield f"slot-guard {slots.guard_percent}"
    yield f"arbiter-delay {slots.delay_ns}"
    yield f"arbiter-order {slots.order}"
    yield f"arbiter-paths {slots.paths}"
    yield f"demand {slots.demand}"


WEIGHTED = ("sopa", "sopa-skip", "flowcell", "presto", "mcs", "sopa-feedback")
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
