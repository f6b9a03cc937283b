"""``sopa arbiter --metrics-port``: the metrics of an arbiter, for Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from sopa_ryu.arbiter.arbiter_options import ArbiterError
from sopa_ryu.arbiter.controller_link import ControllerLink
from sopa_ryu.arbiter.service import Service
from sopa_ryu.runtime import metrics_server
from sopa_ryu.runtime.metrics_server import MetricsError

LOG = logging.getLogger("sopa.arbiter")

TURN_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class ArbiterMetrics:
    """A collector that reads the arbiter's counters at each scrape, in the scraping thread."""

    def __init__(self, service: Service, link: ControllerLink) -> None:
        self._service, self._link = service, link

    def collect(self) -> Iterator[Metric]:
        """Yield all families; a registry calls this for each scrape."""
        service, schedule = self._service, self._service.schedule
        counted = schedule.counted
        yield _gauge(
            "controller_connected", "1 while the channel to the controller is open, otherwise 0.", self._link.connected
        )
        yield _gauge("granting", "1 while slots are granted, otherwise 0.", schedule.grants)
        yield _gauge("participants", "Hosts that have sent a demand within a lease.", schedule.participants)
        yield _gauge("slot_seconds", "Length of a slot.", service.timing.slot_ns / 1e9)
        yield _counter("batches", "Batches of slots made.", counted["batches"])
        yield _counter("late_batches", "Batches left out, since they would have come too late.", counted["late"])
        yield _counter("granted_cells", "Cells granted: a slot of a host each.", counted["cells"])
        yield _counter("unplaced_cells", "Cells that waited for want of a path.", schedule.unplaced)
        reserved = "Cells kept free, sending and receiving, of hosts that do not take part."
        yield _counter("reserved_cells", reserved, counted["reserved"])
        yield _counter("forgotten_hosts", "Hosts that were silent for a lease.", counted["forgotten"])
        yield _counter("clock_steps", "Times that the clock was set back.", counted["clock"])
        strayed = "Demands of hosts whose clock is off by more than a batch ahead or a lease behind."
        yield _counter("strayed_clocks", strayed, service.door.strayed)
        yield _counter("received_datagrams", "Datagrams received.", service.counted["received"])
        yield _counter("sent_datagrams", "Datagrams with grants sent.", service.counted["sent"])
        yield _counter("unsent_datagrams", "Datagrams that the kernel has refused to send.", service.counted["unsent"])
        yield _counter(
            "controller_messages_refused", "Messages of the controller that were refused.", self._link.refused
        )
        rejected = CounterMetricFamily(
            "sopa_arbiter_rejected_datagrams", "Datagrams rejected, by reason.", labels=["reason"]
        )
        for reason, count in list(service.door.rejected.items()):
            rejected.add_metric([reason], count)
        yield rejected


@contextmanager
def metrics_served(service: Service, link: ControllerLink, host: str, port: int) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port, from a thread, until the context ends.

    Raises:
        ArbiterError: If the port is in use, or the address is not this machine's.
    """
    registry = CollectorRegistry()
    registry.register(ArbiterMetrics(service, link))
    turns = Histogram(
        "sopa_arbiter_batch_seconds",
        "Time from the beginning of a turn until its grants were sent.",
        registry=registry,
        buckets=TURN_BUCKETS,
    )
    service.observe = turns.observe
    try:
        with metrics_server.served(registry, host, port, LOG):
            yield
    except MetricsError as error:
        raise ArbiterError(str(error)) from error


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sopa_arbiter_{name}", text, value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"sopa_arbiter_{name}", text, value)
