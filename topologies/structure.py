"""The k-ary fat-tree: who is where, what it is called, and which paths join two hosts.

Everything follows from the structure (Al-Fares et al., SIGCOMM 2008, section 3; the SOPA paper, section 2.1): nothing
is searched for, and no port or address is stored. The module is pure, and networkx is imported only where a graph is asked for,
so that Mininet's own Python, which lacks it, can load the module.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from topologies.identity import (
    FABRIC_NETWORK,
    FIRST_HOST,
    GATEWAY_MAC,
    MAX_K,
    MIN_K,
    Host,
    Identities,
    Level,
    Link,
    Node,
    Path,
    Switch,
    TopologyError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx


class FatTree(Identities):
    """A fat-tree of k-port switches: its identities, its cabling and its paths.

    Parameters
    ----------
    k : int
        Ports of every switch: an even number from 2 to 128.

    Raises
    ------
    TopologyError
        If ``k`` is anything else.

    Examples
    --------
    >>> tree = FatTree(4)
    >>> tree.name(tree.switch_by_dpid(0x020001)), str(tree.ip(tree.host("h2_0_3")))
    ('a0_1', '10.2.0.3')
    >>> [path.up for path in tree.candidate_paths(Host(0, 0, 2), Host(2, 0, 3))]
    [(0, 0), (1, 0), (0, 1), (1, 1)]

    References
    ----------
    Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture. SIGCOMM 2008, sections 3.1 and 3.2.
    """

    # -- members ----------------------------------------------------------------------------------------------------

    def switches(self, level: Level | None = None) -> Iterator[Switch]:
        """Every switch, or those of one level, in the order of their datapath ids."""
        for this in Level:
            if level in (None, this):
                groups = self.half if this is Level.CORE else self.k
                yield from (Switch(this, pod, index) for pod in range(groups) for index in range(self.half))

    def hosts(self) -> Iterator[Host]:
        """Every host, in the order of its address."""
        for edge in self.switches(Level.EDGE):
            yield from self.hosts_of(edge)

    def hosts_of(self, edge: Switch) -> Iterator[Host]:
        """The hosts of one edge switch, in the order of its ports."""
        return (Host(edge.pod, edge.index, number) for number in range(FIRST_HOST, FIRST_HOST + self.half))

    def links(self) -> Iterator[Link]:
        """Every cable of the fabric, host links included."""
        for host in self.hosts():
            yield Link(host, self.edge_of(host))
        for level in (Level.EDGE, Level.AGGREGATION):
            for switch in self.switches(level):
                yield from (Link(switch, self.uplink(switch, index)) for index in range(self.half))

    @property
    def switch_count(self) -> int:
        """5k²/4: k²/2 edge, k²/2 aggregation and k²/4 core switches."""
        return 5 * self.half * self.half

    @property
    def host_count(self) -> int:
        """k³/4."""
        return self.k * self.half * self.half

    # -- cabling ------------------------------------------------------------------------------------------------------

    @staticmethod
    def edge_of(host: Host) -> Switch:
        """The edge switch that a host hangs on."""
        return Switch(Level.EDGE, host.pod, host.edge)

    def uplink(self, switch: Switch, index: int) -> Switch:
        """The switch at the other end of an uplink: ``up1`` for an edge switch, ``up2`` for an aggregation switch."""
        if switch.level is Level.CORE or not 0 <= index < self.half:
            raise TopologyError(f"{self.name(switch)} has no uplink {index}")
        if switch.level is Level.EDGE:
            return Switch(Level.AGGREGATION, switch.pod, index)
        return Switch(Level.CORE, switch.index, index)

    def uplink_port(self, index: int) -> int:
        """The port number of an edge or aggregation switch's uplink."""
        return self.half + 1 + index

    def ports(self, switch: Switch) -> dict[int, Node]:
        """What is cabled to each port of a switch, port 1 first."""
        return {port: self.neighbour(switch, port) for port in range(1, self.k + 1)}

    def neighbour(self, switch: Switch, port: int) -> Node:
        """What is cabled to a port; `TopologyError` if the switch has no such port."""
        if not 1 <= port <= self.k:
            raise TopologyError(f"{self.name(switch)} has no port {port}")
        if switch.level is Level.CORE:
            return Switch(Level.AGGREGATION, port - 1, switch.pod)
        if port > self.half:
            return self.uplink(switch, port - self.half - 1)
        if switch.level is Level.AGGREGATION:
            return Switch(Level.EDGE, switch.pod, port - 1)
        return Host(switch.pod, switch.index, port - 1 + FIRST_HOST)

    def port(self, node: Node, towards: Node) -> int:
        """The port of ``node`` that is cabled to ``towards`` (a host's only port is 0); `TopologyError` if they are not cabled."""
        if isinstance(node, Host):
            port, back = 0, self.edge_of(node)
        else:
            if isinstance(towards, Host):
                port = towards.number - FIRST_HOST + 1
            elif node.level is Level.CORE:
                port = towards.pod + 1
            elif towards.level > node.level:
                port = self.uplink_port(towards.index)
            else:
                port = towards.index + 1
            back = self.neighbour(node, port) if 1 <= port <= self.k else node  # type: ignore[assignment]
        if back != towards or not self.has(node):
            raise TopologyError(f"{self.name(node)} and {self.name(towards)} are not cabled together")
        return port

    def link(self, a: Node, b: Node) -> Link:
        """The cable between two nodes, whichever is given first; `TopologyError` if they are not cabled together."""
        upwards = isinstance(a, Host) or (isinstance(b, Switch) and a.level < b.level)
        link = Link(a, b) if upwards else Link(b, a)  # type: ignore[arg-type]
        self.port(link.lower, link.upper)
        return link

    def element(self, name: str) -> Switch | Link:
        """The switch or link of that name, as failures and drains name them; `TopologyError` if there is none."""
        lower, dash, upper = name.partition("-")
        if not dash:
            return self.switch(name)
        link = self.link(self.node(lower), self.switch(upper))
        if self.name(link) != name:
            raise TopologyError(f"{name!r} is named from the wrong end; call it {self.name(link)}")
        return link

    # -- paths --------------------------------------------------------------------------------------------------------

    @staticmethod
    def kind(src: Host, dst: Host) -> str:
        """``intra-rack``, ``inter-rack`` (same pod) or ``inter-pod``."""
        if src.pod != dst.pod:
            return "inter-pod"
        return "intra-rack" if src.edge == dst.edge else "inter-rack"

    def choices(self, kind: str) -> tuple[tuple[int, ...], ...]:
        """The uplink choices of every candidate path between two hosts of that kind, in round-robin order.

        The order is interleaved: the aggregation switch changes from each path to the next, the core index after each turn of
        the aggregation switches. It decides how much is reordered: 7% of packets against 34% at k=8 (docs/architecture.md,
        section 11).

        Returns
        -------
        tuple of tuple of int
            (k/2)² pairs ``(up1, up2)``, k/2 singles ``(up1,)``, or one empty tuple.
        """
        return self._choices[kind]

    @cached_property
    def _choices(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        half = range(self.half)
        return {
            "intra-rack": ((),),
            "inter-rack": tuple((j,) for j in half),
            "inter-pod": tuple((j, i) for i in half for j in half),
        }

    def hops(self, src: Host, dst: Host, up: tuple[int, ...]) -> tuple[Switch, ...]:
        """The switches that a packet crosses when it takes those uplinks."""
        first, last = self.edge_of(src), self.edge_of(dst)
        if not up:
            return (first,)
        below = Switch(Level.AGGREGATION, src.pod, up[0])
        if len(up) == 1:
            return (first, below, last)
        return (first, below, Switch(Level.CORE, up[0], up[1]), Switch(Level.AGGREGATION, dst.pod, up[0]), last)

    def candidate_paths(self, src: Host, dst: Host) -> list[Path]:
        """Every candidate path between two hosts, in round-robin order, in time proportional to the answer.

        Raises
        ------
        TopologyError
            If one of them is no host of this fat-tree.
        """
        for host in (src, dst):
            if not self.has(host):
                raise TopologyError(f"{self.name(host)} is no host of a k={self.k} fat-tree")
        kind = self.kind(src, dst)
        if kind != "inter-pod":
            return [
                Path(up, tuple(self.name(switch) for switch in self.hops(src, dst, up))) for up in self.choices(kind)
            ]
        # The commonest and longest answer: every name but the core's is made once, not once a path.
        aggregation = range(self.half)
        first, last = self.name(self.edge_of(src)), self.name(self.edge_of(dst))
        rise = [(first, self.name(Switch(Level.AGGREGATION, src.pod, j))) for j in aggregation]
        fall = [(self.name(Switch(Level.AGGREGATION, dst.pod, j)), last) for j in aggregation]
        core = self.core_names
        return [Path(up, (*rise[up[0]], core[up], *fall[up[0]])) for up in self.choices(kind)]

    @cached_property
    def core_names(self) -> dict[tuple[int, ...], str]:
        """The name of the core switch that each pair ``(up1, up2)`` leads to."""
        return {up: self.name(Switch(Level.CORE, *up)) for up in self.choices("inter-pod")}

    # -- graph --------------------------------------------------------------------------------------------------------

    def graph(self) -> networkx.Graph[str]:
        """The fabric as an undirected graph over names.

        Returns
        -------
        networkx.Graph
            Nodes carry ``level`` ("host", "edge", "aggregation", "core"), ``pod`` and ``index``; switches also ``dpid``, hosts
            ``ip`` and ``mac``. Edges carry ``ports``, a dict from each end's name to its port number there (a host's is 0).
        """
        import networkx

        graph: networkx.Graph[str] = networkx.Graph(k=self.k)
        for switch in self.switches():
            graph.add_node(
                self.name(switch),
                level=switch.level.name.lower(),
                pod=switch.pod,
                index=switch.index,
                dpid=self.dpid(switch),
            )
        for host in self.hosts():
            graph.add_node(
                self.name(host),
                level="host",
                pod=host.pod,
                index=host.number,
                ip=str(self.ip(host)),
                mac=self.mac(host),
            )
        for link in self.links():
            lower, upper = self.name(link.lower), self.name(link.upper)
            ports = {lower: self.port(link.lower, link.upper), upper: self.port(link.upper, link.lower)}
            graph.add_edge(lower, upper, ports=ports)
        return graph


__all__ = [
    "FABRIC_NETWORK",
    "GATEWAY_MAC",
    "MAX_K",
    "MIN_K",
    "FatTree",
    "Host",
    "Level",
    "Link",
    "Node",
    "Path",
    "Switch",
    "TopologyError",
]
