"""The arbiter's channel, which the front passes on: takes observations to its notifier and carries out the effects."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qs

import eventlet

from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.arbiter_notifier import ARBITER, ArbiterNotifier, asked_term
from sopa_ryu.channel.claims import CLAIM_SECONDS
from sopa_ryu.channel.effects import Accept, Cut, Effect, Reject, Wake
from sopa_ryu.front.controller_side import PassedChannel
from sopa_ryu.front.wire import ClaimMessage
from sopa_ryu.runtime import clock

LOOK_SECONDS = 1.0
"""How often the clock is looked at, at least: it takes a longer gap for a pause of the process."""


class ArbiterChannel:
    """The connection of the arbiter, and of those that claim its place."""

    def __init__(self, notifier: ArbiterNotifier) -> None:
        self.notifier = notifier

    # -- to the arbiter ---------------------------------------------------------------------------------------------------

    def broadcast(self) -> None:
        """Bring the arbiter to the version that was just made."""
        self._carry_out(self.notifier.broadcast()[1])

    def depose(self, deposed: bool, leader: str | None = None) -> None:
        """Send the arbiter away, or accept one again (`Notifier.depose`)."""
        self._carry_out(self.notifier.depose(deposed, leader))

    def watch(self) -> None:
        """Ping a silent arbiter and cut off one that stays silent, until killed."""
        while True:
            self._tick()
            eventlet.sleep(max(0.0, min(LOOK_SECONDS, self.notifier.next_tick - clock.now())))

    def _tick(self) -> None:
        self._carry_out(self.notifier.tick(clock.now()))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(session):
                    self._write(session)
                case Cut(session):
                    session.connection.cut()
                case Accept((channel, claim)):
                    self._enter(channel, claim)
                case Reject((channel, _), error):
                    channel.reject(str(error))

    def _write(self, session: AgentSession) -> None:
        channel = session.connection
        while channel.is_ready and (text := self.notifier.due(session, clock.now())) is not None:
            channel.send(text)

    def _enter(self, channel: PassedChannel, claim: ClaimMessage) -> None:
        channel.accept()
        self.notifier.knows(asked_term(parse_qs(claim.query)))
        channel.session, effects = self.notifier.enter(claim.peer, channel, clock.now())
        self._carry_out(effects)

    # -- sopa_ryu.front.controller_side.PassedOwner -----------------------------------------------------------------------

    def claimed(self, channel: PassedChannel, claim: ClaimMessage) -> None:
        """Decide whether a client may be the arbiter, now or once the present one has not answered."""
        self._carry_out(self.notifier.claim(ARBITER, claim.peer, (channel, claim), clock.now()))
        if self.notifier.sessions:
            eventlet.spawn_after(CLAIM_SECONDS, self._tick)

    def received(self, channel: PassedChannel, message: str | bytes) -> None:
        """Follow what the arbiter sent."""
        if channel.session is not None:
            self._carry_out(self.notifier.received(channel.session, message, clock.now()))

    def writable(self, channel: PassedChannel) -> None:
        """Go on with what is due."""
        if channel.session is not None and channel.session.phase is Phase.WRITING:
            self._write(channel.session)

    def closed(self, channel: PassedChannel, left: bool) -> None:
        """End the session of the arbiter."""
        if channel.session is not None:
            self._carry_out(self.notifier.closed(channel.session, left=left))
