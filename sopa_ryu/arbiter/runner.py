"""The arbiter's process: its parts, from options until a signal."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.arbiter_metrics import metrics_served
from sopa_ryu.arbiter.capacities import Capacities, capacities
from sopa_ryu.arbiter.controller_link import ControllerLink
from sopa_ryu.arbiter.door import Door
from sopa_ryu.arbiter.schedule import SLOTS, Schedule, Timing
from sopa_ryu.arbiter.service import ArbiterError, Listen, Service, bind
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress
from sopa_ryu.channel.host_tokens import arbiter_token
from sopa_ryu.channel.messages import ArbiterReport
from sopa_ryu.runtime.service_manager import notify
from sopa_ryu.runtime.termination import cancel, exit_status, first_signal
from topologies import Failures, FatTree

LOG = logging.getLogger("sopa.arbiter")


@dataclass(frozen=True)
class Options:
    """The options of an arbiter.

    Args:
        controllers: The controller's URL; of a cluster, those of its controllers.
        secret_file: The fabric's secret; without it nothing is authenticated.
        token_file: The arbiter's token for the controller's channel; by default it is derived from the secret.
        metrics: The address and port where ``/metrics`` is served; nowhere by default.
        host_mbit: The rate of hosts' links, if it is not that of the fabric file or of their ports.
    """

    controllers: tuple[str, ...]
    listen: Listen
    timing: Timing
    secret_file: Path | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    metrics: tuple[str, int] | None = None
    host_mbit: float | None = None
    seed: int = 1

    def secret(self) -> str | None:
        """Return the fabric's secret; None without a file. `ArbiterError` if it cannot be read."""
        return None if self.secret_file is None else _read(self.secret_file, "the fabric's secret")

    def token(self) -> str | None:
        """Return the token for the controller's channel; None if there is none. Read anew for each connection."""
        try:
            if self.token_file is not None:
                return _read(self.token_file, "the token")
            secret = self.secret()
        except ArbiterError as error:
            raise ClientOptionError(str(error)) from error
        return None if secret is None else arbiter_token(secret)


def _read(file: Path, what: str) -> str:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ArbiterError(f"{what} cannot be read from {file}: {error}") from error
    if not text:
        raise ArbiterError(f"{file} is empty")
    return text


def run_arbiter(options: Options) -> int:
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
    secret = options.secret()
    if secret is None:
        LOG.warning(
            "without --secret-file nothing is authenticated: any program that reaches %s may ask for slots in the name of any host",
            options.listen,
        )

    def make(cells: Capacities) -> Allocation:
        return Allocation(cells, batch=SLOTS, seed=options.seed)

    make(capacities(Failures(FatTree(2))))  # fails now if the library is not there
    schedule = Schedule(options.timing, make)
    with bind(options.listen) as bound, ExitStack() as entered:
        service = Service(bound, schedule, Door(secret, schedule.knows), options.timing, options.host_mbit)
        link = ControllerLink(
            controllers,
            service.follow,
            service.superseded,
            service.measured,
            lambda: _report(options, service),
            options.seed,
        )
        if options.metrics is not None:
            entered.enter_context(metrics_served(service, link, *options.metrics))
        LOG.info(
            "arbiter at %s: slots of %g ms, leases of %d ms; controller %s",
            options.listen,
            options.timing.slot_ns / 1e6,
            options.timing.lease_ms,
            ", ".join(options.controllers),
        )
        notify("READY=1")
        received = asyncio.run(_run(service, link))
        notify("STOPPING=1")
    LOG.info("ended: %d cells in %d batches were granted; hosts spray without slots once their leases end",
             schedule.counted["cells"], schedule.counted["batches"])  # fmt: skip
    return exit_status(received)


async def _run(service: Service, link: ControllerLink) -> int:
    """Run all parts until a signal; return its number."""
    tasks = [asyncio.create_task(part.run()) for part in (service, link)]
    try:
        return await first_signal(tasks)
    finally:
        await cancel(tasks)


def _report(options: Options, service: Service) -> ArbiterReport:
    """Return what the controller shows of this arbiter."""
    schedule = service.schedule
    return ArbiterReport(
        listen=str(options.listen),
        slot_ms=options.timing.slot_ns / 1e6,
        lease_ms=options.timing.lease_ms,
        participants=schedule.participants,
        load=round(schedule.granted_share, 4),
        batches=schedule.counted["batches"],
        late_batches=schedule.counted["late"],
        granted_cells=schedule.counted["cells"],
        unplaced_cells=schedule.unplaced,
        rejected_datagrams=service.door.rejected.total(),
    )
