"""Hedera in the process of the SOPA controller: ``ryu-manager sopa_ryu.app experiments.schemes.hedera.app``.

SOPA manages connections, rules and failures. This application polls the flow counters of edge switches, and places
elephants by flow entries of its own. If these entries are lost (a switch restarts, or SOPA reconciles it after a
reconnect), flows are hashed until the next round installs the entries again.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from experiments.schemes.hedera import entries, hedera_options
from experiments.schemes.hedera.flows import FlowReport, HederaFlow, Move, Rates, Scheduler
from experiments.schemes.hedera.placement import Annealing, Placement, Up, global_first_fit
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.runtime.library import App, app_manager, cfg, hub
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import Connection
from topologies import Clos, Level, Switch

LOG = logging.getLogger(__name__)

SOPA = "SopaController"
TEND_SECONDS = 0.5
"""Maximum delay until a connected switch gets the counting entries."""
MIN_IDLE_SECONDS = 5
MEGA = 1_000_000.0


class Hedera(App):
    """Detects and places elephants periodically."""

    OFP_VERSIONS = [openflow.OPENFLOW.OFP_VERSION]  # noqa: RUF012 - declared as Ryu requires

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = hedera_options.settings(cfg.CONF)
        # an entry lasts for at least two rounds
        self.idle = max(MIN_IDLE_SECONDS, math.ceil(2 * self.settings.interval))
        self._workers: list[Any] = []

    def start(self) -> Any:
        """Start the rounds in addition to the event loop of Ryu."""
        self._workers = [hub.spawn(self._run)]
        return super().start()

    def stop(self) -> None:
        """Stop. Installed entries expire with their flows."""
        for worker in self._workers:
            hub.kill(worker)
        super().stop()

    def _run(self) -> None:
        while (sopa := app_manager.lookup_service_brick(SOPA)) is None:
            hub.sleep(TEND_SECONDS)
        sopa.rule_checker.others.add(entries.COOKIE_MARK)
        settings = self.settings
        placement: Placement = global_first_fit
        if settings.placement is hedera_options.Algorithm.SIMULATED_ANNEALING:
            placement = Annealing(sopa.tree, settings.seed).place
        rounds = Rounds(sopa, Scheduler(placement, settings.threshold), self.idle, settings.interval)
        LOG.info("Hedera: %s every %g s, elephants above %g of a link", settings.placement, settings.interval, settings.threshold)
        due = time.monotonic() + settings.interval
        while True:
            try:
                if time.monotonic() >= due:
                    due = max(due, time.monotonic() - settings.interval) + settings.interval
                    rounds.round()
                else:
                    rounds.tend()
            except Exception:
                LOG.critical("a round of Hedera failed: continuing with the next round", exc_info=True)
            hub.sleep(max(0.0, min(TEND_SECONDS, due - time.monotonic())))


class Rounds:
    """Executes the scheduler's rounds over the SOPA controller's switch connections; entries expire after ``idle`` seconds."""

    def __init__(self, sopa: Any, scheduler: Scheduler, idle: int, seconds: float) -> None:
        self._sopa = sopa
        self._tree: Clos = sopa.tree
        self._scheduler = scheduler
        self._idle = idle
        self._rates = Rates(seconds)
        self._equipped: dict[Switch, Connection] = {}
        self._warned = False

    def tend(self) -> None:
        """Install counting entries on newly connected switches, and forget disconnected ones."""
        connections = self._connections()
        for edge, connection in connections.items():
            if self._equipped.get(edge) is not connection:
                self._equip(edge, connection)
        for edge in self._equipped.keys() - connections.keys():
            del self._equipped[edge]
            self._rates.forget(edge)

    def round(self) -> None:
        """Poll the switches, run the scheduler, and carry out its moves."""
        self.tend()
        reports: list[FlowReport] = []
        # concurrently: a switch that hangs delays the round by one timeout only
        asking = [hub.spawn(self._ask, edge, connection, reports) for edge, connection in self._connections().items()]
        hub.joinall(asking)
        rates: dict[HederaFlow, float] = {}
        placed: dict[HederaFlow, Up] = {}
        for report in reports:
            rates |= report.rates
            placed |= report.placed
        shares = {flow: rate / capacity for flow, rate in rates.items() if (capacity := self._capacity(flow))}
        if len(shares) < len(rates) and not self._warned:
            self._warned = True
            LOG.warning("some ports do not report their rate. Their flows are never elephants. Set --sopa-link-mbit")
        for move in self._scheduler.round(self._sopa.state.failures, shares, placed):
            self._carry_out(move, rates.get(move.flow, 0.0))

    def _connections(self) -> dict[Switch, Connection]:
        """Return the connections of admitted edge switches. A switch during admission would lose entries again."""
        connections = self._sopa.connections
        return {
            edge: connections[edge]
            for edge in self._tree.switches(Level.EDGE)
            if edge in self._sopa.state.connected and edge in connections
        }

    def _equip(self, edge: Switch, connection: Connection) -> None:
        self._rates.forget(edge)
        self._equipped[edge] = connection
        for message in entries.standing(connection.datapath, self._tree, edge, self._idle):
            connection.datapath.send_msg(message)

    def _ask(self, edge: Switch, connection: Connection, reports: list[FlowReport]) -> None:
        try:
            bodies = connection.ask(entries.request(connection.datapath))
        except SwitchError as error:
            LOG.warning("flow counters of %s are missing in this round: %s", self._tree.name(edge), error)
            return
        if sum(map(entries.is_standing, bodies)) != entries.standing_count(self._tree):
            self._equip(edge, connection)  # reconciliation has removed entries
        reports.append(self._rates.take(edge, entries.readings(self._tree, bodies)))

    def _capacity(self, flow: HederaFlow) -> float | None:
        edge = self._tree.edge_of(flow.src)
        capacity: float | None = self._sopa.port_stats.port_capacity(edge, self._tree.port(edge, flow.src))
        return capacity

    def _carry_out(self, move: Move, rate: float) -> None:
        flow, tree = move.flow, self._tree
        connection = self._connections().get(tree.edge_of(flow.src))
        if connection is None:
            return  # disconnected, together with its flow
        if move.up is None:
            message = entries.release(connection.datapath, tree, flow)
        else:
            message = entries.place(connection.datapath, tree, flow, move.up, self._idle)
        if connection.datapath.send_msg(message):
            LOG.info(
                "elephant %s at %.1f Mbit/s %s (was %s)",
                flow.text(tree),
                rate / MEGA,
                "released to the hash" if move.up is None else f"placed on {_text(move.up)}",
                "hashed" if move.was is None else _text(move.was),
            )


def _text(up: Up) -> str:
    return ",".join(map(str, up))
