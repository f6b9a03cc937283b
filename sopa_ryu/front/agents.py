"""The agents' channels of a relay: takes observations to the push channel's notifier and carries out its effects, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import parse_qs

from websockets.frames import CloseCode

from sopa_ryu.channel import mcs, protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.claims import CLAIM_SECONDS, ClaimError
from sopa_ryu.channel.effects import Accept, Completed, Cut, Effect, Reject, Wake
from sopa_ryu.channel.frames import AGENT_PACE, text_frame
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.view import View
from sopa_ryu.front.websocket import WebSocket
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.foreign_text import printable
from topologies import Clos, Host

LOOK_SECONDS = 1.0
"""How often the clock is looked at, at least: it takes a longer gap for a pause of the process."""
READ_SECONDS = 0.2
"""So long after a hold, what agents have sent meanwhile has been read."""
MAX_SAID = 256
"""The characters that are kept of what an agent says of itself in its request: the longest is a URL."""
WRITE_BUFFER_BYTES = 1 << 16
"""More than this is not queued for an agent that does not read, but for one message."""


class AgentClaim:
    """A connection that asks to be the agent of a host.

    Args:
        query: Of the request.
        open: Sends the answer to the handshake, and returns the transport and the bytes that followed the request; None if the
            client has left meanwhile.
        reject: Answers with an error.
    """

    __slots__ = ("host", "open", "peer", "query", "reject")

    def __init__(
        self, host: Host, peer: str, query: str, open: Callable[[], tuple[Any, bytes] | None], reject: Callable[[ClaimError], None]
    ) -> None:
        self.host = host
        self.peer = peer
        self.query = query
        self.open = open
        self.reject = reject


class AgentsChannel:
    """The connections of all agents.

    Args:
        view: Return what agents have to know now.
        changed: Called with an agent that has connected, sent something or left, and with None when all have been sent a view.
        clustered: Whether agents may be at other fronts, too: the leader then lists those that run MCS.

    Attributes:
        pushed: Called with the seconds from a version's arrival until all agents had acknowledged it.
        completed: Called with that version.
    """

    def __init__(
        self,
        tree: Clos,
        carrier: str,
        view: Callable[[], View | None],
        changed: Callable[[AgentSession | None], None],
        *,
        clustered: bool = True,
    ) -> None:
        self.notifier = Notifier(tree, view, carrier, relays=clustered)
        self.pushed: Callable[[float], None] | None = None
        self.completed: Callable[[int], None] | None = None
        self._view = view
        self._changed = changed
        self._since: dict[int, float] = {}
        self._is_held = False

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out what follows for the agents of what the leader has said."""
        self._carry_out(effects)

    # -- to the agents ------------------------------------------------------------------------------------------------

    def broadcast(self) -> int:
        """Bring every agent to the view that was just taken; return how many have to acknowledge it."""
        view = self._view()
        assert view is not None
        count, effects = self.notifier.broadcast()
        if count:
            self._since = {version: at for version, at in self._since.items() if version < view.version}
            self._since[view.version] = clock.now()
        self._carry_out(effects)
        self._changed(None)
        return count

    async def watch(self) -> None:
        """Ping silent agents and cut off those that stay silent, until cancelled."""
        while True:
            self._tick()
            await asyncio.sleep(max(0.0, min(LOOK_SECONDS, self.notifier.next_tick - clock.now())))

    def depose(self, deposed: bool, leader: str | None) -> None:
        """Send all agents away, or accept them again (`Notifier.depose`)."""
        self._carry_out(self.notifier.depose(deposed, leader))

    def hold(self, is_held: bool) -> None:
        """Read nothing from the agents, or go on: no time has passed for them then."""
        if is_held:
            self._is_held = True
        else:
            asyncio.get_running_loop().call_later(READ_SECONDS, self._go_on)
        for session in self.notifier.sessions.values():
            session.connection.hold(is_held)

    def _go_on(self) -> None:
        self._is_held, now = False, clock.now()
        for session in self.notifier.sessions.values():
            session.heard = now

    def send_away(self) -> None:
        """Close all channels, so that agents go to another relay at once."""
        for session in list(self.notifier.sessions.values()):
            session.connection.close(CloseCode.GOING_AWAY, "this relay ends: another one has the same view")

    def send_on(self, sessions: Sequence[AgentSession]) -> None:
        """Close the channels of agents that are to go to the relay that comes first for them."""
        for session in sessions:
            session.connection.close(protocol.SURPLUS, "another relay comes first for this host")

    def _tick(self) -> None:
        if not self._is_held:
            self._carry_out(self.notifier.tick(clock.now()))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Wake(session):
                    self._write(session)
                case Cut(session):
                    session.connection.cut()
                    self._changed(session)
                case Accept(claim):
                    self._enter(claim)
                case Reject(claim, error):
                    claim.reject(error)
                case Completed(version):
                    self._completed(version)

    def _write(self, session: AgentSession) -> None:
        """Write until nothing is due, or the agent does not read: `writable` then goes on."""
        socket, now = session.connection, clock.now()
        while not socket.is_full and (text := self.notifier.due(session, now)) is not None:
            socket.send(text_frame(text))

    def _completed(self, version: int) -> None:
        began = self._since.pop(version, None)
        if began is not None and self.pushed is not None:
            self.pushed(clock.now() - began)
        if self.completed is not None:
            self.completed(version)

    # -- from the agents ----------------------------------------------------------------------------------------------

    def claim(self, claim: AgentClaim) -> None:
        """Decide whether a connection may be the agent of a host, now or once the agent that is connected has not answered."""
        self._carry_out(self.notifier.claim(claim.host, claim.peer, claim, clock.now()))
        if claim.host in self.notifier.sessions:
            asyncio.get_running_loop().call_later(CLAIM_SECONDS, self._tick)

    def _enter(self, claim: AgentClaim) -> None:
        opened = claim.open()
        if opened is None:
            return
        transport, early = opened
        socket = WebSocket(transport, self, AGENT_PACE, protocol.MAX_ANSWER_BYTES)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        transport.set_protocol(socket)
        query = {name: [printable(value, MAX_SAID) for value in values] for name, values in parse_qs(claim.query).items()}
        policy, variant = mcs.requested(query)
        probing = query.get(protocol.PROBES) == ["1"]
        session, effects = self.notifier.connected(
            claim.host,
            claim.peer,
            query.get("carrier", [""])[0][: mcs.MAX_NAME] or None,
            socket,
            clock.now(),
            policy,
            variant,
            probing,
        )
        session.spray = query[protocol.SPRAY][0][: protocol.MAX_SPRAY] if protocol.SPRAY in query else None
        session.first = query.get(protocol.FIRST, [""])[0]
        socket.session = session
        self._carry_out(effects)
        socket.begin(early)
        self._changed(session)

    def received(self, socket: WebSocket, message: str | bytes) -> None:
        """Follow what an agent sent."""
        self._carry_out(self.notifier.received(socket.session, message, clock.now()))
        self._changed(socket.session)

    def writable(self, socket: WebSocket) -> None:
        """Go on with what is due for an agent that reads again."""
        if socket.session.phase is Phase.WRITING:
            self._write(socket.session)

    def ended(self, socket: WebSocket) -> None:
        """End the session of an agent whose connection is closed."""
        self._carry_out(self.notifier.closed(socket.session, left=socket.left))
        self._changed(socket.session)
