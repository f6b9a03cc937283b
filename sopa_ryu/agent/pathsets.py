"""The path sets of one host, from the structure and the failures: the paper's component 1 (section 3.3). Pure."""

from __future__ import annotations

from flowrules import word
from sopa_ryu.agent.pathtable import PathTable, Policy
from topologies import Failures, FatTree, Host
from topologies.fattree import FABRIC_NETWORK


def path_table(tree: FatTree, host: Host, failures: Failures, seed: int, policy: Policy) -> PathTable:
    """The table that a host's eBPF program works with: for every rack the words of its candidate paths, in round-robin order.

    Parameters
    ----------
    tree : FatTree
    host : Host
        The sender.
    failures : Failures
        What has failed: candidate paths that contain any of it are left out.
    seed : int
        32 bits that decide every flow's start and every random choice.
    policy : Policy

    Returns
    -------
    PathTable
        Racks with the same candidates share one set; a rack that cannot be reached has none (-1), so that its packets go
        unlabelled.
    """
    sets: dict[tuple[tuple[int, ...], ...], int] = {}
    destinations = []
    for choices in failures.choices_from(tree.edge_of(host)).values():
        destinations.append(sets.setdefault(choices, len(sets)) if choices else -1)
    words = tuple(tuple(word.hop_bytes(up) for up in choices) for choices in sets)
    return PathTable(FABRIC_NETWORK, tree.half, words, tuple(destinations), seed, policy)
