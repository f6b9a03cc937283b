"""The push channel in memory, with a virtual clock: the controller's real notifier, connections that block, and agents.

`PushChannel` does what `sopa_ryu.channel.websocket` does on eventlet: it carries out effects and runs writers, and checks meanwhile
what must hold at every moment. `Agent` answers as the host agent does, by the same functions.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sopa_ryu.agent.scatter.mcs_peers import McsPeers
from sopa_ryu.channel import mcs, messages, protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.claims import CLAIM_SECONDS, ClaimError
from sopa_ryu.channel.effects import Accept, Completed, Cut, Effect, Reject, Wake
from sopa_ryu.channel.messages import GapError, HostChange, LowerTermError, ProtocolError, Snapshot
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree, Host

TREE = FatTree(4)
LOOK_SECONDS = 1.0
"""As often as the real channel looks at the clock."""
WINDOW = 1


@dataclass(eq=False)
class Connection:
    """One connection: a writer blocks while a message is unread; an agent's message arrives by `PushChannel.hear`."""

    open: bool = True
    to_agent: deque[str] = field(default_factory=deque)
    to_controller: deque[str | bytes] = field(default_factory=deque)


@dataclass(eq=False)
class Claim:
    agent: Agent
    peer: str
    deadline: float
    accepted: bool = False
    error: ClaimError | None = None

    @property
    def decided(self) -> bool:
        return self.accepted or self.error is not None


@dataclass(eq=False)
class Agent:
    """An agent process of a host; ``peers`` are the hosts that run MCS, if it does.

    It has ``failed`` if it could not load a message since the last snapshot, or kept a later version than that: only then it may
    meet a gap. It ``leaves`` if it has been sent a lower term.
    """

    host: Host
    view: View | None = None
    refused: int = 0
    kinds: list[str] = field(default_factory=list)  # of the messages that it read, but pings
    failed: bool = False
    leaves: bool = False
    connection: Connection | None = None
    peers: McsPeers | None = None

    def read(self, loads: bool = True) -> bool:
        """Read one message and answer it, as the host agent does, or the kernel refuses it; return whether there was one."""
        its = self.connection
        if its is None or not its.to_agent:
            return False
        text = its.to_agent.popleft()
        message = messages.from_controller(text)
        kind = message.__struct_config__.tag
        if kind != "ping":
            self.kinds.append(str(kind))
        try:
            view = protocol.follow(message, self.view, TREE.ip(self.host))
        except GapError:
            assert self.failed, "a delta follows what was sent before"
            its.to_controller.append(protocol.RESYNC)
            return True
        except LowerTermError:
            self.refused += 1
            self.leaves = True
            return True
        except ProtocolError:
            self.refused += 1
        else:
            if not loads and view is not self.view:
                self.failed = True
                its.to_controller.append(protocol.RESYNC)
                return True
            change = message.hosts if isinstance(message, Snapshot) else message
            if self.peers is not None and isinstance(change, HostChange):
                self.peers.follow(change, whole=change is not message)
            self.failed = view is self.view if kind == "snapshot" else self.failed
            self.view = view
        its.to_controller.append(protocol.ack(self.view, self.refused, self.peers and self.peers.number))
        return True


class PushChannel:
    """A controller or relay with its notifier, and the connections of its agents."""

    def __init__(self, *, relays: bool = False) -> None:
        self.now, self._relays = 1000.0, relays
        self.history: dict[tuple[int, int], dict[str, str]] = {}  # the failures of each epoch and version
        self.view = View(0, 0, Failures(TREE))  # not known to the notifier before `settle`
        self.start()

    def start(self) -> None:
        """Start a controller, after an end of the one before: its connections are gone, and it knows nothing yet."""
        for agent in getattr(self, "sessions", {}).values():
            agent.connection = None
        self.settled = False
        self.notifier = Notifier(TREE, lambda: self.view if self.settled else None, relays=self._relays)
        self.sessions: dict[AgentSession, Agent] = {}  # those that the controller has not closed
        self.awaited: dict[int, set[AgentSession]] = {}  # by version: those that have yet to acknowledge it
        self.completed: list[int] = []
        self.claims: list[Claim] = []
        self._writers: dict[AgentSession, str | None] = {}  # with the message for which the connection has no room
        self._acknowledged: dict[AgentSession, int] = {}
        self._set(View(self.view.epoch + 1, 1, Failures(TREE)))

    def settle(self) -> int:
        """Let the controller know what has failed; return how many agents are awaited."""
        self.settled = True
        return self._broadcast()

    def fail(self, reasons: dict[str, str]) -> int:
        """Make a version in which exactly these have failed; return how many agents are awaited."""
        self._set(View(self.view.epoch, self.view.version + 1, Failures(TREE, reasons)))
        return self._broadcast()

    def follow(self, view: View) -> int:
        """Take a view of a leader, as a relay does; return how many agents are awaited."""
        self._set(view)
        return self.settle()

    def _set(self, view: View) -> None:
        self.view = view
        self.history[view.epoch, view.version] = dict(view.failures)

    def _broadcast(self) -> int:
        if self.settled and self.sessions:
            self.awaited[self.view.version] = set(self.sessions)
        count, effects = self.notifier.broadcast()
        assert count == (len(self.sessions) if self.settled else 0)
        self.carry_out(effects)
        return count

    def claim(self, agent: Agent, peer: str | None = None) -> Claim:
        """Let an agent claim its host, from its address or another; connect it if that is accepted."""
        claim = Claim(agent, peer or str(TREE.ip(agent.host)), self.now + CLAIM_SECONDS)
        self.claims.append(claim)
        self.carry_out(self.notifier.claim(agent.host, claim.peer, claim, self.now))
        return claim

    def hear(self, agent: Agent) -> bool:
        session = self.session(agent)
        if session is None or not session.connection.to_controller:
            return False
        text = session.connection.to_controller.popleft()
        self._note(session, text)
        self.carry_out(self.notifier.received(session, text, self.now))
        return True

    def leave(self, agent: Agent, *, says_so: bool = True) -> None:
        session = self.session(agent)
        assert session is not None
        agent.connection = None
        session.connection.open = False
        self.carry_out(self.notifier.closed(session, left=says_so))

    def advance(self, seconds: float) -> None:
        """Let time pass; ticks come when the notifier and the claims want them."""
        until = self.now + seconds
        while self.now < until:
            moments = [claim.deadline for claim in self.claims if not claim.decided and claim.deadline > self.now]
            moments.append(max(self.now, self.notifier.next_tick))
            self.now = min([until, self.now + LOOK_SECONDS, *moments])
            self.carry_out(self.notifier.tick(self.now))

    def row(self, session: AgentSession) -> dict[str, float]:
        """Return the numbers of a session's row in ``GET /agents``."""
        behind, lag = session.behind_since(), self.view.version - session.acknowledged
        return {
            "version": session.acknowledged,
            "lag": lag,
            "lag_seconds": self.now - behind if behind is not None else 0.0,
            "acknowledged_ms": session.acknowledged_ms or 0.0,
            "last_contact_seconds": self.now - session.heard,
            "refused": session.refused,
            "refuses": session.refuses,
        }

    def session(self, agent: Agent) -> AgentSession | None:
        return next((each for each in self.sessions if each.connection is agent.connection), None)

    def carry_out(self, effects: Iterable[Effect]) -> None:
        accepted: list[Claim] = []
        for effect in effects:
            match effect:
                case Wake(session):
                    assert session.phase is Phase.WRITING
                    assert session not in self._writers, "a session has one writer"
                    self._writers[session] = None
                case Cut(session):
                    self._cut(session)
                case Accept(claim):
                    assert not claim.decided, "a claim is decided once"
                    claim.accepted = True
                    accepted.append(claim)
                case Reject(claim, error):
                    assert not claim.decided, "a claim is decided once"
                    claim.error = error
                case Completed(version):
                    assert self.missing(version) == [], "a version is completed when nobody is awaited"
                    del self.awaited[version]
                    self.completed.append(version)
        self._run_writers()
        for claim in accepted:
            self._connect(claim)

    def waiting(self, session: AgentSession) -> bool:
        """Return True if a session's writer has a message for which the connection has no room."""
        return self._writers.get(session) is not None

    def missing(self, version: int) -> list[AgentSession]:
        """The sessions that have neither ended nor acknowledged a version that is on its way."""
        awaited = (each for each in self.awaited[version] if each in self.sessions)
        return [each for each in awaited if self._acknowledged.get(each, 0) < version]

    def _connect(self, claim: Claim) -> None:
        agent = claim.agent
        agent.connection, runs = Connection(), ()
        if agent.peers is not None:
            agent.peers.connected()
            runs = mcs.POLICY, mcs.Variant(mcs.VERSION, agent.peers.kind)
        session, effects = self.notifier.connected(agent.host, claim.peer, None, agent.connection, self.now, *runs)
        self.sessions[session] = agent
        self.carry_out(effects)

    def _cut(self, session: AgentSession) -> None:
        assert session.phase is Phase.CLOSED
        session.connection.open = False
        agent = self.sessions.pop(session)  # a second cut fails here
        if agent.connection is session.connection:
            agent.connection = None

    def _note(self, session: AgentSession, text: str | bytes) -> None:
        with contextlib.suppress(ProtocolError):
            ack = protocol.answer(text, self.view)
            if isinstance(ack, messages.Ack) and ack.epoch == self.view.epoch and self.settled:
                version = min(ack.version, self.view.version)
                self._acknowledged[session] = max(version, self._acknowledged.get(session, 0))

    def _run_writers(self) -> None:
        for session in list(self._writers):
            its: Connection = session.connection
            while session in self._writers:
                text = self._writers[session] or self.notifier.due(session, self.now)
                self._writers[session] = text
                if text is None or not its.open:
                    del self._writers[session]
                    if text is not None:
                        self.carry_out(self.notifier.closed(session))
                    break
                if len(its.to_agent) >= WINDOW:
                    break
                its.to_agent.append(text)
                self._writers[session] = None
