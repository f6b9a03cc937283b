"""The bad links of a plan in the lab: they begin at their time, count, and are healthy again after the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from experiments.emulation.bad_links import BadLinks
from experiments.emulation.phantom_queues import PhantomQueues
from experiments.workloads import BadLink
from topologies import Clos, Switch
from topologies.lab.faults import sending_port


class PlannedBadLinks:
    """The bad links of the runs over one fabric.

    Args:
        rated: The fabric with the rates of the lab.
        interface: Maps a switch and a port to the name of the interface.
        phantom: What marks packets by the rates of links; it follows a slow one.
    """

    def __init__(
        self, bad: BadLinks, rated: Clos, interface: Callable[[Switch, int], str], phantom: PhantomQueues | None
    ) -> None:
        self._bad, self._rated, self._interface, self._phantom = bad, rated, interface, phantom

    def begin(self, its: BadLink, seed: int) -> None:
        """Let one direction of a link become bad. The seed and the number of a packet decide whether it is lost or corrupted."""
        self._bad.set_loss(its.link, its.towards, its.loss, seed)
        self._bad.set_corruption(its.link, its.towards, its.corruption, seed)
        if its.rate != 1:
            self._bad.set_rate(its.link, its.towards, its.rate)
            self._mark_at(its, its.rate)

    def truth(self, its: BadLink) -> dict[str, int | None]:
        """Return what a bad link has done so far; ``packets`` is None where nothing counts them: without loss and corruption."""
        lost, corrupted = (
            count(its.link, its.towards) if probability else None
            for count, probability in ((self._bad.lost, its.loss), (self._bad.corrupted, its.corruption))
        )
        counted = lost or corrupted
        return {
            "packets": counted.packets if counted else None,
            "lost": lost.hit if lost else 0,
            "corrupted": corrupted.hit if corrupted else 0,
        }

    def heal(self, planned: Sequence[BadLink]) -> None:
        """Make all links healthy."""
        self._bad.heal()
        for its in planned:
            self._mark_at(its, 1.0)

    def _mark_at(self, its: BadLink, share: float) -> None:
        if self._phantom is not None:
            switch, port = sending_port(self._rated, its.link, its.towards)
            rate = share * self._rated.capacity(self._rated.link_by_name(its.link))
            self._phantom.set_rate(self._interface(switch, port), rate)
