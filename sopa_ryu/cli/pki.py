"""``sopa pki``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from sopa_ryu.cli.common import FabricFile, FatTreeSize, fail
from sopa_ryu.cli.output import NOT_RIGHT
from sopa_ryu.pki import CLIENTS, ROLES, Directory, Machine, PkiError
from sopa_ryu.runtime.clients import bracketed
from topologies import Clos, FatTree

F = TypeVar("F", bound=Callable[..., Any])


def _machines(name: str, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", multiple=True, metavar="NAME=ADDRESS[,ADDRESS]...", help=text)


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_machines("controller", "A controller, by all addresses and DNS names at which hosts and operators reach it. May be repeated.")
@_machines("relay", "A relay, likewise. May be repeated.")
@_machines(
    "etcd", "A node of etcd, by the addresses at which others reach it and from which it reaches the other nodes. May be repeated."
)
@click.option("--k", type=FatTreeSize(), help="Each switch of a fat-tree of switches with so many ports.")
@click.option("--fabric", type=FabricFile(), metavar="FILE", help="Each switch of a fabric file, instead of --k.")
@click.option("--sign", "requests", multiple=True, metavar="NAME=REQUEST",
              help="Sign the request of a switch that has made its key itself (sopa fabric plan). May be repeated.")  # fmt: skip
@click.option("--days", type=click.IntRange(1, 3650), default=365, show_default=True, help="Validity of certificates made now.")
@click.option("--renew", is_flag=True, help="Renew every certificate, also those that are not due.")
@click.option("--check", is_flag=True, help="Make nothing: list the certificates. The status is 3 if one is due.")
def pki(
    directory: Path,
    controller: tuple[str, ...],
    relay: tuple[str, ...],
    etcd: tuple[str, ...],
    k: int | None,
    fabric: Clos | None,
    requests: tuple[str, ...],
    days: int,
    renew: bool,
    check: bool,
) -> None:
    """Make certificates for the machines of a fabric, and renew them.

    DIRECTORY has one authority for each role, with its key, and a directory of files for each machine. Keep it on a machine that
    is safe, and copy each machine's files there. Controllers, relays, switches and etcd use new files without a restart.

    Run it again at any time, also without options. It adds the machines that are named now, and renews what has less than a third
    of its time left. It leaves everything else as it is.

    \b
    Examples:
      sopa pki /root/sopa-pki --k 4 --controller c1=192.0.2.1
      sopa pki /root/sopa-pki --relay r1=192.0.2.31 --etcd etcd1=192.0.2.1 --etcd etcd2=192.0.2.2
      sopa pki /root/sopa-pki --sign e0_0=e0_0.csr
      sopa pki /root/sopa-pki
      sopa pki /root/sopa-pki --check
    """
    if k is not None and fabric is not None:
        raise click.UsageError("--k and --fabric exclude each other: a fabric file has all numbers of the fabric")
    tree = FatTree(k) if k is not None else fabric
    its, now = Directory(directory), datetime.now(UTC)
    try:
        named = [Machine.parse(role, text) for role, texts in zip(ROLES, (controller, relay, etcd), strict=False) for text in texts]
        named += [Machine("switches", tree.name(switch)) for switch in tree.switches()] if tree is not None else []
        asked = dict(map(Machine.parse_request, requests))
        if not named and not asked and not (its.path / CLIENTS).exists():
            raise click.UsageError("name the fabric (--k or --fabric), and each --controller, --relay and --etcd node")
        if check:
            _check(its, now)
        else:
            os.umask(0o022)
            with its.opened():
                _say(its, its.make(named, days, again=renew, now=now, requests=asked))
    except PkiError as error:
        fail(str(error))


def _say(its: Directory, made: Iterator[tuple[Machine, str]]) -> None:
    kept: Counter[str] = Counter()
    renewed: dict[str, Machine] = {}
    for machine, done in made:
        if done:
            renewed.setdefault(machine.role, machine)
            click.echo(f"{machine.role}/{machine.name}: {done}")
        else:
            kept[machine.role] += 1
    for name, count in kept.items():
        click.echo(f"{name}: {count} not due")
    click.echo(f"What hosts, operators and browsers trust, to their /etc/sopa/tls: {its.path / CLIENTS}")
    for machine in renewed.values():
        role = ROLES[machine.role]
        where = bracketed(machine.addresses[0]) if machine.addresses else machine.name
        command = f"scp {its.path}/{role.name}/{machine.name}/* root@{where}:{role.place}/"
        if machine.role == "switches":  # Open vSwitch 3.1 takes a certificate only with a new key, which scp copies first
            command += f" && ssh root@{where} touch {role.place}/{role.file}.key"
        click.echo(f"To each of {role.name} what is new of it: {command}")


def _check(its: Directory, now: datetime) -> None:
    due = 0
    for certificate in its.certificates():
        machine, is_due = certificate.machine, certificate.is_due(now)
        due += is_due
        left = (certificate.end - now).days
        names = ", ".join(machine.addresses) or machine.name
        click.echo(
            f"{'due' if is_due else 'ok':4} {machine.role}/{machine.name}: {names}; until {certificate.end:%Y-%m-%d}, {left} days"
        )
    if due:
        click.echo(f"{due} due: sopa pki {its.path}")
        sys.exit(NOT_RIGHT)
