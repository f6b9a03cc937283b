"""The answer about a trace: what it has found of paths and links, and which way a flow takes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from flowrules import label
from flowrules.hashed_way import hashed_way
from flowrules.label import hop_bytes
from flowrules.vswitch_hash import FiveTuple
from sopa_ryu.channel.messages import LOST, LOST_BACK, LOST_OUT, FlowLabels
from sopa_ryu.channel.trace_desk import Found, Trace
from sopa_ryu.rest.link_differences import QUANTILES, Traced, differences, quantile
from sopa_ryu.rest.trace_plan import Up, links_of
from topologies import Clos, Failures, Host
from topologies.weights import sequence, weights_of

MAX_ORDER = 64
"""So many packets of an order are shown."""
DIGITS = 4
Body = dict[str, Any]


def tell(trace: Trace, failures: Failures, no_label: Collection[Host]) -> Body:
    """Return a trace as REST has it.

    Args:
        failures: Of now: a trace of which the version is another one may name paths that are excluded meanwhile.
        no_label: The hosts that may not choose paths.
    """
    tree, asked = failures.tree, trace.asked
    body: Body = {
        "id": trace.number,
        "src": str(tree.ip(trace.src)),
        "dst": str(tree.ip(trace.dst)),
        "kind": tree.kind(trace.src, trace.dst),
        "version": trace.version,
        "state": str(trace.state),
        "problem": trace.problem or None,
    }
    if asked.flow is not None:
        return {**body, "flow": tell_flow(trace, failures, no_label)}
    usable, excluded = failures.split(trace.src, trace.dst)
    choices = tuple(path.up for path in usable)
    weights = weights_of(failures, trace.src, trace.dst, choices)
    order = sequence(choices, weights)
    weight = dict(zip(choices, weights, strict=True))
    traced = [
        _traced(links_of(tree, trace.src, trace.dst, up), found)
        for up, found in zip(asked.ups, trace.found, strict=True)
    ]
    found = differences(traced)
    return {
        **body,
        "count": asked.probes,
        "interval_ms": asked.interval_ms,
        "probes": len(asked.ups) * asked.probes,
        "decided": sum(path.sent for path in traced),
        "paths": [
            {
                **_path(tree, trace, up),
                "weight": round(weight.get(up, 0.0), DIGITS + 5),
                **_counts([path]),
                **{f"{name}_us": _us(quantile(path.delays, part)) for name, part in QUANTILES.items()},
            }
            for up, path in zip(asked.ups, traced, strict=True)
        ],
        "links": [
            {
                "links": list(group.links),
                "paths": list(group.paths),
                **_counts([traced[path] for path in group.paths]),
                "loss": round(group.loss, DIGITS),
                **{f"{name}_us": _us(group.delay[name]) for name in QUANTILES},
            }
            for group in found.groups
        ],
        "undecided": found.undecided,
        "excluded": [{"up": list(path.up), "reason": path.reason} for path in excluded],
        "order": {"paths": [list(up) for up in order[:MAX_ORDER]], "length": len(order)},
    }


def _traced(links: tuple[str, ...], found: Found) -> Traced:
    fates = found.fates
    return Traced(links, found.sent, fates[LOST_OUT], fates[LOST_BACK], fates[LOST], sorted(found.delays))


def _counts(paths: Iterable[Traced]) -> Body:
    every = list(paths)
    return {
        "sent": sum(path.sent for path in every),
        "lost": sum(path.lost for path in every),
        "lost_out": sum(path.lost_out for path in every),
        "lost_back": sum(path.lost_back for path in every),
    }


def _us(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else round(nanoseconds / 1000, 1)


def _path(tree: Clos, trace: Trace, up: Up) -> Body:
    return {
        "up": list(up),
        "option": label.option(up),
        "hops": [tree.name(switch) for switch in tree.hops(trace.src, trace.dst, up)],
    }


# -- a flow ---------------------------------------------------------------------------------------------------------------


def is_hashed(src: Host, no_label: Collection[Host], agent: bool) -> str:
    """Return why the switches hash a host's flows; nothing if its agent labels their packets."""
    if src in no_label:
        return "The host may not choose paths (no_label): switches hash its flows, labelled or not"
    if not agent:
        return "No agent of the host is connected: switches hash its flows, unless the programs of a killed agent go on labelling"
    return ""


def tell_flow(trace: Trace, failures: Failures, no_label: Collection[Host]) -> Body | None:
    """Return which way a flow takes; None while its agent has not said how it labels it."""
    tree, flow = failures.tree, trace.asked.flow
    assert flow is not None
    body = flow._asdict()
    if trace.labels is not None:
        return {**body, "labelled": True, **_labelled(tree, trace, failures, trace.labels)}
    why = is_hashed(trace.src, no_label, agent=trace.asked_agent)
    if not why:
        return None
    way = hashed_way(failures, trace.src, trace.dst, FiveTuple(tree.ip(trace.src), tree.ip(trace.dst), *flow))
    taken = [way.up] if way.up is not None else []
    return {
        **body,
        "labelled": False,
        "policy": None,
        "exact": True,
        "why": f"{why}. The hash is computed as Open vSwitch does, in a build without processor-specific instructions",
        "ways": [{**_way(tree, trace, up), "share": 1.0} for up in taken],
        "order": {"ways": [0] if taken else [], "length": len(taken)},
        "others": [_way(tree, trace, up) for up in way.reachable if up != way.up],
    }


def _way(tree: Clos, trace: Trace, up: Up) -> Body:
    return {**_path(tree, trace, up), "links": list(links_of(tree, trace.src, trace.dst, up))}


def _labelled(tree: Clos, trace: Trace, failures: Failures, labels: FlowLabels) -> Body:
    candidates = set(tree.choices_between(trace.src, trace.dst))
    by_label = {hop_bytes(up): up for up in candidates}
    ups = [by_label[each] for each in labels.labels if each in by_label]
    times = Counter(ups)
    ways = sorted(times, key=ups.index)
    # of an order that is longer than the message, the part in it says little of the whole
    whole = labels.exact and labels.length == len(ups)
    usable = {path.up for path in failures.split(trace.src, trace.dst)[0]}
    lagging = [up for up in ways if up not in usable]
    why = f"The host's agent labels packets by the policy {labels.policy}"
    if not labels.exact:
        why += ", which does not follow from the flow alone: its packets take some of these paths"
    if lagging:
        why += f"; {len(lagging)} of the paths have failed since: switches send their packets by others"
    return {
        "policy": labels.policy,
        "exact": labels.exact,
        "why": why,
        "ways": [
            {**_way(tree, trace, up), "share": round(times[up] / len(ups), DIGITS) if whole else None} for up in ways
        ],
        "order": {
            "ways": [ways.index(up) for up in ups[:MAX_ORDER]] if labels.exact else [],
            "length": labels.length if labels.exact else 0,
        },
        "others": [],
    }
