"""Workloads and plans: transfers between hosts, failures meanwhile, and the duration. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from topologies import Clos, Host


class WorkloadError(ValueError):
    """A workload is unknown, or impossible in this fabric. The message says what to ask for instead."""


@dataclass(frozen=True)
class Transfer:
    """One TCP connection and the payload that it carries in one direction; None to send until the end of the plan.

    Attributes:
        start: Seconds after the start of the run, or after the end of the last of `after`.
        after: Indices of the transfers that have to end before this one starts, all of them lower than its own.
        kind: Name of its kind in results if the workload has several: ``short``, ``long``.
        job: Which of the jobs of a collective plan it belongs to.
    """

    src: Host
    dst: Host
    bytes: int | None = None
    start: float = 0.0
    after: tuple[int, ...] = ()
    kind: str = ""
    job: int = 0


@dataclass(frozen=True)
class BadLink:
    """One direction of a link (``a0_0-c0_1``) that is bad from a time on, while both of its ports stay up.

    Attributes:
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
        bad: Links that become bad without a notification: hosts and switches have to detect it.
        traced: Indices of the transfers whose packets are recorded one by one, for the figures.
        collective: The transfers are the steps of one collective operation for each job, whose completion time is recorded: the end
            of its last transfer. So transfers that follow others start after `seconds`, too, up to the end of those with a size.
        family: 4 or 6, of IP.
    """

    transfers: tuple[Transfer, ...]
    seconds: float
    core_rate: float = 1.0
    failed: tuple[str, ...] = ()
    fail_after: float | None = None
    traced: tuple[int, ...] = ()
    collective: bool = False
    bad: tuple[BadLink, ...] = ()
    family: int = 4


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
    """The scale of a run: the same workload at a link rate that the machine can forward, and an intended duration."""

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
        build: Raises `WorkloadError` if a plan is impossible in the fabric.
        seconds: Default duration of a run in the lab; in the simulator a share of it.
        latest: Latest start in seconds that a file says: the default duration follows it.
        parameters: Constants of ``build`` that are written to results.
        family: Of IP, of all its plans.
    """

    name: str
    summary: str
    build: Build
    seconds: float = 10.0
    latest: float = 0.0
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    family: int = 4
