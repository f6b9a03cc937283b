"""What Open vSwitch on this machine would do with a flow: its own answer (ofproto/trace), where it has the switches."""

from __future__ import annotations

import re
import subprocess

from topologies import Clos, Host, Switch

SECONDS = 10.0
_MOST_HOPS = 8
_NAMED = {1: "icmp", 6: "tcp", 17: "udp", 132: "sctp"}
_WITH_PORTS = ("tcp", "udp", "sctp")


class NotHereError(Exception):
    """Open vSwitch on this machine has no such switch, or does not answer."""


def way_of(tree: Clos, src: Host, dst: Host, protocol: int, sport: int, dport: int) -> list[str]:
    """Follow an unlabelled packet from switch to switch, and return the names of those that it crosses, and of the host last.

    The environment's OVS_RUNDIR says which Open vSwitch is asked.

    Raises:
        NotHereError: If one of the switches is not on this machine.
    """
    flow = _flow(tree, src, dst, protocol, sport, dport)
    ports = _ports()
    came_from: Switch | Host = src
    here: Switch | Host = tree.edge_of(src)
    names: list[str] = []
    while isinstance(here, Switch) and len(names) < _MOST_HOPS:
        names.append(tree.name(here))
        said = _appctl("ofproto/trace", tree.name(here), f"in_port={tree.port(here, came_from)},{flow}")
        port = _leaves_by(said, ports.get(tree.name(here), {}))
        if port is None:
            return names
        came_from, here = here, tree.neighbour(here, port)
    return [*names, tree.name(here)]


def _flow(tree: Clos, src: Host, dst: Host, protocol: int, sport: int, dport: int) -> str:
    name = _NAMED.get(protocol, f"ip,nw_proto={protocol}")
    ports = f",{name}_src={sport},{name}_dst={dport}" if name in _WITH_PORTS else ""
    ends = f"nw_src={tree.ip(src)},nw_dst={tree.ip(dst)},nw_ttl=64"
    return f"{name},dl_src={tree.mac(src)},dl_dst=02:00:00:00:00:01,{ends}{ports}"


def _ports() -> dict[str, dict[int, int]]:
    """Return by switch the OpenFlow port of each port of the datapath."""
    found: dict[str, dict[int, int]] = {}
    bridge: dict[int, int] = {}
    for line in _appctl("dpif/show").splitlines():
        if head := re.fullmatch(r"  (\S+):\s*", line):
            bridge = found.setdefault(head[1], {})
        elif port := re.match(r"\s+\S+ (\d+)/(\d+):", line):
            bridge[int(port[2])] = int(port[1])
    return found


def _leaves_by(said: str, ports: dict[int, int]) -> int | None:
    """Return the OpenFlow port of the only output in the answer; None for a packet that is dropped."""
    actions = said.rpartition("Datapath actions: ")[2].partition("\n")[0]
    outside = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", actions)
    outputs = [int(part) for part in outside.split(",") if part.isdigit()]
    return ports.get(outputs[0]) if outputs else None


def _appctl(*words: str) -> str:
    try:
        done = subprocess.run(["ovs-appctl", *words], capture_output=True, text=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHereError(f"ovs-appctl: {error}") from error
    if done.returncode:
        raise NotHereError(done.stderr.strip() or f"ovs-appctl ended with status {done.returncode}")
    return done.stdout
