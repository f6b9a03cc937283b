"""TCP flows and what their counters say of their rates. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from experiments.schemes.hedera.placement import Up
from topologies import FatTree, Host, Switch


class TcpFlow(NamedTuple):
    """A TCP flow in one direction."""

    src: Host
    src_port: int
    dst: Host
    dst_port: int

    def text(self, tree: FatTree) -> str:
        """As ``h0_0_2:40001 -> h2_1_3:5201``."""
        return f"{tree.name(self.src)}:{self.src_port} -> {tree.name(self.dst)}:{self.dst_port}"


class Reading(NamedTuple):
    """What an entry has counted of a flow: ``up`` is the path that the entry gives it, None for one that only counts."""

    flow: TcpFlow
    octets: int
    seconds: float
    up: Up | None


class Report(NamedTuple):
    """What an edge switch tells in a round: its flows' rates in bits per second, and the paths that it holds for some."""

    rates: dict[TcpFlow, float]
    placed: dict[TcpFlow, Up]


class Rates:
    """Turns counters into rates, switch by switch.

    A flow that is placed is counted by another entry than before; what both have counted since the last round is the flow's. An
    entry whose counter went back is a new one. Before a switch has been read twice, the entries' own age has to do.
    """

    def __init__(self) -> None:
        self._before: dict[Switch, tuple[float, dict[tuple[TcpFlow, bool], int]]] = {}

    def take(self, switch: Switch, readings: Iterable[Reading], now: float) -> Report:
        """Take in what a switch has counted until ``now``, in seconds on any clock that only goes forward."""
        then, before = self._before.get(switch, (None, {}))
        counted: dict[tuple[TcpFlow, bool], int] = {}
        report = Report({}, {})
        for flow, octets, seconds, up in readings:
            key = flow, up is not None
            counted[key] = octets
            elapsed = seconds if then is None else now - then
            more = octets - before.get(key, 0)
            if more < 0:
                more = octets
            if elapsed > 0:
                report.rates[flow] = report.rates.get(flow, 0.0) + 8 * more / elapsed
            if up is not None:
                report.placed[flow] = up
        self._before[switch] = now, counted
        return report

    def forget(self, switch: Switch) -> None:
        """The switch is gone: when it comes back, its counters begin anew."""
        self._before.pop(switch, None)
