"""What a workload is: transfers between hosts, what is done to the fabric meanwhile, and for how long. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topologies import FatTree, Host


class WorkloadError(ValueError):
    """A workload that is not there, or that this fabric cannot do; the text says what to ask for instead."""


@dataclass(frozen=True)
class Transfer:
    """One TCP connection and what it carries in one direction.

    Attributes
    ----------
    src, dst : Host
    bytes : int or None
        Payload; None sends until the plan's time is over.
    start : float
        Seconds after the start of the run, or after the end of the transfer in `after`.
    after : int or None
        Index in the plan of the transfer that ends before this one begins.
    kind : str
        What it is called in results where a workload has several kinds: ``short``, ``long``.
    """

    src: Host
    dst: Host
    bytes: int | None = None
    start: float = 0.0
    after: int | None = None
    kind: str = ""


@dataclass(frozen=True)
class Plan:
    """Everything that happens in one run.

    Attributes
    ----------
    transfers : tuple of Transfer
        In an order that depends on the seed alone; their indices are the flows' numbers in results.
    seconds : float
        How long transfers without a size send. Those with one get as long again to end.
    core_rate : float
        The rate of the links between aggregation and core switches, as a share of the others' (SOPA paper, section 3.1).
    failed : tuple of str
        Links and switches that fail, by name.
    fail_after : float or None
        When they fail, in seconds after the start of the run; None for before it.
    traced : tuple of int
        Transfers whose packets are worth recording one by one, for the figures.
    """

    transfers: tuple[Transfer, ...]
    seconds: float
    core_rate: float = 1.0
    failed: tuple[str, ...] = ()
    fail_after: float | None = None
    traced: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scale:
    """How large a run may be: the same workload at a link rate that the machine can forward.

    Attributes
    ----------
    rate_mbit : float
        Rate of the links, in Mbit/s.
    seconds : float
        How long a run of this workload should take.
    """

    rate_mbit: float
    seconds: float

    def bytes_of(self, share: float = 1.0) -> int:
        """What a link carries in that share of a run's time."""
        return max(1, round(share * self.seconds * self.rate_mbit * 1e6 / 8))


Build = Callable[[FatTree, int, Scale], Plan]
"""From a fabric, a seed and a scale to what happens; the same three always give the same plan."""


@dataclass(frozen=True)
class Workload:
    """A workload by its name.

    Attributes
    ----------
    name : str
    summary : str
        One line for ``--help``, with the paper's section.
    build : callable
        `WorkloadError` if this fabric cannot do it.
    seconds : float
        How long its run takes if nobody says otherwise.
    parameters : mapping
        What ``build`` has fixed and a reader of results wants to know.
    """

    name: str
    summary: str
    build: Build
    seconds: float = 10.0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
