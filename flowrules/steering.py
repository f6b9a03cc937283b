"""From which uplinks of a switch a rack can still be reached: what unlabelled packets have to know of remote failures."""

from __future__ import annotations

from topologies.failures import Failures
from topologies.fattree import FatTree, Level, Link, Switch


def allowed_uplinks(tree: FatTree, switch: Switch, rack: Switch, failures: Failures) -> tuple[int, ...]:
    """The uplink indices of ``switch`` from which some way to the hosts of ``rack`` is without failure.

    Parameters
    ----------
    switch : Switch
        An edge or aggregation switch.
    rack : Switch
        The edge switch of the destination; not below ``switch``.
    failures : Failures

    Returns
    -------
    tuple of int
        In ascending order; empty if the rack cannot be reached.
    """
    return tuple(index for index in range(tree.half) if _reaches(tree, switch, index, rack, failures))


def _reaches(tree: FatTree, switch: Switch, index: int, rack: Switch, failures: Failures) -> bool:
    above = tree.uplink(switch, index)
    if failures.hit((Link(switch, above), above)) is not None:
        return False
    if above.level is Level.CORE:
        below = Switch(Level.AGGREGATION, rack.pod, above.pod)
        return failures.hit((Link(below, above), below, Link(rack, below), rack)) is None
    if above.pod == rack.pod:
        return failures.hit((Link(rack, above), rack)) is None
    return any(_reaches(tree, above, second, rack, failures) for second in range(tree.half))
