"""The arbiter's process: its parts, from options until a signal."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import Any

from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.arbiter_metrics import metrics_served
from sopa_ryu.arbiter.arbiter_options import ArbiterOptions
from sopa_ryu.arbiter.capacities import Capacities, capacities
from sopa_ryu.arbiter.controller_link import ControllerLink
from sopa_ryu.arbiter.door import Door
from sopa_ryu.arbiter.link_rates import LinkRates
from sopa_ryu.arbiter.schedule import SLOTS, Schedule, Timing
from sopa_ryu.arbiter.service import Listen, Service, bind
from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.runtime.service_manager import notify
from sopa_ryu.runtime.termination import cancel, exit_status, first_signal
from topologies import Failures, FatTree

LOG = logging.getLogger("sopa.arbiter")


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
        address.channel("/")
        address.tls()
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
        service = Service(bound, schedule, Door(secret, schedule.knows), timing, options.rate)
        link = ControllerLink(
            controllers, service.follow, service.superseded, lambda: _report(listen, timing, service), options.seed
        )
        if options.metrics_port is not None:
            entered.enter_context(metrics_served(service, link, options.metrics_host, options.metrics_port))
        rates = LinkRates(lambda: link.address, lambda: service.hosts, options.rate, service.measured)
        LOG.info(
            "arbiter at %s: slots of %g ms, leases of %d ms; controller %s",
            listen,
            timing.slot_ns / 1e6,
            timing.lease_ms,
            ", ".join(options.controllers),
        )
        notify("READY=1")
        received = asyncio.run(_run(service, link, rates))
        notify("STOPPING=1")
    LOG.info("ended: %d cells in %d batches were granted; hosts spray without slots once their leases end",
             schedule.counted["cells"], schedule.counted["batches"])  # fmt: skip
    return exit_status(received)


async def _run(service: Service, link: ControllerLink, rates: LinkRates) -> int:
    """Run all parts until a signal; return its number."""
    tasks = [asyncio.create_task(part.run()) for part in (service, link, rates)]
    try:
        return await first_signal(tasks)
    finally:
        await cancel(tasks)


def _report(listen: Listen, timing: Timing, service: Service) -> dict[str, Any]:
    """Return what the controller shows of this arbiter (`sopa_ryu.channel.arbiter.REPORTED`)."""
    schedule = service.schedule
    return {
        "listen": str(listen),
        "slot_ms": timing.slot_ns / 1e6,
        "lease_ms": timing.lease_ms,
        "participants": schedule.participants,
        "load": round(schedule.granted_share, 4),
        "batches": schedule.counted["batches"],
        "late_batches": schedule.counted["late"],
        "granted_cells": schedule.counted["cells"],
        "unplaced_cells": schedule.unplaced,
        "rejected_datagrams": service.door.rejected.total(),
    }
