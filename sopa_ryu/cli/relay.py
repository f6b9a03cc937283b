"""``sopa relay``."""

from __future__ import annotations

import sys
from typing import Any

import click

from sopa_ryu.cli.common import fail, log_to_stderr
from sopa_ryu.cluster.relay.relay_options import RelayError, RelayOptions
from sopa_ryu.runtime.option_fields import options_of


@click.command()
@options_of(RelayOptions)
def relay(**values: Any) -> None:
    """Serve agents and readers of a cluster of controllers, until SIGTERM or Ctrl-C.

    A relay follows in etcd what the cluster's leader has committed, and sends it to the agents that connect to it, as a
    controller does. It also answers readers. Candidate paths and failures come from that view, everything else of REST, the page
    and its feed from the leader, or from another controller. Writes are redirected to the leader (307). There may be any number
    of relays. Agents that are given several URLs spread over them, and move on when one is away (docs/cluster.md).

    It keeps nothing. Killed and started again, it goes on with what etcd has. Without etcd or a leader it goes on sending the
    last view. The leader decides which links its agents probe, and gets their reports. It needs no privileges.

    \b
    Example:
      sopa relay --cluster etcd://192.0.2.1:2379,192.0.2.2:2379,192.0.2.3:2379 --listen 192.0.2.4:8080
      sopa agent --iface eth1 --controller http://192.0.2.4:8080 --controller http://192.0.2.5:8080
    """
    from sopa_ryu.channel.client import ClientOptionError
    from sopa_ryu.cluster.address import AddressError
    from sopa_ryu.cluster.engine import EngineError
    from sopa_ryu.cluster.records import RecordError
    from sopa_ryu.cluster.relay.runner import run_relay
    from sopa_ryu.rest.access import TokenError
    from sopa_ryu.runtime.certificates import CertificateError

    if (values["tls_cert"] is None) != (values["tls_key"] is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both, or neither")
    log_to_stderr()
    try:
        status = run_relay(RelayOptions(**values))
    except (AddressError, ClientOptionError, CertificateError, EngineError, RecordError, RelayError, TokenError) as error:
        fail(str(error))
    sys.exit(status)
