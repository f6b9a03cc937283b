"""Routers as the lines of `sopa fabric srv6 --format iproute2` describe them, and the way of a packet through them. Pure."""

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, NamedTuple

from topologies import Clos, Host, Switch, srv6_plan

MOST_HOPS = 16
_PORT = re.compile(r"eth(\d+)\b")
_BLOCK = 128 - 32


class Sighting(NamedTuple):
    """A packet at a router: the port that it comes by, and its outer destination there."""

    router: str
    port: int
    to: IPv6Address


class Way(NamedTuple):
    """What becomes of a packet: where it is seen, the host to which it comes without its outer header, or why it is dropped."""

    seen: tuple[Sighting, ...]
    host: Host | None
    dropped: str = ""

    @property
    def hops(self) -> tuple[str, ...]:
        return tuple(sighting.router for sighting in self.seen)


class LinuxRouter:
    """A router that has been told these lines, and nothing else."""

    def __init__(self, lines: list[str]) -> None:
        self.routes: dict[str, dict[Any, list[str]]] = {"main": {}}
        self.trusted: set[int] = set()
        self.rules: dict[int, tuple[IPv6Network, str]] = {}
        self.owns: set[tuple[int, Any]] = set()
        for line in lines:
            words = line.split()
            if line.startswith("nft"):
                self.trusted = {int(port) for port in _PORT.findall(line.split(" drop;")[0])}
            elif " fwmark " in line:
                continue
            elif " rule add " in line:
                to, header, table = (words[words.index(key, words.index("add")) + 1] for key in ("to", "ipproto", "lookup"))
                self.rules[{"ipencap": 4, "ipv6": 6}[header]] = (IPv6Network(to), table)
            elif " route replace " in line:
                rest = words[words.index("replace") + 1 :]
                kind = [rest.pop(0)] if rest[0] == "unreachable" else []
                table = rest[rest.index("table") + 1] if "table" in rest else "main"
                self.routes.setdefault(table, {})[ip_network(rest[0])] = kind + rest[1:]
            elif " address replace " in line and "dev lo" not in line:
                rest = words[words.index("replace") + 1 :]
                self.owns.add((int(_PORT.findall(rest[2])[0]), ip_address(rest[0].split("/")[0])))

    def found(self, address: Any, inner: int | None = None) -> list[str]:
        """Return what is done with an address by its longest route; of an outer header with an inner one of that version."""
        prefix, table = self.rules.get(inner or 0, (None, "main"))
        routes = self.routes[table if prefix is not None and address in prefix else "main"]
        own = [prefix for prefix in routes if prefix.version == address.version and address in prefix]
        return routes[max(own, key=lambda prefix: prefix.prefixlen)] if own else ["unreachable"]


class Routers:
    """All routers of a fabric."""

    def __init__(self, tree: Clos) -> None:
        self.tree = tree
        self._its = {switch: LinuxRouter(list(srv6_plan.iproute2(tree, switch, "eth{}".format))) for switch in tree.switches()}

    def follow(self, src: Host, to: IPv6Address, inner: IPv4Address | IPv6Address) -> Way:
        """Return the way of a packet that a host sends to its edge switch."""
        return self._follow(self.tree.edge_of(src), self.tree.port(self.tree.edge_of(src), src), to, inner)

    def follow_error(self, at: Switch, to: IPv6Address) -> Way:
        """Return the way of an ICMPv6 error that a router sends."""
        return self._follow(at, None, to, None)

    def _follow(self, at: Switch, port: int | None, to: IPv6Address, inner: IPv4Address | IPv6Address | None) -> Way:
        seen: list[Sighting] = []
        version = None if inner is None else inner.version
        while len(seen) < MOST_HOPS:
            seen.append(Sighting(self.tree.name(at), port or 0, to))
            its = self._its[at]
            if port is not None and port not in its.trusted:
                return Way(tuple(seen), None, f"{self.tree.name(at)} takes none by port {port}")
            done = its.found(to, version)
            if "next-csid" in done:
                block, rest = int(to) >> _BLOCK, int(to) & (1 << _BLOCK - 16) - 1
                to = IPv6Address(block << _BLOCK | rest << 16)
                done = its.found(to, version)
            if inner is not None and "encap" in done and "next-csid" not in done:
                done = its.found(inner)
                host = None if "dev" not in done else self.tree.neighbour(at, self._port(done))
                return Way(tuple(seen), host if isinstance(host, Host) else None, "" if host else "no such host")
            if "dev" not in done or "next-csid" in done:
                return Way(tuple(seen), None, f"{self.tree.name(at)} has no way to {to}")
            after = self.tree.neighbour(at, self._port(done))
            if inner is None and isinstance(after, Host):
                return Way(tuple(seen), after)
            assert isinstance(after, Switch)
            port = self.tree.port(after, at)
            assert (port, ip_address(done[done.index("via") + 1])) in self._its[after].owns, "the next hop is nobody's"
            at = after
        return Way(tuple(seen), None, "goes in circles")

    @staticmethod
    def _port(done: list[str]) -> int:
        return int(done[done.index("dev") + 1].removeprefix("eth"))
