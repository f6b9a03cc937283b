"""Sends the answers to packets that nothing can deliver (`sopa_ryu.fabric.unreachable`), and waits for no switch."""

from __future__ import annotations

from sopa_ryu.fabric.messages import SendFrame
from sopa_ryu.fabric.unreachable import Unreachable
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound.connection import Connection
from topologies import Clos, Switch

MAX_ANSWERING = 16
"""Answers that wait for a switch to take them; more are dropped."""


class UndeliverableAnswers:
    """Sends ICMP errors for undeliverable packets that switches hand to the controller; counted in ``decided``."""

    def __init__(self, tree: Clos) -> None:
        self.decided = Unreachable(tree)
        self._waiting = 0

    def packet_in(self, connection: Connection, switch: Switch, port: int, frame: bytes) -> None:
        """Answer a packet that a switch received, without waiting for the switch."""
        answer = self.decided.answer(switch, port, frame, clock.now())
        if answer and self._waiting < MAX_ANSWERING:
            self._waiting += 1
            hub.spawn(self._send, connection, answer)

    def _send(self, connection: Connection, answer: bytes) -> None:
        try:
            # as from another switch, so that the switch uses the address that it knows of the host
            connection.send(SendFrame(answer))
        finally:
            self._waiting -= 1
