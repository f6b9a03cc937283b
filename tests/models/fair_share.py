"""The best possible rates of flows with one path each: max-min fair shares of the links, without TCP, queues and headers. Pure."""

import heapq
import random
from collections.abc import Sequence
from itertools import pairwise

from topologies import FatTree, Host
from topologies.structure import Node

Hop = tuple[Node, Node]
"""A link in one direction."""


def max_min(ways: Sequence[Sequence[Hop]]) -> list[float]:
    """Max-min fair rates of flows over links that all carry 1 (Bertsekas and Gallager, Data Networks, section 6.5.2)."""
    users: dict[Hop, set[int]] = {}
    for flow, way in enumerate(ways):
        for hop in way:
            users.setdefault(hop, set()).add(flow)
    room = dict.fromkeys(users, 1.0)
    # A link's share only grows as others' flows are settled: what the heap says of it is never too much.
    shares = [(room[hop] / len(of), number, hop) for number, (hop, of) in enumerate(users.items())]
    heapq.heapify(shares)
    rates = [float("inf")] * len(ways)
    while shares:
        share, number, hop = heapq.heappop(shares)
        if not users[hop]:
            continue
        now = room[hop] / len(users[hop])
        if now > share:
            heapq.heappush(shares, (now, number, hop))
            continue
        for flow in list(users[hop]):
            rates[flow] = now
            for other in ways[flow]:
                users[other].discard(flow)
                room[other] -= now
    return rates


def hashed(tree: FatTree, pairs: Sequence[tuple[Host, Host]], seed: int) -> list[float]:
    """Each flow's max-min fair share if it keeps to one candidate path, chosen at random, as a hash does."""
    choose = random.Random(f"{seed} paths")
    ways = []
    for src, dst in pairs:
        up = choose.choice(tree.choices(tree.kind(src, dst)))
        nodes: list[Node] = [src, *tree.hops(src, dst, up), dst]
        ways.append(list(pairwise(nodes)))
    return max_min(ways)
