"""What a fabric asks of each switch and cable, as text, and what one fabric has that another has not. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from topologies.identity import Node, Switch
from topologies.structure import Clos

TLS_DIRECTORY = "/etc/openvswitch/tls"
PREFIXES = {"sources": (("ip_dst", "ip_src", "ipv6_src"), (0,)), "destinations": (("ip_dst", "ipv6_dst"), (1, 2, 3, 7, 8))}
"""What tables of a switch track, three fields at most, and which tables (ovs-vswitchd.conf.db(5), Flow_Table). On other addresses
decisions depend as a whole, and are cached for each alone; Open vSwitch's default has none of IPv6."""


class Cable(NamedTuple):
    """A cable between two ports of the plan, the lower one first; a host's port has no number. Mbit/s, if the fabric has them.

    For each end it has the alias, the rack and the port's label, too.
    """

    lower: str
    lower_port: int | None
    upper: str
    upper_port: int
    mbit: float | None
    lower_alias: str | None
    lower_rack: str | None
    lower_label: str | None
    upper_alias: str | None
    upper_rack: str | None
    upper_label: str | None


def cables(tree: Clos) -> Iterator[Cable]:
    """Yield every cable that is there, from hosts upwards."""
    for link in tree.links():
        lower, upper = ends = [(tree.name(end), tree.port(end, other)) for end, other in (link, link[::-1])]
        mbit = tree.capacity(link) if tree.in_mbit else None
        its = tree.aliases
        called = ((its.names.get(name), its.racks.get(name), its.ports.get(name, {}).get(port)) for name, port in ends)
        yield Cable(lower[0], lower[1] or None, *upper, mbit, *chain.from_iterable(called))


def commands(
    tree: Clos, switch: Switch, bridge: str, interface: str, controllers: Sequence[str], manager: str | None
) -> Iterator[str]:
    """Yield the commands that make a bridge this switch of the plan, as sopa doctor switch checks them.

    ``interface`` names the interface of a port, with ``{port}`` in it. The controllers come last: before, everything is there that
    they check. With ``ssl:`` the files are those of ``sopa pki`` in `TLS_DIRECTORY`; the switch makes a key that is not there yet,
    and a request, and Open vSwitch takes the certificate when it comes.
    """
    its = shlex.quote(bridge)
    yield f"ovs-vsctl --may-exist add-br {its}"
    yield (
        f"ovs-vsctl set bridge {its} protocols=OpenFlow13 fail_mode=secure other-config:datapath-id={tree.dpid(switch):016x} "
        "other-config:disable-in-band=true"
    )
    yield track_prefixes(bridge)
    for port, neighbour in tree.ports(switch).items():
        name = shlex.quote(interface.format(port=port))
        leads = tree.aliases.within(tree.name(neighbour))
        yield f"ovs-vsctl --may-exist add-port {its} {name} -- set interface {name} ofport_request={port}  # {leads}"
    if any(controller.startswith("ssl:") for controller in controllers):
        key, request, *trusted = (
            f"{TLS_DIRECTORY}/{name}" for name in ("switch.key", "switch.csr", "switch.pem", "controllers.pem")
        )
        name = tree.name(switch)
        yield (
            f"[ -e {key} ] || (umask 077; mkdir -p {TLS_DIRECTORY}; openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
            f"-nodes -subj /CN={name} -addext subjectAltName=DNS:{name} -keyout {key} -out {request})"
        )
        yield (
            f"# {request}: sopa pki DIRECTORY --sign {name}=switch.csr; copy DIRECTORY/switches/{name}/*.pem to here, "
            "then touch switch.key: Open vSwitch reads a new certificate when both files have changed"
        )
        yield f"ovs-vsctl set-ssl {key} {' '.join(trusted)}"
    if manager:
        yield f"ovs-vsctl set-manager {shlex.quote(manager)}"
    if controllers:
        yield f"ovs-vsctl set-controller {its} {' '.join(map(shlex.quote, controllers))}"


def track_prefixes(bridge: str) -> str:
    """Return the command that has a bridge track `PREFIXES`."""
    created = " -- ".join(f"--id=@{name} create Flow_Table prefixes={','.join(fields)}" for name, (fields, _) in PREFIXES.items())
    used = " ".join(f"flow_tables:{table}=@{name}" for name, (_, tables) in PREFIXES.items() for table in tables)
    return f"ovs-vsctl {created} -- set bridge {shlex.quote(bridge)} {used}"


def changes(old: Clos, new: Clos) -> Iterator[str]:
    """Yield which switches and hosts are new or gone, and which ports of the others lead elsewhere: an element a line."""
    for before, after in (_by_name(old, old.switches(), new.switches()), _by_name(old, old.hosts(), new.hosts())):
        yield from (f"{name}: new" for name in after if name not in before)
        yield from (f"{name}: gone" for name in before if name not in after)
        for name, node in before.items():
            ports = [*_ports(old, node, new)] if name in after and isinstance(node, Switch) else []
            if ports:
                yield f"{name}: {'; '.join(ports)}"


def _by_name(tree: Clos, *kinds: Iterable[Node]) -> list[dict[str, Node]]:
    return [{tree.name(node): node for node in nodes} for nodes in kinds]


def _ports(old: Clos, switch: Switch, new: Clos) -> Iterator[str]:
    had, has = ({port: tree.name(node) for port, node in tree.ports(switch).items()} for tree in (old, new))
    for port in sorted(had.keys() | has.keys()):
        if had.get(port) != has.get(port):
            yield f"port {port} to {has.get(port, 'nothing')} instead of {had.get(port, 'nothing')}"
