"""A real controller and a real Open vSwitch with the dummy datapath: every switch of a fabric, no packets needed."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.emulation.processes import ControllerProcess, free_ports
from flowrules import label
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

    def lead(self, names: Iterable[str], target: str) -> None:
        """Give switches another controller, all at one moment: channels that are lost one by one are no fault of the network."""
        words = [word for name in names for word in ("--", "set-controller", name, target)]
        self.ovs.vsctl(*words[1:])

    def await_installed(self) -> None:
        """Wait until every switch has confirmed the rules of the present version."""

        def installed() -> bool:
            version = self.controller.fabric()["version"]
            latest = self.controller.get("/changes").json()["changes"][0]
            return bool(latest["version"] >= version and latest["installed_ms"] is not None)

        eventually(installed)

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
        here: object = self.tree.edge_of(came_from)  # type: ignore[arg-type]
        way: list[str] = []
        while isinstance(here, Switch):
            way.append(self.tree.name(here))
            in_port = self.tree.port(here, came_from)  # type: ignore[arg-type]
            traced = self.trace(here, f"in_port={in_port},{flow}")
            if not traced.ports:
                return way
            assert len(traced.ports) == 1
            assert len(way) < 8
            flow = re.sub("dl_src=[0-9a-f:]+", f"dl_src={traced.source}", flow)
            flow = re.sub("dl_dst=[0-9a-f:]+", f"dl_dst={traced.destination}", flow)
            came_from, here = here, self.tree.neighbour(here, traced.ports[0])
        return [*way, self.tree.name(here)]  # type: ignore[arg-type]

    def flows(self, switch: str) -> list[str]:
        """A switch's flow entries, sorted, without counters and the version that they came with (the cookie's low half)."""
        lines = self.ovs.ofctl("dump-flows", switch, "--no-stats").splitlines()
        unversioned = (re.sub(r"(cookie=0x[0-9a-f]{8})[0-9a-f]{8}", r"\1", line) for line in lines)
        return sorted(line.strip() for line in unversioned if "actions=" in line)


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
        controller.wait_connected(tree.switch_count)
        yield Fabric(tree, controller, ovs, dummy)


def packet(fabric: Fabric, src: Host, dst: Host, up: tuple[int, ...] | None = None, rest: str = "tcp") -> str:
    """Return a packet for `Fabric.trace`: without a label, or with one for the candidate path ``up``."""
    mac = fabric.tree.mac(src) if up is None else label.carrier_mac(up)
    ends = f"nw_src={fabric.tree.ip(src)},nw_dst={fabric.tree.ip(dst)},nw_ttl=64"
    return f"{rest},dl_src={mac},dl_dst=02:00:00:00:00:01,{ends}"
