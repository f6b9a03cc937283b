"""A real controller and a real Open vSwitch with the dummy datapath: every switch of a fabric, no packets needed."""

import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from experiments.emulation.processes import ControllerProcess, free_ports
from flowrules import label
from tests.helpers.relay import Agent, agent
from tests.helpers.waiting import eventually
from topologies import Clos, FatTree, Host, Switch
from topologies.lab.private_ovs import DummyFabric, PrivateOvs


def set_live(dummy: DummyFabric, switch: Switch, port: int, live: bool) -> None:
    """Make BFD report a port's link as down or up while its carrier stays: the OpenFlow state loses or gets LIVE."""
    interface = dummy.interface(switch, port)
    if live:
        dummy.ovs.vsctl("clear", "Interface", interface, "bfd")
    else:
        dummy.ovs.vsctl("set", "Interface", interface, "bfd:enable=true")  # no peer answers


def be_patient(ovs: PrivateOvs) -> None:
    """Have no switch close its channel because a controller is silent, and each one connect again within a second."""
    ovs.transact([{"op": "update", "table": "Controller", "where": [], "row": {"inactivity_probe": 0, "max_backoff": 1000}}])


def entries(ovs: PrivateOvs, switch: str) -> list[str]:
    """Return a switch's flow entries, sorted, without counters and the version that they came with (the cookie's low half)."""
    lines = ovs.ofctl("dump-flows", switch, "--no-stats").splitlines()
    unversioned = (re.sub(r"(cookie=0x[0-9a-f]{8})[0-9a-f]{8}", r"\1", line) for line in lines)
    return sorted(line.strip() for line in unversioned if "actions=" in line)


@dataclass
class Traced:
    """The effect of a switch on a packet: its ports, the datapath actions as Open vSwitch prints them, its addresses then."""

    ports: list[int]
    actions: str
    source: str
    destination: str


@dataclass
class Fabric:
    """A fabric of dummy switches, and the controller that holds it."""

    tree: Clos
    controller: ControllerProcess
    ovs: PrivateOvs
    dummy: DummyFabric

    @cached_property
    def _names(self) -> dict[str, tuple[str, int]]:
        """From the datapath's port number to (switch, OpenFlow port)."""
        shown = re.findall(r"port (\d+): (\S+)-eth(\d+)", self.ovs.appctl("dpctl/show"))
        return {number: (switch, int(port)) for number, switch, port in shown}

    def lead(self, names: Iterable[str], *targets: str) -> None:
        """Give switches other controllers, all at one moment: channels that are lost one by one are no fault of the network."""
        words = [word for name in names for word in ("--", "set-controller", name, *targets)]
        self.ovs.vsctl(*words[1:])
        be_patient(self.ovs)

    def await_installed(self) -> None:
        """Wait until every switch has confirmed the rules of the present version."""

        def installed() -> bool:
            version = self.controller.fabric()["version"]
            latest = self.controller.get("/changes").json()["changes"][0]
            return bool(latest["version"] >= version and latest["installed_ms"] is not None)

        eventually(installed)

    def fails(self, expected: dict[str, str]) -> None:
        """Wait until exactly these have failed, with their reasons, and every switch has the rules of that."""

        def failures() -> dict[str, str]:
            return {each["name"]: each["reason"] for each in self.controller.fabric()["failures"]}

        eventually(failures, expected)  # what is down may be silent before
        self.await_installed()

    def set_link(self, name: str, up: bool) -> None:
        """Plug or unplug the lower end of a link between switches, such as ``a0_0-c0_1``."""
        lower, upper = map(self.tree.switch, name.split("-"))
        self.dummy.set_port(lower, self.tree.port(lower, upper), up)

    def trace(self, switch: Switch, flow: str) -> Traced:
        """Ask Open vSwitch what it would do with a packet."""
        said = self.dummy.trace(switch, flow)
        actions = said.rpartition("Datapath actions: ")[2].partition("\n")[0]
        outside = re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "", actions)
        numbers = [part for part in outside.split(",") if part.isdigit()]
        found = [self._names[number] for number in numbers]
        assert all(name == self.tree.name(switch) for name, _ in found)
        final = said.rpartition("Final flow: ")[2].partition("\n")[0]  # "unchanged" if it is
        sources = re.findall(r"dl_src=([0-9a-f:]+)", f"{flow} {final}")
        destinations = re.findall(r"dl_dst=([0-9a-f:]+)", f"{flow} {final}")
        addresses = [each[-1] if each else "" for each in (sources, destinations)]
        return Traced([port for _, port in found], actions, *addresses)

    def walk(self, src: str, flow: str) -> list[str]:
        """Follow a packet from a host through every switch; the names it passes, the host it reaches last."""
        came_from: object = self.tree.host(src)
        here: object = self.tree.edge_of(came_from)
        way: list[str] = []
        while isinstance(here, Switch):
            way.append(self.tree.name(here))
            in_port = self.tree.port(here, came_from)
            traced = self.trace(here, f"in_port={in_port},{flow}")
            if not traced.ports:
                return way
            assert len(traced.ports) == 1
            assert len(way) < 8
            flow = re.sub("dl_src=[0-9a-f:]+", f"dl_src={traced.source}", flow)
            flow = re.sub("dl_dst=[0-9a-f:]+", f"dl_dst={traced.destination}", flow)
            came_from, here = here, self.tree.neighbour(here, traced.ports[0])
        return [*way, self.tree.name(here)]

    def flows(self, switch: str) -> list[str]:
        return entries(self.ovs, switch)

    def agent(self, address: str = "10.0.0.2", *more: Any) -> AbstractContextManager[Agent]:
        """Connect a host's agent."""
        return agent(self.controller.url, address, self.controller.agent_token_file.read_text().strip(), *more)

    def metrics(self) -> str:
        return httpx.get(f"{self.controller.url}/metrics", trust_env=False, timeout=60).raise_for_status().text

    def state(self) -> dict[str, Any]:
        """Return what a test must leave as it was: entries, channels, and what has failed or is drained or rejected."""
        told, entries = self.controller.fabric(), {}
        for name in map(self.tree.name, self.tree.switches()):
            lines = self.ovs.appctl("bridge/dump-flows", name).splitlines()
            entries[name] = sorted(re.sub(r"(cookie|duration|n_packets|n_bytes)=\w+, ", "", line) for line in lines)
        return {
            **{name: told[name] for name in ("connected", "failures", "missing", "no_channel", "rejected")},
            "faults": told["management"]["fault"],
            "drains": self.controller.get("/drains").json()["drains"],
            "wiring": self.controller.get("/wiring").json()["problems"],
            "agents": self.controller.get("/agents").json()["total"],
            "bridges": self.ovs.vsctl("list-br").split(),
            "entries": entries,
        }


class Kept:
    """One fabric for many tests. After a test that leaves it in another state it is started anew for the next one."""

    def __init__(self, tree: Clos | int, directory: Path, *options: str) -> None:
        self._tree, self._directory, self._options = tree, directory, options
        self._stack = ExitStack()
        self._started = 0
        self._fabric: Fabric | None = None
        self._before: dict[str, Any] = {}

    @contextmanager
    def lend(self) -> Iterator[Fabric]:
        """Lend it to a test that leaves it as it was."""
        if self._fabric is None:
            self._started += 1
            directory = self._directory / str(self._started)
            directory.mkdir(parents=True)
            self._fabric = self._stack.enter_context(running(self._tree, directory, *self._options))
            self._before = self._fabric.state()
        try:
            yield self._fabric
            eventually(self._fabric.state, self._before)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._fabric = None
        self._stack.close()


@contextmanager
def running(fabric: Clos | int, directory: Path, *options: str) -> Iterator[Fabric]:
    """A controller with every switch of a fabric, or of a fat-tree of k, connected and holding its rules."""
    tree = FatTree(fabric) if isinstance(fabric, int) else fabric
    openflow, rest = free_ports(2)
    with (
        ControllerProcess(tree, directory / "controller.log", openflow, rest, options=options) as controller,
        PrivateOvs(directory / "ovs", dummy=True) as ovs,
    ):
        dummy = DummyFabric(tree, ovs, controller.openflow)
        be_patient(ovs)
        controller.wait_connected(tree.switch_count)
        yield Fabric(tree, controller, ovs, dummy)


def packet(fabric: Fabric, src: Host, dst: Host, up: tuple[int, ...] | None = None, rest: str = "tcp") -> str:
    """Return a packet for `Fabric.trace`: without a label, or with one for the candidate path ``up``; ``tcp6`` is of IPv6."""
    mac = fabric.tree.mac(src) if up is None else label.carrier_mac(up)
    is_ipv6 = rest.endswith("6")
    family, kind = fabric.tree.families[is_ipv6], "ipv6" if is_ipv6 else "nw"
    ends = f"{kind}_src={family.address(src)},{kind}_dst={family.address(dst)},nw_ttl=64"
    return f"{rest},dl_src={mac},dl_dst=02:00:00:00:00:01,{ends}"


def of_each_family(tree: Clos, protocol: str = "tcp") -> list[str]:
    """Return a protocol's names in the families of a fabric, as `packet` takes them."""
    return [protocol, f"{protocol}6"][: len(tree.families)]
