"""``sopa relay``."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sopa_ryu.cli.agent import log_to_stderr
from sopa_ryu.cli.common import fail

if TYPE_CHECKING:
    from sopa_ryu.runtime.clients import Network

PORT = 8080
STATE_DIR = Path("/var/lib/sopa")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE = click.Path(dir_okay=False, path_type=Path)


class Address(click.ParamType[tuple[str, int]]):
    """An address and a TCP port."""

    name = "ADDRESS:PORT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return address and port, or end with a usage error."""
        if isinstance(value, tuple):
            return value
        address, _, port = str(value).rpartition(":")
        if not address or not (port.isascii() and port.isdigit()) or int(port) >= 65536:
            self.fail(f"{value!r} is no address and port, as in 192.0.2.1:{PORT}", param, ctx)
        return address.removeprefix("[").removesuffix("]"), int(port)


@click.command()
@click.option("--cluster", required=True, envvar="SOPA_CLUSTER", metavar="etcd://HOST:PORT,...[/NAME]",
              help="The cluster's etcd, as in the controllers' --sopa-cluster.")  # fmt: skip
@click.option("--cluster-ca", envvar="SOPA_CLUSTER_CA", type=_FILE,
              help="Certificate authorities (PEM) of etcd; with it etcd is reached by TLS.")  # fmt: skip
@click.option("--cluster-cert", envvar="SOPA_CLUSTER_CERT", type=_FILE,
              help="Client certificate (PEM) for etcd.")  # fmt: skip
@click.option("--cluster-key", envvar="SOPA_CLUSTER_KEY", type=_FILE, help="Its key.")
@click.option("--cluster-user", envvar="SOPA_CLUSTER_USER", metavar="USER", help="User of etcd.")
@click.option(
    "--cluster-password-file", envvar="SOPA_CLUSTER_PASSWORD_FILE", type=_FILE, help="File with the user's password."
)
@click.option("--listen", required=True, envvar="SOPA_RELAY_LISTEN", type=Address(),
              help=f"Address and port where agents and readers reach the relay: 192.0.2.1:{PORT}; port 0: a free one.")  # fmt: skip
@click.option("--url", envvar="SOPA_RELAY_URL", default="", metavar="URL",
              help="URL by which the cluster lists the relay. Default: made from --listen.")  # fmt: skip
@click.option("--name", envvar="SOPA_RELAY_NAME", metavar="NAME",
              help="Name by which the cluster lists the relay; each relay has its own. Default: the host's name.")  # fmt: skip
@click.option("--state-dir", envvar="SOPA_STATE_DIR", default=STATE_DIR, show_default=True,
              type=click.Path(file_okay=False, path_type=Path),
              help="Directory with the controllers' files agent-secret and agent-token, or one of them, by which agents' tokens "
              "are checked. Nothing is written there.")  # fmt: skip
@click.option("--host-tokens-only", is_flag=True, envvar="SOPA_HOST_TOKENS_ONLY",
              help="Accept agents by the tokens of their hosts only, as the controllers' --sopa-host-tokens-only.")  # fmt: skip
@click.option("--tls-cert", envvar="SOPA_RELAY_TLS_CERT", type=_FILE,
              help="Certificate (PEM) of the relay's own listener; with it everything is served by TLS.")  # fmt: skip
@click.option("--tls-key", envvar="SOPA_RELAY_TLS_KEY", type=_FILE, help="Its key.")
@click.option("--ca-file", envvar="SOPA_CA_FILE", type=_FILE,
              help="Certificate authorities (PEM) of controllers with https URLs. Default: the system's.")  # fmt: skip
@click.option("--client-connections", envvar="SOPA_RELAY_CLIENT_CONNECTIONS", type=click.IntRange(1, 16_384), default=128,
              show_default=True, metavar="N", help="Connections without a token that one address may have.")  # fmt: skip
@click.option("--proxy", "proxies", multiple=True, metavar="ADDRESS",
              help="Address or prefix of a proxy before the relay, which stands for many clients; may be repeated.")  # fmt: skip
@click.option("--origin", "origins", multiple=True, metavar="URL",
              help="Origin whose pages may open the live feed besides the relay's own, as a proxy's; may be repeated.")  # fmt: skip
def relay(
    cluster: str,
    cluster_ca: Path | None,
    cluster_cert: Path | None,
    cluster_key: Path | None,
    cluster_user: str | None,
    cluster_password_file: Path | None,
    listen: tuple[str, int],
    url: str,
    name: str | None,
    state_dir: Path,
    host_tokens_only: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    ca_file: Path | None,
    client_connections: int,
    proxies: tuple[str, ...],
    origins: tuple[str, ...],
) -> None:
    """Serve agents and readers of a cluster of controllers, until SIGTERM or Ctrl-C.

    A relay follows in etcd what the cluster's leader has committed, and sends it to the agents that connect to it, as a controller
    does. It also answers readers: candidate paths and failures from that view, everything else of REST, the page and its feed from
    the leader, or from another controller. Writes are redirected to the leader (307). There may be any number of relays; agents
    that are given several URLs spread over them and move on when one is away (docs/cluster.md).

    It keeps nothing. Killed and started again, it goes on with what etcd has; without etcd or a leader it goes on sending the last
    view. Which links its agents probe the leader decides, and gets their reports. It needs no privileges.

    \b
    Example:
      sopa relay --cluster etcd://192.0.2.1:2379,192.0.2.2:2379,192.0.2.3:2379 --listen 192.0.2.4:8080
      sopa agent --iface eth1 --controller http://192.0.2.4:8080 --controller http://192.0.2.5:8080
    """
    from sopa_ryu.channel.client import ClientOptionError
    from sopa_ryu.cluster.address import Access, AddressError, parse
    from sopa_ryu.cluster.engine import EngineError
    from sopa_ryu.cluster.relay.runner import Options, RelayError, run_relay
    from sopa_ryu.rest.access import CertificateError, TokenError

    if name is None:
        name = socket.gethostname()
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"--name {name!r:.80}: up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both, or neither")
    log_to_stderr()
    try:
        options = Options(
            parse(cluster),
            Access(cluster_ca, cluster_cert, cluster_key, cluster_user, cluster_password_file),
            listen,
            name,
            _checked_url(url),
            state_dir,
            (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None,
            ca_file,
            host_tokens_only,
            client_connections,
            tuple(map(_network, proxies)),
            tuple(map(_origin, origins)),
        )
        status = run_relay(options)
    except (AddressError, ClientOptionError, CertificateError, EngineError, RelayError, TokenError) as error:
        fail(str(error))
    sys.exit(status)


def _checked_url(url: str) -> str:
    from sopa_ryu.channel.client import channel_url

    if url:
        channel_url(url, "")
    return url


def _network(text: str) -> Network:
    from sopa_ryu.runtime.clients import network

    try:
        return network(text)
    except ValueError as error:
        raise click.UsageError(f"--proxy {text:.60}: {error}") from error


def _origin(text: str) -> str:
    from sopa_ryu.runtime.clients import normal_origin

    try:
        return normal_origin(text)
    except ValueError as error:
        raise click.UsageError(f"--origin: {error}") from error
