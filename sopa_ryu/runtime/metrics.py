"""Metrics as tables of rows, and ``GET /metrics`` of a process that has no HTTP server otherwise: agents and the arbiter."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, make_wsgi_app
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from sopa_ryu.runtime import certificates
from sopa_ryu.runtime.clients import Clients, ExcessClient, client_of, is_address, normal_origin, plain

COUNTER, GAUGE, INFO = CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
REQUEST_SECONDS = 10.0
"""Limit for a client to send a part of its request."""
SHARE, MOST = 4, 16
"""Connections of one address, and all together: each has a thread."""
BACKLOG = 128

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


_CERTIFICATES: list[Row[None]] = [
    Row("sopa_certificate_end_seconds", GAUGE, "When a certificate that this process uses ends, as Unix time.",
        lambda _: certificates.ends(), ("file",))
]  # fmt: skip


class _Certificates(Collector):
    def collect(self) -> Iterable[Metric]:
        return families(_CERTIFICATES, [((), None)])


def add_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process, of its certificates and of Python."""
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(_Certificates())


@contextmanager
def served(
    registry: CollectorRegistry, host: str, port: int, log: logging.Logger, error: Callable[[str], Exception]
) -> Iterator[None]:
    """Answer ``GET /metrics`` on a port with a registry's and the process' metrics, from a thread, until the context ends.

    ``error`` is raised if the port is in use, or the address is not this machine's.
    """
    add_process(registry)
    try:
        server = _Server(host, port, registry, log)
    except OSError as refusal:
        text = f"metrics cannot be served at {host} port {port}: {refusal.strerror or refusal}"
        raise error(text) from refusal
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Request(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: who scrapes does so each few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each of few connections: the newest takes the place of the oldest of its address, or of that with most."""

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, host: str, port: int, registry: CollectorRegistry, log: logging.Logger) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._clients, self._open, self._lock, self._log = Clients(SHARE, MOST), dict[Any, str](), Lock(), log
        super().__init__((host, port), _Request)
        self._names = {"localhost", socket.gethostname().lower(), self.server_name.lower(), host.lower()}
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        self.set_app(self._answer)

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer who asks by an address or a name of this machine: no page of another site whose name leads here."""
        host = environ.get("HTTP_HOST")
        if host is None or self._is_own(host):
            return self._metrics(environ, start)
        start(f"{HTTPStatus.FORBIDDEN:d} {HTTPStatus.FORBIDDEN.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{host:.60} is not a name of this machine: ask by its address, or its name as hostname -f says\n".encode()]

    def _is_own(self, host: str) -> bool:
        try:
            name = str(urlsplit(normal_origin(f"http://{host}")).hostname)
        except ValueError:
            return False
        return is_address(name) or name in self._names

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection by a thread of its own."""
        peer = plain(client_address[0])
        with self._lock:
            while (excess := self._clients.enter(peer)) is not None:
                client = client_of(peer) if excess is ExcessClient.SHARE else self._clients.busiest
                oldest = next(each for each, its in self._open.items() if client_of(its) == client)
                self._leave(oldest)
                with suppress(OSError):  # it has left
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread then ends
            self._open[request] = peer
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._leave(request)
        super().shutdown_request(request)

    def _leave(self, request: Any) -> None:
        if (peer := self._open.pop(request, None)) is not None:
            self._clients.leave(peer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Note a connection that was lost, or too slow."""
        self._log.debug("connection from %s to the metrics ended", client_address[0], exc_info=True)
