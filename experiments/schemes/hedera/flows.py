"""TCP flows, and their rates from counters. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from experiments.schemes.hedera.placement import Up
from topologies import Clos, Host, Switch


class TcpFlow(NamedTuple):
    """A TCP flow in one direction."""

    src: Host
    src_port: int
    dst: Host
    dst_port: int

    def text(self, tree: Clos) -> str:
        """Return the flow as ``h0_0_2:40001 -> h2_1_3:5201``."""
        return f"{tree.name(self.src)}:{self.src_port} -> {tree.name(self.dst)}:{self.dst_port}"


class Reading(NamedTuple):
    """The counter of an entry for a flow. ``up`` is the path set by the entry; None for an entry that only counts."""

    flow: TcpFlow
    octets: int
    seconds: float
    up: Up | None


class Report(NamedTuple):
    """Rates of the flows of an edge switch in bits per second, and the paths of its placed flows."""

    rates: dict[TcpFlow, float]
    placed: dict[TcpFlow, Up]


class Rates:
    """Converts counters to rates, switch by switch.

    A placed flow is counted by another entry than before; the bytes of both since the last round add up. A counter that
    decreased belongs to a new entry. Without an earlier reading of the switch, the age of the entry is the interval.
    """

    def __init__(self) -> None:
        self._before: dict[Switch, tuple[float, dict[tuple[TcpFlow, bool], int]]] = {}

    def take(self, switch: Switch, readings: Iterable[Reading], now: float) -> Report:
        """Process the counters of a switch at time ``now``, in seconds of a monotonic clock."""
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
        """Forget a disconnected switch, whose counters restart."""
        self._before.pop(switch, None)
