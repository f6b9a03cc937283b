"""The same fat-tree as Linux routers: FRR's BGP and BFD, the kernel's multipath routes and L4 hash, the lab's rates and queues."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from experiments.emulation.frr import addresses, bfd_configuration, bgp_configuration, sessions
from sopa_ryu.agent.netns import inside
from topologies import FatTree, Host, Level, Link, Switch, TopologyError
from topologies.batch_net import LabError, run_batch
from topologies.hermetic import is_isolated, require
from topologies.lab_links import shaper

FRR = Path("/usr/lib/frr")
NAMESPACES = Path("/run/netns")
SOCKETS = Path("/run/frr")
USER = "frr", "frr"
READY_SECONDS = 30.0
START_ATTEMPTS = 3
_POLL_SECONDS = 0.1
_DAEMONS = ("zebra", "bfdd", "bgpd")
_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
}
_SEED = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed")  # Linux 6.11


class RouterLab:
    """The fabric, as a context manager, inside `hermetic.isolated`.

    Parameters
    ----------
    tree : FatTree
    rate_mbit : float
        Rate of every link.
    queue_packets : int
        Full frames that a link's queue holds.
    say : callable
        Told what is going on.
    directory : Path
        For configurations and logs.
    sysctls : mapping
        Settings of every router under ``/proc/sys/net``.

    Raises
    ------
    MissingCommandError, LabError
        On entering, if FRR is not installed, or routers do not find all routes; what had been started is stopped.
    """

    def __init__(
        self,
        tree: FatTree,
        rate_mbit: float,
        queue_packets: int,
        say: Callable[[str], None],
        directory: Path,
        sysctls: Mapping[str, str],
    ) -> None:
        self.tree, self.rate_mbit, self.queue_packets, self.directory = tree, rate_mbit, queue_packets, directory
        self._say = say
        self._sysctls = {**_SYSCTLS, **{f"net/{name}": value for name, value in sysctls.items()}}
        self._sessions = sessions(tree)
        self._processes: dict[Switch, list[subprocess.Popen[bytes]]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> RouterLab:
        if not is_isolated():
            raise LabError("routers change the network that they run in: run them by hermetic.isolated()")
        require("ip", "tc", "ethtool", "nsenter")
        if missing := [name for name in _DAEMONS if not (FRR / name).exists()]:
            raise LabError(f"FRR's {', '.join(missing)} is not installed: make install-peers, or: apt install frr")
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.chown(self.directory, *USER)
        with ExitStack() as stack:
            # FRR keeps buffers of its logs there; this is a mount of the lab's own
            run_command("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/var/tmp")
            stack.callback(run_command, "umount", "/var/tmp")
            stack.callback(self._stop)
            self._say(f"making {self.tree.host_count} hosts and {self.tree.switch_count} routers")
            self._make_nodes()
            self._start_routers()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_routers(self) -> None:
        """Start FRR everywhere, anew if not all of it comes up: now and then a BFD session of FRR 8.4 stays down for good."""
        for left in reversed(range(START_ATTEMPTS)):
            self._say(
                f"starting FRR on {self.tree.switch_count} routers, until all ways are there and BFD watches every link"
            )
            for router in self.tree.switches():
                self._start_router(router)
            try:
                self.await_healthy()
                return
            except LabError as error:
                if not left:
                    raise
                self._say(f"{error}; once more")
                self._end_daemons()

    # -- hooks --------------------------------------------------------------------------------------------------------

    def netns(self, node: Host | Switch | str) -> str:
        """The path of a node's network namespace."""
        return str(NAMESPACES / (node if isinstance(node, str) else self.tree.name(node)))

    def interface(self, node: Host | Switch, port: int) -> str:
        """An interface's name, as in the lab: ``e0_0-eth1``."""
        return f"{self.tree.name(node)}-eth{port}"

    def set_link(self, name: str, up: bool) -> None:
        """Take a link down at both ends, or bring it up."""
        link = self.tree.element(name)
        if not isinstance(link, Link):
            raise TopologyError(f"{name} is a switch, not a link")
        for node, towards in ((link.lower, link.upper), (link.upper, link.lower)):
            interface = self.interface(node, self.tree.port(node, towards))
            lines = [f"link set {interface} {'up' if up else 'down'}"]
            if up and isinstance(node, Host):
                lines += self._host_routes(node)
            if up and isinstance(towards, Host):
                lines += self._to_host(towards, interface)
            self._ip(node, lines)

    def set_router(self, name: str, alive: bool) -> None:
        """Have a router die, its neighbours' ports keeping their carrier, or come back."""
        router = self.tree.switch(name)
        for process in self._processes[router]:
            process.send_signal(signal.SIGCONT if alive else signal.SIGSTOP)
        self._write(router, "net/ipv4/ip_forward", "1" if alive else "0")

    def port_packets(self, level: Level = Level.CORE) -> dict[str, int]:
        """Packets received so far by each router of a level, BGP and BFD among them."""
        counts = {}
        for router in self.tree.switches(level):
            with inside(self.netns(router)):
                lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
            counts[self.tree.name(router)] = sum(int(line.split(":")[1].split()[1]) for line in lines if "-eth" in line)
        return counts

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        nodes: list[Host | Switch] = [*self.tree.hosts(), *self.tree.switches()]
        lines = [f"netns add {self.tree.name(node)}" for node in nodes]
        for link in self.tree.links():
            (lower, upper), names = (link.lower, link.upper), (self.tree.name(link.lower), self.tree.name(link.upper))
            ends = (
                self.interface(lower, self.tree.port(lower, upper)),
                self.interface(upper, self.tree.port(upper, lower)),
            )
            lines.append(f"link add {ends[0]} netns {names[0]} type veth peer name {ends[1]} netns {names[1]}")
        run_batch(["ip", "-batch", "-"], lines)
        for node in nodes:
            self._write(node, "net/ipv6/conf/all/disable_ipv6", "1")
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
        gateway = self._gateway(self.tree.edge_of(host))
        return [
            f"route replace {gateway}/32 dev {interface}",
            f"route replace default via {gateway} dev {interface} src {self.tree.ip(host)}",
        ]

    def _gateway(self, edge: Switch) -> str:
        """The edge router's address, 10.pod.edge.1, the same on all its ports towards hosts."""
        return str(self.tree.prefix(edge).network_address + 1)

    def _router(self, router: Switch) -> Iterator[str]:
        for port in self.tree.ports(router):
            yield f"link set {self.interface(router, port)} up"
        for port, address in addresses(self.tree, router, self._sessions[router]):
            yield f"address add {address} dev {self.interface(router, port)}"
        if router.level is Level.EDGE:
            yield f"address add {self._gateway(router)}/32 dev lo"
            for host in self.tree.hosts_of(router):
                yield from self._to_host(host, self.interface(router, self.tree.port(router, host)))

    def _to_host(self, host: Host, interface: str) -> list[str]:
        return [f"route replace {self.tree.ip(host)}/32 dev {interface} src {self._gateway(self.tree.edge_of(host))}"]

    def _shape(self, node: Host | Switch) -> None:
        ports: Iterable[int] = (0,) if isinstance(node, Host) else self.tree.ports(node)
        lines = [shaper(self.interface(node, port), self.rate_mbit, self.queue_packets) for port in ports]
        run_batch(["nsenter", f"--net={self.netns(node)}", "tc", "-batch", "-"], lines)

    def _ip(self, node: Host | Switch, lines: Iterable[str]) -> None:
        run_batch(["nsenter", f"--net={self.netns(node)}", "ip", "-batch", "-"], list(lines))

    def _write(self, node: Host | Switch, name: str, value: str) -> None:
        with inside(self.netns(node)):
            Path("/proc/sys", name).write_text(value)

    # -- routers ------------------------------------------------------------------------------------------------------

    def _start_router(self, router: Switch) -> None:
        name = self.tree.name(router)
        for sysctl, value in self._sysctls.items():
            self._write(router, sysctl, value)
        if _SEED.exists():  # or else the second level repeats the first one's choice
            self._write(router, str(_SEED.relative_to("/proc/sys")), str(1 + list(self.tree.switches()).index(router)))
        sockets = SOCKETS / name
        sockets.mkdir(parents=True, exist_ok=True)
        shutil.chown(sockets, *USER)
        texts = {
            "zebra": "",
            "bfdd": bfd_configuration(),
            "bgpd": bgp_configuration(self.tree, router, self._sessions[router]),
        }
        self._processes[router] = []
        for daemon, text in texts.items():
            file = self.directory / f"{name}.{daemon}.conf"
            file.write_text(text)
            command = [
                "nsenter",
                f"--net={self.netns(router)}",
                str(FRR / daemon),
                "-N",
                name,
            ]
            command += ["-f", str(file), "--log", f"file:{self.directory / f'{name}.{daemon}.log'}"]
            if daemon == "bgpd":
                command += ["-p", "179"]
            with (self.directory / f"{name}.{daemon}.out").open("wb") as out:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
            self._processes[router].append(process)

    def await_healthy(self) -> None:
        """Wait until every edge router has all ways to every rack, and BFD is up; `LabError` if that takes too long."""
        deadline = time.monotonic() + READY_SECONDS
        waiting = dict.fromkeys(self.tree.switches(), self._is_watched)
        edges = dict.fromkeys(self.tree.switches(Level.EDGE), self._has_all_ways)
        for checks, what in ((edges, "no ways to every rack"), (waiting, "BFD did not come up")):
            while behind := [router for router, ready in checks.items() if not ready(router)]:
                self._check_alive()
                if time.monotonic() > deadline:
                    names = ", ".join(self.tree.name(router) for router in behind[:8])
                    raise LabError(f"{what} within {READY_SECONDS:g} s: {names}; logs are in {self.directory}")
                time.sleep(_POLL_SECONDS)

    def _is_watched(self, router: Switch) -> bool:
        shown = run_command("vtysh", "-N", self.tree.name(router), "-c", "show bfd peers brief json")
        up = [peer for peer in json.loads(shown or "[]") if peer["status"] == "up"]
        return len(up) == len(self._sessions[router])

    def _has_all_ways(self, edge: Switch) -> bool:
        shown = self._output(edge, "ip", "-o", "-4", "route", "show", "proto", "bgp").splitlines()
        racks = self.tree.k * self.tree.half - 1
        ways = 2 if self.tree.half == 1 else self.tree.half
        full = [line for line in shown if line.count("nexthop") == ways or (self.tree.half == 1 and "via" in line)]
        return len(full) == racks

    def _output(self, node: Switch, *command: str) -> str:
        return run_command("nsenter", f"--net={self.netns(node)}", *command)

    def _check_alive(self) -> None:
        for router, processes in self._processes.items():
            for daemon, process in zip(_DAEMONS, processes, strict=True):
                if process.poll() is not None:
                    name = self.tree.name(router)
                    said = (self.directory / f"{name}.{daemon}.out").read_text(errors="replace").strip()
                    raise LabError(f"FRR's {daemon} of {name} ended with status {process.returncode}: {said[-500:]}")

    def _end_daemons(self) -> None:
        everyone = [process for processes in self._processes.values() for process in processes]
        for process in everyone:
            process.send_signal(signal.SIGKILL)
        for process in everyone:
            process.wait()
        self._processes.clear()

    def _stop(self) -> None:
        self._end_daemons()
        subprocess.run(["ip", "-all", "netns", "delete"], check=False, capture_output=True)


def run_command(*words: str) -> str:
    """What a command prints; `LabError` with what it says if it fails."""
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
