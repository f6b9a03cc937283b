"""Who sends to whom: seeded traffic patterns, pure."""

from __future__ import annotations

import random

from topologies import FatTree, Host


def inter_pod_permutation(tree: FatTree, seed: int) -> list[tuple[Host, Host]]:
    """A random permutation in which every host sends to one host of another pod and receives from one.

    The permutation workload of the SOPA paper (section 4.3), confined to pairs that have (k/2)² candidate paths.

    Parameters
    ----------
    tree : FatTree
    seed : int
        The same seed gives the same pairs.

    Returns
    -------
    list of (Host, Host)
        Senders in the order of their addresses, each with its receiver.
    """
    choose = random.Random(seed)
    senders = list(tree.hosts())
    pod = len(senders) // tree.k
    receivers = senders[pod:] + senders[:pod]
    # Swaps that keep every pair inter-pod lead to any such permutation; a few dozen rounds forget the first one.
    for _ in range(40 * len(senders)):
        a, b = choose.randrange(len(senders)), choose.randrange(len(senders))
        if senders[a].pod != receivers[b].pod and senders[b].pod != receivers[a].pod:
            receivers[a], receivers[b] = receivers[b], receivers[a]
    return list(zip(senders, receivers, strict=True))
