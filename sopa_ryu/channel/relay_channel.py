"""The relays' channels at the leader: for each a green thread that reads and, while something is due, one that writes."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import eventlet

from sopa_ryu.channel.frames import Pace
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import MAX_UP_BYTES, Relayed
from sopa_ryu.channel.websocket import Handshake, WebSocket, served
from topologies import Host

LOG = logging.getLogger("sopa.notify")

PACE = Pace(burst=256, rate=64.0)
"""A relay hands on reports four times a second, and says which hosts it has once a second at most."""
LOOK_SECONDS = 0.5
"""How often relays are told what has changed about the hosts that run MCS, at most."""


class RelayChannel:
    """The connections of all relays, on eventlet."""

    def __init__(self, desk: RelayDesk) -> None:
        self.desk = desk

    def assign(self, host: Host, number: int, text: str) -> bool:
        """Give a host's list to its relay; return False if no relay has its agent."""
        return self._wake(self.desk.assign(host, number, text))

    def forged(self, host: Host, count: int) -> bool:
        """Have a relay count forged records of a host; return False if no relay has its agent."""
        return self._wake(self.desk.forged(host, count))

    def ask(self, relay: Relayed, host: Host, text: str) -> None:
        """Have a relay ask the agent of a host for a trace, or end one."""
        self._wake(self.desk.ask(relay, host, text))

    def watch(self) -> None:
        """Tell relays of the hosts that run MCS as that changes, until killed."""
        while True:
            for relay in self.desk.bring():
                self._wake(relay)
            eventlet.sleep(LOOK_SECONDS)

    def send_away(self) -> None:
        """Cut all channels: this controller leads no longer."""
        for relay in list(self.desk.relays.values()):
            relay.connection.cut()

    def serve(self, environ: dict[str, Any], start_response: Any, name: str) -> Iterable[bytes]:
        """Answer a relay's WebSocket request and follow the relay until it leaves; `HandshakeError` if it is none."""
        socket = Handshake(environ, MAX_UP_BYTES, PACE).accept()
        relay, former = self.desk.entered(name, environ.get("REMOTE_ADDR", ""), socket)
        if former is not None:
            former.connection.cut()
        try:
            self._read(relay, socket)
        finally:
            self.desk.left(relay)
        return served()

    def _read(self, relay: Relayed, socket: WebSocket) -> None:
        while (message := socket.receive()) is not None:
            try:
                due = self.desk.received(relay, message)
            except ProtocolError as error:
                LOG.warning("relay %s: message rejected: %s; check the relay's version", relay.name, error)
                socket.close(1007, "the message is malformed")
                return
            if due:
                self._wake(relay)

    def _wake(self, relay: Relayed | None) -> bool:
        if relay is None:
            return False
        if not relay.is_writing:
            relay.is_writing = True
            eventlet.spawn_n(self._write, relay)
        return True

    def _write(self, relay: Relayed) -> None:
        try:
            while (text := self.desk.due(relay)) is not None:
                relay.connection.send(text)
        except OSError:
            pass  # reading finds that the relay has gone
        finally:
            relay.is_writing = False
