"""TCP flows, their rates from counters, and the elephants that a scheduler places. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from experiments.schemes.hedera.demand import estimate
from experiments.schemes.hedera.placement import Elephant, Placement, Up
from topologies import Clos, Failures, Host, Switch


class HederaFlow(NamedTuple):
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

    flow: HederaFlow
    octets: int
    seconds: float
    up: Up | None


class FlowReport(NamedTuple):
    """Rates of the flows of an edge switch in bits per second, and the paths of its placed flows."""

    rates: dict[HederaFlow, float]
    placed: dict[HederaFlow, Up]


class Rates:
    """Converts counters to rates, switch by switch.

    Time is the switch's own, by the age of the entry: a reply that the controller reads late, and the next one on time, are no
    burst. An entry that is younger than a round (seconds) counts as one round: the first packets of a mouse are no elephant. A
    placed flow is counted by another entry than before; the bytes of both since the last round add up. A counter that decreased
    belongs to a new entry.
    """

    def __init__(self, round_seconds: float) -> None:
        self._round_seconds = round_seconds
        self._before: dict[Switch, dict[tuple[HederaFlow, bool], tuple[int, float]]] = {}

    def take(self, switch: Switch, readings: Iterable[Reading]) -> FlowReport:
        """Process the counters of a switch."""
        before = self._before.get(switch, {})
        counted: dict[tuple[HederaFlow, bool], tuple[int, float]] = {}
        report = FlowReport({}, {})
        for flow, octets, seconds, up in readings:
            key = flow, up is not None
            counted[key] = octets, seconds
            octets_before, seconds_before = before.get(key, (0, 0.0))
            if octets < octets_before or seconds <= seconds_before:
                octets_before, seconds_before = 0, 0.0
            elapsed = max(seconds - seconds_before, self._round_seconds)
            report.rates[flow] = report.rates.get(flow, 0.0) + 8 * (octets - octets_before) / elapsed
            if up is not None:
                report.placed[flow] = up
        self._before[switch] = counted
        return report

    def forget(self, switch: Switch) -> None:
        """Forget a disconnected switch, whose counters restart."""
        self._before.pop(switch, None)


class Move(NamedTuple):
    """An elephant that moves from the path ``was`` to the path ``up``; None is the hash of switches."""

    flow: HederaFlow
    up: Up | None
    was: Up | None


class Scheduler:
    """Detects and places elephants, round by round: flows above a share of a host link.

    A placed flow remains one until its entry expires: other flows may slow it down.
    """

    def __init__(self, placement: Placement, threshold: float) -> None:
        self._placement = placement
        self._threshold = threshold
        self._known: dict[HederaFlow, None] = {}

    def round(self, failures: Failures, shares: Mapping[HederaFlow, float], placed: Mapping[HederaFlow, Up]) -> list[Move]:
        """Return a round's moves, ordered by detection of the elephants, from flows' rates as shares of their host links."""
        flows = self._elephants(shares, placed)
        demands = estimate([(flow.src, flow.dst) for flow in flows])
        elephants = [Elephant(flow.src, flow.dst, demand, placed.get(flow)) for flow, demand in zip(flows, demands, strict=True)]
        decided = self._placement(failures, elephants)
        moves = (Move(flow, up, placed.get(flow)) for flow, up in zip(flows, decided, strict=True))
        return [move for move in moves if move.up != move.was]

    def _elephants(self, shares: Mapping[HederaFlow, float], placed: Iterable[HederaFlow]) -> list[HederaFlow]:
        """Return the elephants, ordered by the round that detected them and by name."""
        now = {*placed, *(flow for flow, share in shares.items() if share > self._threshold)}
        self._known = {flow: None for flow in (*self._known, *sorted(now)) if flow in now}
        return list(self._known)
