"""The Clos fabric, its candidate paths and its graph; the k-ary fat-tree is the special case that the papers speak of.

Everything is computed from the structure (Al-Fares et al., SIGCOMM 2008, section 3; the SOPA paper, section 2.1): nothing is
searched for, and no port or address is stored. The module is pure. It imports networkx only in `Clos.graph`, so that
Mininet's own Python, which lacks networkx, can load the module.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from topologies.cabling import Cabling, Rate
from topologies.identity import (
    BFD_INTERVAL_MS,
    BFD_MAC,
    FABRIC_NETWORK,
    GATEWAY_MAC,
    MAX_K,
    MIN_K,
    TURN_MAC,
    Host,
    Level,
    Link,
    Node,
    Path,
    Shape,
    Switch,
    TopologyError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import networkx


class Clos(Cabling):
    """A folded Clos fabric: its identities, its cabling and its paths; parameters and errors as of `Shape` and `Cabling`.

    A leaf-spine fabric of two spines and four leaves, one of which lacks a cable:

    >>> fabric = Clos(pods=1, edges=4, aggregations=2, cores=0, hosts=8, links={"e0_1-a0_0": "absent"})
    >>> [path.up for path in fabric.candidate_paths(Host(0, 0, 2), Host(0, 2, 2))]
    [(0,), (1,)]
    >>> [path.up for path in fabric.candidate_paths(Host(0, 0, 2), Host(0, 1, 2))]
    [(1,)]
    """

    def __init__(
        self,
        pods: int,
        edges: int,
        aggregations: int,
        cores: int,
        hosts: int,
        *,
        mbit: Mapping[str, float] | None = None,
        links: Mapping[str, Rate] | None = None,
        gateways: Iterable[str] = (),
        no_label: Iterable[str] = (),
        prefix6: str | None = None,
        srv6: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(Shape(pods, edges, aggregations, cores, hosts), mbit, links, gateways, no_label, prefix6, srv6)

    @classmethod
    def from_document(cls, document: object) -> Clos:
        """Return the fabric that plain data describe: those of a fabric file, or from another process.

        Raises `TopologyError` for an unknown or missing key, a value of another type, and as of `Cabling`.

        >>> Clos.from_document({"pods": 1, "edges": 4, "aggregations": 2, "cores": 0}).title
        Traceback (most recent call last):
        ...
        topologies.identity.TopologyError: hosts is missing
        """
        if not isinstance(document, dict):
            raise TopologyError(f"a fabric is an object with keys, not {document!r:.80}")
        for key in Shape._fields:
            if key not in document:
                raise TopologyError(f"{key} is missing")
        for key, value in document.items():
            if key not in _DOCUMENT:
                known = ", ".join(_DOCUMENT)
                raise TopologyError(f"{key!r:.80} is unknown: a fabric has {known}")
            if not isinstance(value, _DOCUMENT[key]):
                raise TopologyError(f"{key} must be {_KINDS[_DOCUMENT[key]]}, not {value!r:.80}")
            if isinstance(value, list) and not all(isinstance(name, str) for name in value):
                raise TopologyError(f"{key} must be names of hosts, not {value!r:.80}")
        return cls(**document)

    @property
    def k(self) -> int | None:
        """The ports of every switch, if switches, hosts and candidate paths are those of a fat-tree; else None."""
        k = self.pods
        whole = k % 2 == 0 and not self.absent and self.shape == _fat_tree_shape(k)
        return k if whole else None

    @property
    def is_plain(self) -> bool:
        """Whether it is a fat-tree of equal links without gateways, which `k` and the prefix of IPv6 describe."""
        return self.k is not None and self == FatTree(self.k, *self.described6.values())

    # -- paths --------------------------------------------------------------------------------------------------------

    @staticmethod
    def kind(src: Host, dst: Host) -> str:
        """Return the kind of a host pair: ``intra-rack``, ``inter-rack`` (same pod) or ``inter-pod``."""
        if src.pod != dst.pod:
            return "inter-pod"
        return "intra-rack" if src.edge == dst.edge else "inter-rack"

    def choices(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """Return the uplink indices of every candidate path between two hosts of that kind, in round-robin order.

        They are pairs ``(up1, up2)``, one for each core switch, singles ``(up1,)``, one for each aggregation switch of a pod, or
        one empty tuple: of a fat-tree (k/2)² and k/2. `candidate_paths` leaves out those that lead over absent links.

        The order is interleaved: the aggregation switch changes from each path to the next, the core index after each round of
        the aggregation switches. It decides how many packets are reordered: 11% at k=8, against 36% in the other order.
        """
        return self._choices[kind]

    @cached_property
    def _choices(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        aggregations = range(self.aggregations)
        return {
            "intra-rack": ((),),
            "inter-rack": tuple((j,) for j in aggregations),
            "inter-pod": tuple((j, i) for i in range(self.cores_of_group) for j in aggregations),
        }

    def choices_between(self, src: Host, dst: Host) -> tuple[tuple[int, ...], ...]:
        """Return the uplink indices of every candidate path between two hosts, in round-robin order."""
        choices = self.choices(self.kind(src, dst))
        if src.pod not in self._pods_with_absent and dst.pod not in self._pods_with_absent:
            return choices
        absent = self.absent_uplinks
        ends = [absent.get(self.edge_of(host), frozenset()) for host in (src, dst)]
        beside = ends[0] | ends[1]
        if src.pod == dst.pod:
            return tuple(up for up in choices if not up or up[0] not in beside)
        above = [
            frozenset().union(*(absent.get(Switch(Level.AGGREGATION, host.pod, j), ()) for host in (src, dst)))
            for j in range(self.aggregations)
        ]
        return tuple((j, i) for j, i in choices if j not in beside and i not in above[j])

    @cached_property
    def _pods_with_absent(self) -> frozenset[int]:
        return frozenset(switch.pod for switch in self.absent_uplinks)

    def hops(self, src: Host, dst: Host, up: tuple[int, ...]) -> tuple[Switch, ...]:
        """Return the switches on the path by uplinks ``up``, in order."""
        first, last = self.edge_of(src), self.edge_of(dst)
        if not up:
            return (first,)
        below = Switch(Level.AGGREGATION, src.pod, up[0])
        if len(up) == 1:
            return (first, below, last)
        return (first, below, Switch(Level.CORE, up[0], up[1]), Switch(Level.AGGREGATION, dst.pod, up[0]), last)

    def candidate_paths(self, src: Host, dst: Host) -> list[Path]:
        """Return every candidate path between two hosts, in round-robin order, in time proportional to the answer.

        Those over absent links are left out. Raises `TopologyError` if one of them is no host of this fabric.

        >>> tree = FatTree(4)
        >>> for path in tree.candidate_paths(tree.host("h0_0_2"), tree.host("h0_1_2")):
        ...     print(path.up, "-".join(path.hops))
        (0,) e0_0-a0_0-e0_1
        (1,) e0_0-a0_1-e0_1
        """
        for host in (src, dst):
            if not self.has(host):
                raise TopologyError(f"{self.name(host)} is no host of a {self.title}")
        choices = self.choices_between(src, dst)
        if src.pod == dst.pod:
            return [Path(up, tuple(self.name(switch) for switch in self.hops(src, dst, up))) for up in choices]
        # The most frequent and longest answer: every name but the core switch's is made once, not once per path.
        aggregation = range(self.aggregations)
        first, last = self.name(self.edge_of(src)), self.name(self.edge_of(dst))
        rise = [(first, self.name(Switch(Level.AGGREGATION, src.pod, j))) for j in aggregation]
        fall = [(self.name(Switch(Level.AGGREGATION, dst.pod, j)), last) for j in aggregation]
        core = self.core_names
        return [Path(up, (*rise[up[0]], core[up], *fall[up[0]])) for up in choices]

    @cached_property
    def core_names(self) -> dict[tuple[int, ...], str]:
        """The name of the core switch for each pair ``(up1, up2)``."""
        return {up: self.name(Switch(Level.CORE, *up)) for up in self.choices("inter-pod")}

    # -- graph --------------------------------------------------------------------------------------------------------

    def graph(self) -> networkx.Graph[str]:
        """Return the fabric as an undirected graph over names.

        Nodes carry ``level`` ("host", "edge", "aggregation", "core"), ``pod`` and ``index``; switches also ``dpid``, hosts ``ip``
        and ``mac``. Edges carry ``ports``, from each end's name to its port number there (a host's is 0), and ``capacity``.
        """
        import networkx

        graph: networkx.Graph[str] = networkx.Graph(k=self.k)
        for switch in self.switches():
            graph.add_node(
                self.name(switch), level=switch.level.name.lower(), pod=switch.pod, index=switch.index, dpid=self.dpid(switch)
            )
        for host in self.hosts():
            graph.add_node(
                self.name(host), level="host", pod=host.pod, index=host.number, ip=str(self.ip(host)), mac=self.mac(host)
            )
        for link in self.links():
            lower, upper = self.name(link.lower), self.name(link.upper)
            ports = {lower: self.port(link.lower, link.upper), upper: self.port(link.upper, link.lower)}
            graph.add_edge(lower, upper, ports=ports, capacity=self.capacity(link))
        return graph


class FatTree(Clos):
    """A fat-tree of k-port switches; `TopologyError` if k is no even number from 2 to 128.

    >>> tree = FatTree(4)
    >>> tree.name(tree.switch_by_dpid(0x020001)), str(tree.ip(tree.host("h2_0_3")))
    ('a0_1', '10.2.0.3')
    >>> [path.up for path in tree.candidate_paths(Host(0, 0, 2), Host(2, 0, 3))]
    [(0, 0), (1, 0), (0, 1), (1, 1)]
    >>> tree == Clos(pods=4, edges=2, aggregations=2, cores=4, hosts=2)
    True

    References:
        Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture. SIGCOMM 2008, sections 3.1 and 3.2.
    """

    def __init__(self, k: int, prefix6: str | None = None) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k % 2 or not MIN_K <= k <= MAX_K:
            raise TopologyError(f"k must be an even number from {MIN_K} to {MAX_K}, not {k}")
        super().__init__(*_fat_tree_shape(k), prefix6=prefix6)

    def __repr__(self) -> str:
        more = "".join(f", {str(family.network)!r}" for family in self.families[1:])
        return f"{type(self).__name__}({self.k}{more})"

    @property
    def title(self) -> str:
        return f"k={self.k} fat-tree"

    @property
    def k(self) -> int:
        return self.pods

    @property
    def half(self) -> int:
        """k/2: the hosts of an edge switch, and the uplinks of every edge and aggregation switch."""
        return self.pods // 2


_DOCUMENT: dict[str, type] = {
    **dict.fromkeys(Shape._fields, int),
    "mbit": dict,
    "links": dict,
    "gateways": list,
    "no_label": list,
    "prefix6": str,
    "srv6": dict,
}
_KINDS: dict[type, str] = {int: "a number", dict: "an object", list: "a list", str: "a text"}


def _fat_tree_shape(k: int) -> Shape:
    half = k // 2
    return Shape(pods=k, edges=half, aggregations=half, cores=half * half, hosts=half)


__all__ = [
    "BFD_INTERVAL_MS",
    "BFD_MAC",
    "FABRIC_NETWORK",
    "GATEWAY_MAC",
    "MAX_K",
    "MIN_K",
    "TURN_MAC",
    "Clos",
    "FatTree",
    "Host",
    "Level",
    "Link",
    "Node",
    "Path",
    "Shape",
    "Switch",
    "TopologyError",
]


def fabric_of(document: Mapping[str, Any]) -> Clos:
    """Return the fabric of `Clos.document`, a `FatTree` if it is a plain one; `TopologyError` if it is none.

    >>> fabric_of(FatTree(4).document())
    FatTree(4)
    """
    tree = Clos.from_document(dict(document))
    return FatTree(tree.pods, *tree.described6.values()) if tree.is_plain else tree
