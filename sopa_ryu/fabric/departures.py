"""Which links carry nothing, by what hosts say, in a fabric whose switches say nothing. Pure.

A host leaves a link if a router says that it has no way on, or if probes in a row are lost (docs/probes.md). Its reports name what
it has left. A link that hosts of two racks have left is excluded for all, until they take it again. One host, or one rack, condemns
no link; nor is one excluded that cannot be spared.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection

from sopa_ryu.fabric.suspects import needed
from topologies import Clos, Failures, Host, Switch

LOG = logging.getLogger("sopa")

WITNESSES = 2
"""Racks whose hosts have to have left a link."""


class Departures:
    """The links that hosts have left; those that are `excluded` for it are what `decide` returned last.

    >>> from topologies import FatTree
    >>> tree = FatTree(4)
    >>> its, nothing = Departures(tree), Failures(tree)
    >>> for name in ("h0_0_2", "h0_0_3", "h2_1_2"):
    ...     its.left(tree.host(name), ["a0_0-c0_1"])
    ...     its.decide(nothing)
    frozenset()
    frozenset()
    frozenset({'a0_0-c0_1'})
    """

    def __init__(self, tree: Clos) -> None:
        self._tree = tree
        self._by_host: dict[Host, frozenset[str]] = {}
        self.excluded: frozenset[str] = frozenset()
        self._spared: dict[str, str] = {}

    def left(self, host: Host, links: Collection[str]) -> None:
        """Note all links between switches that a host has left now."""
        if links:
            self._by_host[host] = frozenset(links)
        else:
            self._by_host.pop(host, None)

    def decide(self, failures: Failures) -> frozenset[str]:
        """Return the links that are excluded for it; ``failures`` are all that are excluded now."""
        said: defaultdict[str, set[Host]] = defaultdict(set)
        for host, links in self._by_host.items():
            for name in links:
                said[name].add(host)
        excluded = set()
        for name, hosts in sorted(said.items()):
            racks = {(host.pod, host.edge) for host in hosts}
            if len(racks) < WITNESSES:
                continue
            if name not in self.excluded:
                if (why := needed(self._tree, failures, name)) is not None:
                    if self._spared.get(name) != why:
                        self._spared[name] = why
                        LOG.error("link %s carries nothing, as %d hosts say: %s. Check its cable, and the routers at its ends",
                                  name, len(hosts), why)  # fmt: skip
                    continue
                failures = failures.with_failed(name)
                LOG.warning("link %s carries nothing, as %d hosts of %d racks say. No host uses it until hosts find it good "
                            "again. Check its cable, and the routers at its ends", name, len(hosts), len(racks))  # fmt: skip
            excluded.add(name)
        for name in sorted(self.excluded - excluded):
            LOG.info("link %s carries packets again, as the hosts say that had left it", name)
        self._spared = {name: why for name, why in self._spared.items() if name in said}
        self.excluded = frozenset(excluded)
        return self.excluded


def is_link(tree: Clos, name: str) -> bool:
    """Tell whether this is the name of a link between switches, as hosts may leave."""
    try:
        return isinstance(tree.link_by_name(name).lower, Switch)
    except ValueError:
        return False
