"""A fabric as a Mininet topology: Mininet's nodes and links with the names, ports and addresses of `Clos`.

``mn --custom topologies/fattree.py --topo fattree,4``, or ``clos,FILE``, loads it with the system's Python, so that it must import
only Mininet and the standard library; a fabric file also needs Debian's python3-yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mininet.node import Host
from mininet.topo import Topo

from topologies import fabric_file
from topologies.lab.isolation import MissingCommandError, require
from topologies.structure import MAX_K, MIN_K, Clos, FatTree, TopologyError

# Open vSwitch's userspace datapath sends by AF_PACKET, which supports none of these.
OFFLOADS_OFF = "tx off rx off tso off gso off gro off"


class FabricHost(Host):
    """A Mininet host whose interface sends real packets: with checksums, not larger than the MTU, and IPv6 if the fabric has."""

    def config(self, **params: Any) -> dict[str, Any]:
        """Configure the host as Mininet does, then its IPv6, and disable its interface's offloads."""
        results: dict[str, Any] = super().config(**params)
        # one command, because each costs a round trip to the host's shell; it prints only errors
        commands = [*ipv6_settings(self), *(f"ip {line}" for line in ipv6_lines(self))]
        results["offloads"] = self.cmd("; ".join([*commands, f"ethtool -K {self.defaultIntf()} {OFFLOADS_OFF} > /dev/null"]))
        return results


def ipv6_lines(host: Host) -> list[str]:
    """Return the arguments of ``ip`` that give a host its IPv6 address, if it has one: only its gateway is on the link.

    The kernel deletes all of it when the interface goes down. Addresses are those of the plan: it does not look for duplicates.
    """
    interface = host.defaultIntf()
    return [
        line
        for address, gateway in host.params.get("ipv6", ())
        for line in (
            f"address replace {address}/128 dev {interface} nodad",
            f"route replace {gateway} dev {interface}",
            f"route replace default via {gateway} dev {interface}",
        )
    ]


def ipv6_settings(host: Host) -> list[str]:
    """Return the shell commands that switch IPv6 off, but on at the interface of a host that has an address of it.

    Neither router nor prefix is announced there.
    """
    settings = {"all/disable_ipv6": 1, "default/disable_ipv6": 1}
    if host.params.get("ipv6"):
        settings |= {f"{host.defaultIntf()}/{name}": 0 for name in ("accept_ra", "disable_ipv6")}
    return [f"echo {value} > /proc/sys/net/ipv6/conf/{name}" for name, value in settings.items()]


class ClosTopo(Topo):
    """A Clos fabric for Mininet: ``Mininet(topo=ClosTopo(tree), ...)``; with ``routed``, hosts have no other on their link."""

    def build(self, tree: Clos, routed: bool = False) -> None:
        """Add every host, switch and link; called by Mininet."""
        self.tree = tree
        for host in tree.hosts():
            self.addHost(
                tree.name(host),
                cls=FabricHost,
                ip=f"{tree.ip(host)}/{32 if routed else tree.prefix(tree.edge_of(host)).prefixlen}",
                mac=tree.mac(host),
                defaultRoute=f"via {tree.gateway(host)}",
                ipv6=[(str(family.address(host)), str(family.gateway(host))) for family in tree.families[1:]],
            )
        for switch in tree.switches():
            self.addSwitch(tree.name(switch), dpid=f"{tree.dpid(switch):016x}")
        for link in tree.links():
            self.addLink(
                tree.name(link.lower),
                tree.name(link.upper),
                port1=tree.port(link.lower, link.upper),
                port2=tree.port(link.upper, link.lower),
            )


def topo_from_command_line(*sizes: object, **named: object) -> ClosTopo:
    """Build the topology for ``mn --topo fattree,K`` or ``fattree,k=K``; K is 4 by default."""
    values: list[Any] = [*sizes, *named.values()]  # FatTree checks them

    def tree() -> Clos:
        if len(values) > 1 or named.keys() - {"k"}:
            raise TopologyError(f"the only argument is K, an even number from {MIN_K} to {MAX_K}")
        return FatTree(*values)

    return _topo("fattree,K", tree)


def topo_from_fabric_file(*files: object, **named: object) -> ClosTopo:
    """Build the topology for ``mn --topo clos,FILE`` or ``clos,file=FILE``, of a fabric file (docs/fabrics.md)."""
    values = [*files, *named.values()]

    def tree() -> Clos:
        if len(values) != 1 or named.keys() - {"file"}:
            raise TopologyError("the only argument is a fabric file, whose name has neither a comma nor an equals sign")
        return fabric_file.load(Path(str(values[0])))

    return _topo("clos,FILE", tree)


def _topo(usage: str, tree: Callable[[], Clos]) -> ClosTopo:
    """Build a topology.

    An error ends the command with its message only: an exception would make ``mn`` run its "cleanup", which kills every
    Mininet, ping and controller on the machine.
    """
    try:
        require("ethtool")
        return ClosTopo(tree())
    except (TopologyError, MissingCommandError) as error:
        raise SystemExit(f"mn --topo {usage}: {error}") from None
