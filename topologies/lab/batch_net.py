"""A Mininet network built in batches: the same nodes, names, interfaces and prompt in a fraction of the time.

Mininet configures each interface by commands through its node's shell, one after the other. Here the veth pairs are
one ``ip -batch``, each host is one short script in its network namespace (as many at a time as there are processors),
and stopping is one kill and one deletion by interface group. It runs inside `isolation.isolated` only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_interface
from typing import Any

from mininet.link import Intf, Link
from mininet.net import Mininet
from mininet.node import OVSSwitch, RemoteController, Switch
from mininet.util import errRun

from topologies.lab.datapath import DatapathKind
from topologies.lab.mininet_topo import OFFLOADS_OFF, ClosTopo, FabricHost, ipv6_lines, ipv6_settings

GROUP = "83"  # interface group of the lab's root namespace: one command deletes all its interfaces
CONGESTION_CONTROL = "cubic"

_FILES_PER_NODE = 4
_KILL_SECONDS = 10.0
_SPARE_FILES = 512


class LabError(RuntimeError):
    """A command that builds or changes the lab failed; the text has its output."""


class LabInterface(Intf):
    """An interface that already exists and is configured; what its node has told the kernel survives down and up."""

    def config(self, ip: str | None = None, **_params: Any) -> dict[str, Any]:
        """Store the address; configure nothing."""
        if ip is not None:
            self.ip, self.prefixLen = ip.split("/")
        return {}

    def ifconfig(self, *args: str) -> str:
        """Run ifconfig, as Mininet's ``link A B up`` does, then restore what the kernel deleted."""
        output: str = super().ifconfig(*args)
        if args == ("up",):
            if isinstance(self.node, FabricHost):
                for route in routes(self.node):
                    output += self.cmd("ip", route)
            elif isinstance(self.node, LabRouter):
                self.node.configure()
        return output


class LabLink(Link):
    """A Mininet link whose veth pair already exists."""

    @classmethod
    def makeIntfPair(cls, *_args: Any, **_kwargs: Any) -> None:
        """Create nothing."""


class LabSwitch(OVSSwitch):
    """An Open vSwitch bridge that needs no shell, reports failed commands, and can be restarted.

    ``interface_settings`` maps an interface's name to further columns for ``ovs-vsctl set Interface``. ``started`` is called with
    the name after this switch was started alone: Open vSwitch has cleared its interfaces' queueing disciplines.
    """

    def __init__(self, name: str, interface_settings: Callable[[str], str], started: Callable[[str], None], **params: Any) -> None:
        self._interface_settings = interface_settings
        self._started = started
        super().__init__(name, **params)

    def intfOpts(self, intf: Any) -> str:
        """Return Mininet's settings of an interface and the lab's."""
        return f"{super().intfOpts(intf)} {self._interface_settings(intf.name)}"

    def vsctl(self, *args: Any, **kwargs: Any) -> str | None:
        """Run ovs-vsctl with arguments as in a shell, or add them to the batch."""
        if self.batch:
            return super().vsctl(*args, **kwargs)
        return _vsctl(" ".join(str(arg) for arg in args))

    def start(self, controllers: Iterable[Any]) -> None:
        """Create the bridge; bridges of the batch are connected to the controller later."""
        super().start([] if self.batch else controllers)
        if not self.batch:
            self._started(self.name)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Delete the bridge if it exists; its interfaces stay unless ``deleteIntfs`` is set."""
        self.vsctl("--if-exists", "del-br", self.name)
        Switch.stop(self, deleteIntfs)

    @classmethod
    def batchStartup(cls, switches: Iterable[Any], run: Callable[..., Any] = errRun) -> Any:
        """Create all bridges in as few ovs-vsctl calls as their length allows."""
        return super().batchStartup(switches, run=_checked)


class LabRouter(Switch):
    """A Linux router in a namespace of its own, which ``configure`` tells what it forwards; it may be repeated."""

    def __init__(self, name: str, configure: Callable[[], None], set_dead: Callable[[bool], None], **params: Any) -> None:
        self.configure, self._set_dead = configure, set_dead
        super().__init__(name, **{**params, "inNamespace": True})
        # as Open vSwitch's: Mininet writes its address where a command has the router's name
        self.controlIntf = Intf("lo", self, port=0, moveIntfFn=Link._ignore)

    def start(self, _controllers: Iterable[Any]) -> None:
        """Configure it, and let it forward."""
        self.configure()
        self._set_dead(False)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Have it drop all packets while the ports of its neighbours keep their carrier."""
        self._set_dead(True)
        super().stop(deleteIntfs)


def _checked(command: str, **options: Any) -> tuple[str, str, int]:
    out, err, status = errRun(command, **options)
    if status:
        raise LabError(f"ovs-vsctl: {(err or out).strip()}")
    return out, err, status


def _vsctl(words: str) -> str:
    return _checked(f"ovs-vsctl {words}", shell=True)[0]


class LabController(RemoteController):
    """The address that the switches connect to, without a check that a controller listens."""

    def checkListening(self) -> None:
        """Check nothing: the controller may start later."""


class BatchNet(Mininet):
    """A Mininet network of a `ClosTopo`.

    Args:
        controllers: Addresses and OpenFlow ports of the controllers, to each of which every switch connects.
        more_links: Further lines for ``ip -batch``, in which ``{name}`` is the process id of the host of that name.
        more_script: Maps a host's name to further lines of the shell script that configures it.
        switch: Returns a `LabSwitch` or `LabRouter` by its name and Mininet's parameters.
    """

    def __init__(
        self,
        topo: ClosTopo,
        controllers: Sequence[tuple[str, int]],
        more_links: list[str],
        more_script: Callable[[str], str],
        switch: Callable[..., Switch],
        say: Callable[[str], None],
        datapath: DatapathKind,
    ) -> None:
        self._datapath = datapath
        self._more_links = more_links
        self._more_script = more_script
        self._say = say
        _allow_files(topo.tree.host_count + topo.tree.switch_count)
        # Mininet would raise the machine's limits (buffers, neighbour tables) and not restore them
        Mininet.inited = True
        names = ["controller"] if len(controllers) == 1 else [f"controller{at}" for at in range(1, len(controllers) + 1)]
        lab_controllers = [LabController(name, ip=ip, port=port) for name, (ip, port) in zip(names, controllers, strict=True)]
        super().__init__(topo=topo, switch=switch, controller=lab_controllers, link=LabLink, intf=LabInterface, build=False)

    def addLink(self, node1: Any, node2: Any, port1: Any = None, port2: Any = None, **params: Any) -> Any:
        """Add a link without the random MAC addresses that Mininet chooses."""
        return super().addLink(node1, node2, port1, port2, **{**params, "addr1": None, "addr2": None})

    def buildFromTopo(self, topo: ClosTopo | None = None) -> None:
        """Start the nodes' shells, then create every interface in one batch."""
        super().buildFromTopo(topo)
        self._say(f"wiring {len(self.links)} links")
        pids = {host.name: host.pid for host in self.hosts}
        lines = [line.format_map(pids) for line in self._more_links]
        for link in self.links:
            upper, lower = (f"{end.name} {_place(end.node)}" for end in (link.intf2, link.intf1))
            lines.append(f"link add {upper} type veth peer name {lower}")
        lines.append(f"link set group {GROUP} up")
        run_batch(["ip", "-batch", "-"], lines)

    def configHosts(self) -> None:
        """Configure all hosts in parallel, each by one script."""
        self._say(f"configuring {len(self.hosts)} hosts")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._configure, self.hosts))

    def connect(self) -> None:
        targets = [f"{controller.protocol}:{controller.IP()}:{controller.port}" for controller in self.controllers]
        commands = []
        for switch in self.switches if targets else ():
            rows = {f"@{switch}_{number}": target for number, target in enumerate(targets)}
            backoff = f"max_backoff={switch.reconnectms}"
            commands += [f'--id={name} create Controller target=\\"{target}\\" {backoff}' for name, target in rows.items()]
            commands.append(f"set bridge {switch} controller={','.join(rows)}")
        if commands:
            _vsctl(" -- ".join(commands))

    def stop(self) -> None:
        """Kill every process in the hosts' namespaces, then delete the interfaces; the bridges end with Open vSwitch."""
        shells = [node for node in (*self.hosts, *self.switches, *self.controllers) if node.shell]
        _kill_inside({_namespace(node.pid) for node in shells if node.inNamespace})
        for node in shells:
            if node.shell.poll() is None:
                os.killpg(node.pid, signal.SIGKILL)
        for node in shells:
            node.cleanup()
        remove_interfaces(GROUP, self._datapath, [str(node) for node in self.switches])

    def _configure(self, host: FabricHost) -> None:
        params, interface = host.params, host.defaultIntf()
        interface.config(ip=params["ip"])
        interface.mac = params["mac"]
        # before the interface comes up, so that a host without IPv6 sends no packet of it
        run_batch(
            ["nsenter", f"--net=/proc/{host.pid}/ns/net", "sh", "-e"],
            [
                *ipv6_settings(host),
                "echo 0 > /proc/sys/net/ipv4/ip_forward",
                f"ethtool -K {interface} {OFFLOADS_OFF} > /dev/null",
                "ip -batch - << END",
                "link set lo up",
                f"address add {params['ip']} brd + dev {interface}",
                f"link set {interface} up",
                *routes(host),
                "END",
                self._more_script(host.name),
            ],
        )


def _place(node: Any) -> str:
    """Return the words of ``ip link add`` that say where an interface of a node is, and its address if that is not any."""
    address = f"address {node.params['mac']} " if isinstance(node, FabricHost) else ""
    return address + (f"netns {node.pid}" if node.inNamespace else f"group {GROUP}")


def remove_interfaces(group: str, datapath: DatapathKind, bridges: Iterable[str]) -> None:
    """Delete an interface group, and the datapath with its bridges' own interfaces: Open vSwitch, which has ended, leaves them."""
    lines = ""
    if datapath is DatapathKind.KERNEL:  # which alone can remove its interfaces
        subprocess.run(["ovs-dpctl", "del-dp", datapath.device], check=False, capture_output=True)
    else:
        lines = "".join(f"link set {name} group {group}\n" for name in (*bridges, datapath.device))
    for command, text in ((["-force", "-batch", "-"], lines), (["link", "delete", "group", group], "")):
        subprocess.run(["ip", *command], input=text, text=True, check=False, capture_output=True)


def routes(host: FabricHost) -> list[str]:
    """Return the arguments of ``ip`` that set what the kernel deletes of a host when the interface goes down.

    They also select the congestion control: inside a namespace the sysctl accepts only algorithms that the machine allows every
    user, and where bbr is the default these do not include cubic.
    """
    address, interface, by = ip_interface(host.params["ip"]), host.defaultIntf(), host.params["defaultRoute"]
    on_link = address.network if address.network.num_addresses > 1 else by.removeprefix("via ")
    return [
        f"route replace {on_link} dev {interface} scope link src {address.ip} congctl {CONGESTION_CONTROL}",
        f"route replace default {by} congctl {CONGESTION_CONTROL}",
        *ipv6_lines(host),
    ]


def run_batch(command: list[str], lines: list[str]) -> None:
    """Run a command that reads lines from stdin; `LabError`, with the first lines of its output, if it fails."""
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = "; ".join((done.stderr or done.stdout).strip().splitlines()[:3])
        raise LabError(f"{' '.join(command)}: {output or f'exit status {done.returncode}'}")


def _allow_files(nodes: int) -> None:
    """Set the limit of open files to the need of that many shells, but no higher: mnexec closes every descriptor up to it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(1024, nodes * _FILES_PER_NODE + _SPARE_FILES)
    limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _namespace(pid: int | str) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def _kill_inside(namespaces: set[int | None]) -> None:
    """Kill every process in those network namespaces, background processes included, and wait until all have ended."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        # a process that has ended has left its namespace, even if its parent has not waited for it yet
        inside = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _namespace(pid) in namespaces - {None}]
        if not inside:
            return
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
