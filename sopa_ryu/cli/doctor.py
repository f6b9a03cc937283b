"""``sopa doctor``: the set-up of a controller, a switch or a host, checked where it is, before and after the start."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import click

from flowrules.label import Carrier
from sopa_ryu.agent.agent_options import TOKEN_FILE, AgentOptions
from sopa_ryu.agent.label.bursts import MAX_SEGMENTS
from sopa_ryu.channel.host_tokens import token_of
from sopa_ryu.cli.client import Controller, NoAnswer, Refused, shown, with_controller
from sopa_ryu.cli.common import chosen_fabric, fabric_file_option, fabric_of, fail, k_option, need_switches
from sopa_ryu.cli.findings import DEPLOYED, Finding, check_readable, check_release, check_secret, tell, unit
from sopa_ryu.fabric.switch_setup import CHECKS, SwitchSetup, in_band_is_on, problems, switch_of
from sopa_ryu.runtime.option_fields import FILE, option_of
from sopa_ryu.southbound import switch_database
from topologies import Clos, Host, TopologyError, ovsdb
from topologies.identity import Family
from topologies.ovsdb import OvsdbError
from topologies.structure import FABRIC_NETWORK

DATABASE = "unix:/var/run/openvswitch/db.sock"
CONFIGURATION = Path("/etc/sopa/sopa.conf")
ENVIRONMENT = Path("/etc/sopa/agent.env")
UNIT = unit("sopa-agent@.service")
HOST_PREFIX6 = 128
"""No other host is on the link: edge switches answer neighbour solicitations for gateways only."""
PING_HEADERS = 28
"""IPv4's and ICMP's."""
_BY_PLAN = {"ports", "cfm", "bfd"}


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
@click.option("--db", "address", default=DATABASE, show_default=True, metavar="ADDRESS", help="Open vSwitch's database.")
@click.option("--bridge", multiple=True, metavar="NAME", help="Check this bridge only. May be repeated. Default: all.")
@click.option("--cluster", is_flag=True, help="Several controllers share the fabric: the bridge has to name them all.")
@option_of(AgentOptions, "carrier")
def switch_command(k: int, fabric: Clos | None, address: str, bridge: tuple[str, ...], cluster: bool, carrier: str) -> None:
    """Check the bridges of this switch as the controller does, its database, certificates and parsers."""
    need_switches(carrier)
    tree = chosen_fabric(k, fabric)
    try:
        setups = switch_database.read(address)
        managers, ssl_row = _read_database(address)
    except OvsdbError as error:
        fail(f"{error}: is Open vSwitch running here? (--db ADDRESS)")
    chosen = [setup for setup in setups if not bridge or setup.bridge in bridge]
    if not chosen:
        fail(f"{address} has no bridge{' ' + ', '.join(bridge) if bridge else ''}: ovs-vsctl add-br br0")
    findings = [finding for setup in chosen for finding in check_switch(tree, setup, cluster)]
    if Carrier(carrier) is not Carrier.MAC:
        findings += [finding for setup in chosen for finding in _check_parsers(tree, setup, Carrier(carrier))]
    targets = [target.address for setup in chosen for target in setup.controllers]
    tell([*findings, *_check_database(managers, ssl_row, targets)], tree.aliases.within)


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
        if target.is_passive:
            yield Finding(True, f"{name}: whoever reaches {target.address} controls it", label="open")
            continue
        mend = f"its address and network; then, which keeps all entries: ovs-appctl bridge/reconnect {shlex.quote(setup.bridge)}"
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
        mend = f"ovs-vsctl set bridge {shlex.quote(bridge)} other-config:disable-in-band=true"
        yield Finding(not hidden, f"{name}: {hidden} entries flood as a learning switch does", mend if hidden else "")


def _read_database(address: str) -> tuple[list[str], dict[str, Any]]:
    """Return what a switch's database says of its own clients: its managers, and the row with the files for TLS."""
    files = dict.fromkeys(("private_key", "certificate", "ca_cert"), ovsdb.text)
    rows = ovsdb.select(address, {"Manager": {"target": ovsdb.text}, "SSL": files})
    return [manager["target"] for manager in rows["Manager"]], next(iter(rows["SSL"]), {})


def _check_database(managers: list[str], ssl_row: dict[str, Any], controllers: list[str]) -> Iterator[Finding]:
    """Yield whether the controller can reach the database, no more openly than OpenFlow, and the files for TLS."""
    tls = any(target.startswith("ssl:") for target in controllers)
    mend = f"ovs-vsctl set-manager {'pssl' if tls else 'ptcp'}:6640:ADDRESS, its own on the management network"
    passive = [target for target in managers if target.startswith(("ptcp:", "pssl:"))]
    reached = ", ".join(passive) or "nowhere: the controller can neither verify this switch nor enable BFD"
    yield Finding(bool(passive), f"its database is reached at {reached}", mend)
    if tls and any(target.startswith("ptcp:") for target in passive):
        yield Finding(False, "OpenFlow is over TLS, but any client may write to its database", mend)
    if tls or any(target.startswith("pssl:") for target in passive):
        for file in filter(None, map(ssl_row.get, ("private_key", "certificate", "ca_cert"))):
            yield from check_readable(Path(file), 0, is_key=file == ssl_row["private_key"])


def _check_parsers(tree: Clos, setup: SwitchSetup, carrier: Carrier) -> Iterator[Finding]:
    """Yield whether the parser of carrier `option`, or the spreader of `id`, is attached to each port towards a host."""
    # only here: it loads the library for BPF
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.netns import Interface, NetnsError
    from sopa_ryu.agent.label import edge_parser

    switch = switch_of(tree, setup)
    if switch is None:
        return
    for port, neighbour in tree.ports(switch).items():
        name = setup.interfaces.get(port)
        if name is None or not isinstance(neighbour, Host):
            continue
        what = "spreader" if carrier is Carrier.ID else "parser"
        start = f"systemctl enable --now sopa-{what}" + ("" if carrier is Carrier.ID else f"@{name}")
        try:
            status = edge_parser.status(Interface(name))
        except (BpfError, NetnsError) as error:
            yield Finding(False, f"{setup.bridge}: {error}", start)
            continue
        is_there = status is not None and status.spreads is (carrier is Carrier.ID)
        there = "attached" if is_there else "not attached: labels are not seen"
        yield Finding(is_there, f"{setup.bridge}: {what} at {name} {there}", start)


# -- a controller -----------------------------------------------------------------------------------------------------


@doctor.command("controller")
@click.option("--config-file", "file", type=FILE, default=CONFIGURATION, show_default=True, help="Its options.")
@with_controller
def controller_command(controller: Controller, file: Path) -> None:
    """Check the options, files and tokens of the controller on this machine, and if it runs, what it says of the fabric."""
    try:
        from sopa_ryu.cli.doctor_controller import check_controller
    except ModuleNotFoundError:
        fail("doctor controller is in the Debian package sopa-controller")
    tell(check_controller(controller, file), shown)


# -- a host -----------------------------------------------------------------------------------------------------------


@doctor.command("host")
@click.option("--iface", "interface", required=True, metavar="IF", help="The interface to the fabric.")
@click.option("--agent-token-file", "token", type=FILE, default=TOKEN_FILE, show_default=True, help="This host's token.")
@click.option("--agent-env-file", "environment", type=FILE, default=ENVIRONMENT, show_default=True,
              help="The environment of sopa-agent@.service.")  # fmt: skip
@with_controller
def host_command(controller: Controller, interface: str, token: Path, environment: Path) -> None:
    """Check this host: its interface and address, agent.env, the token, the controller, and if it runs, the agent."""
    tell(check_host(controller, interface, environment, token), shown)


def check_host(controller: Controller, interface: str, environment: Path, token: Path) -> Iterator[Finding]:
    address = shown = None
    yield check_release("Linux", os.uname().release)
    try:
        shown = _addresses(interface)
    except OSError as error:
        yield Finding(False, f"{interface}: ip cannot be run: {error.strerror}", "apt-get install iproute2")
    else:
        address = None if shown is None else _planned(shown)
        yield from _check_interface(interface, shown, address)
    yield from _check_environment(environment, controller, token)
    yield from _check_token(token, address)
    yield from _check_agent(controller, interface, address, _probes_are_off(environment), shown)


def _check_interface(interface: str, shown: dict[str, Any] | None, address: str | None) -> Iterator[Finding]:
    if shown is None:
        yield Finding(False, f"{interface}: no such interface", "ip link; --iface IF")
        return
    up = "UP" in shown["flags"]
    yield Finding(up, f"{interface}: {'up' if up else 'down'}", f"ip link set {interface} up")
    text = f"{interface}: {address or 'no address of 10.0.0.0/8, as POD.EDGE.HOST of the plan'}"
    yield Finding(address is not None, text, f"ip address add 10.POD.EDGE.HOST/8 dev {interface}")


def _check_environment(file: Path, controller: Controller, token: Path) -> Iterator[Finding]:
    """Yield whether the units' environment exists, and names this controller and readable files."""
    if not file.exists():
        # without the unit, agents are started by hand
        mend = f"install -m 644 {DEPLOYED / file.name} {file.parent}, then edit it"
        yield Finding(not UNIT.exists(), f"{file}: missing{', which the unit needs' if UNIT.exists() else ''}", mend)
        return
    lines = [line.strip() for line in file.read_text(errors="replace").splitlines()]
    values = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    urls = values.get("SOPA_CONTROLLER", "").strip("\"'").split()
    text = f"{file}: SOPA_CONTROLLER is {' '.join(url.rstrip('/') for url in urls) or 'not set'}"
    same = controller.url in [url.rstrip("/") for url in urls]
    yield Finding(same, text if same else f"{text}, and not {controller.url}", f"edit {file}, or give --controller")
    named = values.get("SOPA_AGENT_TOKEN_FILE", str(token)).strip("\"'")
    if named != str(token):
        yield Finding(False, f"{file}: SOPA_AGENT_TOKEN_FILE is {named}", f"give --agent-token-file {named}")
    if authority := values.get("SOPA_CA_FILE", "").strip("\"'"):
        yield from check_readable(Path(authority), 0)


def _check_token(file: Path, address: str | None) -> Iterator[Finding]:
    """Yield whether the token's file is closed to other users, and has a token for this host."""
    host = address or "HOST"
    renew = f"on the controller's machine: sopa token {host}, copied to {file} with mode 600"
    yield from check_secret(file, Finding(False, f"{file}: missing", renew), 0, renew)
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return
    if address is None or not text.strip():
        return
    try:
        token_of(text, IPv4Address(address))
    except ValueError as error:
        yield Finding(False, f"{file}: {error}", renew)


def _check_agent(
    controller: Controller, interface: str, address: str | None, off: bool, shown: dict[str, Any] | None
) -> Iterator[Finding]:
    try:
        fabric = controller.get("/fabric")
        agents = {agent["address"]: agent for agent in controller.listing("/agents", "agents")["agents"]}
    except (NoAnswer, Refused) as error:
        known = isinstance(error, Refused)  # with --sopa-read-token
        mend = "SOPA_TOKEN_FILE, with a token of the role read" if known else "its address, the network, the certificate"
        yield Finding(False, f"no controller: {error}", mend)
        return
    tree = fabric_of(fabric)
    what = tree.title if fabric["k"] is None else f"k={fabric['k']}"
    yield Finding(True, f"controller at {controller.url}: {what}, version {fabric['version']}")
    if address is None:
        return
    try:
        host = tree.host_by_ip(address)
    except TopologyError as error:
        mend = f"ip address add 10.POD.EDGE.HOST/8 dev {interface}, and delete {address}"
        yield Finding(False, f"{address} is no host's: {error}", mend)
        return
    if shown is not None:
        yield from (each for family in tree.families[1:] for each in check_ipv6(family, host, interface, shown))
    agent = agents.get(address)
    start = f"systemctl enable --now sopa-agent@{interface}"
    if agent is None:
        yield Finding(False, f"no agent for {address} is connected", f"{start}; its journal")
        return
    yield Finding(agent["lag"] == 0, f"agent at version {agent['version']}, {agent['lag']} behind", "its journal")
    if agent.get("spray") is not None:
        yield Finding(True, f"each packet of {agent['spray']} takes the next path; every other flow keeps one")
    carrier = agent["carrier"]
    same = carrier == fabric["carrier"]
    text = f"agent writes labels by carrier {carrier}{'' if same else ', the switches read ' + fabric['carrier']}"
    yield Finding(same, text, f"SOPA_AGENT_OPTIONS=--carrier {fabric['carrier']} in agent.env")
    overhead = Carrier(carrier).overhead if carrier in list(Carrier) else 0
    racks = {other.rpartition(".")[0]: other for other in sorted(agents, reverse=True)}
    racks.pop(address.rpartition(".")[0], None)
    if overhead and racks and shown is not None:
        yield check_size(min(racks.values()), shown["mtu"], overhead)
    # only here: it loads the libraries for netlink
    from sopa_ryu.agent.host.tcp_settings import DEFAULT_MIN_RTT_WINDOW, DEFAULT_THRESHOLD, read

    threshold, window = read("tcp_reordering"), read("tcp_min_rtt_wlen")
    enough = threshold >= DEFAULT_THRESHOLD
    yield Finding(enough, f"TCP's fast-retransmit threshold is {threshold}", f"{start}, which sets it")
    text = f"TCP remembers the shortest round trip for {window} s"
    yield Finding(window <= DEFAULT_MIN_RTT_WINDOW, text, f"{start}, which sets it")
    yield check_bursts(interface)
    if not off:
        yield check_probes(interface, others=bool(racks))


def check_ipv6(family: Family, host: Host, interface: str, shown: dict[str, Any]) -> Iterator[Finding]:
    """Yield whether a host has its planned IPv6 address, and the way to all others; ``shown`` is the interface as of ``ip``.

    A host without any address of the family has IPv4 only, which is right as well.
    """
    address, gateway, length = str(family.address(host)), family.gateway(host), HOST_PREFIX6
    add = f"ip address add {address}/{length} dev {interface}"
    its6 = [
        each for each in shown["addr_info"] if each["family"] == "inet6" and IPv6Address(each.get("local", "::")) in family.network
    ]
    if not its6:
        enable = f"sysctl -w net/ipv6/conf/{interface}/disable_ipv6=0, " if _setting6(interface, "disable_ipv6") else ""
        yield Finding(True, f"{interface}: IPv4 only; for IPv6 {enable}{add}")
        return
    its = next((each for each in its6 if each["local"] == address), None)
    if its is None:
        yield Finding(False, f"{interface}: no address {address}", add)
    elif its["prefixlen"] != length:
        mend = f"ip address del {address}/{its['prefixlen']} dev {interface}; {add}"
        yield Finding(
            False, f"{interface}: {address}/{its['prefixlen']}, so that it asks the link for hosts behind the gateway", mend
        )
    elif its.get("dadfailed"):
        mend = f"take it from the other one; ip address del {address}/{length} dev {interface}; {add}"
        yield Finding(False, f"{interface}: {address} is a duplicate: another one at this port answers for it", mend)
    else:
        yield Finding(True, f"{interface}: {address}/{length}")
    by = _route6(str(family.network[-1]))
    text = f"other hosts by {by.get('gateway', 'no gateway')} at {by.get('dev', 'no interface')}"
    mend = (
        f"ip -6 route replace default via {gateway} dev {interface} onlink; {family.network} where another network has the default"
    )
    yield Finding(by == {"gateway": str(gateway), "dev": interface}, text, mend)
    advertised = _setting6(interface, "accept_ra")
    mend = f"sysctl -w net/ipv6/conf/{interface}/accept_ra=0, and in /etc/sysctl.d"
    yield Finding(advertised == 0, f"{interface}: accept_ra is {advertised}", mend)


def check_size(other: str, mtu: int, overhead: int) -> Finding:
    """Return whether the fabric carries an interface's largest packets, with what the carrier adds, to another host."""
    text = f"packets of {mtu} bytes, {mtu + overhead} with what the carrier adds, come through to {other}"
    command = ["ping", "-4", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "1", "-M", "do", "-s", str(mtu - PING_HEADERS), other]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return Finding(False, f"whether {text}, cannot be tried: {error.strerror}", "apt-get install iputils-ping")
    mend = f"the MTU of the fabric's ports, {mtu + overhead} at least; if ping {other} has no answers either: sopa trace"
    return Finding(done.returncode == 0, text if done.returncode == 0 else text.replace(" come ", " do not come "), mend)


def _setting6(interface: str, name: str) -> int | None:
    """Return a setting of IPv6 of an interface; None from a kernel without IPv6."""
    try:
        return int((Path("/proc/sys/net/ipv6/conf") / interface / name).read_text())
    except FileNotFoundError:
        return None


def _route6(address: str) -> dict[str, str]:
    """Return the gateway and the interface by which packets to an address leave; without a route nothing."""
    done = subprocess.run(["ip", "-json", "-6", "route", "get", address], capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return {key: route[key] for route in found[:1] for key in ("gateway", "dev") if key in route}


def _probes_are_off(environment: Path) -> bool:
    """Return whether the units' environment tells agents not to probe."""
    try:
        lines = environment.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any("--no-probes" in line for line in lines if not line.lstrip().startswith("#"))


def check_probes(interface: str, others: bool) -> Finding:
    """Return whether probes are turned round at an interface, and answered, if ``others``: there are agents in other racks."""
    from sopa_ryu.agent.host.filters import HANDLE, PROBE_PRIORITY
    from sopa_ryu.agent.kernel import tc
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.tc import Point
    from sopa_ryu.agent.probing.programs import Seen, seen_by

    mend = "the agent's journal; sopa agents: is it of a version that probes? (--no-probes in agent.env otherwise)"
    try:
        program = tc.attached(socket.if_nametoindex(interface), handle=HANDLE, priority=PROBE_PRIORITY, point=Point.INGRESS)
        if program is None:
            return Finding(False, "no program answers probes of other hosts", mend)
        seen = seen_by(program)
    except (BpfError, OSError) as error:
        return Finding(False, f"what answers probes cannot be read: {error}", mend)
    text = f"{seen[Seen.ANSWERED]} probes of other hosts answered, {seen[Seen.TAKEN]} answers to this host's"
    mend = "sopa trace from this host to one of another rack; the agents there"
    return Finding(seen[Seen.TAKEN] > 0 or not others, text, mend)


def check_bursts(interface: str) -> Finding:
    """Return whether TCP's bursts are cut before they are labelled, or limited."""
    from sopa_ryu.agent.kernel import link_attributes, segmentation

    index = socket.if_nametoindex(interface)
    device, limit = segmentation.index_of(index), link_attributes.segments(index)
    if device:
        wrong = segmentation.wrong(index, device)
        return Finding(not wrong, wrong or f"bursts are cut by {segmentation.name_of(index)}", "the agent's journal")
    text = f"up to {limit} packets of a burst share a label"
    return Finding(limit <= MAX_SEGMENTS, text, "the agent's journal: is there a kernel module macvlan?")


def _addresses(interface: str) -> dict[str, Any] | None:
    """Return an interface as ``ip`` shows it; None without such an interface, `OSError` without the command."""
    command = ["ip", "-json", "address", "show", "dev", interface]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return found[0] if found else None


def _planned(shown: dict[str, Any]) -> str | None:
    locals_ = [each["local"] for each in shown["addr_info"] if each["family"] == "inet"]
    return next((text for text in locals_ if IPv4Address(text) in FABRIC_NETWORK), None)
