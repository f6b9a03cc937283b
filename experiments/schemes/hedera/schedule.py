"""One round of Hedera's scheduler (NSDI 2010, section 3.2): which flows are elephants, and which of them go elsewhere now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.schemes.hedera.demand import estimate
from experiments.schemes.hedera.flows import TcpFlow
from experiments.schemes.hedera.placement import Elephant, Placement, Up
from topologies import Failures


class Move(NamedTuple):
    """An elephant that is to leave the path ``was`` for the path ``up``; None stands for the switches' hash."""

    flow: TcpFlow
    up: Up | None
    was: Up | None


class Scheduler:
    """Decides round by round.

    Parameters
    ----------
    placement : callable
        Gives elephants their paths.
    threshold : float
        The share of a host's link above which a flow is an elephant. One that has been placed stays one until its entry expires:
        it may be slow only because others are in its way.
    """

    def __init__(self, placement: Placement, threshold: float) -> None:
        self._placement = placement
        self._threshold = threshold
        self._known: dict[TcpFlow, None] = {}

    def round(self, failures: Failures, shares: Mapping[TcpFlow, float], placed: Mapping[TcpFlow, Up]) -> list[Move]:
        """What is to change.

        Parameters
        ----------
        failures : Failures
        shares : mapping
            Each flow's rate as a share of its host's link.
        placed : mapping
            The paths that the edge switches hold for flows.

        Returns
        -------
        list of Move
            In the order in which the elephants were found.
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
        """In the order of the rounds that found them, and of their names: who came first keeps its place."""
        now = {*placed, *(flow for flow, share in shares.items() if share > self._threshold)}
        self._known = {flow: None for flow in (*self._known, *sorted(now)) if flow in now}
        return list(self._known)
