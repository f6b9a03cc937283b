"""``sopa doctor``: the set-up of a controller, a switch or a host, checked where it is, before and after the start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import TOKEN_FILE, AgentOptions
from sopa_ryu.cli.client import Controller
from sopa_ryu.cli.common import chosen_fabric, fabric_file_option, fail, k_option
from sopa_ryu.cli.controller_options import with_controller
from sopa_ryu.cli.doctor_host import check_host
from sopa_ryu.cli.findings import Finding, check_readable, tell
from sopa_ryu.fabric.switch_setup import CHECKS, SwitchSetup, in_band_is_on, problems, switch_of
from sopa_ryu.runtime.option_fields import option_of
from sopa_ryu.southbound import switch_database
from topologies import Clos, Host
from topologies.ovsdb import OvsdbError, elements, transact

DATABASE = "unix:/var/run/openvswitch/db.sock"
CONFIGURATION = Path("/etc/sopa/sopa.conf")
ENVIRONMENT = Path("/etc/sopa/agent.env")
_BY_PLAN = {"ports", "cfm", "bfd"}
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def doctor() -> None:
    """Check the set-up of this machine, before and after the start.

    Each line is one check: "ok", or "WRONG" with what mends it. Nothing is changed.

    \b
    Examples:
      sopa doctor switch --k 4
      sopa doctor switch --k 4 --carrier option
      sopa doctor switch --fabric /etc/sopa/fabric.yaml
      sopa doctor controller --config-file /etc/sopa/sopa.conf
      sopa doctor host --iface eth1 --controller http://192.0.2.1:8080

    \b
    Exit status:
      0   everything is right
      1   it cannot be checked
      2   wrong usage
      3   something is wrong
    """


# -- a switch ---------------------------------------------------------------------------------------------------------


@doctor.command("switch")
@k_option
@fabric_file_option
@click.option(
    "--db", "address", default=DATABASE, show_default=True, metavar="ADDRESS", help="Open vSwitch's database."
)
@click.option("--bridge", multiple=True, metavar="NAME", help="Check this bridge only; may be repeated. Default: all.")
@click.option("--cluster", is_flag=True, help="Several controllers share the fabric: the bridge has to name them all.")
@option_of(AgentOptions, "carrier")
def switch_command(
    k: int, fabric: Clos | None, address: str, bridge: tuple[str, ...], cluster: bool, carrier: str
) -> None:
    """Check the bridges of this switch as the controller does, its database, certificates and parsers."""
    tree = chosen_fabric(k, fabric)
    try:
        found = switch_database.read(address)
        database = _read_database(address)
    except OvsdbError as error:
        fail(f"{error}: is Open vSwitch running here? (--db ADDRESS)")
    chosen = [setup for setup in found if not bridge or setup.bridge in bridge]
    if not chosen:
        fail(f"{address} has no bridge{' ' + ', '.join(bridge) if bridge else ''}: ovs-vsctl add-br br0")
    findings = [finding for setup in chosen for finding in check_switch(tree, setup, cluster)]
    if Carrier(carrier) is Carrier.OPTION:
        findings += [finding for setup in chosen for finding in _check_parsers(tree, setup)]
    targets = [target.address for setup in chosen for target in setup.controllers]
    tell([*findings, *_check_database(database, targets)])


def check_switch(tree: Clos, setup: SwitchSetup, cluster: bool = False) -> Iterator[Finding]:
    """Yield a finding for each check of a bridge, and whether it is connected."""
    switch = switch_of(tree, setup)
    name = setup.bridge if switch is None else f"{setup.bridge} ({tree.name(switch)})"
    wrong = list(problems(tree, setup, cluster))
    yield from (Finding(False, f"{name}: {problem.problem}", problem.mend) for problem in wrong)
    # which ports a switch has to have is known by its datapath id only
    unknown = set() if switch else _BY_PLAN
    right = [check for check in CHECKS if check not in {problem.check for problem in wrong} | unknown]
    yield from (Finding(True, f"{name}: {check}") for check in right)
    if not in_band_is_on(setup):
        yield from _hidden_entries(setup.bridge, name)
    for target in setup.controllers:
        mend = f"its address and network; then, which keeps all entries: ovs-appctl bridge/reconnect {setup.bridge}"
        state = "connected" if target.connected else "not connected"
        yield Finding(target.connected, f"{name}: {state} to {target.address}", "" if target.connected else mend)


def _hidden_entries(bridge: str, name: str) -> Iterator[Finding]:
    """Yield whether entries above all others are left, if ovs-appctl reaches the daemon."""
    command = ["ovs-appctl", "bridge/dump-flows", bridge]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode == 0:
        hidden = sum("actions=NORMAL" in line for line in done.stdout.splitlines())
        mend = f"ovs-vsctl set bridge {bridge} other-config:disable-in-band=true"
        yield Finding(not hidden, f"{name}: {hidden} entries flood as a learning switch does", mend if hidden else "")


class Database(NamedTuple):
    """What a switch's database says of its own clients: its managers, and the files for TLS."""

    managers: tuple[str, ...]
    key: str
    certificate: str
    authority: str


def _read_database(address: str) -> Database:
    tables = {"Open_vSwitch": ["manager_options", "ssl"], "Manager": ["_uuid", "target"],
              "SSL": ["_uuid", "private_key", "certificate", "ca_cert"]}  # fmt: skip
    selects = [{"op": "select", "table": name, "where": [], "columns": columns} for name, columns in tables.items()]
    [root], managers, files = (answer["rows"] for answer in transact(address, selects))
    by_uuid = {row["_uuid"][1]: row for row in (*managers, *files)}
    its: dict[str, Any] = next((by_uuid[uuid] for _, uuid in elements(root["ssl"])), {})
    return Database(
        tuple(by_uuid[uuid]["target"] for _, uuid in elements(root["manager_options"])),
        *(str(its.get(name, "")) for name in ("private_key", "certificate", "ca_cert")),
    )


def _check_database(database: Database, controllers: list[str]) -> Iterator[Finding]:
    """Yield whether the controller can reach the database, no more openly than OpenFlow, and the files for TLS."""
    tls = any(target.startswith("ssl:") for target in controllers)
    mend = f"ovs-vsctl set-manager {'pssl' if tls else 'ptcp'}:6640:ADDRESS, its own on the management network"
    passive = [target for target in database.managers if target.startswith(("ptcp:", "pssl:"))]
    reached = ", ".join(passive) or "nowhere: the controller can neither verify this switch nor enable BFD"
    yield Finding(bool(passive), f"its database is reached at {reached}", mend)
    if tls and any(target.startswith("ptcp:") for target in passive):
        yield Finding(False, "OpenFlow is over TLS, but any client may write to its database", mend)
    if tls or any(target.startswith("pssl:") for target in passive):
        for name in filter(None, (database.key, database.certificate, database.authority)):
            yield from check_readable(Path(name), 0, is_key=name == database.key)


def _check_parsers(tree: Clos, setup: SwitchSetup) -> Iterator[Finding]:
    """Yield whether the parser of carrier `option` is attached to each port towards a host."""
    # only here: it loads the library for BPF
    from sopa_ryu.agent import edge_parser
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.netns import Interface, NetnsError

    switch = switch_of(tree, setup)
    if switch is None:
        return
    for port, neighbour in tree.ports(switch).items():
        name = setup.interfaces.get(port)
        if name is None or not isinstance(neighbour, Host):
            continue
        start = f"systemctl enable --now sopa-parser@{name}"
        try:
            its = edge_parser.status(Interface(name))
        except (BpfError, NetnsError) as error:
            yield Finding(False, f"{setup.bridge}: {error}", start)
            continue
        there = "attached" if its else "not attached: labels are not seen"
        yield Finding(its is not None, f"{setup.bridge}: parser at {name} {there}", start)


# -- a controller -----------------------------------------------------------------------------------------------------


@doctor.command("controller")
@click.option("--config-file", "file", type=_FILE, default=CONFIGURATION, show_default=True, help="Its options.")
@with_controller
def controller_command(controller: Controller, file: Path) -> None:
    """Check the options, files and tokens of the controller on this machine, and if it runs, what it says of the fabric."""
    try:
        from sopa_ryu.cli.doctor_controller import check_controller
    except ModuleNotFoundError:
        fail("doctor controller is in the Debian package sopa-controller")
    tell(check_controller(controller, file))


# -- a host -----------------------------------------------------------------------------------------------------------


@doctor.command("host")
@click.option("--iface", "interface", required=True, metavar="IF", help="The interface to the fabric.")
@click.option(
    "--agent-token-file", "token", type=_FILE, default=TOKEN_FILE, show_default=True, help="This host's token."
)
@click.option("--agent-env-file", "environment", type=_FILE, default=ENVIRONMENT, show_default=True,
              help="The environment of sopa-agent@.service.")  # fmt: skip
@with_controller
def host_command(controller: Controller, interface: str, token: Path, environment: Path) -> None:
    """Check this host: its interface and address, agent.env, the token, the controller, and if it runs, the agent."""
    tell(check_host(controller, interface, environment, token))
