"""Hedera beside the SOPA controller, in the same process: ``ryu-manager sopa_ryu.app experiments.schemes.hedera.app``.

SOPA keeps the switches' connections, rules and failures. This application asks the edge switches for their flows' counters, and
gives elephants paths by entries of its own. Whatever takes those entries away (a switch that restarts, SOPA's reconciliation of one
that has reconnected) only leaves the flows to the hash until the next round, which finds them again.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from ryu import cfg
from ryu.base import app_manager
from ryu.lib import hub

from experiments.schemes.hedera import entries, hedera_options
from experiments.schemes.hedera.annealing import Annealing
from experiments.schemes.hedera.flows import Rates, Report, TcpFlow
from experiments.schemes.hedera.placement import Placement, Up, global_first_fit
from experiments.schemes.hedera.schedule import Move, Scheduler
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.connection import Connection
from topologies import FatTree, Level, Switch

LOG = logging.getLogger(__name__)

SOPA = "SopaController"
TEND_SECONDS = 0.5
"""How soon a switch that has connected is given the entries that count."""
MIN_IDLE_SECONDS = 5
MEGA = 1_000_000.0


class Hedera(app_manager.RyuApp):
    """Finds elephants and places them, round by round."""

    OFP_VERSIONS = [openflow.OPENFLOW.OFP_VERSION]  # noqa: RUF012 - Ryu's own way to declare it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings = hedera_options.settings(cfg.CONF)
        # two rounds see an entry before it expires
        self.idle = max(MIN_IDLE_SECONDS, math.ceil(2 * self.settings.interval))
        self._workers: list[Any] = []

    def start(self) -> Any:
        """Start the rounds beside Ryu's own event loop."""
        self._workers = [hub.spawn(self._run)]
        return super().start()

    def stop(self) -> None:
        """Stop; the entries in force expire with their flows."""
        for worker in self._workers:
            hub.kill(worker)
        super().stop()

    def _run(self) -> None:
        while (sopa := app_manager.lookup_service_brick(SOPA)) is None:
            hub.sleep(TEND_SECONDS)
        settings = self.settings
        placement: Placement = global_first_fit
        if settings.placement is hedera_options.Algorithm.SIMULATED_ANNEALING:
            placement = Annealing(sopa.tree, settings.seed).place
        rounds = Rounds(sopa, Scheduler(placement, settings.threshold), self.idle)
        LOG.info(
            "Hedera: %s every %g s, elephants above %g of a link",
            settings.placement,
            settings.interval,
            settings.threshold,
        )
        due = time.monotonic() + settings.interval
        while True:
            try:
                if time.monotonic() >= due:
                    due = max(due, time.monotonic() - settings.interval) + settings.interval
                    rounds.round()
                else:
                    rounds.tend()
            except Exception:
                LOG.critical("a round has failed: the next one is tried", exc_info=True)
            hub.sleep(max(0.0, min(TEND_SECONDS, due - time.monotonic())))


class Rounds:
    """The scheduler's hands and eyes: the connections that the SOPA controller keeps.

    Parameters
    ----------
    sopa : SopaController
    scheduler : Scheduler
    idle : int
        Seconds after which an entry expires whose flow sends nothing.
    """

    def __init__(self, sopa: Any, scheduler: Scheduler, idle: int) -> None:
        self._sopa = sopa
        self._tree: FatTree = sopa.tree
        self._scheduler = scheduler
        self._idle = idle
        self._rates = Rates()
        self._equipped: dict[Switch, Connection] = {}
        self._complained = False

    def tend(self) -> None:
        """Give the entries that count to switches that have connected, and forget those that have gone."""
        connections = self._connections()
        for edge, connection in connections.items():
            if self._equipped.get(edge) is not connection:
                self._equip(edge, connection)
        for edge in self._equipped.keys() - connections.keys():
            del self._equipped[edge]
            self._rates.forget(edge)

    def round(self) -> None:
        """Ask, decide, and carry out."""
        self.tend()
        reports: list[Report] = []
        # side by side: a switch that hangs costs the others no more than its time to be given up, once
        asking = [hub.spawn(self._ask, edge, connection, reports) for edge, connection in self._connections().items()]
        hub.joinall(asking)
        rates: dict[TcpFlow, float] = {}
        placed: dict[TcpFlow, Up] = {}
        for report in reports:
            rates |= report.rates
            placed |= report.placed
        shares = {flow: rate / capacity for flow, rate in rates.items() if (capacity := self._capacity(flow))}
        if len(shares) < len(rates) and not self._complained:
            self._complained = True
            LOG.warning(
                "some ports do not tell their rate, so that no flow is an elephant there: give --sopa-link-mbit"
            )
        for move in self._scheduler.round(self._sopa.state.failures, shares, placed):
            self._carry_out(move, rates.get(move.flow, 0.0))

    def _connections(self) -> dict[Switch, Connection]:
        """Those of the edge switches that SOPA has taken in: one that is still being reconciled would lose our entries again."""
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

    def _ask(self, edge: Switch, connection: Connection, reports: list[Report]) -> None:
        try:
            bodies = connection.ask(entries.request(connection.datapath))
        except SwitchError as error:
            LOG.warning("%s does not tell its flows: %s", self._tree.name(edge), error)
            return
        if sum(map(entries.is_standing, bodies)) != entries.standing_count(self._tree):
            self._equip(edge, connection)  # it was reconciled
        reports.append(self._rates.take(edge, entries.readings(self._tree, bodies), time.monotonic()))

    def _capacity(self, flow: TcpFlow) -> float | None:
        edge = self._tree.edge_of(flow.src)
        capacity: float | None = self._sopa.port_stats.port_capacity(edge, self._tree.port(edge, flow.src))
        return capacity

    def _carry_out(self, move: Move, rate: float) -> None:
        flow, tree = move.flow, self._tree
        connection = self._connections().get(tree.edge_of(flow.src))
        if connection is None:
            return  # it has gone meanwhile, and its flow with it
        if move.up is None:
            message = entries.release(connection.datapath, tree, flow)
        else:
            message = entries.place(connection.datapath, tree, flow, move.up, self._idle)
        if connection.datapath.send_msg(message):
            LOG.info(
                "elephant %s at %.1f Mbit/s %s (was %s)",
                flow.text(tree),
                rate / MEGA,
                "left to the hash" if move.up is None else f"placed on {_text(move.up)}",
                "hashed" if move.was is None else _text(move.was),
            )


def _text(up: Up) -> str:
    return ",".join(map(str, up))
