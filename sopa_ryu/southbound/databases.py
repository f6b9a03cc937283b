"""The switches' databases by the option ovsdb, and the switches that each speaks for. It needs no Ryu.

A database speaks for the switches whose OpenFlow connections come from its address, whatever bridges it lists: so a switch that
is taken over says nothing of others. One at a Unix socket is this machine's own, and speaks for all.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from sopa_ryu.fabric.rejections import certificate_names
from sopa_ryu.runtime.clients import bracketed, plain
from topologies import Clos, Switch
from topologies.ovsdb import host_and_port

OWN_ADDRESS = "*"
MAX_NAMES = 3
MAX_PROBLEMS = 10

Databases = Mapping[str, Collection[Switch]]
"""From the address of each database to the switches that it speaks for."""


class HasAddress(Protocol):
    """A switch's connection."""

    @property
    def address(self) -> str:
        """The IP address that the switch connects from."""


def databases(addresses: Iterable[str], tree: Clos, connections: Mapping[Switch, HasAddress]) -> Databases:
    """Return the databases, with each connected switch's own address in place of ``*``."""
    at: dict[str, set[Switch]] = {}
    for switch, connection in connections.items():
        at.setdefault(plain(connection.address), set()).add(switch)
    found: dict[str, Collection[Switch]] = {}
    for address in addresses:
        kind, _, place = address.partition(":")
        if place.startswith(OWN_ADDRESS + ":"):
            for host in sorted(at):
                found[f"{kind}:{bracketed(host)}{place[len(OWN_ADDRESS) :]}"] = at[host]
        elif kind == "unix":
            found[address] = set(tree.switches())
        else:
            found[address] = set[Switch]().union(*(at.get(host, ()) for host in _hosts(place)))
    return found


def names_at(address: str, tree: Clos, connections: Mapping[Switch, HasAddress]) -> set[str]:
    """Return the names of which a database's certificate has to have one where certificates are bound."""
    speaks_for = databases([address], tree, connections)[address]
    return set[str]().union(*(certificate_names(tree, switch) for switch in speaks_for))


def _hosts(place: str) -> set[str]:
    """Return the addresses of a host; none if it has none now."""
    try:
        return {plain(str(info[4][0])) for info in socket.getaddrinfo(*host_and_port(place))}
    except (OSError, ValueError):
        return set()


def told(problems: Mapping[str, str], tree: Clos, its: Databases) -> list[str]:
    """Return for each database that failed whose it is, and its error, which has its address; of many the first."""
    lines = [f"{who}: {error}" if (who := names(tree, its.get(at, ()))) else error for at, error in problems.items()]
    more = len(lines) - MAX_PROBLEMS
    return lines[:MAX_PROBLEMS] + [f"and {more} more databases"] * (more > 0)


def names(tree: Clos, switches: Collection[Switch]) -> str:
    """Name the first of some switches for people, and say how many more there are."""
    shown = ", ".join(tree.name(switch) for switch in sorted(switches)[:MAX_NAMES])
    return shown + (f" and {len(switches) - MAX_NAMES} more" if len(switches) > MAX_NAMES else "")
