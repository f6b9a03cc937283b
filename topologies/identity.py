"""The identities of a Clos fabric: the one place that converts between names, datapath ids, addresses and positions. Pure."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any, NamedTuple, Union

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_K = 2
MAX_K = 128
FABRIC_NETWORK = IPv4Network("10.0.0.0/8")
PREFIX6 = IPv6Network("fd53:4f50:4100::/48")
"""The usual prefix of IPv6: unique local addresses (RFC 4193)."""
GATEWAY_MAC = "02:00:00:00:00:01"
BFD_INTERVAL_MS = 100
"""Of BFD where the controller enables it. Three lost packets are a failure: silent loss is found within 0.3 s."""
BFD_MAC = "02:53:4f:50:41:01"
TURN_MAC = "02:53:4f:50:41:02"
"""The Ethernet destination of self-probes, which turn at a switch and come back to the host that has sent them."""
"""Destination of every BFD packet between switches; no packet of a host for it passes the edge switch."""
FIRST_HOST = 2  # Al-Fares' plan: .1 is the rack's gateway, hosts start at .2


class TopologyError(ValueError):
    """A size, name, address, datapath id or port that the fabric does not have."""


class Level(IntEnum):
    """The level of a switch above the hosts; the number is the first octet of its datapath id."""

    EDGE = 1
    AGGREGATION = 2
    CORE = 3


class Switch(NamedTuple):
    """A switch: its level, its pod (for a core switch its group, the aggregation index that it serves) and its index there."""

    level: Level
    pod: int
    index: int  # type: ignore[assignment]  # tuple.index() is of no use here


class Host(NamedTuple):
    """A host: its pod, its edge switch's index, and the last octet of its address."""

    pod: int
    edge: int
    number: int


# Union, not |: these aliases are evaluated when the module is loaded, by whichever Python Mininet runs on.
Node = Union[Switch, Host]  # noqa: UP007


class Link(NamedTuple):
    """A cable, named by its lower end first: ``a0_0-c0_1``."""

    lower: Node
    upper: Switch


class Path(NamedTuple):
    """One candidate path: the uplink index of each upward hop, and the names of the switches in order."""

    up: tuple[int, ...]
    hops: tuple[str, ...]


_MAX_DIGITS = 3
_LETTER = {Level.EDGE: "e", Level.AGGREGATION: "a", Level.CORE: "c"}
_LEVEL = {letter: level for level, letter in _LETTER.items()}


class Shape(NamedTuple):
    """The numbers of a Clos fabric's switches and hosts.

    Attributes:
        pods: 1 to 255. One pod without core switches is a leaf-spine fabric: its edge switches are the leaves, its aggregation
            switches the spines.
        edges: Edge switches of a pod, 1 to 255.
        aggregations: Aggregation switches of a pod, 1 to 254.
        cores: Core switches in all: a multiple of ``aggregations``, at most 254 for each; 0 with one pod only.
        hosts: Hosts of an edge switch, 1 to 252.
    """

    pods: int
    edges: int
    aggregations: int
    cores: int
    hosts: int

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield each number that is out of range, by its name, and what is wrong with it; if none is, those that do not fit."""
        in_range = True
        for name, value in self._asdict().items():
            least, most = RANGES[name]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                in_range = False
                yield name, f"must be a number from {least} to {most}, not {value!r}"
        if not in_range:
            return
        most = MAX_UPLINKS * self.aggregations
        if self.cores % self.aggregations:
            yield "cores", f"must be a multiple of aggregations ({self.aggregations}), not {self.cores}"
        elif self.cores > most:
            each = f"{MAX_UPLINKS} for each aggregation switch of a pod"
            yield "cores", f"must be at most {most}, {each}, not {self.cores}"
        elif not self.cores and self.pods > 1:
            between = f"since {self.pods} pods need core switches between them"
            yield "cores", f"must be at least {self.aggregations}, {between}"


MAX_UPLINKS = 254
"""Uplink indices are one byte, and 255 is that of a hop that is not taken."""
RANGES = {
    "pods": (1, 255),  # 10.{pods}.0.0/16 is kept for switches
    "edges": (1, 255),
    "aggregations": (1, MAX_UPLINKS),
    "cores": (0, MAX_UPLINKS * MAX_UPLINKS),
    "hosts": (1, 252),  # from .2 to .253
}
"""The least and the largest of each number, by the address plan: one octet or byte for each index."""


LARGEST = Shape(**{name: most for name, (_, most) in RANGES.items()})
"""The largest fabric: all others have some of its names and addresses."""


RACK_SHIFT = {4: 8, 6: 64}
"""The bits of an address below those of its rack: pod and edge switch have eight each."""


class Family:
    """The addresses of a fabric in one version of IP: ``number`` of 4 or 6. A rack's addresses begin at its pod and edge switch.

    >>> rack = Switch(Level.EDGE, 2, 1)
    >>> [str(each.prefix(rack)) for each in (IPV4, Family(PREFIX6))]
    ['10.2.1.0/24', 'fd53:4f50:4100:201::/64']
    >>> Family(PREFIX6).text(Host(2, 1, 10))
    'fd53:4f50:4100:201::a'
    """

    def __init__(self, network: IPv4Network | IPv6Network) -> None:
        self.network = network
        self.number = network.version
        self._base, self._shift = int(network.network_address), RACK_SHIFT[self.number]
        self._rack_bits = network.max_prefixlen - self._shift
        self._address: Any = type(network.network_address)
        self._rack_texts: dict[int, str] = {}
        self._hash = hash(network)  # of caches' keys; a network computes it anew each time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Family) and other.network == self.network

    def __hash__(self) -> int:
        return self._hash

    def address(self, host: Host) -> Any:
        """Return a host's address."""
        return self._address(self._base + ((host.pod << 8 | host.edge) << self._shift) + host.number)

    def text(self, host: Host) -> str:
        """Return ``str(address(host))``, in a fraction of the time: a fabric's rules have each host's address several times."""
        rack = host.pod << 8 | host.edge
        begin = self._rack_texts.get(rack)
        if begin is None:
            begin = str(self._address(self._base + (rack << self._shift))).removesuffix("0")
            self._rack_texts[rack] = begin
        return begin + (str(host.number) if self.number == 4 else f"{host.number:x}")

    def gateway(self, host: Host) -> Any:
        """Return the address of a host's gateway, which its edge switch answers for."""
        return self._address(self._base + ((host.pod << 8 | host.edge) << self._shift) + 1)

    def host(self, address: Any) -> Host:
        """Return the position that an address is of, whether or not a fabric has it; `ValueError` outside of all racks."""
        rest = int(address) - self._base
        rack, number = rest >> self._shift, rest & (1 << self._shift) - 1
        if address not in self.network or number > 0xFF:
            raise ValueError(f"{address} is no host's address")
        return Host(rack >> 8, rack & 0xFF, number)

    def prefix(self, switch: Switch) -> Any:
        """Return the prefix of the hosts below a switch: a rack's, a pod's, or of a core switch the whole fabric's."""
        if switch.level is Level.CORE:
            return self.network
        if switch.level is Level.AGGREGATION:
            return type(self.network)((self._base + (switch.pod << 8 + self._shift), self._rack_bits - 8))
        return type(self.network)((self._base + ((switch.pod << 8 | switch.index) << self._shift), self._rack_bits))


IPV4 = Family(FABRIC_NETWORK)


class Identities:
    """The switches and hosts of a Clos fabric, by position, name, datapath id and address; `TopologyError` for a wrong shape.

    ``cores_of_group`` core switches serve the aggregation switches of one index: the uplinks of an aggregation switch.
    """

    def __init__(self, shape: Shape) -> None:
        problem = next(shape.problems(), None)
        if problem:
            raise TopologyError(" ".join(problem))
        self.shape = shape
        self.pods, self.edges, self.aggregations, self.cores, self.hosts_per_edge = shape
        self.cores_of_group = shape.cores // shape.aggregations

    @property
    def title(self) -> str:
        """The fabric in a few words, for messages: ``k=4 fat-tree``, ``32x4 leaf-spine fabric``, ``4-pod Clos fabric``."""
        return f"{self.pods}-pod Clos fabric" if self.cores else f"{self.edges}x{self.aggregations} leaf-spine fabric"

    def groups(self, level: Level) -> int:
        """Return the number of pods, or for core switches of their groups: one for each aggregation switch of a pod."""
        return self.aggregations if level is Level.CORE else self.pods

    def group_size(self, level: Level) -> int:
        """Return the number of switches of a level in one pod, or of core switches in one group."""
        if level is Level.EDGE:
            return self.edges
        return self.aggregations if level is Level.AGGREGATION else self.cores_of_group

    def has(self, node: Node) -> bool:
        if isinstance(node, Host):
            return (
                0 <= node.pod < self.pods
                and 0 <= node.edge < self.edges
                and FIRST_HOST <= node.number < FIRST_HOST + self.hosts_per_edge
            )
        return 0 <= node.pod < self.groups(node.level) and 0 <= node.index < self.group_size(node.level)

    # -- names ------------------------------------------------------------------------------------------------------

    @staticmethod
    def name(node: Node | Link) -> str:
        """Return the name: ``h0_0_2``, ``e0_0``, ``a0_1``, ``c1_0``, or for a link its two ends, ``a0_1-c1_0``."""
        if isinstance(node, Link):
            return f"{Identities.name(node.lower)}-{Identities.name(node.upper)}"
        if isinstance(node, Host):
            return f"h{node.pod}_{node.edge}_{node.number}"
        return f"{_LETTER[node.level]}{node.pod}_{node.index}"

    def switch(self, name: str) -> Switch:
        """Return the switch of that name; raise `TopologyError` if there is none."""
        node = self.node(name)
        if isinstance(node, Host):
            raise TopologyError(f"{name} is a host, not a switch")
        return node

    def host(self, name: str) -> Host:
        """Return the host of that name; raise `TopologyError` if there is none."""
        node = self.node(name)
        if not isinstance(node, Host):
            raise TopologyError(f"{name} is a switch, not a host")
        return node

    def node(self, name: str) -> Node:
        """Return the switch or host of that name; raise `TopologyError` if there is none."""
        letter, numbers = name[:1], name[1:].split("_")
        node: Node | None = None
        if all(number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS for number in numbers):
            values = [int(number) for number in numbers]
            if letter == "h" and len(values) == 3:
                node = Host(*values)
            elif letter in _LEVEL and len(values) == 2:
                node = Switch(_LEVEL[letter], *values)
        # name() is compared too, so that e00_1 is not taken for e0_1
        if node is None or not self.has(node) or self.name(node) != name:
            raise TopologyError(f"{name!r} is no switch or host of a {self.title}")
        return node

    # -- datapath ids, addresses --------------------------------------------------------------------------------------

    @staticmethod
    def dpid(switch: Switch) -> int:
        """Return the datapath id: level << 16 | pod or core group << 8 | index."""
        return switch.level << 16 | switch.pod << 8 | switch.index

    def switch_by_dpid(self, dpid: int) -> Switch:
        """Return the switch with a datapath id; raise `TopologyError` if the fabric has none.

        >>> Identities(Shape(pods=4, edges=2, aggregations=2, cores=4, hosts=2)).switch_by_dpid(0x020301)
        Switch(level=<Level.AGGREGATION: 2>, pod=3, index=1)
        """
        level, pod, index = dpid >> 16, dpid >> 8 & 0xFF, dpid & 0xFF
        if level in _LETTER:
            switch = Switch(Level(level), pod, index)
            if self.has(switch):
                return switch
        raise TopologyError(f"datapath id {dpid:#018x} is no switch of a {self.title}")

    @staticmethod
    def ip(host: Host) -> IPv4Address:
        """Return the address, 10.pod.edge.number (Al-Fares et al., section 3.1)."""
        address: IPv4Address = IPV4.address(host)
        return address

    def host_by_ip(self, address: str | IPv4Address) -> Host:
        """Return the host with an address; raise `TopologyError` if none has it, `AddressValueError` if it is none of IPv4."""
        given = IPv4Address(address)
        if given not in IPV4.network or not self.has(host := IPV4.host(given)):
            raise TopologyError(f"{address} is no host of a {self.title}")
        return host

    @staticmethod
    def mac(host: Host) -> str:
        """Return the planned Ethernet address, 02:00:0a:pod:edge:number."""
        return f"02:00:0a:{host.pod:02x}:{host.edge:02x}:{host.number:02x}"

    def host_by_mac(self, mac: str) -> Host:
        """Return the host with that planned Ethernet address; raise `TopologyError` if there is none."""
        octets = mac.lower().split(":")
        try:
            if octets[:3] == ["02", "00", "0a"] and len(octets) == 6:
                host = Host(*(int(octet, 16) for octet in octets[3:]))
                if self.has(host) and self.mac(host) == mac.lower():
                    return host
        except ValueError:
            pass
        raise TopologyError(f"{mac!r} is no planned host address of a {self.title}")

    @staticmethod
    def prefix(switch: Switch) -> IPv4Network:
        """Return the prefix of the hosts below a switch: /24 for an edge switch, /16 for an aggregation switch, else all."""
        prefix: IPv4Network = IPV4.prefix(switch)
        return prefix

    @staticmethod
    def gateway(host: Host) -> IPv4Address:
        """Return the address of a host's gateway: the rack's .1, for which the edge switch answers ARP."""
        address: IPv4Address = IPV4.gateway(host)
        return address
