"""The relays' channels at the leader, which its front passes on: who is in, and what is due to whom."""

from __future__ import annotations

import logging

from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.front.controller_side import PassedChannel
from sopa_ryu.front.wire import ClaimMessage

LOG = logging.getLogger("sopa.notify")

MAX_RELAYS = 256
"""With other names, whoever has the relays' token could have any number of channels."""


class RelayChannel:
    """The connections of all relays."""

    def __init__(self, desk: RelayDesk) -> None:
        self._desk = desk

    def send_away(self) -> None:
        """Cut all channels: this controller leads no longer."""
        for relay in list(self._desk.relays.values()):
            if isinstance(relay.connection, PassedChannel):
                relay.connection.cut()

    def wake(self, relay: Relayed) -> None:
        """Write what is due, while the relay reads."""
        channel = relay.connection
        while channel.is_ready and (text := self._desk.due(relay)) is not None:
            channel.send(text)

    # -- sopa_ryu.front.controller_side.PassedOwner -----------------------------------------------------------------------

    def claimed(self, channel: PassedChannel, claim: ClaimMessage) -> None:
        """Let a relay in; a former channel of the same name is cut."""
        assert claim.relay is not None
        if claim.relay not in self._desk.relays and len(self._desk.relays) > MAX_RELAYS:
            channel.reject(f"{MAX_RELAYS} relays are connected, the most: end one")
            return
        channel.accept()
        channel.session, former = self._desk.entered(claim.relay, claim.peer, channel)
        if former is not None:
            former.connection.cut()

    def received(self, channel: PassedChannel, message: str | bytes) -> None:
        """Follow what a relay sent."""
        relay: Relayed = channel.session
        try:
            due = self._desk.received(relay, message)
        except ProtocolError as error:
            LOG.warning("relay at %s, %s: message rejected: %s. Check the relay's version", relay.peer, relay.name, error)
            channel.close(1007, "the message is malformed")
            return
        if due:
            self.wake(relay)

    def writable(self, channel: PassedChannel) -> None:
        """Go on with what is due."""
        self.wake(channel.session)

    def closed(self, channel: PassedChannel, left: bool) -> None:
        """End a relay's channel."""
        if channel.session is not None:  # it was let in
            self._desk.left(channel.session)
