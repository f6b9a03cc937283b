"""The answer about a trace: what it has found of paths and links, and which way a flow takes. Pure.

What the differences between traced paths say of their links: all paths between two hosts share the links at both ends; those
by one aggregation switch share two more; each has some of its own. Links that the same paths cross are one *group*: no
difference between these paths tells its links apart. A group lies *within* another if all its paths cross that one too, so
that the groups are a tree. What a group costs is known only beside the groups next to it, within the same one: a delay or
loss that they all have may as well be that of the group around them. It is given to that one, which is the explanation with
the fewest bad links (among all exact solutions of the least squares, since there is always one, the smallest without
negative parts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import Any, NamedTuple

from flowrules import label
from flowrules.hashed_way import FiveTuple, hashed_way
from flowrules.label import Carrier, hop_bytes
from sopa_ryu.channel.messages import LOST, LOST_BACK, LOST_OUT, FlowLabels
from sopa_ryu.channel.trace_desk import Found, Trace
from topologies import Clos, Failures, Host
from topologies.identity import Family
from topologies.structure import Link, Node
from topologies.weights import sequence, weights_of

ERROR = 0.01
"""The probability that a fabric without any loss but random has a group named."""
QUANTILES = {"min": 0.0, "median": 0.5, "p99": 0.99}
MAX_ORDER = 64
"""So many packets of an order are shown."""
DIGITS = 4
Body = dict[str, Any]
Up = tuple[int, ...]


def links_of(tree: Clos, src: Host, dst: Host, up: Up) -> tuple[str, ...]:
    """Return the names of the links of a path, from the source on.

    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> links_of(tree, tree.host("h0_0_2"), tree.host("h0_1_2"), (1,))
    ('h0_0_2-e0_0', 'e0_0-a0_1', 'e0_1-a0_1', 'h0_1_2-e0_1')
    """
    nodes: tuple[Node, ...] = (src, *tree.hops(src, dst, up), dst)
    rising = len(nodes) // 2
    # the lower end first; no port is looked up, since there are hundreds of paths
    return tuple(
        tree.name(Link(here, there) if place < rising else Link(there, here))  # type: ignore[arg-type]
        for place, (here, there) in enumerate(pairwise(nodes))
    )


class Traced(NamedTuple):
    """What the probes on one path found."""

    links: tuple[str, ...]
    """The path's links, from the source on."""
    sent: int
    """Probes whose fate is known."""
    lost_out: int = 0
    lost_back: int = 0
    lost_unknown: int = 0
    """Those of them lost on the way out, on the way back, and on one of both."""
    delays: Sequence[int] = ()
    """Of those that came back, there and back."""

    @property
    def lost(self) -> int:
        """Probes that did not come back."""
        return self.lost_out + self.lost_back + self.lost_unknown


@dataclass
class LinkGroup:
    """Links that the same paths cross."""

    links: tuple[str, ...]
    paths: tuple[int, ...]
    """Which of the traced paths cross them."""
    loss: float = 0.0
    """The part of the probes that is lost here, there or back, beside the groups next to it."""
    delay: dict[str, float | None] = field(default_factory=dict)
    """By the names of `QUANTILES`: by how much the delay there and back is above that by the fastest group next to it; of the group
    of all paths that delay itself. None of a group whose paths no probe has come back on."""
    _within: list[LinkGroup] = field(default_factory=list, repr=False)


class Differences(NamedTuple):
    """The groups of links, those of most paths first, and lost probes that are too few to say which group lost them."""

    groups: tuple[LinkGroup, ...]
    undecided: int


def differences(paths: Sequence[Traced]) -> Differences:
    """Return what the differences between paths of the same two hosts say of their links.

    >>> delays = [100, 101, 102]
    >>> good = Traced(("h-e", "e-a0", "a0-c"), 3, delays=delays), Traced(("h-e", "e-a1", "a1-c"), 3, delays=delays)
    >>> [(group.links, group.loss, group.delay["min"]) for group in differences(good).groups]
    [(('h-e',), 0.0, 100), (('e-a0', 'a0-c'), 0.0, 0), (('e-a1', 'a1-c'), 0.0, 0)]
    """
    groups = _groups(paths)
    if not groups:
        return Differences((), 0)
    whole = groups[0]
    for name, part in QUANTILES.items():
        _share_delay(whole, name, [quantile(path.delays, part) for path in paths], None)
    lost, sent, branches = _share_loss(whole, paths, log(len(groups) / ERROR))
    if lost and branches != 1:
        whole.loss = lost / sent
        return Differences(tuple(groups), 0)
    return Differences(tuple(groups), lost)


def quantile(values: Sequence[int], part: float) -> float | None:
    """Return the value below which that part of sorted values lies: the nearest rank; None if there are none."""
    if not values:
        return None
    return values[min(len(values) - 1, int(part * len(values)))]


def _groups(paths: Sequence[Traced]) -> list[LinkGroup]:
    """Return the groups, each after the one that it lies within."""
    crossing: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        for link in path.links:
            crossing.setdefault(link, []).append(index)
    together: dict[tuple[int, ...], list[str]] = {}
    for link, crossed in crossing.items():
        together.setdefault(tuple(crossed), []).append(link)
    groups = [LinkGroup(tuple(links), crossed) for crossed, links in together.items()]
    groups.sort(key=lambda group: (-len(group.paths), group.paths))
    around: dict[int, LinkGroup] = {}
    for group in groups:
        outer = around.get(group.paths[0])
        if outer is not None:
            outer._within.append(group)
        around |= dict.fromkeys(group.paths, group)
    return groups


def _share_delay(group: LinkGroup, name: str, delays: Sequence[float | None], around: float | None) -> None:
    """Write a group's part of a delay, and those of the groups within."""
    known = [delay for path in group.paths if (delay := delays[path]) is not None]
    least = min(known) if known else None
    group.delay[name] = least if least is None or around is None else least - around
    for inner in group._within:
        _share_delay(inner, name, delays, least)


def _share_loss(group: LinkGroup, paths: Sequence[Traced], price: float) -> tuple[int, int, int]:
    """Write the loss of the groups within; return lost and sent probes of the other ones, and how many of those lost any."""
    if not group._within:
        return sum(paths[path].lost for path in group.paths), sum(paths[path].sent for path in group.paths), 0
    parts = [(*_share_loss(inner, paths, price)[:2], inner) for inner in group._within]
    parts = sorted((part for part in parts if part[1]), key=lambda part: part[0] / part[1])
    counts = [(lost, sent) for lost, sent, _ in parts]
    alike = _alike(counts, price)
    lost, sent = (sum(column) for column in zip(*counts[:alike], strict=True)) if counts else (0, 0)
    for its_lost, its_sent, inner in parts[alike:]:
        inner.loss = 1 - (1 - its_lost / its_sent) / (1 - lost / sent)
    return lost, sent, sum(1 for its_lost, _ in counts[:alike] if its_lost)


def _alike(counts: Sequence[tuple[int, int]], price: float) -> int:
    """Return how many lost alike, from the one that lost the smallest part on.

    ``counts`` are lost and sent probes, in the order of the parts lost; ``price`` is the gain of the logarithm of the likelihood
    that an exception has to bring.
    """
    lost = sent = 0
    apart = sum(_likelihood(*each) - price for each in counts)
    best, most = 1, float("-inf")
    for pooled, each in enumerate(counts, 1):
        lost, sent = lost + each[0], sent + each[1]
        apart -= _likelihood(*each) - price
        value = _likelihood(lost, sent) + apart
        if value >= most:
            best, most = pooled, value
    return best


def _likelihood(lost: int, sent: int) -> float:
    """Return the logarithm of the likelihood of the losses by the part lost itself."""
    return sum(count * log(count / sent) for count in (lost, sent - lost) if count)


def tell(trace: Trace, failures: Failures, no_label: Collection[Host], carrier: Carrier = Carrier.MAC) -> Body:
    """Return a trace as REST has it.

    ``failures`` are those of now: a trace of which the version is another one may name paths that are excluded meanwhile.
    """
    tree, asked = failures.tree, trace.asked
    body: Body = {
        "id": trace.number,
        "src": str(asked.family.address(trace.src)),
        "dst": str(asked.family.address(trace.dst)),
        "kind": tree.kind(trace.src, trace.dst),
        "version": trace.version,
        "state": str(trace.state),
        "problem": trace.problem or None,
    }
    if asked.flow is not None:
        return {**body, "flow": tell_flow(trace, failures, no_label, carrier)}
    usable, excluded = failures.split(trace.src, trace.dst)
    choices = tuple(path.up for path in usable)
    weights = weights_of(failures, trace.src, trace.dst, choices)
    order = sequence(choices, weights)
    weight = dict(zip(choices, weights, strict=True))
    traced = [_traced(links_of(tree, trace.src, trace.dst, up), found) for up, found in zip(asked.ups, trace.found, strict=True)]
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


def _counts(paths: Sequence[Traced]) -> Body:
    return {
        "sent": sum(path.sent for path in paths),
        "lost": sum(path.lost for path in paths),
        "lost_out": sum(path.lost_out for path in paths),
        "lost_back": sum(path.lost_back for path in paths),
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


def is_hashed(src: Host, no_label: Collection[Host], agent: bool, family: Family, carrier: Carrier) -> str:
    """Return why the switches hash a host's flows; nothing if its agent labels their packets."""
    if src in no_label:
        return "The host may not choose paths (no_label): switches hash its flows, labelled or not"
    if family.number == 6 and carrier is Carrier.OPTION:
        return f"Carrier {carrier} labels IPv4 only: switches hash IPv6"
    if not agent:
        return "No agent of the host is connected: switches hash its flows, unless the programs of a killed agent go on labelling"
    return ""


def tell_flow(trace: Trace, failures: Failures, no_label: Collection[Host], carrier: Carrier = Carrier.MAC) -> Body | None:
    """Return which way a flow takes; None while its agent has not said how it labels it."""
    flow, family = trace.asked.flow, trace.asked.family
    assert flow is not None
    body = flow._asdict()
    if trace.labels is not None:
        return {**body, "labelled": True, **_labelled(failures.tree, trace, failures, trace.labels)}
    why = is_hashed(trace.src, no_label, trace.asked_agent, family, carrier)
    if not why:
        return None
    tree = failures.tree
    way = hashed_way(failures, trace.src, trace.dst, FiveTuple(family.address(trace.src), family.address(trace.dst), *flow))
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
        "ways": [{**_way(tree, trace, up), "share": round(times[up] / len(ups), DIGITS) if whole else None} for up in ways],
        "order": {
            "ways": [ways.index(up) for up in ups[:MAX_ORDER]] if labels.exact else [],
            "length": labels.length if labels.exact else 0,
        },
        "others": [],
    }
