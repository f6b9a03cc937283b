"""``sopa arbiter``."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import click

from sopa_ryu.arbiter.allocation import AllocationError
from sopa_ryu.arbiter.arbiter_options import SECRET_FILE, ArbiterError, ArbiterOptions
from sopa_ryu.arbiter.schedule import MIN_LEASE_BATCHES
from sopa_ryu.channel.client import ClientOptionError
from sopa_ryu.cli.common import fail, log_to_stderr
from sopa_ryu.runtime.option_fields import options_of


@click.command()
@options_of(ArbiterOptions)
def arbiter(**values: Any) -> None:
    """Grant slots and paths to hosts whose agents run --policy cfr, until SIGTERM or Ctrl-C.

    The arbiter takes the fabric and its failures from the controller. Hosts tell it over UDP how much they have to send to which
    host. For every batch of four slots it decides which host sends to which, and on which path. No link is asked for more than it
    carries (docs/cfr.md). It keeps no state: killed and started again, it goes on with the hosts' next datagrams.

    One arbiter at a time has the controller's channel. A second one is rejected while the first answers. Without an arbiter,
    hosts send without slots once their leases have ended. It needs no privileges.

    \b
    Example:
      sopa arbiter --controller http://127.0.0.1:8080 --listen 192.0.2.1:9160
      sopa arbiter --controller http://127.0.0.1:8080 --listen 192.0.2.1:9160 --slot 4 --metrics-port 9161
    """
    from sopa_ryu.arbiter.runner import run_arbiter

    options = ArbiterOptions(**values)
    timing = options.timing
    if timing.lease_ns < MIN_LEASE_BATCHES * timing.batch_ns:
        shortest = -(-MIN_LEASE_BATCHES * timing.batch_ns // 1_000_000)
        raise click.UsageError(
            f"--lease {options.lease} is too short: with slots of {options.slot:g} ms it has to be {shortest} or more"
        )
    log_to_stderr()
    if options.secret_file is None and SECRET_FILE.exists():
        options = replace(options, secret_file=SECRET_FILE)
    try:
        status = run_arbiter(options)
    except (AllocationError, ArbiterError, ClientOptionError) as error:
        fail(str(error))
    sys.exit(status)
