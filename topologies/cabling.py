"""The cabling of a Clos fabric: its switches, hosts, ports and links, and what the links carry. Pure."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Any, Union

from topologies import usids
from topologies.aliases import NONE, Aliases
from topologies.identity import FIRST_HOST, IPV4, PREFIX6, Family, Host, Identities, Level, Link, Node, Shape, Switch, TopologyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ABSENT = "absent"
NO_PREFIX6 = "the fabric has IPv4 only; set prefix6 in its fabric file, or --sopa-prefix6, for IPv6"
LINK_LEVELS = ("host", "edge", "aggregation")
"""The links above hosts, above edge switches and above aggregation switches."""
# Union, not |: evaluated when the module is loaded, by whichever Python Mininet runs on.
Rate = Union[float, str]  # noqa: UP007
"""Mbit/s, or `ABSENT`."""

_NONE: frozenset[int] = frozenset()


class Cabling(Identities):
    """The switches, hosts, ports and links of a Clos fabric. Nothing is stored but the exceptions.

    Attributes:
        aliases: What operators call its elements, by the fabric file: no part of what equals another fabric, or of `document`.

    Args:
        mbit: Mbit/s of the links above hosts, edge and aggregation switches, by `LINK_LEVELS`; without it every link carries as
            much.
        links: Exceptions: Mbit/s of single links by name, or ``absent`` for a cable between switches that is not there.
        gateways, no_label: The names of hosts that lead out of the fabric, and of hosts that may not choose paths.
        prefix6: The /48 of the hosts' IPv6 addresses; None for IPv4 only.
        srv6: ``{"block": …}``, if paths are written as SRv6 uSIDs.

    Attributes:
        families: Of the hosts' addresses.
        srv6: The block of the uSIDs, or None.

    Raises:
        TopologyError: For a number out of range, an unknown name, or a host's link that is absent.
    """

    aliases: Aliases = NONE

    def __init__(
        self,
        shape: Shape,
        mbit: Mapping[str, float] | None = None,
        links: Mapping[str, Rate] | None = None,
        gateways: Iterable[str] = (),
        no_label: Iterable[str] = (),
        prefix6: str | None = None,
        srv6: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(shape)
        self.prefix6 = None if prefix6 is None else network6(prefix6)
        self.srv6 = None if srv6 is None else usids.block_of(srv6)
        if self.srv6 is not None:
            usids.require(shape, self.srv6, self.prefix6)
        self.families = (IPV4,) if self.prefix6 is None else (IPV4, Family(self.prefix6))
        self.absent: frozenset[Link] = frozenset()  # while the exceptions are read, which name absent links, too
        self.mbit = dict(mbit or {})
        self._rates: dict[Link, float] = {}
        absent = set()
        for name, rate in (links or {}).items():
            link = self.link_by_name(name)
            if rate == ABSENT:
                if isinstance(link.lower, Host):
                    raise TopologyError(f"{name} cannot be absent: it is a host's link, and its port may stay unused")
                absent.add(link)
            else:
                self._rates[link] = _rate(rate, name)
        for level, rate in self.mbit.items():
            if level not in LINK_LEVELS:
                raise TopologyError(f"mbit has no {level!r}: it has {', '.join(LINK_LEVELS)}")
            _rate(rate, f"mbit of {level}")
        self.absent = frozenset(absent)
        self.gateways = tuple(sorted({self.host(name) for name in gateways}))
        self.no_label = frozenset(self.host(name) for name in no_label)
        self._key = (
            shape,
            *(frozenset(part) for part in (self.mbit.items(), self._rates.items(), absent, self.gateways)),
            self.no_label,
            self.families,
            self.srv6,
        )
        self._hash = hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Cabling) and other._key == self._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.document().items())})"

    def document(self) -> dict[str, Any]:
        """Return the fabric as plain data, with the keys of a fabric file (docs/fabrics.md): ``Clos(**document)`` is equal."""
        links: dict[str, Rate] = {self.name(link): self._rates[link] for link in sorted(self._rates, key=self.name)}
        links |= {self.name(link): ABSENT for link in sorted(self.absent, key=self.name)}
        document: dict[str, Any] = self.shape._asdict()
        if self.mbit:
            document["mbit"] = dict(self.mbit)
        if links:
            document["links"] = links
        if self.gateways:
            document["gateways"] = [self.name(host) for host in self.gateways]
        if self.no_label:
            document["no_label"] = [self.name(host) for host in sorted(self.no_label)]
        if self.srv6 is not None:
            document["srv6"] = {"block": str(self.srv6)}
        return document | self.described6

    @property
    def described6(self) -> dict[str, str]:
        """What the description of a fabric has of IPv6: ``prefix6``, or nothing."""
        return {} if self.prefix6 is None else {"prefix6": str(self.prefix6)}

    def host_called(self, text: str) -> Host:
        """Return the host with that name, or address of either family.

        Raises `TopologyError` if there is none, `AddressValueError` for a malformed address.
        """
        if ":" not in text:
            return self.host_by_ip(text) if "." in text else self.host(text)
        address = IPv6Address(text)
        if len(self.families) == 1:
            raise TopologyError(f"{address}: {NO_PREFIX6}")
        with suppress(ValueError):
            if self.has(host := self.families[1].host(address)):
                return host
        raise TopologyError(f"{address} is no host of a {self.title}")

    def ip6(self, host: Host) -> IPv6Address | None:
        """Return a host's IPv6 address; None in a fabric of IPv4 only."""
        return self.families[1].address(host) if len(self.families) > 1 else None

    # -- members ------------------------------------------------------------------------------------------------------

    def switches(self, level: Level | None = None) -> Iterator[Switch]:
        """Yield every switch, or those of one level, in the order of their datapath ids."""
        for this in Level:
            if level in (None, this):
                for pod in range(self.groups(this)):
                    yield from self.switches_of(this, pod)

    def switches_of(self, level: Level, pod: int) -> Iterator[Switch]:
        """Yield the switches of one level in a pod, or the core switches of a group."""
        return (Switch(level, pod, index) for index in range(self.group_size(level)))

    def hosts(self) -> Iterator[Host]:
        """Yield every host, in the order of the addresses."""
        for edge in self.switches(Level.EDGE):
            yield from self.hosts_of(edge)

    def hosts_of(self, edge: Switch) -> Iterator[Host]:
        """Yield the hosts of one edge switch, in the order of its ports."""
        return (Host(edge.pod, edge.index, number) for number in range(FIRST_HOST, FIRST_HOST + self.hosts_per_edge))

    def links(self) -> Iterator[Link]:
        """Yield every link of the fabric: the hosts' links, then those above edge and above aggregation switches."""
        for host in self.hosts():
            yield Link(host, self.edge_of(host))
        yield from self.switch_links()

    def switch_links(self) -> Iterator[Link]:
        """Yield every link between switches: those above edge and then those above aggregation switches."""
        for level in (Level.EDGE, Level.AGGREGATION):
            for switch in self.switches(level):
                yield from self.links_above(switch)

    def links_above(self, switch: Switch) -> Iterator[Link]:
        """Yield the links of a switch's uplinks, in the order of their indices."""
        return (Link(switch, self.uplink(switch, index)) for index in self.uplinks(switch))

    @property
    def switch_link_count(self) -> int:
        return self.pods * self.aggregations * (self.edges + self.cores_of_group) - len(self.absent)

    @property
    def switch_count(self) -> int:
        """The number of switches: 5k²/4 of a fat-tree."""
        return self.pods * (self.edges + self.aggregations) + self.cores

    @property
    def host_count(self) -> int:
        """The number of hosts: k³/4 of a fat-tree."""
        return self.pods * self.edges * self.hosts_per_edge

    # -- cabling ------------------------------------------------------------------------------------------------------

    @staticmethod
    def edge_of(host: Host) -> Switch:
        return Switch(Level.EDGE, host.pod, host.edge)

    def uplink_count(self, level: Level) -> int:
        """Return how many uplinks a switch of a level has, absent ones included."""
        if level is Level.EDGE:
            return self.aggregations
        return self.cores_of_group if level is Level.AGGREGATION else 0

    def downlink_count(self, level: Level) -> int:
        """Return how many ports of a switch of a level lead down, those of absent links included."""
        if level is Level.EDGE:
            return self.hosts_per_edge
        return self.edges if level is Level.AGGREGATION else self.pods

    def port_count(self, level: Level) -> int:
        """Return the highest port number of a switch of a level."""
        return self.downlink_count(level) + self.uplink_count(level)

    def uplinks(self, switch: Switch) -> tuple[int, ...]:
        """Return the indices of a switch's uplinks, without absent ones: ``up1`` at an edge, ``up2`` at an aggregation switch."""
        every = self._every_uplink[switch.level]
        absent = self.absent_uplinks.get(switch)
        return tuple(index for index in every if index not in absent) if absent else every

    @cached_property
    def _every_uplink(self) -> dict[Level, tuple[int, ...]]:
        return {level: tuple(range(self.uplink_count(level))) for level in Level}

    @cached_property
    def absent_uplinks(self) -> Mapping[Switch, frozenset[int]]:
        """The indices of the absent uplinks of every switch that has any."""
        absent: dict[Switch, frozenset[int]] = {}
        for link in self.absent:
            assert isinstance(link.lower, Switch)
            absent[link.lower] = absent.get(link.lower, _NONE) | {link.upper.index}
        return absent

    def uplink(self, switch: Switch, index: int) -> Switch:
        """Return the switch at the other end of an uplink; raise `TopologyError` if the switch has none of that index."""
        above = self._above(switch, index)
        if self.absent and Link(switch, above) in self.absent:
            raise TopologyError(f"{self.name(switch)} has no uplink {index}")
        return above

    def _above(self, switch: Switch, index: int) -> Switch:
        if not 0 <= index < self.uplink_count(switch.level):
            raise TopologyError(f"{self.name(switch)} has no uplink {index}")
        if switch.level is Level.EDGE:
            return Switch(Level.AGGREGATION, switch.pod, index)
        return Switch(Level.CORE, switch.index, index)

    def below(self, switch: Switch) -> Iterator[Switch]:
        """Yield the switches below an aggregation or core switch, in the order of its ports, without those of absent links."""
        for port in range(1, self.downlink_count(switch.level) + 1):
            node = self._planned(switch, port)
            if isinstance(node, Switch) and not self._is_absent(switch, node):
                yield node

    def absent_pods(self, core: Switch) -> frozenset[int]:
        """Return the pods to which a core switch has no cable."""
        return self._absent_pods.get(core, _NONE)

    @cached_property
    def _absent_pods(self) -> dict[Switch, frozenset[int]]:
        absent: dict[Switch, frozenset[int]] = {}
        for link in self.absent:
            if link.upper.level is Level.CORE:
                absent[link.upper] = absent.get(link.upper, _NONE) | {link.lower.pod}
        return absent

    @staticmethod
    def downlink_port(index: int) -> int:
        """Return the port number of the switch of that index, or pod, below an aggregation or core switch."""
        return index + 1

    def uplink_port(self, level: Level, index: int) -> int:
        """Return the port number of an uplink of any switch of a level."""
        return self.downlink_count(level) + 1 + index

    def ports(self, switch: Switch) -> dict[int, Node]:
        """Return the neighbour at each port of a switch, port 1 first; ports of absent links are left out."""
        every = {port: self._planned(switch, port) for port in range(1, self.port_count(switch.level) + 1)}
        if not self.absent:
            return every
        return {port: node for port, node in every.items() if not self._is_absent(switch, node)}

    def neighbour(self, switch: Switch, port: int) -> Node:
        """Return the neighbour at a port; raise `TopologyError` if the switch has no such port, or its link is absent."""
        if 1 <= port <= self.port_count(switch.level):
            node = self._planned(switch, port)
            if not self._is_absent(switch, node):
                return node
        raise TopologyError(f"{self.name(switch)} has no port {port}")

    def _planned(self, switch: Switch, port: int) -> Node:
        if switch.level is Level.CORE:
            return Switch(Level.AGGREGATION, port - 1, switch.pod)
        below = self.downlink_count(switch.level)
        if port > below:
            return self._above(switch, port - below - 1)
        if switch.level is Level.AGGREGATION:
            return Switch(Level.EDGE, switch.pod, port - 1)
        return Host(switch.pod, switch.index, port - 1 + FIRST_HOST)

    def _is_absent(self, switch: Switch, node: Node) -> bool:
        if not self.absent or isinstance(node, Host):
            return False
        return (Link(switch, node) if switch.level < node.level else Link(node, switch)) in self.absent

    def port(self, node: Node, towards: Node) -> int:
        """Return the port of a node that leads to another, 0 of a host; raise `TopologyError` if they are not cabled together.

        >>> cabling = Cabling(Shape(pods=4, edges=2, aggregations=2, cores=4, hosts=2))
        >>> a, c = cabling.switch("a0_0"), cabling.switch("c0_1")
        >>> cabling.port(a, c), cabling.port(c, a)
        (4, 1)
        """
        if isinstance(node, Host):
            port, back = 0, self.edge_of(node)
        else:
            if isinstance(towards, Host):
                port = towards.number - FIRST_HOST + 1
            elif node.level is Level.CORE:
                port = towards.pod + 1
            elif towards.level > node.level:
                port = self.uplink_port(node.level, towards.index)
            else:
                port = towards.index + 1
            inside = 1 <= port <= self.port_count(node.level)
            back = self._planned(node, port) if inside else node  # type: ignore[assignment]
        absent = isinstance(node, Switch) and self._is_absent(node, towards)
        if back != towards or absent or not self.has(node):
            raise TopologyError(f"{self.name(node)} and {self.name(towards)} are not cabled together")
        return port

    def link(self, a: Node, b: Node) -> Link:
        """Return the link between two nodes, given in either order; raise `TopologyError` if they are not cabled together."""
        upwards = isinstance(a, Host) or (isinstance(b, Switch) and a.level < b.level)
        link = Link(a, b) if upwards else Link(b, a)  # type: ignore[arg-type]
        self.port(link.lower, link.upper)
        return link

    def element(self, name: str) -> Switch | Link:
        """Return the switch or link of that name; raise `TopologyError` if there is none, or a link is named from its upper end.

        >>> Cabling(Shape(pods=1, edges=2, aggregations=2, cores=0, hosts=2)).element("h0_0_2-e0_0").lower
        Host(pod=0, edge=0, number=2)
        """
        lower, dash, upper = name.partition("-")
        if not dash:
            return self.switch(name)
        link = self.link(self.node(lower), self.switch(upper))
        if self.name(link) != name:
            raise TopologyError(f"{name!r} is named from the wrong end; call it {self.name(link)}")
        return link

    def link_by_name(self, name: str) -> Link:
        """Return the link of that name; raise `TopologyError` if there is none."""
        element = self.element(name)
        if isinstance(element, Switch):
            raise TopologyError(f"{name} is a switch, not a link")
        return element

    # -- capacities -----------------------------------------------------------------------------------------------------

    def capacity(self, link: Link) -> float:
        """Return what a link carries in each direction, in Mbit/s; relative to the others if the fabric has no rates.

        Raises `TopologyError` if the link is absent, or no link of the fabric.
        """
        rate = self._rates.get(link)
        if rate is not None:
            return rate
        self.link(*link)
        return self.level_rate(self.link_level(link))

    def level_rate(self, level: str) -> float:
        """Return the Mbit/s of the links of one of `LINK_LEVELS`, without exceptions; 1 for a level without a rate."""
        return self.mbit.get(level, 1.0)

    @staticmethod
    def link_level(link: Link) -> str:
        """Return the level of a link, one of `LINK_LEVELS`."""
        return "host" if isinstance(link.lower, Host) else link.lower.level.name.lower()

    @property
    def link_levels(self) -> tuple[str, ...]:
        """Those of `LINK_LEVELS` of which the fabric has links: a leaf-spine fabric has none above aggregation switches."""
        return LINK_LEVELS if self.cores else LINK_LEVELS[:2]

    @property
    def rated(self) -> Iterable[Link]:
        """The links that have a rate of their own."""
        return self._rates.keys()

    @cached_property
    def in_mbit(self) -> bool:
        """Whether capacities are Mbit/s: the fabric has the rates of all levels of links."""
        return self.mbit.keys() >= set(self.link_levels)

    @cached_property
    def even(self) -> bool:
        """Whether no link between switches is absent or has another rate than those of its level."""
        return not self.absent and not any(isinstance(link.lower, Switch) for link in self._rates)


def network6(text: str) -> IPv6Network:
    """Return the prefix of a fabric's IPv6 addresses; `TopologyError` if it is none."""
    try:
        network = IPv6Network(text)
    except ValueError as error:
        raise TopologyError(f"prefix6 {text!r:.60} is none: {error}") from None
    if network.prefixlen != 48 or network.is_multicast or network.is_link_local or network.is_loopback:
        raise TopologyError(f"prefix6 {text} is no /48 of unicast addresses, as {PREFIX6} is")
    return network


def _rate(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise TopologyError(f"{what} must be a number of Mbit/s above 0, or absent for a link, not {value!r}")
    return value
