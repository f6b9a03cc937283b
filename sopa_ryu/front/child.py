"""The front process of a controller, which accepts all connections to the REST address.

The controller gives it the listening socket and one end of a socket pair (`wire`), and starts another one when it ends. It sends
agents the views that the controller makes, answers paths from them, and passes on everything else: requests, channels of the
arbiter and of relays, and what is handed on between agents and controller. It ends when the controller's end is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import logging
import re
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvloop
from webob import Request, Response
from websockets.frames import CloseCode

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.frames import AGENT_PACE, Pace, text_frame
from sopa_ryu.channel.relayed import MAX_UP_BYTES, MAX_UP_TEXT
from sopa_ryu.fabric.view import View
from sopa_ryu.front import wire
from sopa_ryu.front.agents import AgentsChannel
from sopa_ryu.front.application import ARBITER, Application, check_method, check_upgrade, handshake, opened
from sopa_ryu.front.door import FrontDoor
from sopa_ryu.front.handing import Handing
from sopa_ryu.front.http_connection import Answer, HttpConnection
from sopa_ryu.front.live import PageFeed
from sopa_ryu.front.websocket import WebSocket
from sopa_ryu.front.wire import MessageKind
from sopa_ryu.rest.access import Origins, Tokens
from sopa_ryu.rest.answers import HEADERS, TARGET, problem_answer
from sopa_ryu.rest.operations import ROOT, Problem
from sopa_ryu.rest.reader import ALONE, standing_by
from sopa_ryu.runtime import certificates, clock
from sopa_ryu.runtime.clients import network
from sopa_ryu.runtime.log_pace import LogPace
from sopa_ryu.runtime.process import allow_files
from sopa_ryu.runtime.service import keep_short, kept
from sopa_ryu.web.pages import pages
from topologies import Clos, Failures, Host, fabric_of

LOG = logging.getLogger("sopa.http")

FLUSH_SECONDS = 0.02
FLUSH_TIMES = 10
"""Least pause between two updates of the agents' state, in multiples of the time that the last one took."""
REPORT_SECONDS = 0.25
SILENT_SECONDS = 1.0
"""Clients are held while the controller says nothing for longer than this: it stands still, and agents have to notice that."""
MCS_SECONDS = 1.0
PR_SET_PDEATHSIG = 1  # prctl(2)
RELAY_PACE = Pace(burst=256, rate=16.0)
"""A relay hands on reports and answers four times a second, and says which hosts it has once a second at most."""
_RELAY = re.compile(re.escape(ROOT) + "/relays/([A-Za-z0-9][A-Za-z0-9._-]{0,63})")  # as of the relays' option
_PATHS = f"{ROOT}/paths"


class _Log(logging.Handler):
    """Has the controller write what this process logs."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__()
        self.addFilter(LogPace())  # here, where text and values are apart, and before each line is a message
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send a line."""
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        self._send(wire.plain(MessageKind.LOG, wire.LogLine(record.name, record.levelno, text)))


class _Pair(asyncio.Protocol):
    """This process' end of the socket pair."""

    def __init__(self, begun: Callable[[Any], None], take: Callable[[MessageKind, bytes], None], ended: Callable[[], None]) -> None:
        self._begun, self._take, self._ended = begun, take, ended
        self._messages = wire.Envelopes()

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._begun(transport)

    def data_received(self, data: bytes) -> None:
        """Take what the controller says."""
        for kind, payload in self._messages.take(data):
            self._take(kind, payload)

    def connection_lost(self, exc: Exception | None) -> None:
        """End: the controller has."""
        self._ended()


class _Passed:
    """Channels whose messages are passed on as they are: the arbiter's, and those of relays."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._numbers = itertools.count(1)
        self._claims: dict[int, tuple[HttpConnection, bytes, bool]] = {}
        self._sockets: dict[int, WebSocket] = {}

    def claim(self, request: Request, connection: HttpConnection, relay: str | None) -> None:
        """Ask the controller whether a client whose token was checked may have a channel."""
        accepted = handshake(request)
        number = next(self._numbers)
        self._claims[number] = connection, accepted, relay is not None
        body = wire.ClaimMessage(relay, connection.peer, request.query_string)
        self._send(wire.with_head(MessageKind.CLAIM, number, body, b""))

    def follow(self, number: int, verdict: wire.ChannelVerdict) -> None:
        """Do what the controller says of a channel."""
        if verdict.accept:
            self._open(number, *self._claims.pop(number))
        elif verdict.reject is not None:
            connection, *_ = self._claims.pop(number)
            self._send(wire.numbered(MessageKind.CLOSED, number, b"\0"))
            connection.finish(problem_answer(Problem(HTTPStatus.CONFLICT, verdict.reject)))
        elif (channel := self._sockets.get(number)) is not None:
            if verdict.close is not None:
                channel.close(*verdict.close)
            else:
                channel.cut()

    def _open(self, number: int, connection: HttpConnection, accepted: bytes, is_relay: bool) -> None:
        taken = opened(connection, accepted)
        if taken is None:
            self._send(wire.numbered(MessageKind.CLOSED, number, b"\0"))
            return
        transport, early = taken
        pace, most = (RELAY_PACE, MAX_UP_BYTES) if is_relay else (AGENT_PACE, protocol.MAX_ANSWER_BYTES)
        channel = self._sockets[number] = WebSocket(transport, self, pace, most)
        channel.session = number
        transport.set_protocol(channel)
        channel.begin(early)

    def hold(self, is_held: bool) -> None:
        """Read nothing, or go on."""
        for channel in self._sockets.values():
            channel.hold(is_held)

    def send(self, number: int, text: str) -> None:
        """Send a message on a channel; the controller hears when there may be another."""
        channel = self._sockets.get(number)
        if channel is not None:
            channel.send(text_frame(text))
            if not channel.is_full:
                self.writable(channel)

    def received(self, socket: WebSocket, message: str | bytes) -> None:
        """Pass a message on: its first byte tells text from bytes. A text is shorter than a report's bytes may be."""
        if isinstance(message, str) and len(message) > MAX_UP_TEXT:
            socket.close(CloseCode.MESSAGE_TOO_BIG, f"a text of more than {MAX_UP_TEXT} characters")
            return
        payload = b"t" + message.encode() if isinstance(message, str) else b"b" + message
        self._send(wire.numbered(MessageKind.MESSAGE, socket.session, payload))

    def writable(self, socket: WebSocket) -> None:
        """Let the controller send another message."""
        self._send(wire.numbered(MessageKind.WRITABLE, socket.session))

    def ended(self, socket: WebSocket) -> None:
        """Tell the controller that a channel is closed."""
        if self._sockets.pop(socket.session, None) is not None:
            self._send(wire.numbered(MessageKind.CLOSED, socket.session, b"\1" if socket.left else b"\0"))


class FrontApplication(Application):
    """The requests of all connections."""

    def __init__(self, front: Front, config: wire.Config, tokens: Tokens) -> None:
        super().__init__(tokens, pages(), front.feed, Origins(config.origins, config.urls))
        self._front, self._config = front, config
        self.standing = wire.Standing(False, None, True, None)

    def tree(self) -> Clos:
        """Return the fabric."""
        return self._front.tree

    def check_channels(self) -> None:
        """Raise `Problem` (409) while the controller stands by."""
        if not self.standing.takes_channels:
            raise standing_by(self.standing.leader_url)

    def other(self, request: Request, path: str, connection: HttpConnection) -> Answer:
        """Answer paths from the view, begin a passed channel, or have the controller answer."""
        view = self._front.view
        if path == _PATHS and view is not None and request.method in ("GET", "HEAD"):
            return self.from_view(request, path, view, self._config.carrier, self._front.call)
        relay = _RELAY.fullmatch(path)
        if path == ARBITER or relay is not None:
            self._pass(request, connection, None if relay is None else relay[1])
            return None
        return self._front.call(request)

    def _pass(self, request: Request, connection: HttpConnection, relay: str | None) -> None:
        check_method(request, ("GET",))
        if relay is None:
            check_upgrade(request, "the arbiter's channel")
            self._tokens.check_arbiter(request)
        else:
            if not self._config.clustered:
                raise Problem(HTTPStatus.NOT_FOUND, ALONE)
            check_upgrade(request, "the relays' channel")
            self._tokens.check_relay(request)
        self.check_channels()
        self._front.passed.claim(request, connection, relay)


class Front:
    """The parts of a front.

    Args:
        listener: Where clients connect.
        pair: This process' end of the socket pair.
    """

    def __init__(self, listener: socket.socket, pair: socket.socket) -> None:
        self.view: View | None = None
        self._listener, self._pair = listener, pair
        self._transport: Any = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._calls: dict[int, asyncio.Future[Response]] = {}
        self._numbers = itertools.count(1)
        self._changed: set[Host] = set()
        self._counted: tuple[dict[str, int], dict[str, int]] = {}, {}
        self._flush_at: asyncio.TimerHandle | None = None
        self._free_at = 0.0
        self._heard = self._loop.time()
        self._is_held = False
        self.passed = _Passed(self.send)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Serve until the controller has ended."""
        await self._loop.create_connection(lambda: _Pair(self._begun, self._take, self._end), sock=self._pair)
        await self._ended

    def send(self, message: bytes) -> None:
        """Send the controller a message."""
        if not self._transport.is_closing():
            self._transport.write(message)

    def _begun(self, transport: Any) -> None:
        self._transport = transport

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _take(self, kind: MessageKind, payload: bytes) -> None:
        self._heard = self._loop.time()
        if self._is_held:
            self._hold(False)
        match kind:
            case MessageKind.CONFIG:
                self._begin(wire.read(payload, wire.Config))
            case MessageKind.VIEW:
                self._follow(wire.read(payload, wire.ViewMessage))
            case MessageKind.STANDING:
                self._stand(wire.read(payload, wire.Standing))
            case MessageKind.DOWN:
                for _ in self._handing.take(payload):
                    pass
            case MessageKind.RESULT:
                number, head, body = wire.split_head(payload, wire.ResultHead)
                call = self._calls.get(number)
                if call is not None and not call.done():
                    call.set_result(Response(body, status=head.status, headerlist=head.headers))
            case MessageKind.FEED:
                self.feed.show(payload.decode())
            case MessageKind.VERDICT:
                number, verdict, _ = wire.split_head(payload, wire.ChannelVerdict)
                self.passed.follow(number, verdict)
            case MessageKind.SEND:
                number, text = wire.number_of(payload)
                self.passed.send(number, text.decode())
            case MessageKind.PING:
                self.send(wire.message(MessageKind.PONG, b""))
            case _:
                raise ValueError(f"{kind!r} is no message of a controller's")

    # -- from the controller --------------------------------------------------------------------------------------------

    def _begin(self, config: wire.Config) -> None:
        logger = logging.getLogger()
        logger.handlers[:] = [_Log(self.send)]
        logger.setLevel(config.log_level)
        self.tree = fabric_of(config.fabric)
        self._places = {host: place for place, host in enumerate(self.tree.hosts())}
        self.feed = PageFeed(config.pages, lambda watched: self.send(wire.message(MessageKind.PAGES, b"\1" if watched else b"\0")))
        only, read = config.host_tokens_only, config.read_token
        tokens = Tokens(Path(config.state_dir), host_tokens_only=only, read_token=read, make=False)
        self.application = FrontApplication(self, config, tokens)
        self.agents = AgentsChannel(self.tree, config.carrier, lambda: self.view, self._note, clustered=config.clustered)
        self.agents.completed = self._completed
        self.application.channel = self.agents
        self._handing = Handing(self.agents.notifier, self.agents.carry_out)
        self._handing.opened()
        tls = certificates.server(*config.tls) if config.tls else None
        proxies = [network(text) for text in config.proxies]
        self.door = FrontDoor(self._listener, self.application.answer, tls, config.share, proxies, "--sopa-client-connections")
        self.door.open()
        work = (self.agents.watch, self.feed.look, self._hand_on, keep_short, self._listen)
        self._tasks = [self._loop.create_task(kept(each)) for each in work]

    def _follow(self, message: wire.ViewMessage) -> None:
        self.view = View(message.epoch, message.version, Failures(self.tree, message.failures), message.cluster)
        count = self.agents.broadcast()
        self.send(wire.plain(MessageKind.SENT, wire.SentMessage(message.epoch, message.version, count)))

    def _stand(self, standing: wire.Standing) -> None:
        before, self.application.standing = self.application.standing, standing
        if standing.deposed is not before.deposed:
            self.agents.depose(standing.deposed, standing.leader)

    # -- to the controller ----------------------------------------------------------------------------------------------

    async def call(self, request: Request) -> Response:
        """Have the controller answer a request; it knows by then what has come from agents before."""
        self.flush()
        number = next(self._numbers)
        call = self._calls[number] = self._loop.create_future()
        environ = request.environ
        head = wire.CallHead(
            request.method,
            environ[TARGET],
            environ[HEADERS],
            environ["REMOTE_ADDR"],
            environ["wsgi.url_scheme"],
            environ["SERVER_PROTOCOL"],
        )
        self.send(wire.with_head(MessageKind.CALL, number, head, request.body))
        try:
            return await call
        finally:
            del self._calls[number]

    def flush(self) -> None:
        """Tell the controller what has changed of the agents since the last time."""
        began = self._loop.time()
        notifier, now = self.agents.notifier, clock.now()
        if self._handing.has_hosts:
            self.send(wire.message(MessageKind.UP, self._handing.hosts().encode()))
        counted = dict(notifier.refused), dict(self.door.rejected)
        if self._changed or counted != self._counted:
            changed, self._changed, self._counted = self._changed, set(), counted
            left = [self._places[host] for host in changed if host not in notifier.sessions]
            rows = [self._row(notifier.sessions[host], now) for host in changed if host in notifier.sessions]
            self.send(wire.plain(MessageKind.AGENTS, wire.AgentsMessage(rows, left, *counted)))
        if answers := self._handing.answers():
            self.send(wire.message(MessageKind.UP, answers.encode()))
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        self._free_at = self._loop.time() + max(FLUSH_SECONDS, FLUSH_TIMES * (self._loop.time() - began))

    def _row(self, session: AgentSession, now: float) -> wire.AgentRow:
        behind = session.behind_since()
        return wire.AgentRow(
            self._places[session.host],
            session.peer,
            session.carrier,
            session.policy,
            session.spray,
            session.acknowledged,
            session.acknowledged_ms,
            None if behind is None else now - behind,
            now - session.heard,
            session.refused,
            session.refuses,
            session.probes,
            session.left,
        )

    def _note(self, session: AgentSession | None) -> None:
        """Note that something has changed of an agent, or of all."""
        self._changed.update(self.agents.notifier.sessions if session is None else (session.host,))
        if self._flush_at is None:
            self._flush_at = self._loop.call_at(max(self._free_at, self._loop.time() + FLUSH_SECONDS), self.flush)

    def _completed(self, version: int) -> None:
        view = self.view
        assert view is not None
        self.send(wire.plain(MessageKind.COMPLETED, wire.SentMessage(view.epoch, version, 0)))

    async def _hand_on(self) -> None:
        """Send what agents report, until cancelled."""
        next_mcs = 0.0
        while True:
            if reports := self._handing.reports():
                self.send(wire.message(MessageKind.REPORTS, reports))
            if self._loop.time() >= next_mcs:
                next_mcs = self._loop.time() + MCS_SECONDS
                for events in self._handing.mcs():
                    self.send(wire.message(MessageKind.UP, events.encode()))
            if self.agents.notifier.refused != self._counted[0] or self.door.rejected != self._counted[1]:
                self.flush()
            await asyncio.sleep(REPORT_SECONDS)

    async def _listen(self) -> None:
        """Stop reading from all clients while the controller is silent.

        Pings of agents stay unanswered then, so that agents with further addresses leave a controller that has stopped.
        """
        while True:
            await asyncio.sleep(SILENT_SECONDS / 4)
            if not self._is_held and self._loop.time() - self._heard > SILENT_SECONDS:
                self._hold(True)

    def _hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self.door.hold(is_held)
        self.agents.hold(is_held)
        self.passed.hold(is_held)


def main() -> None:
    """Serve on the socket pair whose number is the argument; the first that comes by it is the listening socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # of a terminal or a service manager: the controller's end is ours, too
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the address has to be free for the controller's next start
    allow_files()
    pair = socket.socket(fileno=int(sys.argv[1]))
    pair.setblocking(True)  # the controller's green threads made it otherwise
    _, files, _, _ = socket.recv_fds(pair, 1, 1)
    if not files:
        return  # the controller has ended
    listener = socket.socket(fileno=files[0])
    for each in (listener, pair):
        each.setblocking(False)

    async def serve() -> None:
        await Front(listener, pair).run()

    uvloop.run(serve())


if __name__ == "__main__":
    main()
