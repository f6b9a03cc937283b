"""Statistics of flows. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from experiments.core.records import FlowRecord
from topologies import Clos, Link

CONFIDENCE = 0.95
PACKET_BYTES, HEADER_BYTES = 1500, 40
WINDOW = 500
"""Packets per window (SOPA paper, figure 5)."""

UpPath = tuple[int, int]


@dataclass(frozen=True)
class Distribution:
    """The distribution of values: percentiles with linear interpolation, sample standard deviation (None for a single value)."""

    count: int
    mean: float
    minimum: float
    p1: float
    p5: float
    p50: float
    p95: float
    p99: float
    maximum: float
    deviation: float | None


@dataclass(frozen=True)
class Interval:
    """The 95% confidence interval of a mean."""

    low: float
    high: float


@dataclass(frozen=True)
class RatioStatistics:
    """The mean ratio of one scheme to another, seed by seed: the same seed means the same traffic. No interval for one seed."""

    value: float
    interval: Interval | None
    seeds: int


@dataclass(frozen=True)
class Completion:
    """Completion times of transfers with a size, in seconds: the mean of those that ended in time.

    The median and p99 are of all transfers; None if that transfer did not end in time.
    """

    count: int
    completed: int
    mean: float | None
    median: float | None
    p99: float | None


@dataclass(frozen=True)
class LossStatistics:
    """Reordering and retransmission, summed over flows; the shares are of the packets, None without packets."""

    packets: int
    reordered: int
    retransmits: int
    fast_retransmits: int
    timeouts: int
    spurious: int
    reordered_share: float | None
    retransmitted_share: float | None


@dataclass(frozen=True)
class Slowdown:
    """Completion times over those alone in an empty fabric, of all transfers; None if that transfer did not end in time."""

    p50: float | None
    p95: float | None
    p99: float | None


def distribution(values: Sequence[float]) -> Distribution:
    """Return the distribution of one or more values."""
    minimum, p1, p5, p50, p95, p99, maximum = (float(one) for one in np.percentile(values, [0, 1, 5, 50, 95, 99, 100]))
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    mean = math.fsum(values) / len(values)
    return Distribution(len(values), mean, minimum, p1, p5, p50, p95, p99, maximum, deviation)


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the confidence interval of the mean of independent values (Student's t); None for fewer than two values."""
    if len(values) < 2:
        return None
    half = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2) * np.std(values, ddof=1)) / math.sqrt(len(values))
    mean = math.fsum(values) / len(values)
    return Interval(mean - half, mean + half)


def ratio(means: dict[int, float], base: dict[int, float]) -> RatioStatistics | None:
    """Return the ratio of means by seed; None without a common seed for which the mean of the base is above zero."""
    ratios = [mean / base[seed] for seed, mean in sorted(means.items()) if base.get(seed, 0) > 0]
    if not ratios:
        return None
    return RatioStatistics(math.fsum(ratios) / len(ratios), mean_interval(ratios), len(ratios))


def fairness(values: Sequence[float]) -> float | None:
    """Return Jain's index: 1 if all values are equal, 1/n if all but one are zero; None if all are zero."""
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else None


def completion(flows: Sequence[FlowRecord]) -> Completion:
    """Return the completion times of transfers, all with a size."""
    times = [flow.seconds for flow in flows if flow.completed]
    mean = math.fsum(times) / len(times) if times else None
    return Completion(len(flows), len(times), mean, _percentile(times, len(flows), 50), _percentile(times, len(flows), 99))


def slowdown(flows: Sequence[FlowRecord], ideal: Callable[[FlowRecord], float]) -> Slowdown:
    """Return the slowdown of transfers, all with a size; ``ideal`` returns the seconds that one alone would take."""
    slow = [flow.seconds / ideal(flow) for flow in flows if flow.completed]
    return Slowdown(*(_percentile(slow, len(flows), percent) for percent in (50, 95, 99)))


def _percentile(values: Sequence[float], count: int, percent: float) -> float | None:
    # Transfers that did not end took longer than all others: the order is known except for the tail.
    position = (count - 1) * percent / 100
    return float(np.interp(position, np.arange(len(values)), sorted(values))) if position <= len(values) - 1 else None


def ideal_seconds(flow: FlowRecord, tree: Clos, packet: int = PACKET_BYTES, delay: float = 0.0) -> float:
    """Return the time that a transfer needs at least, alone in an empty fabric, from opening the connection on.

    That is a handshake, the first packet over every link of the path, and the rest at the rate of the slower host's link.
    ``packet`` is the size of a packet in bytes with 40 of headers, ``delay`` that of a link in seconds.
    """
    size, src, dst = flow.size or 0, tree.host(flow.src), tree.host(flow.dst)
    above: list[str] = []
    if tree.edge_of(src) != tree.edge_of(dst):
        above = ["edge", "aggregation"] if src.pod != dst.pod else ["edge"]
    rates = [tree.capacity(Link(host, tree.edge_of(host))) for host in (src, dst)] + [*map(tree.level_rate, above)] * 2
    byte = [8 * tree.level_rate("host") / (flow.rate_mbit * 1e6 * rate) for rate in rates]
    first = min(size, packet - HEADER_BYTES) + HEADER_BYTES
    wire = size + HEADER_BYTES * -(-size // (packet - HEADER_BYTES))
    return sum((2 * HEADER_BYTES + first) * each + 3 * delay for each in byte) + (wire - first) * max(byte[:2])


def losses(flows: Sequence[FlowRecord]) -> LossStatistics:
    """Return reordering and retransmission of flows."""
    packets, reordered = sum(flow.packets for flow in flows), sum(flow.reordered for flow in flows)
    retransmits = sum(flow.retransmits for flow in flows)
    return LossStatistics(
        packets,
        reordered,
        retransmits,
        sum(flow.fast_retransmits for flow in flows),
        sum(flow.timeouts for flow in flows),
        sum(flow.spurious for flow in flows),
        reordered / packets if packets else None,
        retransmits / packets if packets else None,
    )


def path_windows(arrivals: Sequence[Sequence[float]], size: int = WINDOW) -> list[Counter[UpPath]]:
    """Return the packets per path for each window of packets in sending order. An incomplete last window is omitted."""
    paths = [(int(up1), int(up2)) for _, _, up1, up2, _ in sorted(arrivals, key=lambda packet: packet[1])]
    return [Counter(paths[start : start + size]) for start in range(0, len(paths) - size + 1, size)]


def largest_deviation(windows: Sequence[Counter[UpPath]], paths: int) -> float | None:
    """Return the largest deviation from an equal share in any window, in percent of that share; None without windows."""
    if not windows or not paths:
        return None
    shares = [(window.total() / paths, [*window.values()] + [0] * (paths - len(window))) for window in windows]
    return max(100 * abs(count - share) / share for share, counts in shares for count in counts)
