"""``sopa token``."""

from __future__ import annotations

import json
import os
import re
import secrets
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import click

from sopa_ryu.arbiter.arbiter_options import SECRET_FILE
from sopa_ryu.channel.host_tokens import arbiter_token, token_line
from sopa_ryu.cli.common import fail
from sopa_ryu.fabric.state_directory import FABRIC_FILE
from sopa_ryu.rest.operators import FILE, NAME, digest
from topologies import Aliases, Clos, Host, TopologyError
from topologies.aliases import NONE
from topologies.identity import LARGEST, PREFIX6, Family


@click.command()
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--arbiter", is_flag=True, help="Print the token of sopa arbiter for the controller's channel instead.")
@click.option("--operator", metavar="NAME", help="Make a token of a person or program, by whose name what it changes is logged.")
@click.option("--role", type=click.Choice(["read", "operate", "admin"]), default="operate", show_default=True,
              help="What it allows. read: to ask without bounds. operate: drains and traces, too. admin: all.")  # fmt: skip
@click.option(
    "--secret-file",
    envvar="SOPA_AGENT_SECRET_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SECRET_FILE,
    show_default=True,
    help="The fabric's secret: agent-secret in the controller's --sopa-state-dir.",
)
def token(hosts: tuple[str, ...], arbiter: bool, operator: str | None, role: str, secret_file: Path) -> None:
    """Print the agent tokens of hosts, a line each: the file that sopa agent --token-file reads.

    A host is named, also by its alias, or given by either of its addresses. Its line has the IPv4 address.

    A host's token opens the channel of that host only. It is derived from the fabric's secret, which stays on the controller's
    machine. Tokens need not be stored anywhere else: they are the same each time, until the secret is replaced.

    \b
    Examples:
      sopa token h0_0_2 > agent-token
      sopa token 10.0.0.2 fd53:4f50:4100::3
      sopa token --arbiter > arbiter-token
      sopa token --operator ann --role operate > ann.token

    A token of --operator is new each time, and shown this once: the file operators, beside the secret, has its digest. It is used
    by --token-file, or SOPA_TOKEN_FILE. It ends when its line is taken out of that file, without a restart.
    """
    if [arbiter, bool(hosts), operator is not None].count(True) != 1:
        raise click.UsageError("name hosts, or give --arbiter or --operator without any")
    if operator is not None:
        _make_operator(operator, role, secret_file.with_name(FILE))
        return
    tree = Clos(**LARGEST._asdict())  # names and addresses are the same in every smaller one
    try:
        kept = _kept(secret_file.with_name(FABRIC_FILE))
        addresses = [tree.ip(_host(tree, host, kept)) for host in hosts]
    except (TopologyError, ValueError) as error:
        fail(str(error))
    try:
        secret = secret_file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"the secret cannot be read from {secret_file}: {error}; run this on the controller's machine, with sudo")
    if not secret:
        fail(f"{secret_file} is empty: remove it; the controller's next start creates a new one")
    if arbiter:
        click.echo(arbiter_token(secret))
    for address in addresses:
        click.echo(token_line(secret, address))


def _kept(file: Path) -> tuple[IPv6Network, Aliases]:
    """Return which addresses of IPv6 the controller's fabric has, and what operators call its hosts; the default if unknown."""
    try:
        document = json.loads(file.read_text())
        return IPv6Network(document["prefix6"]), Aliases.of_document(document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return PREFIX6, NONE


def _host(tree: Clos, given: str, kept: tuple[IPv6Network, Aliases]) -> Host:
    """Return the host of a name, an alias or an address."""
    network, aliases = kept
    if ":" not in given:
        return tree.host_by_ip(given) if given[:1].isdigit() else tree.host(aliases.own(given))
    host = Family(network).host(IPv6Address(given))
    if not tree.has(host):
        raise TopologyError(f"{given} is no host's address")
    return host


def _make_operator(name: str, role: str, file: Path) -> None:
    """Print a new token, and keep its digest."""
    if not re.fullmatch(NAME, name):
        raise click.UsageError(f"{name!r} is no name: letters, digits and . _ @ -, 64 at most")
    made = secrets.token_urlsafe(32)
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "w") as opened:
            opened.write(f"{name} {role} {digest(made)}\n")
    except OSError as error:
        fail(f"{file} cannot be written: {error.strerror}; run this on the controller's machine, with sudo")
    click.echo(made)
