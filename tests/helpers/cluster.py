"""Several real controllers on one real etcd, and a real Open vSwitch with the dummy datapath that all of them are connected to."""

import json
import os
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET
from tests.helpers.fabrics import entries
from tests.helpers.lying_engine import LyingEngine
from tests.helpers.waiting import eventually
from topologies import Clos, FatTree
from topologies.lab.etcd import PrivateEtcd
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

LEASE_SECONDS = 12
"""For so long a leader keeps its place, though a busy machine gives it or etcd no processor for seconds."""
POLL_SECONDS = 0.1  # answers of members and Open vSwitch cost this machine more than a wait does
T = TypeVar("T")
TOKEN = "a-token-that-all-members-have"


@dataclass
class Cluster:
    tree: Clos
    directory: Path
    etcd: PrivateEtcd
    proxy: LyingEngine
    members: dict[str, ControllerProcess]
    ovs: PrivateOvs
    dummy: DummyFabric

    def key(self, name: str) -> dict[str, Any] | None:
        wanted = {"key": b64encode(f"/sopa/{name}".encode()).decode()}
        for endpoint in self.etcd.endpoints:
            with suppress(httpx.TransportError):
                url = f"http://{endpoint}/v3/kv/range"
                found = httpx.post(url, json=wanted, verify=False).json().get("kvs", [])
                return json.loads(b64decode(found[0]["value"])) if found else None
        return None

    def leader(self) -> str | None:
        """Return the name of the member that the engine names, if it runs."""
        leader = self.key("leader")
        return leader["name"] if leader is not None and leader["name"] in self.members else None

    def standbys(self) -> list[str]:
        leader = self.leader()
        return [name for name in self.members if name != leader]

    def fabric(self, name: str) -> dict[str, Any]:
        """Return what a member says of the fabric; nothing while it does not answer."""
        try:
            return self.members[name].fabric()
        except httpx.TransportError:
            return {}

    def failures(self, name: str) -> dict[str, str]:
        return {failure["name"]: failure["reason"] for failure in self.fabric(name).get("failures", [])}

    def set_link(self, name: str, up: bool) -> None:
        one, other = map(self.tree.switch, name.split("-"))
        self.dummy.set_port(one, self.tree.port(one, other), up=up)
        self.dummy.set_port(other, self.tree.port(other, one), up=up)

    def rules(self) -> dict[str, list[str]]:
        """Return the flow entries of a switch of each level."""
        return {name: entries(self.ovs, name) for name in ("a0_0", "e0_0", "c0_0")}

    def next_leader(self, former: str) -> str:
        return str(self.wait(self.leader, lambda leader: leader not in (None, former)))

    def is_in_force(self, failed: dict[str, str] | None) -> bool:
        """Tell whether some member leads, says that exactly this has failed (None: anything), and has all switches at that."""
        leader = self.leader()
        body = self.fabric(leader) if leader is not None else {}
        if leader is None or not body or body["missing"]:
            return False
        if failed is not None and {its["name"]: its["reason"] for its in body["failures"]} != failed:
            return False
        switches = self.members[leader].get("/switches").json()["switches"]
        return all(switch["rules_version"] == body["version"] for switch in switches)

    def wait(self, read: Callable[[], T], expected: object = bool) -> T:
        return eventually(read, expected, sleep=lambda _: time.sleep(POLL_SECONDS))

    def wait_in_force(self, failed: dict[str, str] | None) -> None:
        self.wait(lambda: self.is_in_force(failed))

    def signal(self, name: str, number: int) -> None:
        os.kill(self.members[name].pid, number)

    def restart(self, name: str) -> None:
        """Start a member again that was ended, and wait until all members and switches are there."""
        self.members[name].start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Wait until every member takes part, as every one of them says, and has every switch."""
        count = self.tree.switch_count
        self.wait(lambda: [self.fabric(name).get("connected") for name in self.members], [count] * len(self.members))
        self.wait(self._roles_are_right)
        self.wait(lambda: [self._present(name) for name in self.members], [set(self.members)] * len(self.members))

    def _present(self, name: str) -> set[str]:
        """Return the members that are not away by what one of them says: a record that was deleted is written again later."""
        members = self.members[name].get("/cluster").json()["members"]
        return {member["name"] for member in members if member["role"] != "away"}

    def _roles_are_right(self) -> bool:
        # the leader is read each time: after a loss of etcd it may change once more meanwhile, and the engine names one that has
        # stepped down until its lease ends
        leader = self.leader()
        if leader is None or self.fabric(leader).get("cluster", {}).get("role") != "leader":
            return False
        told = json.loads(self.ovs.vsctl("-f", "json", "--columns=target,role", "list", "Controller"))["data"]
        found = {(target, str(role)) for target, role in told}  # a set while it is not connected
        return found == {(its.openflow, "master" if name == leader else "slave") for name, its in self.members.items()}


@contextmanager
def running_cluster(
    directory: Path, *options: str, size: int = 3, tree: Clos | None = None, lease: int = LEASE_SECONDS, healthy: bool = True,
) -> Iterator[Cluster]:  # fmt: skip
    """A cluster whose first leader has every switch connected and at its rules; what is healthy has no failures."""
    tree = tree or FatTree(4)
    ports = free_ports(2 * size)
    with ExitStack() as stack:
        etcd = stack.enter_context(PrivateEtcd(directory / "etcd"))
        proxy = stack.enter_context(LyingEngine(etcd.places))
        members = {}
        for number in range(size):
            name = f"m{number}"
            its = {"": proxy.address(first=number % 3), "-member": name, "-lease": lease}
            more = [f"--sopa-cluster{key}={value}" for key, value in its.items()]
            more += ["--sopa-settle=3", "--sopa-hold-down=0.5", "--sopa-hold-down-max=0.5", *options]
            log = directory / f"{name}.log"
            member = ControllerProcess(tree, log, ports[number], ports[size + number], options=more)
            member.state_dir.mkdir(parents=True)
            for file in (OPERATORS, AGENTS, SECRET):
                (member.state_dir / file).write_text(f"{TOKEN}\n")
                (member.state_dir / file).chmod(0o600)
            members[name] = stack.enter_context(member)
        ovs = stack.enter_context(PrivateOvs(directory / "ovs", dummy=True))
        dummy = DummyFabric(tree, ovs, members["m0"].openflow)
        targets = [member.openflow for member in members.values()]
        names = map(tree.name, tree.switches())
        ovs.vsctl(*[word for name in names for word in ("--", "set-controller", name, *targets)][1:])
        # without it, a switch tries a member that is back only after up to 8 s
        rows = ovs.vsctl("--bare", "--columns=_uuid", "find", "Controller").split()
        ovs.vsctl(*[word for row in rows for word in ("--", "set", "Controller", row, "max_backoff=1000")][1:])
        cluster = Cluster(tree, directory, etcd, proxy, members, ovs, dummy)
        cluster.wait_in_force({} if healthy else None)
        cluster.wait_whole()
        yield cluster
