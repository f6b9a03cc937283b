"""Oracle of the expected state: it knows the networkx graph of the fabric and what is broken, and nothing of how SOPA works."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import networkx

Label = tuple[int, ...]


class Oracle:
    def __init__(self, graph: networkx.Graph[str], broken: Iterable[str], drained: Iterable[str] = ()) -> None:
        self.graph = graph
        self.working = without(graph, broken)
        self.candidates_graph = without(self.working, drained)
        self.hosts = sorted(node for node, level in graph.nodes(data="level") if level == "host")
        self._climb = {host: self._above(host) for host in self.hosts}

    def connected(self, src: str, dst: str) -> bool:
        """Return True if some path goes up and then down from one host to another, without anything broken on it."""
        return bool(self._climb[src] & self._climb[dst])

    def candidates(self, src: str, dst: str) -> list[list[str]]:
        """The switches of every shortest path up and down the whole fabric that nothing broken or drained is on."""
        return sorted(path[1:-1] for path in _shortest(self.graph, src, dst) if self._whole(path))

    def rack_words(self, src: str, rack: str) -> list[Label]:
        """The uplinks of the candidate paths from a host to the hosts of a rack, whose own links do not matter."""
        start = self._rack(src)
        if start == rack:
            return [(255, 255)] if rack in self.candidates_graph else []
        return sorted(word(path) for path in _shortest(self.graph, start, rack) if self._whole(path))

    def _whole(self, path: list[str]) -> bool:
        left = self.candidates_graph
        return all(node in left for node in path) and all(left.has_edge(*step) for step in pairwise(path))

    def _rack(self, host: str) -> str:
        (edge,) = self.graph.neighbors(host)
        return edge

    def _above(self, host: str) -> set[str]:
        """The switches that a packet of a host can reach by going up only."""
        reached, frontier = set(), {host}
        while frontier:
            node = frontier.pop()
            reached.add(node)
            if node in self.working:
                frontier |= {other for other in self.working.neighbors(node) if _is_above(self.graph, other, node)} - reached
        return reached - {host}


@cache
def _shortest(graph: networkx.Graph[str], src: str, dst: str) -> list[list[str]]:
    """The shortest paths that go up and then down; in a fabric without absent links these are all shortest paths."""
    try:
        paths = networkx.all_shortest_paths(_up_and_down(graph), (src, "up"), (dst, "down"))
        return [[node for node, way in path if way == "up" or (node, "up") not in path] for path in paths]
    except networkx.NetworkXNoPath:
        return []


@cache
def _up_and_down(graph: networkx.Graph[str]) -> networkx.DiGraph[tuple[str, str]]:
    """The graph twice, with its links upwards and with its links downwards, and a way from each node of the first to its double."""
    ways: networkx.DiGraph[tuple[str, str]] = networkx.DiGraph()
    ways.add_edges_from(((node, "up"), (node, "down")) for node in graph)
    for one, other in graph.edges:
        lower, upper = (one, other) if _is_above(graph, other, one) else (other, one)
        ways.add_edge((lower, "up"), (upper, "up"))
        ways.add_edge((upper, "down"), (lower, "down"))
    return ways


def _is_above(graph: networkx.Graph[str], one: str, other: str) -> bool:
    order = "host", "edge", "aggregation", "core"
    return order.index(graph.nodes[one]["level"]) > order.index(graph.nodes[other]["level"])


def without(graph: networkx.Graph[str], elements: Iterable[str]) -> networkx.Graph[str]:
    left = graph.copy()
    for element in elements:
        ends = element.split("-")
        if len(ends) == 2 and left.has_edge(*ends):
            left.remove_edge(*ends)
        elif len(ends) == 1 and element in left:
            left.remove_node(element)
    return left


def word(hops: list[str]) -> Label:
    """The two bytes that a path's packets carry: the index of its aggregation switch, and of its core switch within its group."""
    indices = [int(name.rpartition("_")[2]) for name in hops[1 : (len(hops) + 1) // 2]]
    return (*indices, 255, 255)[:2]
