"""The interface that an agent has taken: is it still the one, in the same namespace, with the same address?"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

from sopa_ryu.agent.host.mending import InterfaceAway
from sopa_ryu.agent.kernel import link_attributes
from sopa_ryu.agent.kernel.changes import Namespace
from sopa_ryu.agent.kernel.netns import Interface, inside
from topologies.structure import FABRIC_NETWORK


class Place:
    """The interface that was taken: its index and address, in a namespace.

    Args:
        interface: As it was given.
        namespace: Where it is.

    Raises:
        InterfaceAway: If it is not there, or has no address of the fabric's network.

    Attributes:
        address: Its first address of the fabric's network.
    """

    def __init__(self, interface: Interface, namespace: Namespace) -> None:
        self.interface, self.namespace = interface, namespace
        self.ifindex = self._index()
        addresses = self._addresses()
        of_fabric = [address for address in addresses if address in FABRIC_NETWORK]
        if not of_fabric:
            has = ", ".join(map(str, addresses)) or "no IPv4 address"
            raise InterfaceAway(f"{interface} has {has}, but a host of the fabric has one of {FABRIC_NETWORK}")
        self.address = of_fabric[0]

    def check(self) -> None:
        """Raise `InterfaceAway` unless name and namespace still lead to the interface that was taken."""
        if not self.namespace.is_current():
            raise InterfaceAway(f"{self.namespace.given} is gone, or another namespace")
        if self._index() != self.ifindex:
            raise InterfaceAway(f"{self.interface} is another interface than before")

    def check_address(self) -> None:
        """Raise `InterfaceAway` unless it has the address with which it was taken."""
        if self.address not in self._addresses():
            raise InterfaceAway(f"{self.interface} does not have {self.address} any more")

    def _index(self) -> int:
        with inside(self.namespace.path):
            try:
                return socket.if_nametoindex(self.interface.name)
            except OSError:
                known = ", ".join(name for _, name in socket.if_nameindex())
                where = f" in {self.interface.netns}" if self.interface.netns else ""
                raise InterfaceAway(f"there is no interface {self.interface.name}{where}. There are {known}") from None

    def _addresses(self) -> list[IPv4Address]:
        with inside(self.namespace.path):
            return link_attributes.addresses(self.ifindex)
