"""The switches: taken in when they connect, kept at the present version's rules, watched for another master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from ryu.lib import hub

from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.state import DOWN, FabricState
from sopa_ryu.fabric.version_tracker import VersionTracker
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.switch_session import ANOTHER_MASTER, Sent, SwitchError, SwitchSession
from topologies import Host, Switch, TopologyError

LOG = logging.getLogger("sopa")

ROLE_CHECK_SECONDS = 5.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 2.0, 60.0
# Once every switch is connected: for the first probes to show what is cabled wrongly.
LAST_LOOK_SECONDS = 0.5


class SwitchManager:
    """Every connected switch, its session and its rules.

    Parameters
    ----------
    state : FabricState
    announce : callable
        Told after anything that may have changed what has failed, and whether it did.
    installed : callable
        Told each version that every switch has confirmed.
    settle_seconds : float
        After a start, how long switches that have not connected yet are waited for before they count as failed.
    no_label : collection of Host
        Hosts that may not choose paths.
    """

    def __init__(
        self,
        state: FabricState,
        announce: Callable[[bool], None],
        installed: Callable[[int], None],
        settle_seconds: float,
        no_label: Collection[Host] = (),
    ) -> None:
        self.state = state
        self._no_label = no_label
        self.tree = state.tree
        self.sessions: dict[Switch, SwitchSession] = {}
        self.sent: dict[Switch, Sent] = {}
        self.on_ready: Callable[[SwitchSession], None] = lambda session: None
        self._announce = announce
        self._rollout = VersionTracker(installed)
        self._settle_seconds = settle_seconds
        self._settle_at: float | None = None
        self._settled = hub.Event()
        self._wake = hub.Event()

    def wanted(self, switch: Switch) -> SwitchRules:
        """What a switch is meant to hold at the present version."""
        return switch_rules(self.tree, switch, self.state.failures, self._no_label)

    # -- connections --------------------------------------------------------------------------------------------------

    def connected(self, datapath: Any) -> None:
        """A datapath has finished its handshake."""
        try:
            switch = self.tree.switch_by_dpid(datapath.id)
        except TopologyError as error:
            self._reject(datapath, str(error))
            return
        ports = {port for port in datapath.ports if port <= openflow.OPENFLOW.OFPP_MAX}
        if ports != set(self.tree.ports(switch)):
            self._reject(
                datapath,
                f"{self.tree.name(switch)} has ports {_ranges(ports)}, but a k={self.tree.k} fat-tree's switch has 1-{self.tree.k}",
            )
            return
        self.state.rejected.pop(datapath.id, None)
        session = SwitchSession(datapath, switch, self.tree.name(switch), self.sent.setdefault(switch, Sent()))
        former, self.sessions[switch] = self.sessions.get(switch), session
        if former is not None:
            former.closed()
        troubles = {number: openflow.port_trouble(port) for number, port in datapath.ports.items() if number in ports}
        changed = self.state.switch_heard(
            switch, {number: trouble for number, trouble in troubles.items() if trouble}, session.connected_at
        )
        if not self.state.settled:
            last = LAST_LOOK_SECONDS if self.state.all_heard else self._settle_seconds
            deadline = session.connected_at + last
            if self._settle_at is None or self.state.all_heard:
                self._settle_at = deadline
            self._wake.set()
        self._announce(changed)
        hub.spawn(self._bring_up, session)

    def disconnected(self, datapath: Any) -> None:
        """A datapath's connection is gone."""
        self.state.rejected.pop(datapath.id, None)
        session = self.session(datapath)
        if session is None:
            return  # it has reconnected already, or was never taken in
        del self.sessions[session.switch]
        session.closed()
        self._rollout.left(session.switch)
        LOG.warning("%s is gone: its OpenFlow channel is closed", session.name)
        self._announce(self.state.switch_lost(session.switch, time.monotonic()))

    def port_status(self, datapath: Any, port: Any, deleted: bool) -> None:
        """A switch tells how one of its ports is now."""
        now = time.monotonic()
        session = self.session(datapath)
        if session is None:
            if datapath.id in self.state.rejected:
                self.connected(datapath)  # perhaps it has the right ports now
        elif port.port_no <= self.tree.k:
            trouble = DOWN if deleted else openflow.port_trouble(port)
            self._announce(self.state.port_changed(session.switch, port.port_no, trouble, now))

    def session(self, datapath: Any) -> SwitchSession | None:
        """The session of a datapath that is one of the fabric's switches."""
        try:
            session = self.sessions.get(self.tree.switch_by_dpid(datapath.id))
        except TopologyError:
            return None
        return session if session is not None and session.datapath is datapath else None

    def since(self) -> dict[Switch, float]:
        """The switches that hold their rules, each with when it connected (time.monotonic, seconds)."""
        return {
            switch: self.sessions[switch].connected_at for switch in self.state.connected if switch in self.sessions
        }

    def _is_current(self, session: SwitchSession) -> bool:
        return self.sessions.get(session.switch) is session

    def _reject(self, datapath: Any, reason: str) -> None:
        if self.state.rejected.get(datapath.id) != reason:
            LOG.error("a switch at %s is left alone: %s", datapath.address[0], reason)
        self.state.reject(datapath.id, reason)

    # -- rules --------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Bring every switch to the present version, side by side; who is slow delays nobody else."""
        ready = [session for session in self.sessions.values() if session.switch in self.state.connected]
        coming = [session for session in self.sessions.values() if session.coming]
        self._rollout.begin(self.state.version, [session.switch for session in (*ready, *coming)])
        for session in ready:
            self._refresh(session)

    def _refresh(self, session: SwitchSession) -> None:
        if not session.busy:
            session.busy = True
            hub.spawn(self._update, session)

    def _update(self, session: SwitchSession) -> None:
        try:
            while self._is_current(session) and session.version != self.state.version:
                version = self.state.version
                if session.update(self.wanted(session.switch), version):
                    LOG.debug("%s holds the rules of version %d", session.name, version)
                self._follows(session, version)
        except SwitchError as error:
            if self._is_current(session):
                LOG.error("%s may not hold the rules of version %d: %s", session.name, self.state.version, error)
                self._refuses(session, error)
                hub.spawn(self._bring_up, session, FIRST_RETRY_SECONDS)
        finally:
            session.busy = False

    def _follows(self, session: SwitchSession, version: int) -> None:
        session.version = version
        self._rollout.reached(session.switch, version)

    def _refuses(self, session: SwitchSession, error: SwitchError) -> None:
        self._reject(session.datapath, f"{session.name}: {error}")
        self._rollout.left(session.switch)
        if ANOTHER_MASTER in str(error):
            self.state.switch_taken(session.switch)
        else:
            self._announce(self.state.switch_refuses(session.switch, time.monotonic()))

    def _bring_up(self, session: SwitchSession, delay: float = 0.0) -> None:
        """Give a new switch its rules; if it refuses or does not answer, say so and try again while it is connected."""
        wait = FIRST_RETRY_SECONDS
        hub.sleep(delay)
        session.coming = True
        while session.coming and self._is_current(session):
            try:
                self._take_in(session)
                return
            except SwitchError as error:
                session.coming = ANOTHER_MASTER not in str(error)
                if self._is_current(session):
                    self._refuses(session, error)
            if session.coming:
                hub.sleep(wait)
                wait = min(2 * wait, LAST_RETRY_SECONDS)

    def _take_in(self, session: SwitchSession) -> None:
        session.become_master(self.state.epoch)
        installed = session.installed()
        if any(openflow.is_ours(entry) for entry in installed.flows):
            # It forwards by what an earlier controller knew of failures: nothing is taken away before this one knows as much.
            self._settled.wait()
        version = self.state.version
        changes = session.reconcile(installed, self.wanted(session.switch), version)
        if not self._is_current(session):
            return
        self.state.rejected.pop(session.datapath.id, None)
        LOG.info(
            "%s holds its rules: %d entries and %d groups added, %d removed, after %.0f ms",
            session.name,
            len(changes.flows),
            len(changes.groups),
            len(changes.stale_flows) + len(changes.stale_groups),
            1000 * (time.monotonic() - session.connected_at),
        )
        session.coming = False
        self._follows(session, version)
        self._announce(self.state.switch_ready(session.switch, time.monotonic()))
        self._refresh(session)  # something else may have failed or healed meanwhile
        self.on_ready(session)
        if len(self.state.connected) == self.tree.switch_count:
            self._tell_complete()

    def _tell_complete(self) -> None:
        sessions = self.sessions.values()
        now, connected = time.monotonic(), [session.connected_at for session in sessions]
        LOG.info(
            "all %d switches hold their rules: %d flow-mods and group-mods; to the last barrier %.3f s from the first connect, "
            "%.3f s from the last",
            self.tree.switch_count,
            sum(session.messages_sent for session in sessions),
            now - min(connected),
            now - max(connected),
        )

    # -- workers ------------------------------------------------------------------------------------------------------

    def clock(self) -> None:
        """For ever: say what has failed once that is known, and release in time what is held down."""
        while True:
            self._wake.clear()
            due = self.state.next_tick if self.state.settled else self._settle_at
            self._wake.wait(None if due is None else max(0.0, due - time.monotonic()))
            now = time.monotonic()
            if self.state.settled:
                self._announce(self.state.tick(now))
            elif self._settle_at is not None and now >= self._settle_at:
                self.state.settle(now)
                LOG.info(
                    "%d of %d switches are connected: from now on agents are told what has failed",
                    len(self.sessions),
                    self.tree.switch_count,
                )
                self._settled.set()
                self._announce(True)

    def reschedule(self) -> None:
        """What is held down has changed: `clock` looks again when it has to wake."""
        self._wake.set()

    def check_roles(self) -> None:
        """For ever: notice, switch by switch, when another controller has taken over, and say so."""
        while True:
            hub.sleep(ROLE_CHECK_SECONDS)
            for session in list(self.sessions.values()):
                try:
                    if session.rules is None or session.is_master():
                        continue
                except SwitchError:
                    continue  # a lost connection is told by its own event
                if self._is_current(session):
                    del self.sessions[session.switch]
                    self._refuses(session, SwitchError(ANOTHER_MASTER))


def _ranges(numbers: set[int]) -> str:
    """Port numbers for people: ``1-3, 7``; ``none`` if there are none."""
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ", ".join(parts) or "none"
