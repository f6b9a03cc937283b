"""``GET /metrics`` of a process that has no HTTP server otherwise: agents and the arbiter."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, start_http_server

REQUEST_SECONDS = 10.0
"""Limit for a client to send its request."""


class MetricsError(RuntimeError):
    """The port is in use, or the address is not this machine's."""


@contextmanager
def served(registry: CollectorRegistry, host: str, port: int, log: logging.Logger) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port with a registry's and the process' metrics, from a thread, until the context ends.

    Raises:
        MetricsError: If the port is in use, or the address is not this machine's.
    """
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise MetricsError(f"metrics cannot be served at {host} port {port}: {error.strerror or error}") from error
    server.RequestHandlerClass.timeout = REQUEST_SECONDS  # type: ignore[attr-defined]  # socketserver.StreamRequestHandler
    log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
