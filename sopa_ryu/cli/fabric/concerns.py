"""What is wrong with a fabric although its file is right, and what is legal but seldom meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from topologies.cabling import LINK_LEVELS
from topologies.fabric_file import FabricDocument
from topologies.fabric_summary import Summary
from topologies.identity import Level, Switch

SHOWN = 5
"""Switches of one kind of concern that are named."""


class Concern(NamedTuple):
    """A concern about a fabric, and the line of its file that says it; ``wrong`` is false for what is legal."""

    wrong: bool
    line: int
    text: str
    mend: str


def concerns(file: FabricDocument, summary: Summary) -> Iterator[Concern]:
    """Yield what is wrong, and then what is seldom meant."""
    yield from _unreachable(file, summary)
    yield from _uplinks(file, summary)
    yield from _rates(file, summary)
    yield from _gateways(file)
    tree = file.fabric
    if tree.pods == 1 and tree.cores:
        text = f"one pod needs no core switches: the {tree.cores} carry nothing"
        yield Concern(False, file.lines["cores"], text, "cores: 0 is a leaf-spine fabric")


def _unreachable(file: FabricDocument, summary: Summary) -> Iterator[Concern]:
    tree = file.fabric
    cut_off = list(summary.cut_off())
    for edge in cut_off[:SHOWN]:
        text = f"{tree.name(edge)} has no uplink: its {tree.hosts_per_edge} hosts reach no other rack"
        yield Concern(True, _line(file, edge), text, "let one of its links be there")
    if len(cut_off) > SHOWN:
        yield Concern(True, 1, f"{len(cut_off) - SHOWN} more edge switches have no uplink", "let links be there")
    for kind, counts in (summary.paths() or {}).items():
        fewest = counts[0]
        if not fewest.paths:
            text = f"{fewest.pairs} pairs of racks have no path, as {' and '.join(fewest.example)} ({kind})"
            mend = "let them have links to the same aggregation and core switches"
            yield Concern(True, _line(file, tree.switch(fewest.example[0])), text, mend)


def _uplinks(file: FabricDocument, summary: Summary) -> Iterator[Concern]:
    tree = file.fabric
    if tree.aggregations == 1 and tree.pods * tree.edges > 1:
        text = "every edge switch has a single uplink: no failure leaves a path"
        yield Concern(False, file.lines["aggregations"], text, "aggregations: 2 or more")
        return
    single = [
        switch
        for switch, absent in sorted(tree.absent_uplinks.items())
        if switch.level is Level.EDGE and len(absent) == tree.aggregations - 1
    ]
    for edge in single[:SHOWN]:
        text = f"{tree.name(edge)} has a single uplink: its failure cuts off {tree.hosts_per_edge} hosts"
        yield Concern(False, _line(file, edge), text, "let another of its links be there")
    if len(single) > SHOWN:
        yield Concern(False, 1, f"{len(single) - SHOWN} more edge switches have a single uplink", "as for those")
    for link in sorted(summary.exceptions):
        switch = link.lower
        if isinstance(switch, Switch) and switch.level is Level.AGGREGATION and not summary.above(switch):
            text = f"{tree.name(switch)} has no uplink (1:0): it carries traffic within its pod only"
            yield Concern(False, _line(file, switch), text, "let one of its links to core switches be there")
            return


def _rates(file: FabricDocument, summary: Summary) -> Iterator[Concern]:
    tree = file.fabric
    own = {tree.link_level(link): link for link, rate in summary.exceptions.items() if rate}
    for level in LINK_LEVELS:
        there = summary.link_count(level)
        if level in tree.mbit and not there:
            text = f"mbit.{level} has no effect: no link is above {level} switches"
            yield Concern(False, file.lines[f"mbit.{level}"], text, "remove it")
        elif level not in tree.mbit and there and (tree.mbit or level in own):
            line = file.lines["mbit"] if tree.mbit else file.lines[f"links.{tree.name(own[level])}"]
            kind = "hosts" if level == "host" else f"{level} switches"
            text = f"the links above {kind} have no rate, and count as 1 Mbit/s beside those that have"
            yield Concern(False, line, text, f"give mbit.{level}")


def _gateways(file: FabricDocument) -> Iterator[Concern]:
    tree = file.fabric
    racks = {(host.pod, host.edge) for host in tree.gateways}
    if len(racks) != 1:
        return
    edge = tree.name(tree.edge_of(tree.gateways[0]))
    text = f"all gateways are at {edge}: its failure cuts the fabric off"
    yield Concern(False, file.lines["gateways"], text, "name gateways at two racks")


def _line(file: FabricDocument, switch: Switch) -> int:
    """Return the line of the first exception among the links above a switch."""
    lower = f"links.{file.fabric.name(switch)}-"
    return min((line for key, line in file.lines.items() if key.startswith(lower)), default=1)
