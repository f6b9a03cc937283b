"""The SRv6 uSID configuration of a fabric's routers, as text: iproute2 commands, FRR, SONiC's database. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from topologies.identity import Switch
from topologies.srv6 import Router, router
from topologies.structure import Clos
from topologies.usids import BLOCK_BITS, USID_BITS

DEVICE = "sr0"
"""The interface of a router's own SID, which has to be up whatever happens to links; FRR knows it by this name."""
DECAPSULATION = {"ipencap": (5304, "End.DX4 nh4 0.0.0.0"), "ipv6": (5306, "End.DX6 nh6 ::")}
"""By the outer header's next header: a table, and the action that takes the header off and looks up the inner destination in the
main table. Together they are End.DT46, which in Linux takes a VRF, and so each of the routes a second time."""
OUTSIDE = 5308
"""A table with the way to the outside, and the mark of packets that take it where the main table has nothing but a default route:
the router's own packets keep that."""
VLAN = 1000
"""Of a rack's hosts in SONiC."""

FORMS = ("iproute2", "frr", "sonic")
Interface = Callable[[int], str]


def iproute2(tree: Clos, switch: Switch, interface: Interface) -> Iterator[str]:
    """Yield commands that make a Linux router this switch of the plan; they may be repeated."""
    its = router(tree, switch)
    yield from _linux(its, interface)
    yield f"ip -6 address replace {its.loopback}/128 dev lo"
    if not its.to_hosts:
        flavor = f"flavors next-csid lblen {BLOCK_BITS} nflen {USID_BITS}"
        yield f"ip -6 route replace {its.sid} encap seg6local action End {flavor} dev {DEVICE}"
    for port, addresses in _addresses(its):
        for address in addresses:
            yield f"ip address replace {address} dev {shlex.quote(interface(port))}{' nodad' if ':' in address else ''}"
    yield from (f"ip -6 route replace unreachable {prefix}" for prefix in its.unreachable)
    for prefix, routes in groupby(its.routes, lambda route: route.prefix):
        hops = [f"{f'via {to.via} ' if to.via else ''}dev {shlex.quote(interface(to.port))}" for to in routes]
        yield f"ip route replace {prefix} {hops[0] if len(hops) == 1 else ' '.join(f'nexthop {hop}' for hop in hops)}"


def frr(tree: Clos, switch: Switch, interface: Interface) -> Iterator[str]:
    """Yield the configuration of FRR (10.3 or later); before it, after ``! $``, commands for what Linux alone can be told."""
    its, name = router(tree, switch), tree.name(switch)
    yield from (f"! $ {line}" for line in _linux(its, interface))
    yield from ("interface lo", f" ipv6 address {its.loopback}/128", "exit")
    for port, addresses in _addresses(its):
        yield f"interface {interface(port)}"
        yield from (f" {'ipv6' if ':' in address else 'ip'} address {address}" for address in addresses)
        yield "exit"
    yield from (f"ipv6 route {prefix} reject" for prefix in its.unreachable)
    for route in its.routes:
        family, via = "ip" if route.prefix.version == 4 else "ipv6", f"{route.via} " if route.via else ""
        yield f"{family} route {route.prefix} {via}{interface(route.port)}"
    yield from ("segment-routing", " srv6", "  locators", f"   locator {name}")
    yield f"    prefix {its.sid} block-len {BLOCK_BITS} node-len {USID_BITS}"
    yield from ("    behavior usid", "   exit", "  exit")
    if not its.to_hosts:
        yield from ("  static-sids", f"   sid {its.sid} locator {name} behavior uN", "  exit")
    yield from (" exit", "exit")


def sonic(tree: Clos, switch: Switch, interface: Interface) -> dict[str, Any]:
    """Return tables of SONiC's configuration database (202505 or later); the hosts of a rack are in one VLAN.

    There uN takes the outer header off where no uSID is left, as uDT46 does. uDT46 in the default VRF is not configured by SONiC
    (sonic-buildimage, pull request 24650).
    """
    its, name = router(tree, switch), tree.name(switch)
    tables: dict[str, Any] = {
        "LOOPBACK_INTERFACE": {"Loopback0": {}, f"Loopback0|{its.loopback}/128": {}},
        "INTERFACE": {key: {} for port in map(interface, its.to_routers) for key in (port, f"{port}|{its.link_local}/64")},
        "SRV6_MY_LOCATORS": {name: {"prefix": str(its.sid.network_address)}},
        "SRV6_MY_SIDS": {f"{name}|{its.sid}": {"action": "uN", "decap_dscp_mode": "pipe"}},
        "STATIC_ROUTE": {f"default|{prefix}": {"blackhole": "true"} for prefix in its.unreachable},
    }
    for prefix, routes in groupby((route for route in its.routes if route.via), lambda route: route.prefix):
        hops = [(str(to.via), f"Vlan{VLAN}" if to.port in its.to_hosts else interface(to.port)) for to in routes]
        nexthop, ifname = (",".join(hop[column] for hop in hops) for column in (0, 1))
        tables["STATIC_ROUTE"][f"default|{prefix}"] = {"nexthop": nexthop, "ifname": ifname}
    if its.to_hosts:
        lan, prefixes = f"Vlan{VLAN}", [family.prefix(switch) for family in tree.families]
        gateways = [f"{gateway}/{prefix.prefixlen}" for gateway, prefix in zip(its.gateways, prefixes, strict=True)]
        tables["VLAN"] = {lan: {"vlanid": str(VLAN)}}
        tables["VLAN_MEMBER"] = {f"{lan}|{port}": {"tagging_mode": "untagged"} for port in map(interface, its.to_hosts)}
        tables["VLAN_INTERFACE"] = {lan: {}, **{f"{lan}|{gateway}": {} for gateway in gateways}}
    if its.closed:
        tables["ACL_TABLE"] = {"SOPA_SRV6": {"type": "L3V6", "stage": "ingress", "ports": [*map(interface, its.closed)]}}
        tables["ACL_RULE"] = {"SOPA_SRV6|BLOCK": {"PRIORITY": "1", "DST_IPV6": str(its.block), "PACKET_ACTION": "DROP"}}
    return tables


def text(tree: Clos, switches: Sequence[Switch], form: str, interface: str) -> Iterator[str]:
    """Yield the lines of switches in one of `FORMS`; ``interface`` names the interface of a port, with ``{port}`` in it."""

    def named(port: int) -> str:
        return interface.format(port=port)

    if form == "sonic":
        tables = {tree.name(switch): sonic(tree, switch, _labelled(tree, switch, named)) for switch in switches}
        yield json.dumps(tables if len(tables) > 1 else next(iter(tables.values())), indent=2)
        return
    for switch in switches:
        lines = [*(frr if form == "frr" else iproute2)(tree, switch, named)]
        yield f"{'!' if form == 'frr' else '#'} {tree.aliases.within(tree.name(switch))}"
        yield from lines


def _labelled(tree: Clos, switch: Switch, named: Interface) -> Interface:
    labels = tree.aliases.ports.get(tree.name(switch), {})
    return lambda port: labels.get(port) or named(port)


def _linux(its: Router, interface: Interface) -> Iterator[str]:
    """Yield what every Linux router has to be told by its own means: forwarding, `DEVICE`, decapsulation, the filter."""
    # without its carrier a port is no way, so that the route of the block answers for it at once
    yield "sysctl -qw net/ipv4/ip_forward=1 net/ipv6/conf/all/forwarding=1 net/ipv6/conf/all/ignore_routes_with_linkdown=1"
    yield f"ip link show {DEVICE} > /dev/null 2>&1 || ip link add {DEVICE} type bridge; ip link set {DEVICE} up"
    if its.to_hosts:
        # an inner packet's source is behind other routers, where no route of this one leads
        checked = ("all", *map(interface, its.to_routers))
        yield f"sysctl -qw {shlex.join(f'net/ipv4/conf/{each}/rp_filter=0' for each in checked)}"
        yield from _ways_out(its, interface)
        for header, (table, action) in DECAPSULATION.items():
            rule = f"to {its.sid} ipproto {header} lookup {table}"
            yield f'[ -n "$(ip -6 rule show pref {table})" ] || ip -6 rule add pref {table} {rule}'
            yield f"ip -6 route replace {its.sid} table {table} encap seg6local action {action} dev {DEVICE}"
    trusted = [interface(port) for port in (*its.to_hosts, *its.to_routers) if port not in its.closed]
    named = ", ".join(f'"{each}"' for each in ("lo", *trusted))
    block = f"type filter hook prerouting priority raw; ip6 daddr {its.block} iifname != {{ {named} }} counter drop;"
    if its.to_hosts:  # a host sends others no packet that is not encapsulated, and so no ICMPv6 error either
        hosts = ", ".join(f'"{interface(port)}"' for port in its.to_hosts)
        block += f" ip6 daddr {its.block} iifname {{ {hosts} }} ip6 nexthdr != {{ 4, 41 }} counter drop;"
    if its.outside:
        gateways = {port for _, port in its.outside}
        marked = ", ".join(f'"{interface(port)}"' for port in (*its.to_hosts, *its.to_routers) if port not in gateways)
        block += f" iifname {{ {marked} }} meta mark set {OUTSIDE};"
    # a self-probe leaves by the port it came by, which is no host's mistake; hosts wait for errors, so no queue holds them up
    own = "type filter hook output priority filter; icmp type redirect drop; icmpv6 type nd-redirect drop;"
    own += " icmpv6 type { destination-unreachable, packet-too-big } ip6 dscp set cs6;"
    its_table, chains = "table inet sopa_srv6", f"chain block {{ {block} }}; chain own {{ {own} }};"
    yield f"nft {shlex.quote(f'{its_table}; delete {its_table}; {its_table} {{ {chains} }}')}"


def _ways_out(its: Router, interface: Interface) -> Iterator[str]:
    """Yield what leads packets to the outside, once their outer header is off, to the gateways of the rack."""
    for version, family in ((4, "ip"), (6, "ip -6")):
        hops = [f"via {to} dev {shlex.quote(interface(port))} onlink" for to, port in its.outside if to.version == version]
        if not hops:
            continue
        for pref, lookup in ((OUTSIDE - 1, "main suppress_prefixlength 0"), (OUTSIDE, str(OUTSIDE))):
            yield f'[ -n "$({family} rule show pref {pref})" ] || {family} rule add pref {pref} fwmark {OUTSIDE} lookup {lookup}'
        several = " ".join(f"nexthop {hop}" for hop in hops) if len(hops) > 1 else hops[0]
        yield f"ip route replace {'0.0.0.0/0' if version == 4 else '::/0'} table {OUTSIDE} {several}"


def _addresses(its: Router) -> Iterator[tuple[int, list[str]]]:
    """Yield the ports, and their addresses with their lengths."""
    gateways = [f"{gateway}/{gateway.max_prefixlen}" for gateway in its.gateways]
    yield from ((port, gateways) for port in its.to_hosts)
    yield from ((port, [f"{its.link_local}/64"]) for port in its.to_routers)
