"""The controller application: ``ryu-manager sopa_ryu.app``. The only module that knows Ryu's events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import ryu.app.wsgi  # noqa: F401 - registers --wsapi-host and --wsapi-port
from ryu import cfg
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub

from sopa_ryu import options
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.drains import Drains
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.view import View
from sopa_ryu.rest import controller_metrics, http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.runtime import collector
from sopa_ryu.southbound import openflow, rule_audit
from sopa_ryu.southbound.bfd_keeper import BfdKeeper
from sopa_ryu.southbound.link_discovery import LinkDiscovery
from sopa_ryu.southbound.port_stats import PortStatsPoller
from sopa_ryu.southbound.switch_manager import SwitchManager
from sopa_ryu.southbound.switch_session import SwitchError, SwitchSession
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from topologies import FatTree, Link, Reason, Switch

LOG = logging.getLogger("sopa")

RESTART_SECONDS = 1.0
FAILURES_SHOWN = 8  # in one line of the log


class SopaController(app_manager.RyuApp):
    """Keeps a fat-tree of OpenFlow 1.3 switches in its rules and tells its hosts what has failed."""

    OFP_VERSIONS = [openflow.OPENFLOW.OFP_VERSION]  # noqa: RUF012 - Ryu's own way to declare it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = options.settings(cfg.CONF)
        self.tree = FatTree(settings.k)
        self.state = FabricState(
            self.tree, time.time_ns() // 1_000_000, HoldDown(settings.hold_down, settings.hold_down_max)
        )
        self.drains = Drains(settings.state_dir, self.tree, self.state.drainable)
        self.state.drain(self.drains.names, time.monotonic())
        self.notifier = Notifier(self.tree, self._view, self._acknowledged, settings.carrier)
        self.fleet = SwitchManager(self.state, self._announce, self._installed, settings.settle, settings.no_label)
        self.prober = LinkDiscovery(self.tree, self.fleet.sessions, settings.lldp_interval, self._miswired)
        tls = http_server.switch_tls_context(cfg.CONF.ca_certs, cfg.CONF.ctl_cert, cfg.CONF.ctl_privkey)
        self.bfd = BfdKeeper(self.state, self.fleet.sessions, settings.ovsdb, settings.bfd_interval, tls)
        self.fleet.on_ready = self._ready
        self.meter = PortStatsPoller(self.state, self.fleet.sessions, settings.stats_interval, settings.link_mbit)
        self.metrics = controller_metrics.ControllerMetrics(
            self.state, self.fleet, self.notifier, self.meter, settings.carrier
        )
        self.carrier = settings.carrier
        self.live = live_feed.Live(Picture(self))
        sockets = {live_feed.PATH: self.live.serve}
        served = {**pages.pages(), controller_metrics.PATH: self.metrics.page}
        self.rest = RestApplication(self, Tokens(settings.state_dir), pages=served, sockets=sockets)
        self._tls = settings.tls and http_server.tls_context(*settings.tls)
        self._workers: list[Any] = []

    def start(self) -> Any:
        """Start the REST server and the other workers beside Ryu's own event loop."""
        host, port = cfg.CONF.wsapi_host, cfg.CONF.wsapi_port
        listener = http_server.listen(host, port, self._tls)
        work: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self._serve, (listener,)),
            (self.fleet.clock, ()),
            (self.fleet.check_roles, ()),
            (self.notifier.watch, ()),
            (collector.keep_short, ()),
            (self.live.rounds, ()),
        ]
        if self.meter.interval:
            work.append((self.meter.rounds, ()))
        if self.prober.interval:
            work.append((self.prober.rounds, ()))
        if self.bfd.addresses:
            work.append((self.bfd.watch, ()))
        self._workers = [hub.spawn(self._keep, worker, *args) for worker, args in work]
        LOG.info(
            "SOPA controller for a k=%d fat-tree (%d switches, %d hosts); REST on %s://%s:%d/sopa/v1/fabric",
            self.tree.k,
            self.tree.switch_count,
            self.tree.host_count,
            "https" if self._tls else "http",
            host or "0.0.0.0",
            port,
        )
        return super().start()

    def stop(self) -> None:
        """Stop serving; switches and agents keep what they have."""
        for worker in self._workers:
            hub.kill(worker)
        self.drains.close()
        super().stop()

    def _keep(self, work: Callable[..., None], *args: Any) -> None:
        """Run a worker for as long as the application runs: one that ends by an error of ours is started again, and said."""
        while True:
            try:
                work(*args)
            except Exception:
                LOG.critical("%s has failed and starts again", work.__name__.strip("_"), exc_info=True)
            hub.sleep(RESTART_SECONDS)

    def _serve(self, listener: Any) -> None:
        http_server.serve(listener, self.rest)

    # -- what switches tell -------------------------------------------------------------------------------------------

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def _on_state_change(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == MAIN_DISPATCHER:
            self.fleet.connected(datapath)
            session = self.fleet.session(datapath)
            if session is not None and not self.state.settled:
                self.prober.probe(session)
        elif datapath.id is not None:
            session = self.fleet.session(datapath)
            self.fleet.disconnected(datapath)
            if session is not None:
                self.prober.port_down(session.switch)
                self.meter.traffic.forget(session.switch)

    @set_ev_cls(
        [
            ofp_event.EventOFPFlowStatsReply,
            ofp_event.EventOFPGroupDescStatsReply,
            ofp_event.EventOFPPortStatsReply,
            ofp_event.EventOFPBarrierReply,
            ofp_event.EventOFPRoleReply,
        ],
        MAIN_DISPATCHER,
    )
    def _on_reply(self, event: Any) -> None:
        session = self.fleet.session(event.msg.datapath)
        if session is not None:
            session.answered(event.msg)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def _on_error(self, event: Any) -> None:
        session = self.fleet.session(event.msg.datapath)
        if session is not None:
            LOG.error("%s refuses a message: %s", session.name, openflow.error_text(event.msg))
            session.refused(event.msg)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def _on_port_status(self, event: Any) -> None:
        message = event.msg
        deleted = message.reason == openflow.OPENFLOW.OFPPR_DELETE
        self.fleet.port_status(message.datapath, message.desc, deleted)
        session = self.fleet.session(message.datapath)
        if session is None:
            return
        if deleted or openflow.port_is_down(message.desc):
            self.prober.port_down(session.switch, message.desc.port_no)
        else:
            # whatever is plugged in there now is asked at once who it is, before the link is used again
            self.prober.probe(session, [message.desc.port_no])

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def _on_packet_in(self, event: Any) -> None:
        session = self.fleet.session(event.msg.datapath)
        if session is not None:
            self.prober.received(session, event.msg)

    # -- what operators and probes tell -------------------------------------------------------------------------------

    def _ready(self, session: SwitchSession) -> None:
        self.prober.probe(session)
        self.bfd.look()

    def _miswired(self, links: Iterable[str], now: float) -> None:
        self._announce(self.state.miswired(links, now))

    # -- sopa_ryu.rest.reader.FabricControl ---------------------------------------------------------------------------

    def set_drained(self, name: str, drained: bool) -> None:
        """Drain or restore a link or switch."""
        names = self.drains.add(name) if drained else self.drains.remove(name)
        self._announce(self.state.drain(names, time.monotonic()))

    def wiring_report(self) -> dict[str, Any]:
        """Return what link discovery found."""
        since = self.fleet.since()
        down = {name: reason for name, reason in self.state.failures.items() if reason in (Reason.DOWN, Reason.SILENT)}
        return self.prober.wiring.report(down, since.keys(), since, time.monotonic())

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        """Return the bits per second upwards and downwards on a link, if known."""
        return self.meter.traffic.rates(link)

    def link_capacity(self, link: Link) -> float | None:
        """Return the bits per second that fit through a link, if known."""
        return self.meter.capacity(link)

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        """Return the intended and the installed rules of a switch."""
        session = self.fleet.sessions.get(switch)
        if session is None:
            raise SwitchError("it is not connected")
        flows, groups = session.flow_statistics(), session.groups()
        wanted = self.fleet.wanted(switch)
        return rule_audit.rules(session.name, wanted, self.state.version, session.version, flows, groups)

    def switch_sessions(self) -> dict[Switch, tuple[str, int]]:
        """Return the address of each connected switch and the version of its rules."""
        return {
            switch: (session.datapath.address[0], session.version) for switch, session in self.fleet.sessions.items()
        }

    # -- what follows from a change -----------------------------------------------------------------------------------

    def _view(self) -> View | None:
        return self.state.view if self.state.settled else None

    def _announce(self, changed: bool) -> None:
        self.fleet.reschedule()
        self.live.changed()
        if not changed:
            return
        told = self.notifier.broadcast()
        change = self._change(self.state.version)
        if change is not None:
            change.agents = told
        failed = [f"{name} {reason}" for name, reason in self.state.failures.items()]
        if len(failed) > FAILURES_SHOWN:
            failed[FAILURES_SHOWN:] = [f"and {len(failed) - FAILURES_SHOWN} more"]
        LOG.info("version %d: %s", self.state.version, ", ".join(failed) or "nothing has failed")
        self.fleet.follow()

    def _change(self, version: int) -> Change | None:
        return next((change for change in reversed(self.state.changes) if change.version == version), None)

    def _acknowledged(self, version: int) -> None:
        change = self._change(version)
        if change is not None:
            change.acknowledged_ms = _milliseconds_since(change.observed)
            self.metrics.acknowledged.observe(change.acknowledged_ms / 1000)
            LOG.info("version %d: in force at all agents after %.1f ms", version, change.acknowledged_ms)

    def _installed(self, version: int) -> None:
        change = self._change(version)
        if change is not None:
            change.installed_ms = _milliseconds_since(change.observed)
            self.metrics.installed.observe(change.installed_ms / 1000)
            LOG.info("version %d: all switches hold its rules after %.1f ms", version, change.installed_ms)


def _milliseconds_since(moment: float) -> float:
    return round(1000 * (time.monotonic() - moment), 3)
