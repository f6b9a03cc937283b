"""``GET /metrics`` of a relay, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from webob import Request, Response

from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.cluster.records import RelayRecord
from sopa_ryu.cluster.relay.following import Following
from sopa_ryu.cluster.relay.live import RelayFeed
from sopa_ryu.cluster.relay.upstream import Upstream
from sopa_ryu.front.door import FrontDoor
from sopa_ryu.runtime.metrics import COUNTER, GAUGE, Row, add_process, families

PUSH_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Parts(NamedTuple):
    """What the metrics are read from.

    Attributes:
        notifier, engine_answers, is_registered: Return the notifier, or None before the fabric is known; and whether that is so
            now.
    """

    following: Following
    door: FrontDoor
    feed: RelayFeed
    upstream: Upstream
    describe: Callable[[], RelayRecord]
    notifier: Callable[[], Notifier | None]
    engine_answers: Callable[[], bool]
    is_registered: Callable[[], bool]


class _Reading(NamedTuple):
    parts: Parts
    record: RelayRecord


_ROWS: list[Row[_Reading]] = [
    Row("sopa_relay_agents_connected", GAUGE, "Connected agents.", lambda r: r.record.agents),
    Row("sopa_relay_agents_behind", GAUGE, "Connected agents that have not acknowledged the relay's view.",
        lambda r: r.record.waiting),
    Row("sopa_relay_view_term", GAUGE, "Term of the view that is sent; 0 before the first.",
        lambda r: r.parts.following.view.epoch if r.parts.following.view else 0),
    Row("sopa_relay_view_version", GAUGE, "Version of the view that is sent; 0 before the first.",
        lambda r: r.parts.following.view.version if r.parts.following.view else 0),
    Row("sopa_relay_acknowledged_version", GAUGE, "Latest version that all agents have acknowledged.", lambda r: r.record.version),
    Row("sopa_relay_engine_answers", GAUGE, "1 while the engine answers the relay's watch, otherwise 0.",
        lambda r: r.parts.engine_answers()),
    Row("sopa_relay_registered", GAUGE, "1 while the engine has the relay's key, otherwise 0.", lambda r: r.parts.is_registered()),
    Row("sopa_relay_leader_known", GAUGE, "1 while the cluster has a leader, otherwise 0.",
        lambda r: r.parts.following.leader is not None),
    Row("sopa_relay_pages", GAUGE, "Open pages.", lambda r: len(r.parts.feed)),
    Row("sopa_relay_views_refused", COUNTER, "Views that are older than the one that is sent, or do not fit.",
        lambda r: r.parts.following.refused),
    Row("sopa_relay_agent_claims_refused", COUNTER, "Rejected connections: of another host, or of a second agent.",
        lambda r: _refused(r.parts, "claims")),
    Row("sopa_relay_agent_messages_refused", COUNTER, "Rejected messages of agents: not of the protocol.",
        lambda r: _refused(r.parts, "messages")),
    Row("sopa_relay_rejected_connections", COUNTER, "What was rejected before it was a request, by reason.",
        lambda r: {reason: r.parts.door.rejected[reason] for reason in ("share", "total", "files", "tls")}, ("reason",)),
    Row("sopa_relay_reads", COUNTER, "Reads that a controller answers, by how they were answered.",
        lambda r: r.parts.upstream.counted, ("outcome",)),
]  # fmt: skip


def _refused(parts: Parts, what: str) -> int:
    notifier = parts.notifier()
    return 0 if notifier is None else notifier.refused[what]


class RelayMetrics:
    """A collector that reads the relay's counters at each scrape.

    Attributes:
        pushes: From a version's arrival until all agents of the relay had acknowledged it.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.parts: Parts | None = None
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
        """Return all families; none before the parts are there."""
        return [] if self.parts is None else families(_ROWS, [((), _Reading(self.parts, self.parts.describe()))])
