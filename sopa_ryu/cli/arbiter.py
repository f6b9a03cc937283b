"""``sopa arbiter``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sopa_ryu.arbiter.allocation import AllocationError
from sopa_ryu.channel.slots import PORT
from sopa_ryu.cli.agent import log_to_stderr
from sopa_ryu.cli.common import fail, seed_option, urls
from sopa_ryu.cli.token import SECRET_FILE

MIN_SLOT_MS, MAX_SLOT_MS = 3, 4000
"""Shorter ones are over before a host has noticed that they have begun; longer ones do not fit into a grant's 32 bits."""


class Address(click.ParamType[tuple[str, int]]):
    """An address and a UDP port."""

    name = "ADDRESS:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return address and port, or end with a usage error."""
        if isinstance(value, tuple):
            return value
        address, _, port = str(value).rpartition(":")
        if not address or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            self.fail(f"{value!r} is no address and port, as in 192.0.2.1:{PORT}", param, ctx)
        return address.removeprefix("[").removesuffix("]"), int(port)


@click.command()
@click.option("--controller", "controllers", required=True, multiple=True, callback=urls, metavar="URL",
              help="URL of the controller: http://192.0.2.1:8080. May be repeated for a cluster's controllers (no relays): the "
              "leader takes the arbiter.")  # fmt: skip
@click.option("--listen", required=True, type=Address(),
              help=f"Address and UDP port where agents reach the arbiter: 192.0.2.1:{PORT}")  # fmt: skip
@click.option("--slot", type=click.FloatRange(MIN_SLOT_MS, MAX_SLOT_MS), default=10, show_default=True, metavar="MS",
              help="Length of a slot in milliseconds: long enough for a packet at the rate of hosts' links.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(0.1, 1e6), metavar="MBIT",
              help="Rate of hosts' links in Mbit/s. Default: that of the fabric file, otherwise what the controller knows of "
              "their ports.")  # fmt: skip
@click.option("--lease", type=click.IntRange(20, 600_000), metavar="MS",
              help="Milliseconds without a datagram after which a host sends without slots, and a silent host gets none. "
              "Default: 8 batches of 4 slots, at least 100.")  # fmt: skip
@click.option("--secret-file", envvar="SOPA_AGENT_SECRET_FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="The fabric's secret, agent-secret in the controller's --sopa-state-dir, from which hosts' tokens are derived. "
              f"Default: {SECRET_FILE} if it exists. Without it nothing is authenticated.")  # fmt: skip
@click.option("--token-file", envvar="SOPA_ARBITER_TOKEN_FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="The arbiter's token for the controller, as sopa token --arbiter prints it. Default: derived from the "
              "secret.")  # fmt: skip
@click.option("--ca-file", envvar="SOPA_CA_FILE", type=click.Path(dir_okay=False, path_type=Path),
              help="Certificate authorities (PEM) of an https controller. Default: the system's.")  # fmt: skip
@click.option("--metrics-port", envvar="SOPA_ARBITER_METRICS_PORT", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve Prometheus metrics at /metrics on this port. Default: off.")  # fmt: skip
@click.option("--metrics-host", envvar="SOPA_ARBITER_METRICS_HOST", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Address where metrics are served.")  # fmt: skip
@seed_option
def arbiter(
    controllers: tuple[str, ...],
    listen: tuple[str, int],
    slot: float,
    rate: float | None,
    lease: int | None,
    secret_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    metrics_port: int | None,
    metrics_host: str,
    seed: int,
) -> None:
    """Grant slots and paths to hosts whose agents run --policy cfr, until SIGTERM or Ctrl-C.

    The arbiter takes the fabric and its failures from the controller. Hosts tell it over UDP how much they have to send to which
    host; for every batch of four slots it decides which host sends to which, and on which path, so that no link is asked for
    more than it carries (docs/cfr.md). It keeps no state: killed and started again, it goes on with the hosts' next datagrams.

    One arbiter at a time has the controller's channel; a second one is rejected while the first answers. Without an arbiter, hosts
    send without slots once their leases have ended. It needs no privileges.

    \b
    Example:
      sopa arbiter --controller http://127.0.0.1:8080 --listen 192.0.2.1:9160
      sopa arbiter --controller http://127.0.0.1:8080 --listen 192.0.2.1:9160 --slot 4 --metrics-port 9161
    """
    from sopa_ryu.arbiter.runner import Options, run_arbiter
    from sopa_ryu.arbiter.schedule import MIN_LEASE_BATCHES, Timing
    from sopa_ryu.arbiter.service import ArbiterError, Listen
    from sopa_ryu.channel.client import ClientOptionError

    timing = Timing.of(slot, lease)
    if timing.lease_ns < MIN_LEASE_BATCHES * timing.batch_ns:
        shortest = -(-MIN_LEASE_BATCHES * timing.batch_ns // 1_000_000)
        raise click.UsageError(
            f"--lease {lease} is too short: with slots of {slot:g} ms it has to be {shortest} or more"
        )
    log_to_stderr()
    if secret_file is None and SECRET_FILE.exists():
        secret_file = SECRET_FILE
    options = Options(
        controllers,
        Listen(*listen),
        timing,
        secret_file,
        token_file,
        ca_file,
        (metrics_host, metrics_port) if metrics_port is not None else None,
        rate,
        seed,
    )
    try:
        status = run_arbiter(options)
    except (AllocationError, ArbiterError, ClientOptionError) as error:
        fail(str(error))
    sys.exit(status)
