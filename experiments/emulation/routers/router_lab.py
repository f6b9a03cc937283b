"""A Clos fabric as Linux routers, with rates and queues of the lab: BGP and BFD of FRR, multipath routes, L4 hash."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from experiments.emulation.routers.frr_configuration import bfd_configuration, bgp_configuration, sessions, zebra_configuration
from experiments.emulation.routers.frr_daemons import Daemons, run_command
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Failures, Host, Level, Switch
from topologies.lab.batch_net import LabError, run_batch
from topologies.lab.isolation import is_isolated, require
from topologies.lab.links import at_rate, control_first, shaper
from topologies.lab.network import OWN_TABLES
from topologies.lab.routers import kernel_settings, no_duplicate_detection

NAMESPACES = Path("/run/netns")
READY_SECONDS = 20.0
_POLL_SECONDS = 0.1


class RouterLab:
    """A fabric of routers that speak BGP, as a context manager inside `topologies.lab.isolation.isolated`.

    Args:
        rate_mbit: Rate of hosts' links in Mbit/s; all others are in proportion (`topologies.lab.links.at_rate`).
        queue_packets: Capacity of the queue of a link in full frames.
        directory: Directory of configurations and logs.
        sysctls: Settings of every router under ``/proc/sys/net``.

    Entering raises `MissingCommandError` or `LabError` if FRR is not installed or routes are incomplete; all is stopped then.
    """

    _without_ipv6 = "1"

    def __init__(self, tree: Clos, rate_mbit: float, queue_packets: int, directory: Path, sysctls: Mapping[str, str]) -> None:
        self.tree, self.rate_mbit, self.queue_packets, self.directory = tree, rate_mbit, queue_packets, directory
        self._sysctls = sysctls
        self._rated = at_rate(tree, rate_mbit)
        self._sessions = sessions(tree)
        self._numbers = {router: number for number, router in enumerate(tree.switches(), start=1)}
        self._failed = Failures(tree)
        self._daemons: Daemons
        self._stack = ExitStack()

    def __enter__(self) -> RouterLab:
        if not is_isolated():
            raise LabError("routers change the network namespace that they run in: call isolated()")
        require("ip", "tc", "ethtool", "nsenter")
        with ExitStack() as stack:
            self._begin(stack)
            stack.callback(subprocess.run, ["ip", "-all", "netns", "delete"], check=False, capture_output=True)
            self._make_nodes()
            self._start(self.tree.switches())
            self.await_settled()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def _begin(self, stack: ExitStack) -> None:
        self._daemons = Daemons(self.directory, self.netns)
        stack.callback(self._daemons.close)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def netns(self, node: Host | Switch | str) -> str:
        """Return the path of the network namespace of a node."""
        return str(NAMESPACES / (node if isinstance(node, str) else self.tree.name(node)))

    def interface(self, node: Host | Switch, port: int) -> str:
        """Return the name of an interface, as in the lab: ``e0_0-eth1``."""
        return f"{self.tree.name(node)}-eth{port}"

    def set_link(self, name: str, up: bool) -> None:
        """Take a link down at both ends, or bring it up."""
        link = self.tree.link_by_name(name)
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            interface = self.interface(node, self.tree.port(node, towards))
            lines = [f"link set {interface} {'up' if up else 'down'}"]
            if up and isinstance(node, Host):
                lines += self._host_routes(node)
            if up and isinstance(towards, Host):
                lines += self._to_host(towards, interface)
            self._ip(node, lines)
        self._failed = self._failed.without(name) if up else self._failed.with_failed(name)

    def set_router(self, name: str, alive: bool) -> None:
        """Let a router die while the ports of its neighbours keep their carrier, or restart it."""
        router = self.tree.switch(name)
        if alive:
            self._daemons.end(name)
            self._start([router])
        else:
            self._daemons.freeze(name)
        self._write(router, "net/ipv4/ip_forward", "1" if alive else "0")
        self._failed = self._failed.without(name) if alive else self._failed.with_failed(name)

    def set_share(self, interface: str, share: float) -> None:
        """Give an interface a share of its rate; 1 for all of it. Raises ValueError if the share is not above 0 and at most 1."""
        if not 0 < share <= 1:
            raise ValueError(f"a link's rate can fall to a share above 0 and at most 1, not {share:g}")
        router, _, port = interface.partition("-eth")
        node = self.tree.switch(router)
        rate = share * self._rated.capacity(self.tree.link(node, self.tree.ports(node)[int(port)]))
        line = shaper(interface, rate, self.queue_packets)
        run_batch(["nsenter", f"--net={self.netns(node)}", "tc", "-batch", "-"], [line])

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Return the packets received so far by each router of a level, including BGP and BFD."""
        counts = {}
        for router in self.tree.switches(level):
            with inside(self.netns(router)):
                lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
            counts[self.tree.name(router)] = sum(int(line.split(":")[1].split()[1]) for line in lines if "-eth" in line)
        return counts

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        for sysctl, value in OWN_TABLES.items():
            Path("/proc/sys/net", sysctl).write_text(value)
        nodes: list[Host | Switch] = [*self.tree.hosts(), *self.tree.switches()]
        lines = [f"netns add {self.tree.name(node)}" for node in nodes]
        for link in self.tree.links():
            (lower, upper), names = (link.lower, link.upper), (self.tree.name(link.lower), self.tree.name(link.upper))
            ends = (self.interface(lower, self.tree.port(lower, upper)), self.interface(upper, self.tree.port(upper, lower)))
            lines.append(f"link add {ends[0]} netns {names[0]} type veth peer name {ends[1]} netns {names[1]}")
        run_batch(["ip", "-batch", "-"], lines)
        for node in nodes:
            self._write(node, "net/ipv6/conf/all/disable_ipv6", self._without_ipv6)
            if isinstance(node, Switch):
                self._set(node, no_duplicate_detection(self.interface(node, port) for port in self.tree.ports(node)))
            self._ip(node, ["link set lo up", *(self._host(node) if isinstance(node, Host) else self._router(node))])
            self._shape(node)
        for host in self.tree.hosts():
            command = ("nsenter", f"--net={self.netns(host)}", "ethtool", "-K", self.interface(host, 0))
            run_command(*command, "tso", "off", "gso", "off", "gro", "off")

    def _host(self, host: Host) -> Iterator[str]:
        interface = self.interface(host, 0)
        yield f"link set {interface} address {self.tree.mac(host)}"
        yield f"link set {interface} up"
        yield f"address add {self.tree.ip(host)}/32 dev {interface}"
        yield from self._host_routes(host)

    def _host_routes(self, host: Host) -> list[str]:
        interface = self.interface(host, 0)
        gateway = self.tree.gateway(host)
        return [
            f"route replace {gateway}/32 dev {interface}",
            f"route replace default via {gateway} dev {interface} src {self.tree.ip(host)}",
        ]

    def _router(self, router: Switch) -> Iterator[str]:
        for port in self.tree.ports(router):
            yield f"link set {self.interface(router, port)} up"
        for session in self._sessions[router]:
            yield f"address add {session.own}/31 dev {self.interface(router, session.port)}"
        if router.level is Level.EDGE:
            hosts = list(self.tree.hosts_of(router))
            yield f"address add {self.tree.gateway(hosts[0])}/32 dev lo"  # the same on all ports to hosts
            for host in hosts:
                yield from self._to_host(host, self.interface(router, self.tree.port(router, host)))

    def _to_host(self, host: Host, interface: str) -> list[str]:
        return [f"route replace {self.tree.ip(host)}/32 dev {interface} src {self.tree.gateway(host)}"]

    def _shape(self, node: Host | Switch) -> None:
        ports: Mapping[int, Host | Switch] = {0: self.tree.edge_of(node)} if isinstance(node, Host) else self.tree.ports(node)
        lines = []
        for port, neighbour in ports.items():
            interface = self.interface(node, port)
            rate = self._rated.capacity(self.tree.link(node, neighbour))
            lines.append(shaper(interface, rate, self.queue_packets))
            if isinstance(node, Switch):
                lines += control_first(interface, self.queue_packets)
        run_batch(["nsenter", f"--net={self.netns(node)}", "tc", "-batch", "-"], lines)

    def _ip(self, node: Host | Switch, lines: Iterable[str]) -> None:
        run_batch(["nsenter", f"--net={self.netns(node)}", "ip", "-batch", "-"], list(lines))

    def _write(self, node: Host | Switch, name: str, value: str) -> None:
        with inside(self.netns(node)):
            Path("/proc/sys", name).write_text(value)

    # -- routers ------------------------------------------------------------------------------------------------------

    def _start(self, routers: Iterable[Switch]) -> None:
        configurations = {}
        for router in routers:
            self._set_kernel(router)
            configurations[self.tree.name(router)] = {
                "zebra": zebra_configuration(),
                "bfdd": bfd_configuration(),
                "bgpd": bgp_configuration(self.tree, router, self._numbers[router], self._sessions[router]),
            }
        self._daemons.start(configurations)

    def _set_kernel(self, router: Switch) -> None:
        self._set(router, kernel_settings(self._numbers[router], self._sysctls))

    def _set(self, router: Switch, settings: Mapping[str, str]) -> None:
        for sysctl, value in settings.items():
            self._write(router, f"net/{sysctl}", value)

    def await_settled(self) -> None:
        """Wait until BFD is up on exactly the working links, and edge routers have exactly the remaining routes.

        Raises `LabError` after `READY_SECONDS`.
        """
        deadline = time.monotonic() + READY_SECONDS
        alive = [router for router in self.tree.switches() if self._failed.alive(router)]
        edges = [router for router in alive if router.level is Level.EDGE]
        for routers, ready, what in (
            (alive, self._bfd_matches, "BFD is not up on exactly the working links"),
            (edges, self._has_all_routes, "routes do not match the working links"),
        ):
            while behind := [router for router in routers if not ready(router)]:
                self._daemons.check()
                if time.monotonic() > deadline:
                    names = ", ".join(self.tree.name(router) for router in behind[:8])
                    raise LabError(f"{what} after {READY_SECONDS:g} s: {names}; logs are in {self.directory}")
                time.sleep(_POLL_SECONDS)

    def _bfd_matches(self, router: Switch) -> bool:
        working = {
            str(session.peer)
            for session in self._sessions[router]
            for neighbour in [self.tree.neighbour(router, session.port)]
            if isinstance(neighbour, Switch) and self._failed.alive(neighbour, self.tree.link(router, neighbour))
        }
        return self._daemons.bfd_up(self.tree.name(router)) == working

    def _has_all_routes(self, edge: Switch) -> bool:
        """Return True if there are as many next hops to each rack as uplinks with a working path to it."""
        expected = {
            str(self.tree.prefix(rack)): len({up[0] for up in choices})
            for rack, choices in self._failed.choices_from(edge).items()
            if rack != edge and choices
        }
        command = ("nsenter", f"--net={self.netns(edge)}", "ip", "-json", "-4", "route", "show", "proto", "bgp")
        shown = json.loads(run_command(*command) or "[]")
        return {route["dst"]: len(route.get("nexthops", [0])) for route in shown} == expected
