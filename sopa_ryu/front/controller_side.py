"""The controller's end of its front: starts the process, feeds it, and follows what it says.

The process may end at any time: forwarding and failures go on without it, hosts keep their paths, and the next one takes the
listening socket, in whose queue clients wait meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import eventlet
from eventlet.event import Event
from webob import Request, Response

from sopa_ryu.channel.connected import ConnectedAgent, ConnectedAgents
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.fabric.view import View
from sopa_ryu.front import wire
from sopa_ryu.front.start import Started, start
from sopa_ryu.front.wire import MessageKind
from sopa_ryu.rest.answers import request_of
from sopa_ryu.runtime import clock, listeners
from sopa_ryu.runtime.green_threads import end_child
from topologies import Clos

LOG = logging.getLogger("sopa.front")

RESTART_SECONDS = (0.5, 30.0)
"""After the process has ended, the least and the most; twice as long each time that it ends soon."""
WELL_SECONDS = 60.0
PING_SECONDS = 0.25
"""How often the front hears from this process, at least (`child.SILENT_SECONDS`)."""
MAX_UNANSWERED = 40
"""So many pings without an answer, and the process is ended: it stands still or is stuck."""
READ_BYTES = 1 << 18
MAX_WAITING_BYTES = 1 << 28
"""A front that is so far behind is ended."""


class PassedChannel:
    """A channel that the front passes on; it takes one message at a time (`is_ready`)."""

    def __init__(self, number: int, send: Callable[[bytes], None]) -> None:
        self.number = number
        self.is_ready = True
        self.is_closed = False
        self.session: Any = None
        self._send = send

    def accept(self) -> None:
        """Let the client in."""
        self._verdict(wire.ChannelVerdict(accept=True))

    def reject(self, text: str) -> None:
        """Answer 409."""
        self._verdict(wire.ChannelVerdict(reject=text))

    def send(self, text: str) -> None:
        """Send a message; the owner hears when there may be another."""
        self.is_ready = False
        if not self.is_closed:
            self._send(wire.numbered(MessageKind.SEND, self.number, text.encode()))

    def cut(self) -> None:
        """Break the connection."""
        self._verdict(wire.ChannelVerdict(cut=True))

    def close(self, code: int, reason: str) -> None:
        """Send a close frame."""
        self._verdict(wire.ChannelVerdict(close=(code, reason)))

    def _verdict(self, verdict: wire.ChannelVerdict) -> None:
        if not self.is_closed:  # the next front gives its number to another one
            self._send(wire.with_head(MessageKind.VERDICT, self.number, verdict, b""))


class PassedOwner(Protocol):
    """Who serves passed channels."""

    def claimed(self, channel: PassedChannel, claim: wire.ClaimMessage) -> None:
        """Accept or reject a client."""

    def received(self, channel: PassedChannel, message: str | bytes) -> None:
        """Take a message."""

    def writable(self, channel: PassedChannel) -> None:
        """Go on with what is due."""

    def closed(self, channel: PassedChannel, left: bool) -> None:
        """Note the end of a channel; ``left`` if the client has said that it leaves."""


class FrontHands(Protocol):
    """What the front asks of the controller."""

    def answer(self, request: Request) -> Response:
        """Answer a request."""

    def standing(self) -> wire.Standing:
        """Return whether agents are taken."""

    def sent(self, version: int, agents: int) -> None:
        """Note that a version was sent to so many agents."""

    def completed(self, version: int) -> None:
        """Note that all agents of the front have acknowledged a version."""

    def watched(self, watched: bool) -> None:
        """Note that a page is open, or none any more."""


class FrontProcess:
    """The front's process, and what is said to it.

    Args:
        config: What each process begins with.
        listener: Where clients connect.
        view: Return what agents have to know now; None while it is not known what has failed.
        owners: Of passed channels: an arbiter's first, relays' second.
    """

    def __init__(
        self,
        tree: Clos,
        config: wire.Config,
        listener: Any,
        agents: ConnectedAgents,
        desk: RelayDesk,
        view: Callable[[], View | None],
        hands: FrontHands,
        owners: tuple[PassedOwner, PassedOwner],
    ) -> None:
        self._config, self._listener = config, listener
        self._agents, self._desk, self._view, self._hands, self._owners = agents, desk, view, hands, owners
        self._tree = tree
        self._hosts = list(tree.hosts())
        self._counted: dict[str, int] = {}
        self._turned_away: dict[str, int] = {}
        self._channels: dict[int, tuple[PassedOwner, PassedChannel]] = {}
        self._sock: Any = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._more = Event()
        self._unanswered = 0
        self._standing: wire.Standing | None = None
        self._ended = False
        self._prepared: Started | None = start()

    # -- to the front -----------------------------------------------------------------------------------------------------

    def broadcast(self) -> None:
        """Have all agents brought to the view that was just made."""
        view = self._view()
        if view is not None:
            message = wire.ViewMessage(view.epoch, view.version, view.cluster, dict(view.failures))
            self.send(wire.plain(MessageKind.VIEW, message))

    def look(self) -> None:
        """Tell the front if it has changed whether agents are taken."""
        standing = self._hands.standing()
        if standing != self._standing and self._sock is not None:
            self._standing = standing
            self.send(wire.plain(MessageKind.STANDING, standing))

    def show(self, text: str) -> None:
        """Have all open pages show a state."""
        self.send(wire.message(MessageKind.FEED, text.encode()))

    def wake(self, front: Relayed) -> None:
        """Send the front what is due to its agents."""
        while (text := self._desk.due(front)) is not None:
            self.send(wire.message(MessageKind.DOWN, text.encode()))

    def send(self, message: bytes) -> None:
        """Send a message without waiting; what does not fit waits for the writer."""
        if self._sock is None:
            return
        if not self._waiting:
            try:
                sent = self._sock.fd.send(message)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # reading finds the end
            if sent == len(message):
                return
            message = message[sent:]
        self._waiting.append(message)
        self._waiting_bytes += len(message)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self._kill(f"it has not read {self._waiting_bytes >> 20} MiB")
        elif not self._more.ready():
            self._more.send()

    def _write(self, sock: Any) -> None:
        """Write what waits, until killed."""
        while True:
            self._more.wait()
            self._more = Event()
            while self._waiting:
                sock.sendall(self._waiting[0])
                self._waiting_bytes -= len(self._waiting.popleft())

    # -- the process ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Keep a process running, until killed."""
        least, most = RESTART_SECONDS
        wait = least
        while not self._ended:
            began = time.monotonic()
            started, self._prepared = self._prepared or start(), None
            why = self._attend(started)
            if self._ended:
                return
            wait = least if time.monotonic() - began > WELL_SECONDS else min(most, 2 * wait)
            LOG.error(
                "front ended: %s. REST, page and agents' channels wait until the next one serves, in %.1f s. Hosts keep their "
                "paths, switches their rules",
                why,
                wait,
            )
            eventlet.sleep(wait)

    def end(self) -> None:
        """End the process, so that its address is free."""
        self._ended = True
        if self._prepared is not None:
            self._prepared.sock.close()
            end_child(self._prepared.process)
        elif self._sock is not None:
            sock, self._sock = self._sock, None
            with contextlib.suppress(OSError):  # it has ended
                sock.shutdown(socket.SHUT_RDWR)
            end_child(self._child)

    def _attend(self, started: Started) -> str:
        """Feed a process until it ends; return why it did."""
        sock, child = started
        self._sock, self._child, self._unanswered = sock, child, 0
        self._waiting.clear()
        self._waiting_bytes, self._more = 0, Event()
        self._why = ""
        LOG.info("front runs as process %d: it serves REST, page and agents' channels", child.pid)
        front = self._agents.front = self._desk.own(self)
        with contextlib.suppress(OSError):  # reading finds the end
            started.give(self._listener)
        threads = [eventlet.spawn(self._write, sock), eventlet.spawn(self._ping)]
        self._standing = self._hands.standing()
        self.send(wire.plain(MessageKind.CONFIG, self._config))
        self.send(wire.plain(MessageKind.STANDING, self._standing))
        self.broadcast()
        why = "it closed its socket"
        try:
            self._read(sock, front)
        except (OSError, ValueError) as error:
            why = str(error)
        finally:
            for thread in threads:
                thread.kill()
            self._sock = None
            sock.close()
            end_child(child)
            self._forget(front)
        return f"{self._why or why}, {_status(child.returncode)}"

    def _forget(self, front: Relayed) -> None:
        for owner, channel in list(self._channels.values()):
            channel.is_closed = True
            owner.closed(channel, False)
        self._channels.clear()
        self._desk.left(front)
        self._agents.lose_all(clock.now())
        self._counted, self._turned_away = {}, {}
        self._hands.watched(False)

    def _ping(self) -> None:
        """End a process that does not answer; turns are counted, as this one may stand still, too."""
        while True:
            if self._unanswered >= MAX_UNANSWERED:
                self._kill(f"it has not answered for {MAX_UNANSWERED * PING_SECONDS:.0f} s")
                return
            self._unanswered += 1
            self.send(wire.message(MessageKind.PING, b""))
            eventlet.sleep(PING_SECONDS)

    def _kill(self, why: str) -> None:
        self._why = why
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGKILL)

    # -- from the front ---------------------------------------------------------------------------------------------------

    def _read(self, sock: Any, front: Relayed) -> None:
        messages = wire.Envelopes()
        while data := sock.recv(READ_BYTES):
            for kind, payload in messages.take(data):
                self._take(kind, payload, front)
            eventlet.sleep(0)

    def _take(self, kind: MessageKind, payload: bytes, front: Relayed) -> None:
        match kind:
            case MessageKind.CALL:
                eventlet.spawn_n(self._answer, *wire.split_head(payload, wire.CallHead))
            case MessageKind.AGENTS:
                self._take_agents(wire.read(payload, wire.AgentsMessage))
            case MessageKind.UP | MessageKind.REPORTS:
                self._take_up(front, payload.decode() if kind is MessageKind.UP else payload)
            case MessageKind.SENT:
                sent = wire.read(payload, wire.SentMessage)
                self._hands.sent(sent.version, sent.agents)
            case MessageKind.COMPLETED:
                self._completed(wire.read(payload, wire.SentMessage))
            case MessageKind.CLAIM:
                number, claim, _ = wire.split_head(payload, wire.ClaimMessage)
                owner = self._owners[claim.relay is not None]
                channel = PassedChannel(number, self.send)
                self._channels[number] = owner, channel
                owner.claimed(channel, claim)
            case MessageKind.MESSAGE | MessageKind.WRITABLE | MessageKind.CLOSED:
                self._take_passed(kind, *wire.number_of(payload))
            case MessageKind.PAGES:
                self._hands.watched(payload == b"\1")
            case MessageKind.PONG:
                self._unanswered = 0
            case MessageKind.LOG:
                line = wire.read(payload, wire.LogLine)
                logger = logging.getLogger(line.name)
                if logger.isEnabledFor(line.level):
                    logger.handle(logger.makeRecord(line.name, line.level, "", 0, "%s", (line.text,), None))
            case _:
                raise ValueError(f"{kind!r} is no message of a front's")

    def _answer(self, number: int, head: wire.CallHead, body: bytes) -> None:
        front = self._sock
        request = request_of(head.method, head.target, head.headers, body, head.peer, head.scheme, head.protocol)
        response = self._hands.answer(request)
        result = wire.ResultHead(response.status_code, list(response.headerlist))
        if self._sock is front:  # the next one has other calls of these numbers
            self.send(wire.with_head(MessageKind.RESULT, number, result, response.body))

    def _completed(self, completed: wire.SentMessage) -> None:
        view = self._view()
        if view is not None and view.epoch == completed.epoch:
            self._hands.completed(completed.version)

    def _take_agents(self, message: wire.AgentsMessage) -> None:
        now, tree = clock.now(), self._tree
        changed = {}
        for row in message.rows:
            host = self._hosts[row.place]
            behind = None if row.behind is None else now - row.behind
            changed[host] = ConnectedAgent(
                tree.name(host),
                row.peer,
                row.carrier,
                row.policy,
                row.spray,
                row.acknowledged,
                row.acknowledged_ms,
                behind,
                now - row.heard,
                row.refused,
                row.refuses,
                row.probes,
                row.links_left,
            )
        self._agents.change(changed, (self._hosts[place] for place in message.left), now)
        for reason, count in message.refused.items():  # of all processes since the controller's start
            self._agents.refused[reason] += count - self._counted.get(reason, 0)
        for reason, count in message.turned_away.items():
            if reason != "tls":  # what is no TLS is nobody's request
                listeners.turned_away["rest", reason] += count - self._turned_away.get(reason, 0)
        self._counted, self._turned_away = message.refused, message.turned_away

    def _take_up(self, front: Relayed, message: str | bytes) -> None:
        try:
            due = self._desk.received(front, message)
        except ProtocolError as error:
            raise ValueError(f"what it hands on is malformed: {error}") from error
        if due:
            self.wake(front)

    def _take_passed(self, kind: MessageKind, number: int, payload: bytes) -> None:
        found = self._channels.get(number)
        if found is None:
            return
        owner, channel = found
        if kind is MessageKind.MESSAGE:
            owner.received(channel, payload[1:].decode() if payload[:1] == b"t" else payload[1:])
        elif kind is MessageKind.WRITABLE:
            channel.is_ready = True
            owner.writable(channel)
        else:
            del self._channels[number]
            channel.is_closed = True
            owner.closed(channel, payload == b"\1")


def _status(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
