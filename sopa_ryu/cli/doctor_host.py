"""The set-up of a host: its interface and address, agent.env, the token, the controller and the agent."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from sopa_ryu.agent.bursts import MAX_SEGMENTS
from sopa_ryu.channel.host_tokens import token_of
from sopa_ryu.cli.client import Controller, NoAnswer, Refused
from sopa_ryu.cli.common import fabric_of
from sopa_ryu.cli.findings import DEPLOYED, Finding, check_readable, check_secret, unit
from topologies import TopologyError
from topologies.structure import FABRIC_NETWORK

UNIT = unit("sopa-agent@.service")


def check_host(controller: Controller, interface: str, environment: Path, token: Path) -> Iterator[Finding]:
    """Yield findings of a host."""
    shown = _addresses(interface)
    address = None if shown is None else _planned(shown)
    yield from _check_interface(interface, shown, address)
    yield from _check_environment(environment, controller, token)
    yield from _check_token(token, address)
    yield from _check_agent(controller, interface, address, _probes_are_off(environment))


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


def _check_agent(controller: Controller, interface: str, address: str | None, off: bool) -> Iterator[Finding]:
    try:
        fabric = controller.get("/fabric")
        agents = {agent["address"]: agent for agent in controller.listing("/agents", "agents")["agents"]}
    except (NoAnswer, Refused) as error:
        yield Finding(False, f"no controller: {error}", "its address, the network, the certificate")
        return
    tree = fabric_of(fabric)
    what = tree.title if fabric["k"] is None else f"k={fabric['k']}"
    yield Finding(True, f"controller at {controller.url}: {what}, version {fabric['version']}")
    if address is None:
        return
    try:
        tree.host_by_ip(address)
    except TopologyError as error:
        mend = f"ip address add 10.POD.EDGE.HOST/8 dev {interface}, and delete {address}"
        yield Finding(False, f"{address} is no host's: {error}", mend)
        return
    agent = agents.get(address)
    start = f"systemctl enable --now sopa-agent@{interface}"
    if agent is None:
        yield Finding(False, f"no agent for {address} is connected", f"{start}; its journal")
        return
    yield Finding(agent["lag"] == 0, f"agent at version {agent['version']}, {agent['lag']} behind", "its journal")
    carrier = agent["carrier"]
    same = carrier == fabric["carrier"]
    text = f"agent writes labels by carrier {carrier}{'' if same else ', the switches read ' + fabric['carrier']}"
    yield Finding(same, text, f"SOPA_AGENT_OPTIONS=--carrier {fabric['carrier']} in agent.env")
    # only here: it loads the libraries for netlink
    from sopa_ryu.agent.tcp_settings import DEFAULT_MIN_RTT_WINDOW, DEFAULT_THRESHOLD, read

    threshold, window = read("tcp_reordering"), read("tcp_min_rtt_wlen")
    enough = threshold >= DEFAULT_THRESHOLD
    yield Finding(enough, f"TCP's fast-retransmit threshold is {threshold}", f"{start}, which sets it")
    text = f"TCP remembers the shortest round trip for {window} s"
    yield Finding(window <= DEFAULT_MIN_RTT_WINDOW, text, f"{start}, which sets it")
    yield check_bursts(interface)
    if not off:
        racks = {other.rpartition(".")[0] for other in agents}
        yield check_probes(interface, others=len(racks) > 1)


def _probes_are_off(environment: Path) -> bool:
    """Return whether the units' environment tells agents not to probe."""
    try:
        lines = environment.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any("--no-probes" in line for line in lines if not line.lstrip().startswith("#"))


def check_probes(interface: str, others: bool) -> Finding:
    """Return whether probes are turned round at an interface, and answered by other hosts.

    Args:
        others: Whether there are agents in other racks, which would answer.
    """
    from sopa_ryu.agent.filters import HANDLE, PROBE_PRIORITY
    from sopa_ryu.agent.kernel import tc
    from sopa_ryu.agent.kernel.libbpf import BpfError
    from sopa_ryu.agent.kernel.tc import Point
    from sopa_ryu.agent.probing.programs import Seen, seen_by

    mend = "the agent's journal; sopa agents: is it of a version that probes? (--no-probes in agent.env otherwise)"
    try:
        program = tc.attached(
            socket.if_nametoindex(interface), handle=HANDLE, priority=PROBE_PRIORITY, point=Point.INGRESS
        )
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
    command = ["ip", "-json", "address", "show", "dev", interface]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout or "[]") if done.returncode == 0 else []
    return found[0] if found else None


def _planned(shown: dict[str, Any]) -> str | None:
    locals_ = [each["local"] for each in shown["addr_info"] if each["family"] == "inet"]
    return next((text for text in locals_ if IPv4Address(text) in FABRIC_NETWORK), None)
