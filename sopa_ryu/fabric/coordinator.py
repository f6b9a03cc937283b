"""The controller's core: observations come in, the fabric's state makes a version, effects go out. Pure.

`sopa_ryu.app` turns Ryu's events into the observations below, and carries the effects out. Time comes in with each observation,
in monotonic seconds. Nothing here waits: `Coordinator.next_tick` tells when `Coordinator.tick` is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import Answer, Heard, InstalledState, Message, Refusal, Request, SwitchConnection
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.fabric.switch_session import SwitchSession
from sopa_ryu.fabric.wiring import LinkDiscovery
from topologies import Failures, Host
from topologies.failures import Reason

LOG = logging.getLogger("sopa")

LAST_LOOK_SECONDS = 0.5
"""Once every switch is connected: for the first probes to show what is miswired."""
SETTLE_SECONDS_A_SWITCH = 0.05
"""So much longer, for each switch of the fabric, those that connect one after another are waited for in all."""
FAILURES_SHOWN = 8
"""In one line of the log."""


class Coordinator:
    """Keeps the switches at the rules of what has failed, and tells when agents have to hear of a new version.

    Args:
        settle_seconds: After a start, how long switches that have not connected yet are waited for, since the last one that
            has, before they count as failed.
        probe_seconds: From a port's LLDP probe to its next; 0 for none.
    """

    def __init__(
        self,
        state: FabricState,
        settle_seconds: float,
        probe_seconds: float = 0.0,
        no_label: Collection[Host] = (),
        bind_certificates: bool = False,
    ) -> None:
        self.state = state
        self.switches = SwitchManager(state, no_label, bind_certificates)
        self.discovery = LinkDiscovery(state.tree, self.switches.sessions, probe_seconds)
        self._settle_seconds = settle_seconds
        self._settle_at = self._settle_by = float("inf")
        self._heard = 0
        self._version = self._sent_version = state.version

    # -- observations of switches -------------------------------------------------------------------------------------

    def switch_connected(self, connection: SwitchConnection, now: float) -> Effects:
        """A datapath has finished its handshake."""
        effects = Effects()
        self.switches.connected(connection, now, effects)
        return self._follow(effects, now)

    def switch_disconnected(self, connection: SwitchConnection, now: float) -> Effects:
        """A datapath's connection is gone."""
        effects = Effects(visible=True)
        self.switches.disconnected(connection, now, effects)
        return self._follow(effects, now)

    def port_status(self, connection: SwitchConnection, port: int, trouble: Reason | None, now: float) -> Effects:
        """A switch reports that a port carries nothing, and why, or with None that it does."""
        session = self.switches.session(connection)
        if session is None:
            if self.switches.rejections.may_mend(connection):
                return self.switch_connected(connection, now)  # its ports may be right now
            return Effects()
        effects = Effects(visible=True)
        if port in self.state.tree.ports(session.switch):
            self.state.port_changed(session.switch, port, trouble, now)
        if trouble is Reason.DOWN:
            if self.discovery.port_down(session.switch, port):
                self.state.miswired(self.discovery.wiring.miswired, now)
        else:
            # a new cable is probed immediately, before the link is used again
            self.discovery.probe(session, [port])
            effects.due[session] = None
        return self._follow(effects, now)

    def gateway_answers(self, gateway: Host, does: bool, now: float) -> Effects:
        """A gateway's BFD session is up, or the gateway has shut it down."""
        self.state.gateway_answers(gateway, does, now)
        return self._follow(Effects(), now)

    def answered(self, connection: SwitchConnection, request: Request, answer: Answer, now: float) -> Effects:
        """A switch has answered a request."""
        effects = Effects()
        session = self.switches.session(connection)
        if session is not None:
            self.switches.answered(session, request, answer, now, effects)
            for admitted in effects.admitted:
                self.discovery.probe(admitted)
        return self._follow(effects, now)

    def installed(self, session: SwitchSession, found: InstalledState, now: float) -> Effects:
        """The rules of a switch were read again."""
        effects = Effects()
        self.switches.installed(session, found, effects)
        return self._follow(effects, now)

    def refused(self, connection: SwitchConnection, request: Request | None, refusal: Refusal, now: float) -> Effects:
        """A switch has sent an error message."""
        effects = Effects()
        session = self.switches.session(connection)
        if session is not None:
            self.switches.refused(session, request, refusal, now, effects)
        return self._follow(effects, now)

    def probe_heard(self, connection: SwitchConnection, port: int, probe: Heard, now: float) -> Effects:
        """An LLDP frame has arrived at a switch's port."""
        effects = Effects()
        session = self.switches.session(connection)
        if session is not None and self.discovery.heard(session.switch, port, probe, now):
            self.state.miswired(self.discovery.wiring.miswired, now)
            effects.visible = True
        return self._follow(effects, now)

    def paused(self, seconds: float, now: float) -> Effects:
        """The controller itself has stood still for some seconds; ``now`` goes on as if it had not."""
        effects = Effects(visible=True)
        self.state.management.paused(seconds, now)
        self.switches.ask_all(effects)
        return self._follow(effects, now)

    def together(self, observations: Iterable[Callable[[], Effects]], since: float) -> Effects:
        """Take what was observed at one moment: a switch that fails is one version, though each of its neighbours reports a link.

        Each observation calls one of the methods above. The first was made at ``since``.
        """
        effects = Effects()
        with self.state.together(since):
            for observe in observations:
                effects.add(observe())
        effects.add(self._follow(Effects(), since))
        return effects

    # -- other observations -------------------------------------------------------------------------------------------

    def drained(self, drains: Iterable[str] | Mapping[str, Drain], now: float, actor: str = "", why: str = "") -> Effects:
        """An operator has drained or restored elements: these are all that are drained now."""
        self.state.drain(drains, now, actor, why)
        return self._follow(Effects(visible=True), now)

    def host_left(self, host: Host, links: Collection[str], now: float) -> Effects:
        """A host says which links between switches it has left, as they carry nothing."""
        self.state.host_left(host, links, now)
        return self._follow(Effects(visible=True), now)

    def sent_to_agents(self, version: int, agents: int) -> None:
        """A version, and with it every earlier one that was not sent, has been sent to so many agents."""
        for change in self.state.changes:
            if self._sent_version < change.version <= version:
                change.agents = agents
        self._sent_version = max(self._sent_version, version)

    def acknowledged(self, version: int, now: float) -> list[Change]:
        """Every connected agent has a version in force; return the changes that are acknowledged by that."""
        changes = [each for each in self.state.changes if each.version <= version and each.agents and each.acknowledged_ms is None]
        for change in changes:
            change.acknowledged_ms = change.milliseconds(now)
            LOG.info("version %d: in force at all agents after %.1f ms", change.version, change.acknowledged_ms)
        return changes

    def tick(self, now: float) -> Effects:
        """Time has passed."""
        effects = Effects()
        self.switches.tick(now, effects)
        probed = self.discovery.tick(now)
        if probed is not None:
            effects.due[probed] = None
        if self.state.settled:
            # a tick comes for many reasons, and each look at all that is known costs time
            if now >= self.state.next_tick:
                self.state.tick(now)
        elif now >= self._settle_at:
            self.state.settle(now)
            LOG.info(
                "%d of %d switches are connected: %s",
                len(self.switches.sessions),
                self.state.tree.switch_count,
                "agents are sent what has failed from now on" if self.switches.leads else "ready to lead the cluster",
            )
            self.switches.settled(effects)
            effects.tell_agents = self.switches.leads
            effects.visible = True
        return self._follow(effects, now)

    @property
    def is_deposed(self) -> bool:
        """Whether another controller leads, or is the master of most switches: agents have to follow that one."""
        return not self.switches.leads or self.switches.mastership.is_deposed

    @property
    def next_tick(self) -> float:
        """When `tick` has something to do if nothing is observed before, in monotonic seconds."""
        own = self.state.next_tick if self.state.settled else self._settle_at
        return min(own, self.switches.next_tick, self.discovery.next_tick)

    # -- messages -----------------------------------------------------------------------------------------------------

    def due(self, session: SwitchSession, now: float) -> tuple[list[Message], Effects]:
        """Return what to send to a switch now, and what follows from there being nothing to send."""
        effects = Effects()
        messages = self.switches.due(session)
        return messages, self._follow(effects, now)

    # -- a cluster of controllers -------------------------------------------------------------------------------------

    def lead(self, term: int, now: float) -> Effects:
        """This controller leads the cluster from now on."""
        effects = Effects(visible=True)
        self.state.lead(term, now)
        self.switches.lead(term, effects)
        return self._follow(effects, now)

    def stand_by(self, now: float) -> Effects:
        """This controller leads the cluster no longer."""
        effects = Effects(visible=True)
        self.state.stand_by()
        self.switches.stand_by(effects)
        return self._follow(effects, now)

    def committed(self, proposal: Proposal, now: float) -> Effects:
        """The engine has a version that this controller has proposed."""
        return self._follow(Effects(tell_agents=self.state.committed(proposal)), now)

    def followed(self, term: int, version: int, failures: Failures, now: float) -> Effects:
        """The engine has a version of the controller that leads."""
        self.switches.generation.number = term
        return self._follow(Effects(visible=self.state.follow(term, version, failures, now)), now)

    # -- what follows -------------------------------------------------------------------------------------------------

    def _wait_for_others(self, now: float) -> None:
        """Settle once no other switch has connected for a while; thousands of them are not here within one such while."""
        heard, self._heard = self._heard, len(self.state.evidence.heard)
        if heard == 0:
            self._settle_by = now + self._settle_seconds + SETTLE_SECONDS_A_SWITCH * self.state.tree.switch_count
        if self._heard > heard:
            self._settle_at = min(self._settle_by, now + self._settle_seconds)
        if self._heard == self.state.tree.switch_count:
            self._settle_at = now + LAST_LOOK_SECONDS

    def _follow(self, effects: Effects, now: float) -> Effects:
        """Bring switches and agents to a new version if there is one, and collect what the switches have confirmed."""
        state = self.state
        for session in effects.begun:
            if not state.settled:
                self._wait_for_others(now)
                self.discovery.probe(session)
        if not state.is_known:  # in a cluster, the first version of the term is still to be committed
            effects.tell_agents = False
        if state.version != self._version or effects.tell_agents:
            former, self._version = self._version, state.version
            effects.tell_agents = effects.visible = True
            new = state.changes[-1].failed if state.changes else {}  # first, as the others may be too many to be named
            failed = [f"{name} {reason}" for name, reason in (new | dict(state.failures)).items()]
            if len(failed) > FAILURES_SHOWN:
                failed[FAILURES_SHOWN:] = [f"and {len(failed) - FAILURES_SHOWN} more"]
            LOG.info("version %d: %s", state.version, ", ".join(failed) or "nothing has failed")
            if self.switches.leads:
                self.switches.follow(former, effects)
        self.switches.collect(effects, now)
        return effects
