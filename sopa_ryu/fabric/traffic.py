"""Traffic of the links from port statistics: rates, totals, and the balance of uplinks. Pure.

A link is measured at one of its ends, so that both directions are of the same moment: at its lower switch, whose transmit
counter is the upward direction (at the edge switch, for a host's link). Its other end counts only if that rate is not known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from topologies import Clos, Failures, Level, Link, Switch

BITS = 8
MIN_BITS_PER_SECOND = 100_000.0
"""Of the mean uplink: below it, BFD and single packets dominate the balance."""
CLOCK_SECONDS = 1.0
"""Tolerance for a switch's clock and the delay of its answer."""


class PortCounters(NamedTuple):
    """Counters of a port since it was created; None for those that its switch does not have.

    Bytes are those of Ethernet frames without preamble and checksum. ``seconds`` is the age of the port.
    """

    receive_bytes: int | None
    transmit_bytes: int | None
    receive_packets: int | None
    transmit_packets: int | None
    receive_drops: int | None
    transmit_drops: int | None
    receive_errors: int | None
    transmit_errors: int | None
    seconds: float | None = None


class Rate(NamedTuple):
    """Receive and transmit rate of a port, in bits per second."""

    receive: float
    transmit: float


class _Sample(NamedTuple):
    at: float
    counters: Mapping[int, PortCounters]
    rates: Mapping[int, Rate]


class Traffic:
    """The last sample of every switch's port counters, valid for ``fresh_seconds``, and the rates between its last two."""

    def __init__(self, tree: Clos, fresh_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree = tree
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._samples: dict[Switch, _Sample] = {}

    def take(self, switch: Switch, counters: Mapping[int, PortCounters], at: float) -> None:
        """Store a sample of a switch's ports, by port number, taken at a time by the clock.

        A missing sample makes the next rate one over a longer time. A counter that is lower than before, or a port that is younger,
        was reset: the port's rate is known again after the next sample.
        """
        before = self._fresh(switch, at)
        rates: dict[int, Rate] = {}
        if before is not None and at > before.at:
            for port, now in counters.items():
                rate = _rate(before.counters.get(port), now, at - before.at)
                if rate is not None:
                    rates[port] = rate
        self._samples[switch] = _Sample(at, counters, rates)

    def forget(self, switch: Switch) -> None:
        """Drop the samples of a switch that is gone."""
        self._samples.pop(switch, None)

    def totals(self, switch: Switch) -> Mapping[int, PortCounters]:
        """Return a switch's counters by port number; empty if its last sample is too old."""
        sample = self._fresh(switch, self._clock())
        return sample.counters if sample is not None else {}

    def port_rates(self, switch: Switch) -> Mapping[int, Rate]:
        """Return the rates of a switch's ports by port number, as far as they are known."""
        sample = self._fresh(switch, self._clock())
        return sample.rates if sample is not None else {}

    def rates(self, link: Link) -> tuple[float, float] | None:
        """Return the bits per second upwards and downwards on a link, or None if they are not known."""
        for switch, port in ends(self.tree, link):
            rate = self.port_rates(switch).get(port)
            if rate is not None:
                return (rate.transmit, rate.receive) if switch == link.lower else (rate.receive, rate.transmit)
        return None

    def imbalance(self, switch: Switch, failures: Failures) -> float | None:
        """Return the largest transmit rate of a switch's uplinks over their mean.

        1 is perfectly even; the number of uplinks means that one carries everything. Uplinks that have failed, or lead to a
        failed switch, do not count. None for a core switch, with fewer than two uplinks in use, while a rate of theirs is not
        known, and while they carry less than `MIN_BITS_PER_SECOND` on average.
        """
        if switch.level is Level.CORE:
            return None
        known = self.port_rates(switch)
        sent: list[float] = []
        for link in self.tree.links_above(switch):
            if failures and failures.hit((link, link.upper)):
                continue
            rate = known.get(self.tree.port(switch, link.upper))
            if rate is None:
                return None
            sent.append(rate.transmit)
        mean = sum(sent) / len(sent) if len(sent) > 1 else 0.0
        return max(sent) / mean if mean >= MIN_BITS_PER_SECOND else None

    def _fresh(self, switch: Switch, now: float) -> _Sample | None:
        sample = self._samples.get(switch)
        return sample if sample is not None and now - sample.at <= self._fresh_seconds else None


def ends(tree: Clos, link: Link) -> Iterator[tuple[Switch, int]]:
    """Yield the ends of a link that are switches with their port numbers, first the one where it is measured."""
    if isinstance(link.lower, Switch):
        yield link.lower, tree.port(link.lower, link.upper)
    yield link.upper, tree.port(link.upper, link.lower)


def _rate(before: PortCounters | None, now: PortCounters, seconds: float) -> Rate | None:
    if before is None or (now.seconds is not None and _is_anew(before.seconds, now.seconds, seconds)):
        return None
    received = _difference(before.receive_bytes, now.receive_bytes)
    sent = _difference(before.transmit_bytes, now.transmit_bytes)
    if received is None or sent is None:
        return None
    return Rate(BITS * received / seconds, BITS * sent / seconds)


def _is_anew(before: float | None, now: float, seconds: float) -> bool:
    """Tell whether a port was created after the sample of some seconds ago."""
    return now + CLOCK_SECONDS < seconds or (before is not None and now < before)


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None or now < before else now - before
