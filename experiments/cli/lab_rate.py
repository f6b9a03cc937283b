"""The link rate of a lab: the one that is given, or one that this machine bears, by measurement."""

from __future__ import annotations

import os
from typing import NamedTuple

from topologies import Clos
from topologies.lab.calibration import seconds_per_packet
from topologies.lab.datapath import Datapath
from topologies.lab.links import HOPS, bfd_interval_ms, calibrated_rate


class Rate(NamedTuple):
    """The links of a lab.

    Args:
        mbit: Rate of every link in Mbit/s.
        bfd_ms: Interval of BFD in ms.
        why: The reason for the rate, for the operator.
    """

    mbit: float
    bfd_ms: int
    why: str


def given_rate(tree: Clos, mbit: float) -> Rate:
    """Return the links of a lab whose rate the operator gives."""
    return Rate(mbit, bfd_interval_ms(tree), "as given")


def measured_rate(tree: Clos, datapath: Datapath) -> Rate:
    """Measure for about a second, inside `isolation.isolated`, and return the links of a lab that leave the machine idle time."""
    seconds, processors = seconds_per_packet(datapath), len(os.sched_getaffinity(0))
    mbit = calibrated_rate(tree, seconds, datapath is Datapath.KERNEL, processors)
    why = (
        f"a packet takes {1e6 * seconds:.0f} us of processor time on {HOPS} switches here ({datapath} datapath, "
        f"{processors} processors), and {tree.host_count} hosts send; --rate sets another"
    )
    return Rate(mbit, bfd_interval_ms(tree, seconds), why)
