"""The arbiter's process: its parts, from options until a signal, and its metrics (``sopa arbiter --metrics-port``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric

from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.arbiter_options import ArbiterError, ArbiterOptions
from sopa_ryu.arbiter.budgets import Capacities, capacities
from sopa_ryu.arbiter.controller_link import ControllerLink
from sopa_ryu.arbiter.door import DemandDoor
from sopa_ryu.arbiter.schedule import SLOTS, Schedule, Timing
from sopa_ryu.arbiter.service import Listen, Service, bind
from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.channel.messages import ArbiterReport
from sopa_ryu.runtime.metrics import COUNTER, GAUGE, Row, families, served
from sopa_ryu.runtime.service import cancel, exit_status, first_signal, keep_short, notify
from topologies import Failures, FatTree

LOG = logging.getLogger("sopa.arbiter")

TURN_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class _Parts(NamedTuple):
    service: Service
    link: ControllerLink


_ROWS: list[Row[_Parts]] = [
    Row("sopa_arbiter_controller_connected", GAUGE, "1 while the channel to the controller is open, otherwise 0.",
        lambda p: p.link.connected),
    Row("sopa_arbiter_granting", GAUGE, "1 while slots are granted, otherwise 0.", lambda p: p.service.schedule.grants),
    Row("sopa_arbiter_participants", GAUGE, "Hosts that have sent a demand within a lease.",
        lambda p: p.service.schedule.participants),
    Row("sopa_arbiter_slot_seconds", GAUGE, "Length of a slot.", lambda p: p.service.timing.slot_ns / 1e9),
    Row("sopa_arbiter_batches", COUNTER, "Batches of slots made.", lambda p: p.service.schedule.counted["batches"]),
    Row("sopa_arbiter_late_batches", COUNTER, "Batches left out, since they would have come too late.",
        lambda p: p.service.schedule.counted["late"]),
    Row("sopa_arbiter_granted_cells", COUNTER, "Cells granted: a slot of a host each.",
        lambda p: p.service.schedule.counted["cells"]),
    Row("sopa_arbiter_unplaced_cells", COUNTER, "Cells that waited for want of a path.", lambda p: p.service.schedule.unplaced),
    Row("sopa_arbiter_reserved_cells", COUNTER, "Cells kept free, sending and receiving, of hosts that do not take part.",
        lambda p: p.service.schedule.counted["reserved"]),
    Row("sopa_arbiter_forgotten_hosts", COUNTER, "Hosts that were silent for a lease.",
        lambda p: p.service.schedule.counted["forgotten"]),
    Row("sopa_arbiter_clock_steps", COUNTER, "Times that the clock was set back.", lambda p: p.service.schedule.counted["clock"]),
    Row("sopa_arbiter_strayed_clocks", COUNTER, "Demands of hosts whose clock is off by more than a batch ahead or a lease behind.",
        lambda p: p.service.door.strayed),
    Row("sopa_arbiter_received_datagrams", COUNTER, "Datagrams received.", lambda p: p.service.counted["received"]),
    Row("sopa_arbiter_sent_datagrams", COUNTER, "Datagrams with grants sent.", lambda p: p.service.counted["sent"]),
    Row("sopa_arbiter_unsent_datagrams", COUNTER, "Datagrams that the kernel has refused to send.",
        lambda p: p.service.counted["unsent"]),
    Row("sopa_arbiter_controller_messages_refused", COUNTER, "Messages of the controller that were refused.",
        lambda p: p.link.refused),
    Row("sopa_arbiter_rejected_datagrams", COUNTER, "Datagrams rejected, by reason.",
        lambda p: dict(p.service.door.rejected), ("reason",)),  # a copy: another thread counts
]  # fmt: skip


class ArbiterMetrics:
    """A collector that reads the arbiter's counters at each scrape, in the scraping thread."""

    def __init__(self, service: Service, link: ControllerLink) -> None:
        self._parts = _Parts(service, link)

    def collect(self) -> Iterable[Metric]:
        """Return all families; a registry calls this for each scrape."""
        return families(_ROWS, [((), self._parts)])


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
    with served(registry, host, port, LOG, ArbiterError):
        yield


def run_arbiter(options: ArbiterOptions) -> int:
    """Grant slots until SIGTERM, SIGINT or SIGHUP.

    Returns:
        The exit status: 0 after SIGINT, 128 + n after another signal n.

    Raises:
        AllocationError, ArbiterError, ClientOptionError: If the arbiter cannot work with its options on this machine, or the
            library is not built.
    """
    controllers = [ControllerAddress(url, options.token, options.ca_file) for url in options.controllers]
    for address in controllers:
        address.check()
    secret, listen, timing = options.secret(), Listen(*options.listen), options.timing
    if secret is None:
        LOG.warning(
            "without --secret-file nothing is authenticated: any program that reaches %s may ask for slots in the name of any host",
            listen,
        )

    def make(cells: Capacities) -> Allocation:
        return Allocation(cells, batch=SLOTS, seed=options.seed)

    make(capacities(Failures(FatTree(2))))  # fails now if the library is not there
    schedule = Schedule(timing, make)
    with bind(listen) as bound, ExitStack() as entered:
        service = Service(bound, schedule, DemandDoor(secret, schedule.knows), timing, options.rate)
        link = ControllerLink(
            controllers,
            service.follow,
            service.superseded,
            service.measured,
            lambda: _report(listen, timing, service),
            options.seed,
        )
        if options.metrics_port is not None:
            entered.enter_context(metrics_served(service, link, options.metrics_host, options.metrics_port))
        LOG.info(
            "arbiter at %s: slots of %g ms, leases of %d ms, controller %s",
            listen,
            timing.slot_ns / 1e6,
            timing.lease_ms,
            ", ".join(options.controllers),
        )
        notify("READY=1")
        received = asyncio.run(_run(service, link))
        notify("STOPPING=1")
    LOG.info("ended: %d cells in %d batches were granted. Hosts spray without slots once their leases end",
             schedule.counted["cells"], schedule.counted["batches"])  # fmt: skip
    return exit_status(received)


async def _run(service: Service, link: ControllerLink) -> int:
    """Run all parts until a signal; return its number."""
    tasks = [asyncio.create_task(its) for its in (service.run(), link.run(), keep_short())]
    try:
        return await first_signal(tasks)
    finally:
        await cancel(tasks)


def _report(listen: Listen, timing: Timing, service: Service) -> ArbiterReport:
    """Return what the controller shows of this arbiter."""
    schedule = service.schedule
    return ArbiterReport(
        listen=str(listen),
        slot_ms=timing.slot_ns / 1e6,
        lease_ms=timing.lease_ms,
        participants=schedule.participants,
        load=round(schedule.granted_share, 4),
        batches=schedule.counted["batches"],
        late_batches=schedule.counted["late"],
        granted_cells=schedule.counted["cells"],
        unplaced_cells=schedule.unplaced,
        rejected_datagrams=service.door.rejected.total(),
    )
