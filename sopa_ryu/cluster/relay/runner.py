"""The relay's process: its parts, from options until a signal, and its metrics."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple, NoReturn

import uvloop
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from webob import Request, Response

from sopa_ryu import __version__
from sopa_ryu.channel.client import ControllerAddress, authorities
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.cluster.engine import Contents, Engine, EngineError, Kind, Outage
from sopa_ryu.cluster.records import RelayRecord
from sopa_ryu.cluster.relay.application import METRICS, RelayApplication
from sopa_ryu.cluster.relay.following import Following
from sopa_ryu.cluster.relay.live import RelayFeed
from sopa_ryu.cluster.relay.registration import Registration
from sopa_ryu.cluster.relay.relay_options import RelayError, RelayOptions
from sopa_ryu.cluster.relay.surplus import LOOK_SECONDS, Surplus
from sopa_ryu.cluster.relay.uplink import Uplink
from sopa_ryu.cluster.relay.upstream import Upstream
from sopa_ryu.front.agents import AgentsChannel
from sopa_ryu.front.door import FrontDoor
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET, Origins, Tokens
from sopa_ryu.rest.operators import FILE as OPERATORS_FILE
from sopa_ryu.runtime import certificates, clock
from sopa_ryu.runtime.clients import bracketed
from sopa_ryu.runtime.metrics import COUNTER, GAUGE, Row, add_process, families
from sopa_ryu.runtime.process import allow_files
from sopa_ryu.runtime.service import exit_status, first_signal, keep_short, kept, notify
from sopa_ryu.web.pages import pages

LOG = logging.getLogger("sopa.relay")

PUSH_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
WATCH_RETRY_SECONDS = 0.5
LEAVE_SECONDS = 3.0
"""How long agents' channels and the lease may take to end."""


class Relay:
    """The parts of a relay, on a running event loop; `RelayError` if it cannot listen."""

    def __init__(self, options: RelayOptions, tokens: Tokens) -> None:
        self._options, self._tokens = options, tokens
        self._uplink: asyncio.Task[NoReturn] | None = None
        self._loop = asyncio.get_running_loop()
        engine = options.engine
        self.following = Following(engine.name, tokens.secret)
        self.metrics = RelayMetrics(self)
        # only the leader's URL has a seal, so that no other one gets a token
        token = tokens.relay_token if options.read_token else None
        self.upstream = Upstream(self._controllers, options.name, cache(lambda: authorities(options.ca_file)), token)
        self.feed = RelayFeed(self._controllers, options.ca_file, token)
        served = {**pages(), METRICS: self.metrics.page}
        origins = Origins(options.origin, (options.url, f"http://{bracketed(options.listen[0])}"), "--origin")
        self.application = RelayApplication(self.following, tokens, self.upstream, served, self.feed, origins)
        self.engine_answers = False
        self._acknowledged = 0, 0
        self._watch = EngineWatch(Engine(engine, options.access), self._hand)
        self._registry = Engine(engine, options.access)
        self.registration = Registration(self._registry, options.name, self.describe)
        tls = None if options.tls is None else certificates.server(*options.tls)
        try:
            self.door = FrontDoor(options.listen, self.application.answer, tls, options.client_connections, options.proxy)
        except (OSError, OverflowError) as error:
            raise RelayError(f"cannot listen on {bracketed(options.listen[0])}:{options.listen[1]}: {error}") from error

    @property
    def url(self) -> str:
        """Where agents and readers reach it."""
        return self._options.url or f"{self.door.scheme}://{bracketed(self._options.listen[0])}:{self.door.port}"

    def _controllers(self) -> list[str]:
        if not self._options.read_token:
            return self.following.controllers
        return [self.following.leader] if self.following.leader else []

    @property
    def notifier(self) -> Notifier | None:
        """What its agents are sent; None before the fabric is known."""
        return None if self.application.channel is None else self.application.channel.notifier

    async def run(self) -> int:
        """Serve until a signal; return its number."""
        self._watch.start()
        self.door.open()
        LOG.info("relay %s of %s at %s", self._options.name, self._options.engine, self.url)
        self._loop.call_soon(notify, "READY=1")  # once signals are handled
        work = (self.registration.run, self.feed.run, keep_short, self._keep_share, self._tick)
        tasks = [asyncio.create_task(kept(each)) for each in work]
        try:
            return await first_signal(tasks)
        finally:
            notify("STOPPING=1")
            await self._leave(tasks if self._uplink is None else [*tasks, self._uplink])

    async def _leave(self, tasks: Sequence[asyncio.Task[NoReturn]]) -> None:
        """Send agents and pages to other relays, end the work, and give the lease back."""
        self.door.close()
        if self.application.channel is not None:
            self.application.channel.send_away()
        self.feed.send_away()
        self._watch.end()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=LEAVE_SECONDS)  # a leader that has stopped answers no close of the feed
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.registration.leave()
                await self.upstream.close()
        except TimeoutError:
            LOG.warning("the engine did not answer in time: it forgets this relay when its lease ends")
        self._registry.close()

    async def _keep_share(self) -> None:
        """Send agents on while the relays' shares are uneven."""
        surplus = Surplus()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.application.channel is None:
                continue
            known = self.engine_answers and self.registration.is_held
            relays, sessions = self.following.mirror.relays, self.application.channel.notifier.sessions
            sent = surplus.look(relays.values() if known else (), self.url, sessions.values(), clock.now())
            if sent:
                LOG.info("%d of %d agents are sent to the relays that come first for them", len(sent), len(sessions))
                self.application.channel.send_on(sent)

    async def _tick(self) -> None:
        """Watch the agents' channels once the fabric is known."""
        while self.application.channel is None:
            await asyncio.sleep(0.2)
        await self.application.channel.watch()

    # -- the engine ---------------------------------------------------------------------------------------------------

    def _hand(self, contents: Contents | None) -> None:
        """Take what the engine says from its thread to the loop."""
        try:
            self._loop.call_soon_threadsafe(self._take, contents)
        except RuntimeError:
            LOG.debug("the loop has ended")

    def _take(self, contents: Contents | None) -> None:
        self.engine_answers = contents is not None
        if contents is None:
            return
        news = self.following.take(contents)
        if news.fabric and self.following.tree is not None:
            self.application.channel = AgentsChannel(
                self.following.tree,
                self.following.carrier,
                lambda: self.following.view,
                lambda session: self.registration.changed(),
            )
            self.application.channel.pushed = self.metrics.pushes.observe
            self._open_uplink(self.application.channel)
        if news.view and self.application.channel is not None and self.following.view is not None:
            count = self.application.channel.broadcast()
            view = self.following.view
            LOG.info("version %d of term %d: %d failures, sent to %d agents", view.version, view.epoch, len(view.failures), count)
        if news.leader:
            self.feed.moved()

    def _open_uplink(self, channel: AgentsChannel) -> None:
        """Hand on what the agents of a channel report, to whichever member leads."""
        if self._uplink is not None:
            self._uplink.cancel()
        ca_file = self._options.ca_file
        uplink = Uplink(
            self._options.name,
            channel.notifier,
            lambda: self.following.leader,
            channel.carry_out,
            lambda url: ControllerAddress(url, lambda: self._tokens.relay_token, ca_file),
        )
        self._uplink = asyncio.create_task(kept(uplink.run))

    def describe(self) -> RelayRecord:
        """Return what the relay says of itself."""
        view, notifier = self.following.view, self.notifier
        waiting = 0 if view is None or notifier is None else notifier.behind(view.version)
        if view is not None and not waiting:
            self._acknowledged = view.epoch, view.version
        agents = 0 if notifier is None else len(notifier.sessions)
        return RelayRecord(self._options.name, self.url, __version__, agents, *self._acknowledged, waiting)


# -- the engine ---------------------------------------------------------------------------------------------------------


class EngineWatch:
    """A watch of all keys of the cluster that begins again whenever it ends, by a client of the engine for its thread alone.

    ``hand`` is called in the thread with what was read or has changed, or with None while the engine does not answer.
    """

    def __init__(self, engine: Engine, hand: Callable[[Contents | None], None]) -> None:
        self._engine = engine
        self._hand = hand
        self._ended = threading.Event()
        self._outage = Outage()
        self._thread = threading.Thread(target=self._run, name="engine watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End; the thread may go on until its present request has been answered."""
        self._ended.set()
        self._engine.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except EngineError as error:
                self._away(error)
            except Exception as error:
                LOG.critical("the engine's watch crashed, restarting: report the traceback", exc_info=True)
                self._away(EngineError(f"its watch has crashed ({type(error).__name__})", Kind.MALFORMED))
            self._ended.wait(WATCH_RETRY_SECONDS)

    def _follow(self) -> None:
        contents = self._engine.read()
        self._hand(contents._replace(whole=True))
        for changed in self._engine.watch(contents.revision):
            if self._ended.is_set():
                return
            self._hand(changed)
            if self._outage.worked("watch", time.monotonic()):
                LOG.warning("the engine answers again: views are followed")

    def _away(self, error: EngineError) -> None:
        if self._ended.is_set():
            return
        self._hand(None)
        if self._outage.failed("watch", error, time.monotonic()):
            LOG.error("the engine does not answer: %s. The relay goes on sending the last view, new ones wait", error)


# -- metrics ------------------------------------------------------------------------------------------------------------


class _Reading(NamedTuple):
    relay: Relay
    record: RelayRecord


_ROWS: list[Row[_Reading]] = [
    Row("sopa_relay_agents_connected", GAUGE, "Connected agents.", lambda r: r.record.agents),
    Row("sopa_relay_agents_behind", GAUGE, "Connected agents that have not acknowledged the relay's view.",
        lambda r: r.record.waiting),
    Row("sopa_relay_view_term", GAUGE, "Term of the view that is sent; 0 before the first.",
        lambda r: r.relay.following.view.epoch if r.relay.following.view else 0),
    Row("sopa_relay_view_version", GAUGE, "Version of the view that is sent; 0 before the first.",
        lambda r: r.relay.following.view.version if r.relay.following.view else 0),
    Row("sopa_relay_acknowledged_version", GAUGE, "Latest version that all agents have acknowledged.", lambda r: r.record.version),
    Row("sopa_relay_engine_answers", GAUGE, "1 while the engine answers the relay's watch, otherwise 0.",
        lambda r: r.relay.engine_answers),
    Row("sopa_relay_registered", GAUGE, "1 while the engine has the relay's key, otherwise 0.",
        lambda r: r.relay.registration.is_held),
    Row("sopa_relay_leader_known", GAUGE, "1 while the cluster has a leader, otherwise 0.",
        lambda r: r.relay.following.leader is not None),
    Row("sopa_relay_pages", GAUGE, "Open pages.", lambda r: len(r.relay.feed)),
    Row("sopa_relay_views_refused", COUNTER, "Views that are older than the one that is sent, or do not fit.",
        lambda r: r.relay.following.refused),
    Row("sopa_relay_agent_claims_refused", COUNTER, "Rejected connections: of another host, or of a second agent.",
        lambda r: _refused(r.relay, "claims")),
    Row("sopa_relay_agent_messages_refused", COUNTER, "Rejected messages of agents: not of the protocol.",
        lambda r: _refused(r.relay, "messages")),
    Row("sopa_relay_rejected_connections", COUNTER, "What was rejected before it was a request, by reason.",
        lambda r: {reason: r.relay.door.rejected[reason] for reason in ("share", "total", "files", "tls")}, ("reason",)),
    Row("sopa_relay_reads", COUNTER, "Reads that a controller answers, by how they were answered.",
        lambda r: r.relay.upstream.counted, ("outcome",)),
]  # fmt: skip


def _refused(relay: Relay, what: str) -> int:
    return 0 if relay.notifier is None else relay.notifier.refused[what]


class RelayMetrics:
    """``GET /metrics``, for Prometheus: a collector that reads the relay's counters at each scrape."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.registry = CollectorRegistry()
        self.registry.register(self)
        add_process(self.registry)
        self.pushes = Histogram(
            "sopa_relay_push_seconds",
            "From a version's arrival from the engine until all agents of the relay have acknowledged it.",
            registry=self.registry,
            buckets=PUSH_BUCKETS,
        )

    def page(self, request: Request) -> Response:
        """Answer a scrape in the text format, or as OpenMetrics if the client accepts it."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(encode(self.registry), headerlist=[("Content-Type", content_type), ("Cache-Control", "no-store")])

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        return families(_ROWS, [((), _Reading(self._relay, self._relay.describe()))])


def run_relay(options: RelayOptions) -> int:
    """Serve agents and readers until a signal; return the exit status: 0 after SIGINT, 128 + n after another signal n.

    `RelayError`, `AddressError`, `EngineError`, `TokenError` or `CertificateError` say why it cannot work with its options here.
    """
    allow_files()
    only, read = options.host_tokens_only, options.read_token
    tokens = Tokens(options.state_dir, host_tokens_only=only, read_token=read, make=False)
    wanted = (SECRET,) if options.host_tokens_only else (SECRET, AGENTS)
    found = [name for name in wanted if (options.state_dir / name).exists()]
    if not found:
        raise RelayError(
            f"{options.state_dir} has no {' and no '.join(wanted)}, by which agents' tokens are checked: copy the controllers' "
            "files there, readable by this relay's user alone"
        )
    if read and not any((options.state_dir / name).exists() for name in (OPERATORS_FILE, OPERATORS)):
        raise RelayError(
            f"{options.state_dir} has no {OPERATORS_FILE} and no {OPERATORS}, by which readers' tokens are checked: copy the "
            f"controllers' file {OPERATORS_FILE} there, which has no token in it"
        )
    LOG.info("agents' tokens are checked by %s in %s", " and ".join(found), options.state_dir)

    async def main() -> int:
        return await Relay(options, tokens).run()

    received = uvloop.run(main())
    LOG.info("ended: agents go to other relays, and keep their paths meanwhile")
    return exit_status(received)
