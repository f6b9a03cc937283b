"""The options of a relay."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sopa_ryu.channel.client import channel_url
from sopa_ryu.cluster.address import Access, EngineAddress, parse
from sopa_ryu.cluster.records import check_identity
from sopa_ryu.front.door import SHARE
from sopa_ryu.runtime.clients import Network, network, normal_origin
from sopa_ryu.runtime.option_fields import DIRECTORY, FILE, REQUIRED, Address, option

PORT = 8080
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class RelayError(RuntimeError):
    """A relay cannot work with its options on this machine; the text is for the operator."""


def _name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    name = socket.gethostname() if value is None else value
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"--name {name!r:.80}: up to 64 letters, digits, '.', '_' and '-', a letter or digit first")
    return name


def _networks(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[Network, ...]:
    text = ""
    try:
        return tuple(network(text := value) for value in values)
    except ValueError as error:
        raise click.UsageError(f"--proxy {text:.60}: {error}") from error


def _origins(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(map(normal_origin, values))
    except ValueError as error:
        raise click.UsageError(f"--origin: {error}") from error


@dataclass(frozen=True, kw_only=True)
class RelayOptions:
    """The options of a relay."""

    # fmt: off
    cluster: str = option(REQUIRED, "The cluster's etcd, as in the controllers' --sopa-cluster.", envvar="SOPA_CLUSTER",
        metavar="etcd://HOST:PORT,...[/NAME]")
    cluster_ca: Path | None = option(None, "Certificate authorities (PEM) of etcd. With them etcd is reached by TLS.", type=FILE,
        envvar="SOPA_CLUSTER_CA")
    cluster_cert: Path | None = option(None, "Client certificate (PEM) for etcd.", type=FILE, envvar="SOPA_CLUSTER_CERT")
    cluster_key: Path | None = option(None, "Its key.", type=FILE, envvar="SOPA_CLUSTER_KEY")
    cluster_user: str | None = option(None, "User of etcd.", envvar="SOPA_CLUSTER_USER", metavar="USER")
    cluster_password_file: Path | None = option(None, "File with the user's password.", type=FILE,
        envvar="SOPA_CLUSTER_PASSWORD_FILE")
    listen: tuple[str, int] = option(REQUIRED, f"Address and port where agents and readers reach the relay: 192.0.2.1:{PORT}. "
        "Port 0: a free one.", type=Address(PORT, lowest=0), envvar="SOPA_RELAY_LISTEN")
    url: str = option("", "URL by which the cluster lists the relay. Default: made from --listen.", envvar="SOPA_RELAY_URL",
        metavar="URL", show_default=False)
    name: str = option(None, "Name by which the cluster lists the relay. Each relay has its own. Default: the host's name.",
        envvar="SOPA_RELAY_NAME", metavar="NAME", callback=_name)
    state_dir: Path = option(Path("/var/lib/sopa"), "Directory with the controllers' files agent-secret and agent-token, or one of "
        "them, by which agents' tokens are checked. Nothing is written there.", type=DIRECTORY, envvar="SOPA_STATE_DIR")
    host_tokens_only: bool = option(False, "Accept agents by the tokens of their hosts only, as the controllers' "
        "--sopa-host-tokens-only.", envvar="SOPA_HOST_TOKENS_ONLY")
    read_token: bool = option(False, "Answer reads only with a token, as the controllers' --sopa-read-token. The file operators, "
        "or token, is needed in --state-dir.", envvar="SOPA_READ_TOKEN")
    tls_cert: Path | None = option(None, "Certificate (PEM) of the relay's own listener. With it everything is served by TLS.",
        type=FILE, envvar="SOPA_RELAY_TLS_CERT")
    tls_key: Path | None = option(None, "Its key.", type=FILE, envvar="SOPA_RELAY_TLS_KEY")
    ca_file: Path | None = option(None, "Certificate authorities (PEM) of controllers with https URLs. Default: the system's.",
        type=FILE, envvar="SOPA_CA_FILE")
    client_connections: int = option(SHARE, "Connections without a token that one address may have.",
        type=click.IntRange(1, 16_384), envvar="SOPA_RELAY_CLIENT_CONNECTIONS", metavar="N")
    proxy: tuple[Network, ...] = option((), "Address or prefix of a proxy before the relay, which stands for many clients. May be "
        "repeated.", multiple=True, metavar="ADDRESS", callback=_networks)
    origin: tuple[str, ...] = option((), "Origin whose pages may open the live feed besides the relay's own, as a proxy's. May be "
        "repeated.", multiple=True, metavar="URL", callback=_origins)
    # fmt: on

    def __post_init__(self) -> None:
        """Raise `AddressError` for an engine, `ClientOptionError` or `RecordError` for a URL that is malformed."""
        parse(self.cluster)
        if self.url:
            channel_url(self.url, "")
        check_identity(self.name, self.url)

    @property
    def engine(self) -> EngineAddress:
        return parse(self.cluster)

    @property
    def access(self) -> Access:
        """What lets the relay in at `engine`."""
        return Access(self.cluster_ca, self.cluster_cert, self.cluster_key, self.cluster_user, self.cluster_password_file)

    @property
    def tls(self) -> tuple[Path, Path] | None:
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)
