"""``GET /metrics`` of a relay, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from webob import Request, Response

from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.cluster.records import RelayRecord
from sopa_ryu.cluster.relay.door import Door
from sopa_ryu.cluster.relay.following import Following
from sopa_ryu.cluster.relay.live import Live
from sopa_ryu.cluster.relay.upstream import Upstream

PUSH_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Parts(NamedTuple):
    """What the metrics are read from.

    Attributes:
        notifier, engine_answers, is_registered: Return the notifier, or None before the fabric is known; and whether that is so
            now.
    """

    following: Following
    door: Door
    feed: Live
    upstream: Upstream
    describe: Callable[[], RelayRecord]
    notifier: Callable[[], Notifier | None]
    engine_answers: Callable[[], bool]
    is_registered: Callable[[], bool]


class RelayMetrics:
    """A collector that reads the relay's counters at each scrape.

    Attributes:
        pushes: From a version's arrival until all agents of the relay had acknowledged it.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.parts: Parts | None = None
        self.registry.register(self)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.pushes = Histogram(
            "sopa_relay_push_seconds",
            "From a version's arrival from the engine until all agents of the relay have acknowledged it.",
            registry=self.registry,
            buckets=PUSH_BUCKETS,
        )

    def page(self, request: Request) -> Response:
        """Answer a scrape in the text format, or as OpenMetrics if the client accepts it."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return Response(
            encode(self.registry), headerlist=[("Content-Type", content_type), ("Cache-Control", "no-store")]
        )

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        its = self.parts
        if its is None:
            return
        record, view, notifier = its.describe(), its.following.view, its.notifier()
        yield _gauge("agents_connected", "Connected agents.", record.agents)
        yield _gauge("agents_behind", "Connected agents that have not acknowledged the relay's view.", record.waiting)
        yield _gauge("view_term", "Term of the view that is sent; 0 before the first.", view.epoch if view else 0)
        yield _gauge(
            "view_version", "Version of the view that is sent; 0 before the first.", view.version if view else 0
        )
        yield _gauge("acknowledged_version", "Latest version that all agents have acknowledged.", record.version)
        yield _gauge(
            "engine_answers", "1 while the engine answers the relay's watch, otherwise 0.", its.engine_answers()
        )
        yield _gauge("registered", "1 while the engine has the relay's key, otherwise 0.", its.is_registered())
        yield _gauge("leader_known", "1 while the cluster has a leader, otherwise 0.", its.following.leader is not None)
        yield _gauge("pages", "Open pages.", len(its.feed))
        yield _counter(
            "views_refused", "Views that are older than the one that is sent, or do not fit.", its.following.refused
        )
        refused = notifier.refused if notifier is not None else {"claims": 0, "messages": 0}
        yield _counter(
            "agent_claims_refused", "Rejected connections: of another host, or of a second agent.", refused["claims"]
        )
        yield _counter(
            "agent_messages_refused", "Rejected messages of agents: not of the protocol.", refused["messages"]
        )
        rejected = CounterMetricFamily(
            "sopa_relay_rejected_connections",
            "What was rejected before it was a request, by reason.",
            labels=["reason"],
        )
        for reason, count in its.door.rejected.items():
            rejected.add_metric([reason], count)
        yield rejected
        reads = CounterMetricFamily(
            "sopa_relay_reads", "Reads that a controller answers, by how they were answered.", labels=["outcome"]
        )
        for outcome, count in its.upstream.counted.items():
            reads.add_metric([outcome], count)
        yield reads


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sopa_relay_{name}", text, value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_relay_{name}", text, value)
