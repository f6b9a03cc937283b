"""The way out of the fabric: the gateways that packets to addresses outside may go to. Pure.

Controller, agents and rules share it.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from topologies.failures import Failures
from topologies.identity import IPV4, Family
from topologies.structure import Host, Switch


def is_outside(address: IPv4Address | IPv6Address, family: Family = IPV4) -> bool:
    """Return whether an address of a family is one that packets leave the fabric for: of one host, and not within its network.

    >>> from topologies.identity import PREFIX6
    >>> [is_outside(IPv6Address(each), Family(PREFIX6)) for each in ("64:ff9b::1", "2001:db8::1", "ff0e::1", "fe80::1")]
    [True, True, False, False]
    """
    never = address.is_multicast or address.is_loopback or address.is_unspecified
    # "reserved" has the translators' prefix in IPv6 (RFC 6052); link-local addresses are of one link (RFC 4007)
    never = never or (address.is_reserved if family.number == 4 else address.is_link_local)
    return not never and address not in family.network


def away(failures: Failures, gateway: Host) -> str | None:
    """Describe why no packet may go to a gateway, as in "link h0_0_2-e0_0 down"; None if it is there.

    What keeps a single rack from reaching it is not looked at.
    """
    edge = failures.tree.edge_of(gateway)
    return failures.hit((edge, failures.tree.link(gateway, edge)))


def gateways_from(failures: Failures, edge: Switch) -> tuple[Host, ...]:
    """Return the gateways that packets from a rack may go to, in the order of their addresses.

    These are those with a path from the rack on which nothing has failed, their own links included; without any, those with a path
    that still carries packets.

    >>> from topologies import Clos
    >>> fabric = Clos(pods=1, edges=3, aggregations=2, cores=0, hosts=2, gateways=["h0_1_2", "h0_2_2"])
    >>> gateways_from(Failures(fabric, {"h0_1_2-e0_1": "down"}), fabric.switch("e0_0"))
    (Host(pod=0, edge=2, number=2),)
    >>> drained = {"h0_1_2-e0_1": "drained", "h0_2_2-e0_2": "down"}
    >>> gateways_from(Failures(fabric, drained), fabric.switch("e0_0"))
    (Host(pod=0, edge=1, number=2),)
    """
    return _reached(failures, edge) or (_reached(failures.hard, edge) if failures.hard is not failures else ())


def _reached(failures: Failures, edge: Switch) -> tuple[Host, ...]:
    tree = failures.tree
    if not tree.gateways:
        return ()
    choices = failures.choices_from(edge, {gateway.pod for gateway in tree.gateways})
    return tuple(gateway for gateway in tree.gateways if away(failures, gateway) is None and choices[tree.edge_of(gateway)])
