"""The controller application: ``ryu-manager sopa_ryu.app``. The only module that knows Ryu's events.

It turns events into observations for `sopa_ryu.fabric.coordinator`, and carries out the effects that come back.
"""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eventlet import tpool
from webob import Request, Response

from flowrules.label import UNUSED, Carrier
from sopa_ryu import __version__, options
from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.channel.connected import ConnectedAgents, Hand
from sopa_ryu.channel.messages import PROBE_BYTES, HostLink
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.channel.trace_desk import Asked, Trace
from sopa_ryu.events.event import Event, EventKind
from sopa_ryu.events.journal import Journal
from sopa_ryu.events.store import Found, Query
from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.coordinator import Coordinator
from sopa_ryu.fabric.drain import Drain, over
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.messages import InstalledState
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.state_directory import Drains, StateError, keep_fabric, note_fabric, read_anew
from sopa_ryu.fabric.suspects import Caretaker
from sopa_ryu.fabric.switch_session import SwitchError, SwitchSession
from sopa_ryu.fabric.unreachable import ETHERTYPES
from sopa_ryu.fabric.view import View
from sopa_ryu.front import wire
from sopa_ryu.front.arbiter_channel import ArbiterChannel
from sopa_ryu.front.controller_side import FrontProcess
from sopa_ryu.front.relay_channel import RelayChannel
from sopa_ryu.health.monitor import Monitor
from sopa_ryu.rest import controller_metrics
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.reader import UndecidedError
from sopa_ryu.runtime import certificates, clock, green_threads, process
from sopa_ryu.runtime.clients import bracketed
from sopa_ryu.runtime.green_threads import Moment, Workers
from sopa_ryu.runtime.library import DEAD_DISPATCHER, MAIN_DISPATCHER, App, cfg, hub, ofp_event, set_ev_cls
from sopa_ryu.runtime.listeners import SparingLog, listening
from sopa_ryu.runtime.log_names import LogNames
from sopa_ryu.southbound import lldp, openflow, rule_audit
from sopa_ryu.southbound.bfd_keeper import BfdKeeper
from sopa_ryu.southbound.connection import Connection, Connections, Writer, connection_of
from sopa_ryu.southbound.databases import names_at
from sopa_ryu.southbound.port_stats import PortStatsPoller
from sopa_ryu.southbound.rule_audit import RuleChecker
from sopa_ryu.southbound.setup_checker import SetupChecker, tls_problems
from sopa_ryu.southbound.undeliverable import UndeliverableAnswers
from sopa_ryu.web import live_feed
from sopa_ryu.web.picture import Picture
from topologies import Host, Level, Link, Reason, Switch, TopologyError
from topologies.failures import DEAD
from topologies.ovsdb import Tls

if TYPE_CHECKING:
    from sopa_ryu.cluster.controller_side import ClusterDrains
    from sopa_ryu.cluster.leadership import Member

LOG = logging.getLogger("sopa")
T = TypeVar("T")

ITSELF = "sopa"
"""The actor of what the controller does by itself."""
TEND_SECONDS = 0.5
"""How often traces are looked after, and relays told of the hosts that run MCS."""
BACKLOG = 4096  # pending connections: after a restart all agents connect at the same time
TICK_SECONDS = 0.5
"""How often the clock is looked at, at least, to notice that this process has stood still."""


class SopaController(App):
    """Keeps a fabric of OpenFlow 1.3 switches at its rules and sends its hosts what has failed."""

    OFP_VERSIONS = [openflow.OPENFLOW.OFP_VERSION]  # noqa: RUF012 - Ryu's own way to declare it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = options.settings(cfg.CONF)
        self.tree = settings.tree
        commitment = None
        if settings.cluster is not None:
            from sopa_ryu.cluster import leadership

            commitment = Commitment(leadership.address_of(settings.cluster).name)
        self.state = FabricState(
            self.tree,
            time.time_ns() // 1_000_000 if settings.cluster is None else 0,
            HoldDown(settings.hold_down, settings.hold_down_max),
            without_switches=settings.no_switches,
            commitment=commitment,
        )
        for handler in logging.getLogger().handlers:
            handler.addFilter(LogNames(lambda: self.state.aliases))
        self.journal = Journal(settings.state_dir, lambda: self.state.aliases)
        stored = Drains(settings.state_dir, self.tree, self.state.drainable)
        self.drains: Drains | ClusterDrains = stored
        self._state_dir = stored
        note_fabric(settings.state_dir, self.tree)
        self.state.drain(stored.drains, clock.now())
        self.core = Coordinator(
            self.state, settings.settle, settings.lldp_interval, settings.unlabelled, settings.bind_certificates
        )
        self.switches = self.core.switches
        self.switches.rejections.fabric_file = settings.fabric
        self._read_fabric = settings.reread
        self.connections = Connections(self.switches.sessions)
        self.agents = ConnectedAgents(self.tree)
        if settings.no_switches:
            self.agents.departed = self._host_left
        self.arbiter = ArbiterNotifier(self.tree, self._view, self.state.epoch)
        self.arbiter.link = self._host_link
        self.arbiter_channel = ArbiterChannel(self.arbiter)
        self.desk = RelayDesk(self.tree, self.agents.probe_lists, self._traced, self.agents.mcs_hosts)
        self.relays = RelayChannel(self.desk)
        ca_certs = cfg.CONF.ca_certs
        tls = Tls(certificates.switch_client(ca_certs, cfg.CONF.ctl_cert, cfg.CONF.ctl_privkey)) if ca_certs else None
        if tls and settings.bind_certificates:
            tls = tls._replace(names=lambda address: names_at(address, self.tree, self.connections))
        self.bfd = BfdKeeper(self.state, self.connections, settings.ovsdb, tls, self._gateway_answers, self._commands)
        self.setup = SetupChecker(
            self.state,
            self.connections,
            settings.ovsdb,
            tls,
            tls_problems(cfg.CONF.ctl_cert, cfg.CONF.ca_certs),
            settings.cluster is not None,
            self._commands,
        )
        self.port_stats = PortStatsPoller(self.state, self.connections, settings.stats_interval, settings.link_mbit)
        self.rule_checker = RuleChecker(self.switches.sessions, settings.rule_check_interval, self._installed)
        self.undeliverable = UndeliverableAnswers(self.tree)
        caretaker = Caretaker(self.tree, settings.suspect)
        probe_bytes = PROBE_BYTES + settings.carrier.overhead
        least_loss, lists = settings.suspect_loss / 100, self.agents.probe_lists
        # a self-probe's label has numbers of ports, where no router reads it
        fits = all(self.tree.port_count(level) < UNUSED for level in Level)
        turned = settings.carrier is Carrier.SRV6 or (fits and not settings.no_switches)
        self.health = Monitor(self.state, lists, self, caretaker, least_loss, probe_bytes, self.link_capacity, turned)
        self.carrier = settings.carrier
        tokens = Tokens(settings.state_dir, host_tokens_only=settings.host_tokens_only)
        self.cluster: Member | None = None
        self._relayed: tuple[int | None, int] = None, 0
        if settings.cluster is not None:
            self._join(settings.cluster, settings.state_dir, tokens.secret)
        self.state.note = self.agents.note = caretaker.note = self.journal.note  # what was drained before is no event
        self._happened(EventKind.STARTED, f"SOPA {__version__}, {self.tree.title}")
        self.metrics = controller_metrics.ControllerMetrics(
            self.state,
            self.switches,
            self.agents,
            self.port_stats,
            settings.carrier,
            self.undeliverable.decided,
            self.arbiter,
            self.health,
            self.cluster,
            settings.state_dir,
        )
        if self.cluster is not None and self.metrics.committed is not None:
            self.cluster.on_commit(self.metrics.committed.observe)
        self._acknowledged_here = 0
        self.no_label = lists.unlabelled = settings.unlabelled
        self.live = live_feed.Live(Picture(self), lambda text: self.front.show(text))
        self.rest = RestApplication(self, tokens, {controller_metrics.PATH: self.metrics.page})
        self.front = self._front(settings)
        self._workers = Workers()
        self._channels: dict[Any, Connection] = {}
        self._writer = Writer(self._send_due)
        self._moment = Moment(self._observed)
        self._wake = hub.Event()
        self._wakes_at = float("inf")
        self._malformed = self._rereads = False
        signal.signal(signal.SIGUSR1, self._reread)
        self._warn = SparingLog(LOG).warning

    def _join(self, cluster: options.ClusterSettings, directory: Path, secret: str | None) -> None:
        from sopa_ryu.cluster import controller_side, leadership

        url = f"{'https' if cfg.CONF.sopa.tls_cert else 'http'}://{bracketed(cfg.CONF.wsapi_host)}:{cfg.CONF.wsapi_port}"
        hands = controller_side.ControllerSide(self.core, self.arbiter, self._carry_out, self._now, self._relays)
        self.cluster = leadership.join(cluster, directory, url, self.core, hands, self.carrier, secret)
        self.drains = controller_side.ClusterDrains(self.cluster.write_drains, self.core)
        self.state.drain((), clock.now())

    def _front(self, settings: options.Settings) -> FrontProcess:
        """Start the process that serves REST, page and channels."""
        if settings.tls:
            certificates.server(*settings.tls)  # an error is the operator's, at the start
        share, proxies = settings.client_connections, settings.proxy
        config = wire.Config(
            self.tree.document(),
            str(settings.carrier),
            settings.cluster is not None,
            tuple(map(str, settings.tls or ())),
            share,
            tuple(map(str, proxies)),
            tuple(settings.origin),
            (f"http://{bracketed(cfg.CONF.wsapi_host)}", (settings.cluster and settings.cluster.url) or ""),
            str(settings.state_dir),
            settings.host_tokens_only,
            settings.read_token,
            live_feed.MAX_CLIENTS,
            logging.getLogger().getEffectiveLevel(),
        )
        listener = listening(cfg.CONF.wsapi_host, cfg.CONF.wsapi_port, BACKLOG)
        self._scheme = "https" if settings.tls else "http"
        owners = self.arbiter_channel, self.relays
        return FrontProcess(self.tree, config, listener, self.agents, self.desk, self._view, self, owners)

    def start(self) -> Any:
        """Start the REST server and the other workers beside Ryu's own event loop."""
        host, port = cfg.CONF.wsapi_host, cfg.CONF.wsapi_port
        work: list[Callable[[], None]] = [
            self.front.run,
            self._clock,
            self._tend,
            self.arbiter_channel.watch,
            self.health.run,
            green_threads.keep_short,
            self.live.rounds,
            self.journal.take,
            self.journal.keep,
        ]
        if self.cluster is not None:
            member = self.cluster
            work += [member.keep_lease, member.keep_record, member.watch, member.act]
        if self.port_stats.interval:
            work.append(self.port_stats.rounds)
        if self.rule_checker.interval:
            work.append(self.rule_checker.rounds)
        if self.bfd.addresses:
            work += [self.bfd.watch, self.setup.watch]
        for each in work:
            self._workers.start(each)
        LOG.info(
            "SOPA controller for a %s (%d switches, %d hosts). REST on %s://%s:%d/sopa/v1/fabric",
            self.tree.title,
            self.tree.switch_count,
            self.tree.host_count,
            self._scheme,
            bracketed(host) or "0.0.0.0",
            port,
        )
        return super().start()

    def stop(self) -> None:
        """Stop serving; switches and agents keep what they have."""
        self.front.end()
        self._workers.stop()
        if self.cluster is not None:
            self.cluster.leave()
        self._happened(EventKind.STOPPED)
        self.journal.close()
        self._state_dir.close()
        super().stop()

    def _clock(self) -> None:
        """Run until killed: wake when the core has something to do."""
        while True:
            self._wake.clear()
            self._wakes_at = self.core.next_tick
            self._wake.wait(max(0.0, min(TICK_SECONDS, self._wakes_at - self._now())))
            self._carry_out(self.core.tick(self._now()))

    def _now(self) -> float:
        """Return the time for the core, which has noticed a pause of this process if there was one."""
        now = clock.now()
        if pause := clock.CLOCK.take_pause():
            self._carry_out(self.core.paused(pause, now))
        return now

    def _gateway_answers(self, gateway: Host, does: bool) -> None:
        self._carry_out(self.core.gateway_answers(gateway, does, self._now()))

    def _host_left(self, host: Host, links: tuple[str, ...]) -> None:
        self._carry_out(self.core.host_left(host, links, self._now()))

    # -- events -------------------------------------------------------------------------------------------------------

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def _on_state_change(self, event: Any) -> None:
        green_threads.SWITCHES.take(first=True)
        datapath, now = event.datapath, self._now()
        if event.state == MAIN_DISPATCHER:
            self._moment.end()
            self._channels[datapath] = Connection(datapath)
            self._carry_out(self.core.switch_connected(self._channels[datapath], now))
            return
        connection = self._channels.pop(datapath, None)
        if connection is not None:
            connection.closed()
            session = self.switches.session(connection)
            if session is not None:
                self.port_stats.traffic.forget(session.switch)
            self._moment.add(connection, (now, partial(self.core.switch_disconnected, connection, now)))

    @set_ev_cls(
        [
            ofp_event.EventOFPFlowStatsReply,
            ofp_event.EventOFPGroupDescStatsReply,
            ofp_event.EventOFPBarrierReply,
            ofp_event.EventOFPRoleReply,
            ofp_event.EventOFPEchoReply,
        ],
        MAIN_DISPATCHER,
    )
    def _on_reply(self, event: Any) -> None:
        green_threads.SWITCHES.take(first=True)
        connection = self._channels.get(event.msg.datapath)
        if connection is not None and (answered := connection.received(event.msg)):
            self._moment.end(connection)
            self._carry_out(self.core.answered(connection, *answered, self._now()))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def _on_error(self, event: Any) -> None:
        green_threads.SWITCHES.take(first=True)
        connection = self._channels.get(event.msg.datapath)
        if connection is not None:
            self._moment.end(connection)
            self._carry_out(self.core.refused(connection, *connection.refused(event.msg), self._now()))

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def _on_port_status(self, event: Any) -> None:
        green_threads.SWITCHES.take(first=True)
        message = event.msg
        connection = self._channels.get(message.datapath)
        if connection is not None:
            deleted = message.reason == openflow.OPENFLOW.OFPPR_DELETE
            trouble = Reason.DOWN if deleted else openflow.port_trouble(message.desc)
            now, port = self._now(), message.desc.port_no
            self._moment.add(connection, (now, partial(self.core.port_status, connection, port, trouble, now)))

    def _observed(self, observations: list[tuple[float, Callable[[], Effects]]]) -> None:
        """Carry out what follows from what was reported at one moment."""
        self._carry_out(self.core.together((observe for _, observe in observations), observations[0][0]))

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def _on_packet_in(self, event: Any) -> None:
        green_threads.SWITCHES.take(first=True)
        message = event.msg
        connection = self._channels.get(message.datapath)
        if connection is None:
            return
        port = message.match["in_port"]
        if message.data[12:14] in ETHERTYPES:
            session = self.switches.session(connection)
            if session is not None and self.switches.leads and self._may_command():
                self.undeliverable.packet_in(connection, session.switch, port, message.data)
            return
        try:
            probe = lldp.parse(message.data)
        except ValueError as error:
            if not self._malformed:
                self._malformed = True
                LOG.warning("switch at %s port %d: a frame that is no LLDP arrived: %s", connection.address, port, error)
            return
        self._carry_out(self.core.probe_heard(connection, port, probe, self._now()))

    # -- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        if effects.tell_agents:
            self.front.broadcast()
            self.arbiter_channel.broadcast()
        for session in effects.due:
            self._writer.wake(session)
        for session in effects.begun:
            connection_of(session).begun()
        for connection in effects.close:
            assert isinstance(connection, Connection)
            connection.close()
        look = bool(effects.admitted or (effects.begun and not self.switches.leads))  # a standby gives them no rules
        if self.core.is_deposed is not self.arbiter.is_deposed:
            look |= not self.core.is_deposed  # what another controller has begun there is completed
            leader = None if self.cluster is None else self.cluster.whereabouts()
            self.arbiter_channel.depose(self.core.is_deposed, leader)
            self.agents.mcs_hosts.begin()
            if self.core.is_deposed:
                self.relays.send_away()
        for change in effects.in_force:
            self.metrics.installed.observe((change.installed_ms or 0.0) / 1000)
        if look:
            self.bfd.look()
            self.setup.look()
        if effects.visible:
            self.live.changed()
        if self.cluster is not None:
            if effects.outranked:
                self.cluster.outranked(effects.outranked)
            self.cluster.look()
        self.front.look()
        if self.core.next_tick < self._wakes_at:
            self._wake.set()

    def _installed(self, session: SwitchSession, found: InstalledState) -> None:
        self._carry_out(self.core.installed(session, found, self._now()))

    def _send_due(self, session: SwitchSession) -> None:
        """Send a switch what is due; in its own green thread, so that a slow one delays no other."""
        connection = connection_of(session)
        while True:
            green_threads.SWITCHES.take()
            messages, effects = self.core.due(session, self._now())
            self._carry_out(effects)
            if not self._may_command():
                return
            if not messages or not connection.send_all(messages):
                return
            self.switches.was_sent(session, self._now())
            self._carry_out(Effects())

    def _commands(self) -> bool:
        """Tell whether this controller, and no other, commands the switches."""
        return not self.core.is_deposed and (self.cluster is None or self.cluster.is_leader)

    def _may_command(self) -> bool:
        """Tell whether what is sent to switches is still the leader's; a standby only asks for its role."""
        if self.cluster is None or not self.switches.leads or self.cluster.is_leader:
            return True
        self.cluster.outranked("its lease was not renewed in time")  # what was due is lost: all begins again
        return False

    # -- sopa_ryu.health.monitor.Hands --------------------------------------------------------------------------------

    def assign(self, host: Host, number: int, text: str) -> None:
        """Give an agent its streams."""
        relay = self.desk.assign(host, number, text)
        if relay is None:
            self.agents.probe_lists.assign(host, number, text)
        else:
            self._wake_front(relay)

    def forged(self, host: Host, count: int) -> None:
        """Count forged records of an agent."""
        relay = self.desk.forged(host, count)
        if relay is not None:
            self._wake_front(relay)

    def drain(self, name: str) -> None:
        """Drain a link that loses packets."""
        self.set_drained(name, Drain(round(time.time(), 3), ITSELF, "a suspect: probes say that it loses packets"), ITSELF)

    # -- sopa_ryu.rest.reader.FabricControl ---------------------------------------------------------------------------

    def set_drained(self, name: str, drain: Drain | None, actor: str, why: str = "") -> None:
        """Drain or restore a link or switch."""
        drains = self.drains.remove(name) if drain is None else self.drains.add(name, drain)
        self._carry_out(self.core.drained(drains, self._now(), actor, why))

    def aside(self, make: Callable[[], T]) -> T:
        """Return what a function makes in another thread."""
        made: T = tpool.execute(make)
        return made

    def find_events(self, query: Query) -> Found:
        """Return the events of a query."""
        return self.journal.find(query)

    def _happened(self, kind: EventKind, cause: str | None = None) -> None:
        self.journal.note((Event(time.time(), kind, cause=cause),))

    def _end_drains(self) -> None:
        """End the drains whose time is over; one that cannot be ended now is tried again."""
        if self.cluster is not None and not self.cluster.is_leader:
            return
        for name in over(self.state.drains, time.time()):
            try:
                self.set_drained(name, None, ITSELF, "its time is over")
            except (StateError, UndecidedError) as error:
                self._warn(name, "%s stays drained beyond its time: %s. The controller tries again to end the drain", name, error)

    def begin_trace(self, ends: tuple[Host, Host], asked: Asked) -> Trace:
        """Have a host's agent trace paths, or a flow."""
        trace, hands = self.agents.begin_trace(ends, asked, self.state.version, clock.now())
        self._hand(hands)
        return trace

    def cancel_trace(self, trace: Trace) -> None:
        """End a trace."""
        self._hand(self.agents.cancel_trace(trace, clock.now()))

    def wiring_report(self) -> dict[str, Any]:
        """Return what link discovery found."""
        since = self.switches.since()
        down = {name: reason for name, reason in self.state.failures.items() if reason in DEAD}
        report = self.core.discovery.wiring.report(down, since, self._now())
        if not self.state.has_switches:  # nobody could have sent or heard a probe
            report |= {"unchecked": report["unchecked"] + len(report["problems"]), "problems": []}
        return report

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        """Return the bits per second upwards and downwards on a link, if known."""
        return self.port_stats.traffic.rates(link)

    def link_capacity(self, link: Link) -> float | None:
        """Return the bits per second that fit through a link, if known."""
        return self.port_stats.capacity(link)

    def _host_link(self, link: Link) -> HostLink:
        up, down = self.link_rates(link) or (None, None)
        return HostLink(up, down, self.link_capacity(link))

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        """Return the intended and the installed rules of a switch."""
        session = self.switches.sessions.get(switch)
        if session is None:
            raise SwitchError("it is not connected")
        connection = connection_of(session)
        flows, groups = connection.flow_statistics(), connection.groups()
        wanted = self.switches.rollout.wanted(switch)
        return rule_audit.rules(session.name, wanted, self.state.version, session.version, flows, groups)

    def switch_sessions(self) -> dict[Switch, tuple[str, int]]:
        """Return the address of each connected switch and the version of its rules."""
        return {switch: (session.connection.address, session.version) for switch, session in self.switches.sessions.items()}

    def _view(self) -> View | None:
        return self.state.view if self.state.is_known else None

    # -- sopa_ryu.front.controller_side.FrontHands ---------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """Answer a request that the front passes on."""
        return self.rest.respond(request)

    def standing(self) -> wire.Standing:
        """Return whether agents are taken, and where else they are."""
        if self.cluster is None:
            return wire.Standing(self.core.is_deposed, None, True, None)
        leads = self.cluster.is_leader
        leader = self.cluster.whereabouts() if self.core.is_deposed else None
        return wire.Standing(self.core.is_deposed, leader, leads, None if leads else self.cluster.leader_url())

    def sent(self, version: int, agents: int) -> None:
        """Note that a version was sent to so many agents."""
        self.core.sent_to_agents(version, agents + self._relayed[1])

    def completed(self, version: int) -> None:
        """Note that all agents of the front have acknowledged a version."""
        self._acknowledged(version)

    def watched(self, watched: bool) -> None:
        """Make the page's messages while a page is open."""
        self.live.watched(watched)

    # -- fronts ---------------------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """End traces that nobody reads, and tell relays of the hosts that run MCS as that changes, until killed."""
        while True:
            self._hand(self.agents.tick(clock.now()))
            self._end_drains()
            if self._rereads:
                self._rereads = False
                hub.spawn(self._read_anew)
            for relay in self.desk.bring():
                self._wake_front(relay)
            self.front.look()
            hub.sleep(TEND_SECONDS)

    def _reread(self, _number: int, _frame: object) -> None:
        """Have the fabric file read anew; called between two instructions of any green thread."""
        self._rereads = True

    def _read_anew(self) -> None:
        """Take what the fabric file says now, or log why not. If more than names has changed, the program restarts."""
        file = self.switches.rejections.fabric_file
        if file is None:
            LOG.error("SIGUSR1: there is no fabric file to read anew. The fabric is that of --sopa-k. Restart with --sopa-fabric")
            return
        ports = {switch: session.connection.ports().keys() for switch, session in self.switches.sessions.items()}
        try:
            found = self.aside(partial(read_anew, self._read_fabric, self.tree, self.state.aliases, ports))
            if found.changed and self.cluster is not None:
                self.cluster.change_fabric(found.fabric.document())
        except (TopologyError, options.OptionError, UndecidedError) as error:
            LOG.error("SIGUSR1: %s is not taken, the fabric stays as it is: %s", file, error)
            self._happened(EventKind.REFUSED, f"{file} is not taken: {error}")
            return
        said = "; ".join(found.changed + found.named) or "nothing has changed"
        if found.changed:
            LOG.warning("SIGUSR1: %s was read anew: %s. This controller restarts with it, in the same process", file, said)
            process.restart()
            return
        self.state.aliases = found.fabric.aliases
        self.aside(partial(keep_fabric, self.metrics.directory, self.tree, self.state.aliases))
        LOG.info("SIGUSR1: %s was read anew: %s", file, said)
        self.live.changed()

    def _hand(self, hands: Iterable[Hand]) -> None:
        for front, host, text in hands:
            self._wake_front(self.desk.ask(front, host, text))

    def _wake_front(self, relay: Relayed) -> None:
        if relay.connection is self.front:
            self.front.wake(relay)
        else:
            self.relays.wake(relay)

    def _traced(self, host: Host, text: str) -> None:
        self.agents.traced(host, text, clock.now())

    def _relays(self, acknowledged: int | None, agents: int) -> None:
        """Take what the agents of relays have acknowledged."""
        self._relayed = acknowledged, agents
        if self.switches.leads:
            self._acknowledged(self._acknowledged_here)

    def _acknowledged(self, version: int) -> None:
        self._acknowledged_here = version
        relayed = self._relayed[0]
        if relayed is not None:
            version = relayed if not self.agents.sessions else min(version, relayed)
        for change in self.core.acknowledged(version, self._now()):
            self.metrics.acknowledged.observe((change.acknowledged_ms or 0.0) / 1000)
