"""The application's side of a cluster: what a member has the core, the agents' channel and the drains do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.cluster.gateway import EngineError
from sopa_ryu.cluster.records import CommittedView
from sopa_ryu.events.event import Event, EventKind
from sopa_ryu.fabric.commitment import Commitment, Proposal
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.drain import Drain, with_drain
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.rest.reader import UndecidedError
from topologies import Failures, TopologyError

LOG = logging.getLogger("sopa.cluster")


class ControllerSide:
    """What a member has the application do, and asks it for.

    ``acknowledged`` is called with the version that all agents of relays have acknowledged, None without such agents, and how many
    these are.
    """

    def __init__(
        self,
        core: Coordinator,
        arbiter: ArbiterNotifier,
        carry_out: Callable[[Effects], None],
        now: Callable[[], float],
        acknowledged: Callable[[int | None, int], None],
    ) -> None:
        self._core = core
        self._state = core.state
        self._arbiter = arbiter
        self._carry_out = carry_out
        self._now = now
        self.acknowledged = acknowledged
        self._refused: tuple[int, int] | None = None
        self._leader: tuple[str | None, int] = None, 0

    @property
    def _commitment(self) -> Commitment:
        assert self._state.commitment is not None
        return self._state.commitment

    def follow(self, view: CommittedView) -> None:
        """Take a version that the leader has committed."""
        if (view.term, view.version) <= (self._commitment.term, self._state.version) and self._commitment.is_known:
            return
        try:
            failures = Failures(self._state.tree, view.failures)
        except TopologyError as error:
            if self._refused != (view.term, view.version):
                LOG.error(
                    "version %d of term %d in the engine cannot be used: %s. Find out who wrote it", view.version, view.term, error
                )
                self._refused = view.term, view.version
            return
        self._carry_out(self._core.followed(view.term, view.version, failures, self._now()))

    def drain_all(self, drains: Mapping[str, Drain]) -> None:
        """Let exactly these elements be drained; names that the fabric does not have are left out."""
        known: dict[str, Drain] = {}
        wrong: list[tuple[str, Exception]] = []
        for name, drain in drains.items():
            try:
                known[self._state.drainable(name)] = drain
            except ValueError as error:
                wrong.append((name, error))
        if wrong:
            more = f" ({len(wrong) - 1} more of them)" if wrong[1:] else ""
            LOG.error("drains in the engine: cannot drain %s: %s. Restore it%s", *wrong[0], more)
        self._carry_out(self._core.drained(known, self._now()))

    def lead(self, term: int) -> None:
        """Command the switches and agents from now on."""
        self._arbiter.begin(term)
        self._carry_out(self._core.lead(term, self._now()))

    def stand_by(self) -> None:
        if self._core.switches.leads:
            self._carry_out(self._core.stand_by(self._now()))

    def proposal(self) -> Proposal | None:
        """Return what has to be committed now; None if nothing has."""
        return self._commitment.propose(self._state.version)

    def committed(self, proposal: Proposal) -> None:
        """Put a version in force."""
        self._carry_out(self._core.committed(proposal, self._now()))

    def highest_generation(self) -> int:
        """Return the highest generation id that a switch is known to have, or a leader had."""
        switches = self._core.switches
        return max(switches.highest_generation, switches.generation.number)

    def drained(self) -> Mapping[str, Drain]:
        return self._state.drains

    def note_leader(self, name: str | None, term: int, why: str = "") -> None:
        """Keep as an event who leads, None for nobody, unless that is known."""
        if (name, term) != self._leader:
            self._leader = name, term
            self._state.note((Event(time.time(), EventKind.LEADER, cause=why or f"{name} leads, term {term}", actor=name),))

    def standing(self) -> tuple[int, int]:
        """Return the version that this member follows, and how many switches are connected."""
        return self._state.version, len(self._core.switches.sessions)


class ClusterDrains:
    """The drained elements, kept in the engine by the leader."""

    def __init__(self, write: Callable[[Mapping[str, Drain]], None], core: Coordinator) -> None:
        self._write = write
        self._state = core.state

    def add(self, name: str, drain: Drain) -> dict[str, Drain]:
        """Add a link or switch and return all drains, which the engine has when this returns; raises as `Drains.add` does."""
        return self._keep(with_drain(self._state.drains, self._state.drainable(name), drain))

    def remove(self, name: str) -> dict[str, Drain]:
        """Remove a link or switch and return all drains; raises as `add` does."""
        self._state.drainable(name)
        return self._keep({other: drain for other, drain in self._state.drains.items() if other != name})

    def _keep(self, drains: dict[str, Drain]) -> dict[str, Drain]:
        if drains != self._state.drains:
            try:
                self._write(drains)
            except EngineError as error:
                raise UndecidedError(f"the drains cannot be kept in the cluster's engine: {error}") from error
        return drains
