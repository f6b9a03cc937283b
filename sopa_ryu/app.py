"""The controller application: ``ryu-manager sopa_ryu.app``. The only module that knows Ryu's events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import eventlet
import eventlet.wsgi
import ryu.app.wsgi  # noqa: F401 - registers --wsapi-host and --wsapi-port
from ryu import cfg
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub

from flowrules.rules import switch_rules
from sopa_ryu import openflow, options
from sopa_ryu.notify import Notifier
from sopa_ryu.rest import RestApplication
from sopa_ryu.session import ANOTHER_MASTER, SwitchError, SwitchSession
from sopa_ryu.state import FabricState
from topologies import FatTree, Switch, TopologyError

LOG = logging.getLogger("sopa")

# Every agent keeps a connection open: the pool has to hold them all beside the requests (k=24 has 3,456 hosts).
MAX_CONNECTIONS = 16_384
ROLE_CHECK_SECONDS = 5.0
RESTART_SECONDS = 1.0
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 2.0, 60.0
FAILURES_SHOWN = 8  # in one line of the log


class SopaController(app_manager.RyuApp):
    """Keeps a fat-tree of OpenFlow 1.3 switches in its rules and tells its hosts what has failed."""

    OFP_VERSIONS = [openflow.OPENFLOW.OFP_VERSION]  # noqa: RUF012 - Ryu's own way to declare it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = options.settings(cfg.CONF)
        self.tree = FatTree(settings.k)
        self.state = FabricState(self.tree, epoch=time.time_ns() // 1_000_000)
        self.notifier = Notifier(self.state.snapshot, self.tree.name)
        self.rest = RestApplication(self.state, self.notifier)
        self._sessions: dict[Switch, SwitchSession] = {}
        self._changed = hub.Event()
        self._workers: list[Any] = []

    def start(self) -> Any:
        """Start the REST server and the rule updater beside Ryu's own event loop."""
        host, port = cfg.CONF.wsapi_host, cfg.CONF.wsapi_port
        listener = eventlet.listen((host, port))
        self._workers = [
            hub.spawn(self._keep, self._serve, listener),
            hub.spawn(self._keep, self._update_rules),
            hub.spawn(self._keep, self._check_roles),
        ]
        LOG.info(
            "SOPA controller for a k=%d fat-tree (%d switches, %d hosts); REST on http://%s:%d/sopa/v1/fabric",
            self.tree.k,
            self.tree.switch_count,
            self.tree.host_count,
            host or "0.0.0.0",
            port,
        )
        return super().start()

    def stop(self) -> None:
        """Stop serving; switches and agents keep what they have."""
        for worker in self._workers:
            hub.kill(worker)
        super().stop()

    def _keep(self, work: Callable[..., None], *args: Any) -> None:
        """Run a worker for as long as the application runs: one that ends by an error of ours is started again, and said."""
        while True:
            try:
                work(*args)
            except Exception:
                LOG.critical("%s has failed and starts again", work.__name__.strip("_"), exc_info=True)
            hub.sleep(RESTART_SECONDS)

    # -- switches -------------------------------------------------------------------------------------------------------

    @set_ev_cls(ofp_event.EventOFPStateChange, [MAIN_DISPATCHER, DEAD_DISPATCHER])
    def _on_state_change(self, event: Any) -> None:
        datapath = event.datapath
        if event.state == MAIN_DISPATCHER:
            self._connected(datapath)
        elif datapath.id is not None:
            self._disconnected(datapath)

    def _connected(self, datapath: Any) -> None:
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
        session = SwitchSession(datapath, switch, self.tree.name(switch))
        former, self._sessions[switch] = self._sessions.get(switch), session
        if former is not None:
            former.closed()
        hub.spawn(self._bring_up, session)

    def _reject(self, datapath: Any, reason: str) -> None:
        if self.state.rejected.get(datapath.id) != reason:
            LOG.error("a switch at %s is left alone: %s", datapath.address[0], reason)
        self.state.reject(datapath.id, reason)

    def _bring_up(self, session: SwitchSession) -> None:
        """Give a new switch its rules; if it refuses or does not answer, say so and try again while it is connected."""
        delay = FIRST_RETRY_SECONDS
        while self._is_current(session):
            try:
                self._take_in(session)
                return
            except SwitchError as error:
                if self._is_current(session):
                    self._reject(session.datapath, f"{session.name}: {error}")
                if ANOTHER_MASTER in str(error):
                    return
            hub.sleep(delay)
            delay = min(2 * delay, LAST_RETRY_SECONDS)

    def _take_in(self, session: SwitchSession) -> None:
        failures = self.state.failures
        session.become_master(self.state.epoch)
        changes = session.reconcile(switch_rules(self.tree, session.switch, failures), self.state.version)
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
        down = [n for n, port in session.datapath.ports.items() if n <= self.tree.k and not openflow.port_is_up(port)]
        self._announce(self.state.switch_connected(session.switch, down))
        if self.state.failures is not failures:
            self._changed.set()  # something else has failed or healed meanwhile
        if len(self.state.connected) == self.tree.switch_count:
            self._tell_complete()

    def _tell_complete(self) -> None:
        sessions = self._sessions.values()
        now, connected = time.monotonic(), [session.connected_at for session in sessions]
        LOG.info(
            "all %d switches hold their rules: %d flow-mods and group-mods; to the last barrier %.3f s from the first connect, "
            "%.3f s from the last",
            self.tree.switch_count,
            sum(session.messages_sent for session in sessions),
            now - min(connected),
            now - max(connected),
        )

    def _disconnected(self, datapath: Any) -> None:
        self.state.rejected.pop(datapath.id, None)
        session = self._session(datapath)
        if session is None:
            return  # it has reconnected already, or was never taken in
        del self._sessions[session.switch]
        session.closed()
        LOG.warning("%s is gone: its OpenFlow channel is closed", session.name)
        if session.switch in self.state.connected:
            self._announce(self.state.switch_lost(session.switch))

    def _check_roles(self) -> None:
        """Notice, switch by switch, when another controller has taken over, and say so."""
        while True:
            hub.sleep(ROLE_CHECK_SECONDS)
            for session in list(self._sessions.values()):
                try:
                    if session.rules is None or session.is_master():
                        continue
                except SwitchError:
                    continue  # a lost connection is told by its own event
                if self._is_current(session):
                    del self._sessions[session.switch]
                    self.state.switch_taken(session.switch)
                    self._reject(session.datapath, f"{session.name}: {ANOTHER_MASTER}")

    def _is_current(self, session: SwitchSession) -> bool:
        return self._sessions.get(session.switch) is session

    def _session(self, datapath: Any) -> SwitchSession | None:
        try:
            session = self._sessions.get(self.tree.switch_by_dpid(datapath.id))
        except TopologyError:
            return None
        return session if session is not None and session.datapath is datapath else None

    @set_ev_cls(
        [
            ofp_event.EventOFPFlowStatsReply,
            ofp_event.EventOFPGroupDescStatsReply,
            ofp_event.EventOFPBarrierReply,
            ofp_event.EventOFPRoleReply,
        ],
        MAIN_DISPATCHER,
    )
    def _on_reply(self, event: Any) -> None:
        session = self._session(event.msg.datapath)
        if session is not None:
            session.answered(event.msg)

    @set_ev_cls(ofp_event.EventOFPErrorMsg, MAIN_DISPATCHER)
    def _on_error(self, event: Any) -> None:
        session = self._session(event.msg.datapath)
        if session is not None:
            LOG.error("%s refuses a message: %s", session.name, openflow.error_text(event.msg))
            session.refused(event.msg)

    @set_ev_cls(ofp_event.EventOFPPortStatus, MAIN_DISPATCHER)
    def _on_port_status(self, event: Any) -> None:
        message = event.msg
        datapath = message.datapath
        session = self._session(datapath)
        if session is None:
            if datapath.id in self.state.rejected:
                self._connected(datapath)  # perhaps it has the right ports now
            return
        number = message.desc.port_no
        if session.switch not in self.state.connected or number > self.tree.k:
            return
        gone = message.reason == openflow.OPENFLOW.OFPPR_DELETE
        up = not gone and openflow.port_is_up(message.desc)
        self._announce(self.state.port_changed(session.switch, number, up))

    # -- what follows from a change ---------------------------------------------------------------------------------------

    def _announce(self, changed: bool) -> None:
        if not changed:
            return
        self.notifier.broadcast()
        failed = [f"{name} {reason}" for name, reason in self.state.failures.items()]
        if len(failed) > FAILURES_SHOWN:
            failed[FAILURES_SHOWN:] = [f"and {len(failed) - FAILURES_SHOWN} more"]
        LOG.info("version %d: %s", self.state.version, ", ".join(failed) or "nothing has failed")
        self._changed.set()

    def _update_rules(self) -> None:
        """Keep every connected switch's rules at the present version, one switch after another, off the events' path."""
        while True:
            self._changed.wait()
            self._changed.clear()
            for session in list(self._sessions.values()):
                if session.switch not in self.state.connected:
                    continue  # it is being brought up
                try:
                    wanted = switch_rules(self.tree, session.switch, self.state.failures)
                    if session.update(wanted, self.state.version):
                        LOG.info("%s holds the rules of version %d", session.name, self.state.version)
                except SwitchError as error:
                    LOG.error("%s may not hold the rules of version %d: %s", session.name, self.state.version, error)
                hub.sleep(0)

    def _serve(self, listener: Any) -> None:
        eventlet.wsgi.server(
            listener, self.rest, max_size=MAX_CONNECTIONS, log=logging.getLogger("sopa.http"), log_output=False
        )


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
