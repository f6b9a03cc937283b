"""``sopa doctor``: the set-up of a controller, a switch or a host, checked where it is, before and after the start."""

from __future__ import annotations

import ipaddress
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from sopa_ryu.cli.client import NOT_RIGHT, Controller, NoAnswer, Refused, with_controller
from sopa_ryu.cli.common import fail, k_option
from sopa_ryu.fabric.switch_setup import CHECKS, SwitchSetup, in_band_is_on, problems, switch_of
from sopa_ryu.southbound import switch_database
from topologies import FatTree, TopologyError
from topologies.ovsdb import OvsdbError

DATABASE = "unix:/var/run/openvswitch/db.sock"
CONFIGURATION = Path("/etc/sopa/sopa.conf")
MIN_THRESHOLD = 10
_FILE = click.Path(dir_okay=False, path_type=Path)


class Finding(NamedTuple):
    """One line: what was checked, and if it is wrong, the command or file that mends it."""

    right: bool
    text: str
    mend: str = ""


@click.group()
def doctor() -> None:
    """Check the set-up of this machine, before and after the start.

    Each line is one check: "ok", or "WRONG" with what mends it. Nothing is changed.

    \b
    Examples:
      sopa doctor switch --k 4
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
@click.option(
    "--db", "address", default=DATABASE, show_default=True, metavar="ADDRESS", help="Open vSwitch's database."
)
@click.option("--bridge", multiple=True, metavar="NAME", help="Check this bridge only; may be repeated. Default: all.")
def switch_command(k: int, address: str, bridge: tuple[str, ...]) -> None:
    """Check the bridges of this switch as the controller does."""
    tree = FatTree(k)
    try:
        found = switch_database.read(address)
    except OvsdbError as error:
        fail(f"{error}: is Open vSwitch running here? (--db ADDRESS)")
    chosen = [setup for setup in found if not bridge or setup.bridge in bridge]
    if not chosen:
        fail(f"{address} has no bridge{' ' + ', '.join(bridge) if bridge else ''}: ovs-vsctl add-br br0")
    _tell(finding for setup in chosen for finding in check_switch(tree, setup))


def check_switch(tree: FatTree, setup: SwitchSetup) -> Iterator[Finding]:
    """Yield a finding for each check of a bridge, and whether it is connected."""
    switch = switch_of(tree, setup)
    name = setup.bridge if switch is None else f"{setup.bridge} ({tree.name(switch)})"
    wrong = list(problems(tree, setup))
    yield from (Finding(False, f"{name}: {problem.problem}", problem.mend) for problem in wrong)
    right = [check for check in CHECKS if check not in {problem.check for problem in wrong}]
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


# -- a controller -----------------------------------------------------------------------------------------------------


@doctor.command("controller")
@click.option("--config-file", "file", type=_FILE, default=CONFIGURATION, show_default=True, help="Its options.")
@with_controller
def controller_command(controller: Controller, file: Path) -> None:
    """Check the options, files and tokens of the controller on this machine, and if it runs, what it says of the fabric."""
    _tell([*check_options(file), *_check_running(controller)])


def check_options(file: Path) -> Iterator[Finding]:
    """Yield findings of a configuration file and the files that it names."""
    # oslo.config takes long to import, which the other commands need not wait for
    from oslo_config import cfg

    from sopa_ryu import options

    conf = cfg.ConfigOpts()
    names = ("wsapi_host", "ctl_privkey", "ctl_cert", "ca_certs")
    conf.register_opts([cfg.StrOpt(name) for name in names])
    options.register(conf)
    try:
        conf(["--config-file", str(file)], project="sopa", default_config_files=[])
        settings = options.settings(conf)
    except (cfg.Error, options.OptionError) as error:
        yield Finding(False, f"{file}: {error}", f"edit {file}")
        return
    yield Finding(True, f"{file}: k={settings.k}, carrier {settings.carrier}")
    remote = conf.wsapi_host not in (None, "127.0.0.1", "::1", "localhost")
    yield Finding(
        remote, f"REST listens on {conf.wsapi_host or '127.0.0.1'}", "" if remote else f"wsapi_host in {file}"
    )
    has = bool(settings.ovsdb)
    yield Finding(
        has,
        f"switches are verified, and BFD enabled, over {', '.join(settings.ovsdb) or 'no database'}",
        "" if has else f"ovsdb = tcp:*:6640 in {file}, set-manager on the switches",
    )
    tls = {name: getattr(conf, name) for name in names[1:]}
    if any(tls.values()):
        missing = [name for name, value in tls.items() if not value]
        accepted = "; without ca_certs anybody is accepted as a switch" if "ca_certs" in missing else ""
        text = f"OpenFlow over TLS{': ' + ', '.join(missing) + ' missing' + accepted if missing else ''}"
        yield Finding(not missing, text, f"{', '.join(missing)} in {file}" if missing else "")
    for name in [*filter(None, tls.values()), *(settings.tls or ())]:
        readable = os.access(name, os.R_OK)
        yield Finding(
            readable, f"{name}: {'readable' if readable else 'not readable'}", "" if readable else f"ls -l {name}"
        )
    directory = settings.state_dir
    there = directory.is_dir()
    owner = f"install -d -o sopa -g sopa -m 750 {directory}"
    yield Finding(there, f"{directory}: {'there' if there else 'missing'}", "" if there else owner)
    for token in (directory / "token", directory / "agent-token"):
        yield from check_secret(token, made_at_start=True)


def check_secret(file: Path, made_at_start: bool = False) -> Iterator[Finding]:
    """Yield whether a token's file is readable, not empty, and closed to other users."""
    try:
        mode, size = file.stat().st_mode, file.stat().st_size
    except PermissionError:
        yield Finding(False, f"{file}: not readable", "run it as root")
        return
    except OSError:
        mend = "" if made_at_start else f"copy the controller's agent-token to {file}, mode 600"
        yield Finding(made_at_start, f"{file}: missing{', made at the start' if made_at_start else ''}", mend)
        return
    closed = not mode & (stat.S_IRWXG | stat.S_IRWXO)
    yield Finding(
        closed and size > 0, f"{file}: mode {stat.S_IMODE(mode):o}, {size} bytes", "" if closed else f"chmod 600 {file}"
    )


def _check_running(controller: Controller) -> Iterator[Finding]:
    try:
        body = controller.get("/fabric")
    except (NoAnswer, Refused) as error:
        yield Finding(True, f"not running yet, or elsewhere: {error}")
        return
    total = sum(body["switches"].values())
    all_there = body["connected"] == total
    mend = "sopa status; on a missing switch: sopa doctor switch"
    yield Finding(all_there, f"{body['connected']} of {total} switches connected", "" if all_there else mend)
    for rejected in body["rejected"]:
        yield Finding(False, f"switch {rejected['dpid']} ignored: {rejected['reason']}", "sopa doctor switch, there")
    verified = body["setup"]["checked"] == total
    yield Finding(
        verified,
        f"set-up: {body['setup']['detail']}",
        "" if verified else "set-manager on the switches; the option ovsdb",
    )
    yield from (
        Finding(False, f"{problem['switch']}: {problem['problem']}", f"there: {problem['mend']}")
        for problem in body["setup"]["problems"]
    )
    bfd = body["bfd"]
    yield Finding(bfd["enabled"], f"BFD {bfd['detail']}", "" if bfd["enabled"] else "the option ovsdb")


# -- a host -----------------------------------------------------------------------------------------------------------


@doctor.command("host")
@click.option("--iface", "interface", required=True, metavar="IF", help="The interface to the fabric.")
@click.option("--agent-token-file", "token", type=_FILE, default=Path("/etc/sopa/agent-token"), show_default=True)
@with_controller
def host_command(controller: Controller, interface: str, token: Path) -> None:
    """Check this host: its interface and address, the token, the controller, and if it runs, the agent."""
    _tell([*check_interface(interface), *check_secret(token), *_check_agent(controller, interface)])


def check_interface(interface: str) -> Iterator[Finding]:
    """Yield findings of a host's interface."""
    shown = _addresses(interface)
    if shown is None:
        yield Finding(False, f"{interface}: no such interface", "ip link; --iface IF")
        return
    up = "UP" in shown["flags"]
    yield Finding(up, f"{interface}: {'up' if up else 'down'}", "" if up else f"ip link set {interface} up")
    planned = _planned(shown)
    text = f"{interface}: {planned or 'no address of 10.0.0.0/8, as POD.EDGE.HOST of the plan'}"
    yield Finding(planned is not None, text, "" if planned else f"ip address add 10.POD.EDGE.HOST/8 dev {interface}")


def _check_agent(controller: Controller, interface: str) -> Iterator[Finding]:
    try:
        fabric = controller.get("/fabric")
        agents = {agent["address"]: agent for agent in controller.listing("/agents", "agents")["agents"]}
    except (NoAnswer, Refused) as error:
        yield Finding(False, f"no controller: {error}", "its address, the network, the certificate")
        return
    yield Finding(True, f"controller at {controller.url}: k={fabric['k']}, version {fabric['version']}")
    shown = _addresses(interface)
    address = None if shown is None else _planned(shown)
    if address is None:
        return
    try:
        FatTree(fabric["k"]).host_by_ip(address)
    except TopologyError as error:
        yield Finding(False, f"{address} is no host's: {error}", f"ip address replace ... dev {interface}")
        return
    agent = agents.get(address)
    start = f"systemctl start sopa-agent@{interface}"
    if agent is None:
        yield Finding(False, f"no agent for {address} is connected", f"{start}; its journal")
        return
    current = agent["lag"] == 0
    yield Finding(
        current, f"agent at version {agent['version']}, {agent['lag']} behind", "" if current else "its journal"
    )
    threshold = int(Path("/proc/sys/net/ipv4/tcp_reordering").read_text())
    enough = threshold >= MIN_THRESHOLD
    yield Finding(
        enough, f"TCP's fast-retransmit threshold is {threshold}", "" if enough else f"{start}, which sets it"
    )


def _addresses(interface: str) -> dict[str, Any] | None:
    done = subprocess.run(
        ["ip", "-json", "address", "show", "dev", interface], capture_output=True, text=True, check=False
    )
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return found[0] if found else None


def _planned(shown: dict[str, Any]) -> str | None:
    network = ipaddress.IPv4Network("10.0.0.0/8")
    locals_ = [each["local"] for each in shown["addr_info"] if each["family"] == "inet"]
    return next((text for text in locals_ if ipaddress.IPv4Address(text) in network), None)


def _tell(findings: Iterable[Finding]) -> None:
    """Print one line for each finding, and end with the status."""
    wrong = False
    for finding in findings:
        wrong |= not finding.right
        click.echo(
            f"{'ok   ' if finding.right else 'WRONG'} {finding.text}{'. Mend: ' + finding.mend if finding.mend else ''}"
        )
    sys.exit(NOT_RIGHT if wrong else 0)
