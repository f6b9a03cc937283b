"""Metrics as tables of rows, and ``GET /metrics`` of a process that has no HTTP server otherwise: agents and the arbiter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

COUNTER, GAUGE, INFO = CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
REQUEST_SECONDS = 10.0
"""Limit for a client to send its request."""

Source = TypeVar("Source")


class Row(NamedTuple, Generic[Source]):
    """A metric family."""

    name: str
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily] | type[InfoMetricFamily]
    text: str
    values: Callable[[Source], float | Mapping[Any, Any] | None]
    """Returns the value that a source has; with labels, the value by the label's value, or by a tuple of several; with `INFO` the
    labels. None: there is no sample."""
    labels: tuple[str, ...] = ()


def families(
    rows: Sequence[Row[Source]], sources: Iterable[tuple[Sequence[str], Source]], labels: Sequence[str] = ()
) -> list[Metric]:
    """Return the family of each row, with the values of each source; ``labels``, and their values, come before the rows' own."""
    made: list[Any] = [row.kind(row.name, row.text, labels=[*labels, *row.labels]) for row in rows]
    for of_source, source in sources:
        for row, family in zip(rows, made, strict=True):
            values = row.values(source)
            if isinstance(values, Mapping) and row.kind is not INFO:
                for key, value in values.items():
                    family.add_metric([*of_source, *((key,) if isinstance(key, str) else key)], value)
            elif values is not None:
                family.add_metric(of_source, values)
    return made


def add_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process and of Python."""
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)


@contextmanager
def served(
    registry: CollectorRegistry, host: str, port: int, log: logging.Logger, error: Callable[[str], Exception]
) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port with a registry's and the process' metrics, from a thread, until the context ends.

    ``error`` is raised if the port is in use, or the address is not this machine's.
    """
    add_process(registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as refusal:
        text = f"metrics cannot be served at {host} port {port}: {refusal.strerror or refusal}"
        raise error(text) from refusal
    server.RequestHandlerClass.timeout = REQUEST_SECONDS  # type: ignore[attr-defined]  # socketserver.StreamRequestHandler
    log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
