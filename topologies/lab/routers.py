"""Switches as Linux routers with static SRv6 uSIDs, and with static multipath routes for what is not encapsulated."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from topologies import srv6_plan
from topologies.lab.batch_net import LabRouter, run_batch
from topologies.lab.isolation import require
from topologies.lab.links import control_first, filters
from topologies.lab.mininet_topo import ClosTopo
from topologies.lab.network import Lab
from topologies.srv6 import link_local
from topologies.structure import Clos, Level, Switch

ROUTER_SYSCTLS = {"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"}
_SEED = "ipv4/fib_multipath_hash_seed"  # Linux 6.11


def require_programs() -> None:
    """Raise `MissingCommandError` if a program is missing that the printed commands use."""
    require("nft", "sysctl")


def kernel_settings(number: int, more: Mapping[str, str]) -> dict[str, str]:
    """Return the settings under ``/proc/sys/net`` of a router that hashes flows; each has a number of its own."""
    # without a seed, the second level repeats the choice of the first
    seed = {_SEED: str(number)} if Path("/proc/sys/net", _SEED).exists() else {}
    return {**ROUTER_SYSCTLS, **more, **seed}


def no_duplicate_detection(interfaces: Iterable[str]) -> dict[str, str]:
    """Return the settings under ``/proc/sys/net`` of a router's interfaces, before they come up.

    Their addresses are those of the plan. For as long as the kernel looks for duplicates, up to two seconds, it asks for no host's
    address, and what it is to forward there waits or is dropped.
    """
    return {f"ipv6/conf/{interface}/accept_dad": "0" for interface in interfaces}


def configure(tree: Clos, router: Switch, netns: str) -> None:
    """Have a network namespace run what ``sopa fabric srv6`` prints for a router, and plain routes besides; it may be repeated.

    Interfaces are those of the lab, ``e0_0-eth1``. The kernel removes addresses and routes of a link that goes down, and takes none
    for it until it is up.
    """
    enter = ["nsenter", f"--net={netns}"]
    shown = subprocess.run([*enter, "ip", "-json", "link", "show", "up"], check=True, capture_output=True).stdout
    up = {link.get("ifname") for link in json.loads(shown)}  # of others there is an empty object
    ports = {port: f"{tree.name(router)}-eth{port}" for port in tree.ports(router)}
    down = {f"dev {name}" for name in ports.values() if name not in up}
    printed = srv6_plan.text(tree, [router], "iproute2", f"{tree.name(router)}-eth{{port}}")
    lines = [line for line in printed if not any(f"{each} " in f"{line} " for each in down)]
    plain = _plain_routes(tree, router, {port: name for port, name in ports.items() if name in up})
    run_batch([*enter, "sh", "-eu"], [*lines, "ip -batch - << END", *plain, "END"])


def set_dead(netns: str, dead: bool) -> None:
    """Have a router drop all packets while the ports of its neighbours keep their carrier, or no longer."""
    lines = ["table inet dead", "delete table inet dead"]
    if dead:
        lines.append("table inet dead { chain everything { type filter hook prerouting priority -400; policy drop; }; }")
    run_batch(["nsenter", f"--net={netns}", "nft", "-f", "-"], lines)


def _plain_routes(tree: Clos, router: Switch, interfaces: Mapping[int, str]) -> Iterator[str]:
    for family in tree.families:
        hops = []
        for port, interface in interfaces.items():
            node = tree.neighbour(router, port)
            if not isinstance(node, Switch):
                continue
            hop = f"via {'inet6 ' if family.number == 4 else ''}{link_local(node)} dev {interface}"
            if node.level > router.level:
                hops.append(f"nexthop {hop}")
            else:
                yield f"route replace {family.prefix(node)} {hop}"
        if hops:
            yield f"route replace {family.network} {' '.join(hops)}"


class RoutedLab(Lab):
    """A lab of such routers, each in a namespace of its own; no controller knows them.

    Args:
        sysctls: Settings of every router under ``/proc/sys/net``.
    """

    def __init__(
        self, tree: Clos, rate_mbit: float | None, queue_packets: int, say: Callable[[str], None], sysctls: Mapping[str, str]
    ) -> None:
        super().__init__(tree, rate_mbit, queue_packets, None, say, bfd=False)
        self._sysctls = sysctls

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Return the packets received so far by each router of a level."""
        counts = {}
        for switch in self.tree.switches(level):
            lines = Path(f"/proc/{self.node(switch).pid}/net/dev").read_text().splitlines()
            counts[self.tree.name(switch)] = sum(int(line.split(":")[1].split()[1]) for line in lines if "-eth" in line)
        return counts

    def _topo(self) -> ClosTopo:
        return ClosTopo(self.tree, routed=True)

    def _begin(self) -> None:
        require_programs()

    def _switch(self, name: str, **params: Any) -> LabRouter:
        router = self.tree.switch(name)

        def netns() -> str:
            return str(self.namespace(router))

        return LabRouter(name, lambda: configure(self.tree, router, netns()), lambda dead: set_dead(netns(), dead), **params)

    def _start_switches(self) -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._prepare, range(1, self.tree.switch_count + 1), self.tree.switches()))

    def _prepare(self, number: int, router: Switch) -> None:
        interfaces = [*self._interfaces(router)]
        settings = kernel_settings(number, self._sysctls) | no_duplicate_detection(interfaces)
        traffic = [filters(each) for each in interfaces]
        if self.rate_mbit is not None:
            traffic += self._shapers(interfaces)
            traffic += [line for each in interfaces for line in control_first(each, self.queue_packets)]
        lines = [
            *(f"echo {value} > /proc/sys/net/{name}" for name, value in settings.items()),
            *(f"ip link set {each} up" for each in ("lo", *interfaces)),
            *(f"tc {line}" for line in traffic),
        ]
        run_batch(["nsenter", f"--net={self.namespace(router)}", "sh", "-eu"], lines)
        self.node(router).configure()
