"""Polls the switches' port statistics, evenly over time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import SwitchError
from sopa_ryu.fabric.traffic import Traffic, ends
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound.connection import Connection
from topologies import Link, Switch, TopologyError

FRESH_INTERVALS = 3
"""A sample is believed until its switch has missed so many polls."""
MIN_FRESH_SECONDS = 3.0
MEGA = 1_000_000.0


class PortStatsPoller:
    """Measures what the links carry.

    Each switch that has confirmed its rules is polled once in ``interval`` seconds. The polls are spread evenly: one answer at a
    time is read, some tenths of a millisecond, so that a failure never waits behind 720 of them. A switch that has not answered
    yet is not polled again, and delays no other.

    Args:
        link_mbit: Capacity of every link in each direction in Mbit/s, of a fabric without rates of its own; None to take the
            ports'. A single link of another capacity has so many times as much.

    Attributes:
        asked, unanswered: Polls so far, and those that a switch refused, or did not answer.
    """

    def __init__(
        self, state: FabricState, connections: Mapping[Switch, Connection], interval: float, link_mbit: float | None = None
    ) -> None:
        self.traffic = Traffic(state.tree, max(MIN_FRESH_SECONDS, FRESH_INTERVALS * interval))
        self.interval = interval
        self.asked = self.unanswered = 0
        self._connections = connections
        self._state = state
        unit = 1.0 if state.tree.in_mbit else link_mbit
        self._unit = None if unit is None else MEGA * unit
        self._waiting: set[Connection] = set()

    def rounds(self) -> None:
        """Run until killed: poll every switch once an interval."""
        due = time.monotonic()
        while True:
            # in the order of names, not of connecting: a switch that reconnects keeps its place in the round
            connected = [switch for switch in sorted(self._connections) if switch in self._state.connected]
            turns: list[Switch | None] = [*connected] or [None]
            for switch in turns:
                due = max(due + self.interval / max(1, len(connected)), time.monotonic())
                hub.sleep(due - time.monotonic())
                connection = None if switch is None else self._pollable(switch)
                if switch is not None and connection is not None:
                    self._waiting.add(connection)
                    hub.spawn(self._poll, switch, connection)

    def capacity(self, link: Link) -> float | None:
        """Return the capacity of a link in each direction, in bits per second, or None if it is not known."""
        if self._unit is not None:
            return self._unit * self._state.tree.capacity(link)
        switch, port = next(ends(self._state.tree, link))
        return self.port_capacity(switch, port)

    def port_capacity(self, switch: Switch, port: int) -> float | None:
        """Return the capacity of a port in each direction, in bits per second, or None if it is not known."""
        if self._unit is not None:
            tree = self._state.tree
            with contextlib.suppress(TopologyError):  # a port without a planned link
                return self._unit * tree.capacity(tree.link(switch, tree.neighbour(switch, port)))
        connection = self._connections.get(switch)
        return connection.port_speed(port) if connection is not None else None

    def _pollable(self, switch: Switch) -> Connection | None:
        connection = self._connections.get(switch)
        # it may have lost its rules since the round began
        return connection if switch in self._state.connected and connection not in self._waiting else None

    def _poll(self, switch: Switch, connection: Connection) -> None:
        self.asked += 1
        try:
            counters = connection.port_counters()
            if self._connections.get(switch) is connection:
                self.traffic.take(switch, counters, time.monotonic())
        except SwitchError:
            self.unanswered += 1  # a lost channel and a refused message have log lines of their own
        finally:
            self._waiting.discard(connection)
