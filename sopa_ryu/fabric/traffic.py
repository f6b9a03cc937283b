"""What the links carry, from the switches' port counters: rates, totals, and how evenly uplinks are used. Pure.

A link is measured at one of its ends, so that both directions are of the same moment: at its lower switch, whose transmit
counter is the way up (at the edge switch, for a host's link). Only if that port's rate is not known, its other end is believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from topologies import Failures, FatTree, Level, Link, Switch

BITS = 8
MIN_BITS_PER_SECOND = 100_000.0
"""Of the mean uplink: below, BFD and single packets decide how even it looks."""
CLOCK_SECONDS = 1.0
"""By which a switch's clock, and the time that its answer takes, may differ from ours."""


class PortCounters(NamedTuple):
    """What a port has counted since it is there; None for what its switch does not count.

    Bytes are those of Ethernet frames without preamble and checksum. ``seconds`` is for how long the port has been there.
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
    """What a port receives and transmits, in bits per second."""

    receive: float
    transmit: float


class _Sample(NamedTuple):
    at: float
    counters: Mapping[int, PortCounters]
    rates: Mapping[int, Rate]


class Traffic:
    """The port counters that switches told last, and what follows from the two last of each.

    Parameters
    ----------
    tree : FatTree
    fresh_seconds : float
        For how long after it was taken a sample is believed.
    clock : callable
        Gives the time in seconds.
    """

    def __init__(self, tree: FatTree, fresh_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.tree = tree
        self._fresh_seconds = fresh_seconds
        self._clock = clock
        self._samples: dict[Switch, _Sample] = {}

    def take(self, switch: Switch, counters: Mapping[int, PortCounters], at: float) -> None:
        """Take in what a switch told of its ports.

        A sample that never came makes the next rate one over a longer time. A counter that is lower than before, or a port younger
        than before, was set back: the port's rate is then known again from the sample after this one on.

        Parameters
        ----------
        switch : Switch
        counters : mapping
            By port number.
        at : float
            When, by the clock.
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
        """A switch is gone: what it told is of no use any more."""
        self._samples.pop(switch, None)

    def totals(self, switch: Switch) -> Mapping[int, PortCounters]:
        """A switch's counters by port number; none if it has told nothing for too long."""
        sample = self._fresh(switch, self._clock())
        return sample.counters if sample is not None else {}

    def port_rates(self, switch: Switch) -> Mapping[int, Rate]:
        """What each port of a switch carries, as far as that is known."""
        sample = self._fresh(switch, self._clock())
        return sample.rates if sample is not None else {}

    def rates(self, link: Link) -> tuple[float, float] | None:
        """What a link carries upwards and downwards, in bits per second; None if that is not known."""
        for switch, port in ends(self.tree, link):
            rate = self.port_rates(switch).get(port)
            if rate is not None:
                return (rate.transmit, rate.receive) if switch == link.lower else (rate.receive, rate.transmit)
        return None

    def imbalance(self, switch: Switch, failures: Failures) -> float | None:
        """How unevenly a switch uses its uplinks: the largest transmit rate over their mean.

        1 is perfectly even; the number of uplinks, everything on one of them. Uplinks that have failed, or lead to a switch that
        has, are no choice that it had, and left out.

        Returns
        -------
        float or None
            None for a core switch, with fewer than two uplinks in use, while a rate of theirs is not known, and while they carry
            less than `MIN_BITS_PER_SECOND` on average.
        """
        if switch.level is Level.CORE:
            return None
        known = self.port_rates(switch)
        sent: list[float] = []
        for index in range(self.tree.half):
            above = self.tree.uplink(switch, index)
            if failures and failures.hit((Link(switch, above), above)):
                continue
            rate = known.get(self.tree.uplink_port(index))
            if rate is None:
                return None
            sent.append(rate.transmit)
        mean = sum(sent) / len(sent) if len(sent) > 1 else 0.0
        return max(sent) / mean if mean >= MIN_BITS_PER_SECOND else None

    def _fresh(self, switch: Switch, now: float) -> _Sample | None:
        sample = self._samples.get(switch)
        return sample if sample is not None and now - sample.at <= self._fresh_seconds else None


def ends(tree: FatTree, link: Link) -> Iterator[tuple[Switch, int]]:
    """The ends of a link that are switches, the one where it is measured first, each with its port number."""
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
    """Whether a port is another one than a sample of some seconds ago told of: younger than that one, or than that time."""
    return now + CLOCK_SECONDS < seconds or (before is not None and now < before)


def _difference(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None or now < before else now - before
