"""The numbers of what a probe crosses: links between switches in each direction, and hosts in each direction. Pure.

A link has one number, from 0; its direction up has the same, its direction down ``links`` more. A host has two: what it sends,
and what it receives. A host stands for its own link, too: nothing that its reports say can tell the two apart.
"""

from __future__ import annotations

from functools import cached_property

from topologies import Clos, Host, Level, Link, Switch
from topologies.identity import FIRST_HOST


class Elements:
    """The numbers of one fabric.

    Attributes:
        links: Links between switches of the shape, absent ones included.
        directed: Directions of links: elements from here on are hosts.
        total: All elements. The number itself stands for nothing.

    >>> its = Elements(Clos(pods=4, edges=2, aggregations=2, cores=4, hosts=2))
    >>> its.links, its.directed, its.total
    (32, 64, 96)
    >>> tree = its.tree
    >>> [tree.name(its.link(its.of(tree.link_by_name(name)))) for name in ("e0_0-a0_0", "a3_1-c1_1")]
    ['e0_0-a0_0', 'a3_1-c1_1']
    """

    def __init__(self, tree: Clos) -> None:
        self.tree = tree
        self.lower = tree.pods * tree.edges * tree.aggregations
        self.links = self.lower + tree.pods * tree.aggregations * tree.cores_of_group
        self.hosts = tree.host_count
        self.directed = 2 * self.links
        self.sends, self.receives = self.directed, self.directed + self.hosts
        self.total = self.directed + 2 * self.hosts

    def of(self, link: Link) -> int:
        """Return the number of a link between switches."""
        below, above = link
        assert isinstance(below, Switch)
        if below.level is Level.EDGE:
            return (below.pod * self.tree.edges + below.index) * self.tree.aggregations + above.index
        group = self.tree.cores_of_group
        return self.lower + (below.pod * self.tree.aggregations + below.index) * group + above.index

    def link(self, number: int) -> Link:
        """Return the link of a number."""
        tree = self.tree
        if number < self.lower:
            rack, j = divmod(number, tree.aggregations)
            pod, edge = divmod(rack, tree.edges)
            return Link(Switch(Level.EDGE, pod, edge), Switch(Level.AGGREGATION, pod, j))
        below, i = divmod(number - self.lower, tree.cores_of_group)
        pod, j = divmod(below, tree.aggregations)
        return Link(Switch(Level.AGGREGATION, pod, j), Switch(Level.CORE, j, i))

    def host_number(self, host: Host) -> int:
        """Return the place of a host among all, from 0."""
        tree = self.tree
        return (host.pod * tree.edges + host.edge) * tree.hosts_per_edge + host.number - FIRST_HOST

    def host(self, number: int) -> Host:
        """Return the host of a place."""
        rack, host = divmod(number, self.tree.hosts_per_edge)
        pod, edge = divmod(rack, self.tree.edges)
        return Host(pod, edge, host + FIRST_HOST)

    @cached_property
    def present(self) -> tuple[tuple[int, Link], ...]:
        """Every link between switches that is not absent, with its number, in the order of `Clos.switch_links`."""
        return tuple((self.of(link), link) for link in self.tree.switch_links())
