"""Workloads and plans: transfers between hosts, failures meanwhile, and the duration; checks that several workloads share. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from topologies import Clos, Host, Level, Link, Switch


class WorkloadError(ValueError):
    """A workload is unknown, or impossible in this fabric. The message says what to ask for instead."""


@dataclass(frozen=True)
class Transfer:
    """One TCP connection and the payload that it carries in one direction.

    Attributes:
        bytes: Payload; None to send until the end of the plan.
        start: Seconds after the start of the run, or after the end of the last of `after`.
        after: Indices of the transfers that have to end before this one starts, all of them lower than its own.
        kind: Name of its kind in results if the workload has several: ``short``, ``long``.
    """

    src: Host
    dst: Host
    bytes: int | None = None
    start: float = 0.0
    after: tuple[int, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class BadLink:
    """One direction of a link between switches that is bad from a time on, while both of its ports stay up.

    Attributes:
        link: ``a0_0-c0_1``.
        towards: The switch that it leads to.
        after: Seconds after the start of the run.
        loss, corruption: Probability that a packet is lost, or that one of its bits is flipped.
        rate: What is left of the link's rate, as a share.
        transfers: Indices of the transfers with data on a candidate path over it.
    """

    link: str
    towards: str
    after: float
    loss: float = 0.0
    corruption: float = 0.0
    rate: float = 1.0
    transfers: tuple[int, ...] = ()

    def record(self) -> dict[str, object]:
        """Return what is planned, as `RunRecord.bad` has it."""
        return {
            "link": self.link,
            "towards": self.towards,
            "at": self.after,
            "loss": self.loss,
            "corruption": self.corruption,
            "rate": self.rate,
            "transfers": list(self.transfers),
        }

    def __str__(self) -> str:
        what = [
            *([f"loses {100 * self.loss:g}%"] if self.loss else []),
            *([f"flips a bit in {100 * self.corruption:g}% of packets"] if self.corruption else []),
            *([f"has {100 * self.rate:g}% of its rate"] if self.rate != 1 else []),
        ]
        return f"{self.link} towards {self.towards} {' and '.join(what) or 'stays healthy'}"


@dataclass(frozen=True)
class Plan:
    """All transfers and failures of one run.

    Attributes:
        transfers: Ordered by the seed alone; the index is the number of the flow in results.
        seconds: Sending time of transfers without a size. Transfers with a size may take twice as long.
        core_rate: Rate of the aggregation-core links as a share of that of the other links (SOPA paper, section 3.1).
        failed: Links and switches that fail, by name.
        fail_after: Time of the failures in seconds after the start of the run; None for before the start.
        bad: Links that become bad. Nobody is told: hosts and switches find out, or do not.
        traced: Indices of the transfers whose packets are recorded one by one, for the figures.
        collective: True if the transfers are the steps of one collective operation. Its completion time is recorded, which is
            the end of its last transfer; so transfers that follow others start after `seconds`, too, up to the end of those
            with a size.
    """

    transfers: tuple[Transfer, ...]
    seconds: float
    core_rate: float = 1.0
    failed: tuple[str, ...] = ()
    fail_after: float | None = None
    traced: tuple[int, ...] = ()
    collective: bool = False
    bad: tuple[BadLink, ...] = ()


# The simulator reads a plan as lines (`experiments.ns3.simulate.lines`). Of each transfer in order, with times in ns:
#
#     transfer SRC DST BYTES START AFTER TRACED
#
# BYTES is -1 without a size. AFTER is -1, or the indices of `Transfer.after` joined by commas: 17 or 3,17. The transfer starts
# START ns after the last of them has ended. A collective plan has the line "all-transfers 1". Of each bad link, with probabilities
# times 2^32 and the rate in bit/s:
#
#     bad LINK TOWARDS AT LOSS CORRUPTION RATE


@dataclass(frozen=True)
class Scale:
    """The scale of a run: the same workload at a link rate that the machine can forward.

    Attributes:
        rate_mbit: Rate of the links, in Mbit/s.
        seconds: Intended duration of a run.
    """

    rate_mbit: float
    seconds: float

    def bytes_of(self, share: float = 1.0) -> int:
        """Return the number of bytes that a link carries in a share of the run."""
        return max(1, round(share * self.seconds * self.rate_mbit * 1e6 / 8))


Build = Callable[[Clos, int, Scale], Plan]
"""Builds a plan from a fabric, a seed and a scale. The same arguments always give the same plan."""


@dataclass(frozen=True)
class Workload:
    """A named workload.

    Attributes:
        summary: One line for ``--help``, with the paper's section.
        build: Builds a plan; raises `WorkloadError` if that is impossible in the fabric.
        seconds: Default duration of a run.
        parameters: Constants of ``build`` that are written to results.
    """

    name: str
    summary: str
    build: Build
    seconds: float = 10.0
    parameters: Mapping[str, float | str] = field(default_factory=dict)


MAX_TRANSFERS = 500_000
MIN_SHARE = 0.01
"""Limit for one plan: each transfer becomes a record."""


def need_scale(scale: Scale) -> None:
    """Raise `WorkloadError` unless the time and the rate are positive and finite."""
    if not (math.isfinite(scale.seconds) and scale.seconds > 0):
        raise WorkloadError(f"a run of {scale.seconds:g} s is impossible: give --seconds above 0")
    if not (math.isfinite(scale.rate_mbit) and scale.rate_mbit > 0):
        raise WorkloadError(f"links of {scale.rate_mbit:g} Mbit/s are impossible: give --rate above 0")


def need_two_hosts(tree: Clos, workload: str) -> None:
    """Raise `WorkloadError` unless the fabric has a pair of hosts."""
    if tree.host_count < 2:
        raise WorkloadError(f"{workload} needs two hosts, and a {tree.title} has one")


def need_figure(tree: Clos, workload: str) -> None:
    """Raise `WorkloadError` unless the fabric contains figure 1 of the SOPA paper: four pods of two racks of two hosts."""
    if tree.k is None or tree.k < 4:
        raise WorkloadError(
            f"{workload} needs the fat-tree of figure 1, and this is a {tree.title}: give --k 4 or more"
        )


def need_transfers(count: int, workload: str, instead: str) -> None:
    """Raise `WorkloadError` if a plan has too many transfers. ``instead`` says what to change."""
    if count > MAX_TRANSFERS:
        raise WorkloadError(f"{workload} has more than {MAX_TRANSFERS} transfers, the limit of one run: {instead}")


def smaller(tree: Clos) -> str:
    """Return the advice to take a smaller fabric."""
    return "a smaller fabric" if tree.k is None else "a smaller --k"


def fair_share(tree: Clos) -> float:
    """Return the share of a host's link that each host has of the fabric when all send out of their racks or pods, at most 1.

    1 for a fat-tree, and 1/3 where the uplinks of a rack together carry a third of its hosts' links. It is a bound by the sums of
    capacities above each rack and each pod, so it is above what is reached where paths are uneven.
    """
    shares = [1.0]
    for pod in range(tree.pods):
        demand, above = 0.0, 0.0
        for edge in tree.switches_of(Level.EDGE, pod):
            wanted = sum(tree.capacity(Link(host, edge)) for host in tree.hosts_of(edge))
            demand += wanted
            if tree.pods * tree.edges > 1:
                shares.append(_above(tree, edge) / wanted)
        for aggregation in tree.switches_of(Level.AGGREGATION, pod):
            above += _above(tree, aggregation)
        if tree.pods > 1:
            shares.append(above / demand)
    return max(min(shares), MIN_SHARE)


def _above(tree: Clos, switch: Switch) -> float:
    return sum(tree.capacity(link) for link in tree.links_above(switch))


def across(tree: Clos, src: Host, dst: Host) -> bool:
    """Return True for hosts of different pods; in a fabric of one pod, of different racks."""
    return src.pod != dst.pod if tree.pods > 1 else src.edge != dst.edge


def first_across(tree: Clos, transfers: Iterable[Transfer]) -> tuple[int, ...]:
    """Return the index of the first transfer that is `across` the fabric, and so has most paths; empty if there is none."""
    for number, transfer in enumerate(transfers):
        if across(tree, transfer.src, transfer.dst):
            return (number,)
    return ()
