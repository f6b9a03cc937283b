"""One round of the scheduler of Hedera (NSDI 2010, section 3.2): detection of elephants and their moves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.schemes.hedera.demand import estimate
from experiments.schemes.hedera.flows import TcpFlow
from experiments.schemes.hedera.placement import Elephant, Placement, Up
from topologies import Failures


class Move(NamedTuple):
    """An elephant that moves from the path ``was`` to the path ``up``; None is the hash of switches."""

    flow: TcpFlow
    up: Up | None
    was: Up | None


class Scheduler:
    """Detects and places elephants, round by round.

    Args:
        placement: Placement algorithm.
        threshold: Share of a host link above which a flow is an elephant. A placed flow remains one until its entry expires:
            other flows may slow it down.
    """

    def __init__(self, placement: Placement, threshold: float) -> None:
        self._placement = placement
        self._threshold = threshold
        self._known: dict[TcpFlow, None] = {}

    def round(self, failures: Failures, shares: Mapping[TcpFlow, float], placed: Mapping[TcpFlow, Up]) -> list[Move]:
        """Return the moves of a round.

        Args:
            shares: Rate of each flow as a share of its host link.
            placed: Paths of the flows that are placed at edge switches.

        Returns:
            Ordered by detection of the elephants.
        """
        flows = self._elephants(shares, placed)
        demands = estimate([(flow.src, flow.dst) for flow in flows])
        elephants = [
            Elephant(flow.src, flow.dst, demand, placed.get(flow)) for flow, demand in zip(flows, demands, strict=True)
        ]
        decided = self._placement(failures, elephants)
        moves = (Move(flow, up, placed.get(flow)) for flow, up in zip(flows, decided, strict=True))
        return [move for move in moves if move.up != move.was]

    def _elephants(self, shares: Mapping[TcpFlow, float], placed: Iterable[TcpFlow]) -> list[TcpFlow]:
        """Return the elephants, ordered by the round that detected them and by name."""
        now = {*placed, *(flow for flow, share in shares.items() if share > self._threshold)}
        self._known = {flow: None for flow in (*self._known, *sorted(now)) if flow in now}
        return list(self._known)
