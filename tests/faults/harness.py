"""A lab to which faults are done, and what has to be true of it after each."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import time
from collections import Counter
from contextlib import ExitStack
from ctypes import byref, c_uint32
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx

from experiments.emulation.processes import AgentProcess
from experiments.emulation.sopa_lab import REST_PORT, SopaLab
from flowrules.model import digest
from flowrules.switch_rules import switch_rules
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.fabric.rule_changes import LEARNED_COOKIE
from tests.faults import management
from tests.faults.oracle import Oracle, without
from tests.faults.plan import ALONE, EVERYWHERE, PASSING, Fault, Step, part_count, part_of
from tests.faults.probes import Probes, describe
from tests.faults.shares import Shares
from tests.helpers.memory import resident_mib
from tests.helpers.path_tables import table_in_force
from tests.helpers.veth import run
from tests.helpers.waiting import eventually
from topologies import Clos, Failures, Host, Level
from topologies.lab.faults import kill_switch, restore_switch, set_silent, swap_cables

SETTLE_SECONDS = 120.0
MAX_REPETITIONS = 5
PARTITION_LOOK_SECONDS = 1.0
BFD_MS = 3000
"""Three missing packets are a failure: machines stand still for five seconds, and that is no fault that the oracle knows."""
OPTIONS = ["--sopa-hold-down=0.2", "--sopa-hold-down-max=1", "--sopa-lldp-interval=1", "--sopa-settle=3"]
OPTIONS += ["--sopa-rule-check-interval=1"]
_COOKIE = re.compile(r"cookie=(0x[0-9a-f]+)")
_SOCKET = re.compile(r"\*:(\S+) .*,d(\d+)\)")


class Wrong(AssertionError):
    """Something is not as the oracle says."""


class FaultyLab:
    """A whole SOPA, with one agent process for each part of the fabric, so that some can die while others live."""

    def __init__(self, tree: Clos, its: SopaLab | None = None) -> None:
        self.tree = tree
        self.graph = self.tree.graph()
        self.active: list[Fault] = []
        self.its = its or SopaLab(self.tree, None, agents=False, controller_options=OPTIONS)
        self.its.lab.bfd_ms = BFD_MS
        self.agents: list[AgentProcess] = []
        self.settle_seconds: list[float] = []
        self.packets = 0
        self.repeated: list[str] = []
        self._connection: http.client.HTTPConnection | None = None
        self._stack = ExitStack()
        self._untold = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.its)
            # `settle` waits for two rounds of Open vSwitch through what it has cached; by default they are 0.5 s apart
            self.its.lab.ovs.vsctl("set", "Open_vSwitch", ".", "other_config:max-revalidator=100")
            self.probes = stack.enter_context(Probes(self.its.lab))
            self._watch(stack)
            self._stack = stack.pop_all()
        self.settle()
        self.check()
        return self

    def _watch(self, stack: ExitStack) -> None:
        """Start the agents, and a client of the controller."""
        for part in range(part_count(self.tree)):
            hosts = [host for host in self.tree.hosts() if part_of(self.tree, host) == part]
            hosts = [host for host in hosts if host not in self.tree.no_label]
            url = f"http://{management.part_address(part)}:{REST_PORT}"
            # the oracle knows what the controller excludes, and not what a host has left for a while by its own probes
            options = [f"--controller={url}", "--keep-paths"]  # instead of the lab's
            self.agents.append(stack.enter_context(self.its.agent_of(hosts, f"agents{part}", options)))
        count = len(self.its.labelling)
        for agents in self.agents:  # if one has ended, its own log says why
            agents.wait_until(lambda: self.its.controller.agents_know(count), f"{count} agents had acknowledged")
        self.client = stack.enter_context(httpx.Client(base_url=f"{self.its.controller.url}/sopa/v1", timeout=60))

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def do(self, step: Step) -> None:
        """Break and heal, one right after the other, then wait until it has settled and check everything."""
        before = self.oracle()
        version = 0 if self._is_active("controller") or self._is_active("clock") else self._versions()
        for fault in step.begin:
            self._begin(fault)
            if fault.kind not in PASSING:
                self.active.append(fault)
        for fault in step.heal:
            self.active.remove(fault)
            self._set(fault, False)
        if self._is_active("controller"):
            # without a controller, what was in force has to stay so
            self._untold |= any(fault.kind not in ("controller", "agents") for fault in [*step.begin, *step.heal])
            if not self._untold:
                self._check_packets(before)
            return
        self._untold = False
        self.settle()
        self.check()
        if {fault.kind for fault in [*step.begin, *step.heal]} <= ALONE - {"clock"} and version != self._versions():
            raise Wrong(f"version {self._versions()} after {step}, which changes nothing: it was {version}")

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case "flap":
                for up in (False, True) * 4:
                    self.its.lab.set_link(fault.what, up=up)
                    time.sleep(0.05)  # the flap's rate: nothing waits for the controller meanwhile
            case "partition":
                self._partition(*fault.what.split())
            case "pause":
                management.pause_controller(self.its, float(fault.what))
            case "impostor":
                switch = self.tree.switch(fault.what)
                management.impersonate(self.tree.dpid(switch), self.tree.ports(switch))
            case "files":
                with management.without_files(self.its):
                    self._check_packets(self.oracle())
            case "filter":
                management.remove_filter(self.its, self.tree.host(fault.what))
            case "rules":
                management.change_rules(self.its, fault.what)
            case _:
                self._set(fault, True)

    def _set(self, fault: Fault, broken: bool) -> None:
        """Begin or end a fault that lasts."""
        lab, controller = self.its.lab, self.its.controller
        match fault.kind:
            case "link":
                lab.set_link(fault.what, up=not broken)
            case "silent":
                name, towards = fault.what.split(">")
                set_silent(lab, name, towards, broken)
            case "switch":
                (kill_switch if broken else restore_switch)(lab, fault.what)
            case "drain":
                if not self._is_active("controller"):
                    self._drain(fault.what, "PUT" if broken else "DELETE")
            case "agents":
                agents = self.agents[int(fault.what)]
                agents.stop(signal.SIGKILL) if broken else agents.start()
            case "cables":
                swap_cables(lab, *fault.what.split())
            case "channels":
                management.set_channels(self.its, fault.what.split(), not broken)
            case "controller" if broken:
                controller.stop(signal.SIGKILL)
            case "controller":
                controller.start()
                wanted = self._active("drain")  # an operator's wishes of the meantime
                for name in wanted ^ set(self.client.get("/drains").json()["drains"]):
                    self._drain(name, "PUT" if name in wanted else "DELETE")
            case "clock":
                controller.stop(signal.SIGKILL)
                management.set_clock(controller, back=broken)
                controller.start()
            case other:
                raise ValueError(f"no fault is called {other}")

    def _partition(self, whom: str, seconds: str) -> None:
        """Cut a part or all off the management network for a time; no packet of the fabric may be lost meanwhile."""
        oracle, part = self.oracle(), None if whom == EVERYWHERE else int(whom)
        with management.partitioned(self.its, part):
            until = time.monotonic() + float(seconds)
            while time.monotonic() < until:
                self._check_packets(oracle)
                time.sleep(PARTITION_LOOK_SECONDS)  # between two looks
            if part is not None:  # the controller can be asked
                fabric = self.client.get("/fabric").json()
                if fabric["failures_total"] or not set(fabric["missing"]) <= set(management.cut_off(self.its, part)):
                    raise Wrong(f"failures {fabric['failures']}, missing {fabric['missing']}; cut off: part {part}")

    def _drain(self, name: str, method: str) -> None:
        self.its.controller.change(method, f"/drains/{name}").raise_for_status()

    def _active(self, *kinds: str) -> set[str]:
        return {fault.what for fault in self.active if fault.kind in kinds}

    def _is_active(self, kind: str) -> bool:
        return any(fault.kind == kind for fault in self.active)

    def oracle(self) -> Oracle:
        broken = self._active("link", "switch") | {what.partition(">")[0] for what in self._active("silent")}
        broken |= {link for what in self._active("cables") for link in what.split()}
        return Oracle(self.graph, sorted(broken), sorted(self._active("drain")))

    def _living(self) -> list[Host]:
        return [host for host in self.its.labelling if str(part_of(self.tree, host)) not in self._active("agents")]

    def settle(self) -> None:
        """Wait until controller, switches and agents have followed, and it stays so."""
        started = time.monotonic()
        quiet = 0
        while quiet < 2:
            unsettled = self._unsettled()
            quiet = 0 if unsettled else quiet + 1
            if time.monotonic() - started > SETTLE_SECONDS:
                raise Wrong(f"not settled after {SETTLE_SECONDS:g} s: {unsettled}")
            time.sleep(0.05)  # between two looks
        # A barrier confirms the tables; what Open vSwitch has cached of them for packets on their way follows a little later.
        for _ in range(2):  # the first may be the end of a round that began before the change
            self.its.lab.ovs.appctl("revalidator/wait")
        self.settle_seconds.append(time.monotonic() - started)

    def _unsettled(self) -> str:
        oracle = self.oracle()
        fabric = self.client.get("/fabric").json()
        if not fabric["settled"]:
            return "the controller has not heard all switches"
        killed = self._active("switch") | {name for what in self._active("channels") for name in what.split()}
        if set(fabric["missing"]) != killed:
            return f"missing: {fabric['missing']}, without a channel: {sorted(killed)}"
        if fabric["management"]["fault"] and not killed:
            return f"management: {fabric['management']['detail']}"
        failures = self.client.get("/failures").json()["failures"]
        if any(failure["held_seconds"] is not None for failure in failures):
            return "something is held down"
        hard = [failure["name"] for failure in failures if failure["reason"] != "drained"]
        told = without(self.graph, hard)
        if set(told.edges) != set(oracle.working.edges) or set(told) != set(oracle.working):
            return f"the controller says {hard} has failed; faults: {', '.join(map(str, self.active))}"
        told = without(told, [failure["name"] for failure in failures if failure["reason"] == "drained"])
        if set(told.edges) != set(oracle.candidates_graph.edges):
            return f"drained: {failures}"
        agents = self.client.get("/agents").json()
        living = {self.tree.name(host) for host in self._living()}
        current = {agent["host"] for agent in agents["agents"] if agent["version"] == agents["version"]}
        if current != living:
            return f"version {agents['version']} is in force at {sorted(current)}, not at {sorted(living ^ current)}"
        latest = self.client.get("/changes").json()["changes"][:1]
        if latest and latest[0]["installed_ms"] is None:
            return f"version {latest[0]['version']} is not installed"
        return ""

    def check(self) -> None:
        """Everything is as the oracle says; `Wrong` with all that is not."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            seen = self._versions()
            if not (problems := self._problems()):
                return
            if seen == self._versions() or time.monotonic() > deadline:
                raise Wrong("\n".join(problems[:20]))
            self.settle()  # a version came meanwhile: on a busy machine a link may be silent for longer than BFD waits

    def _versions(self) -> int:
        """Return what is higher if there was another version meanwhile."""
        return int(self.client.get("/fabric").json()["version"])

    def _problems(self) -> list[str]:
        oracle, shares = self.oracle(), Shares(Failures(self.tree, self._told()))
        problems = [*self._wrong_paths(oracle, shares), *shares.wrong_weights(), *self._wrong_maps(oracle, shares)]
        return [*problems, *self._wrong_rules(), *self._wrong_packets(oracle)]

    def _check_packets(self, oracle: Oracle, certain: Oracle | None = None) -> None:
        if problems := self._wrong_packets(oracle, certain):
            raise Wrong("\n".join(problems))

    def _wrong_paths(self, oracle: Oracle, shares: Shares) -> list[str]:
        problems = []
        address = {name: self.tree.ip(self.tree.host(name)) for name in oracle.hosts}
        for src in oracle.hosts:
            for dst in oracle.hosts:
                if src == dst:
                    continue
                body = self._get(f"/paths?src={address[src]}&dst={address[dst]}")
                said, right = sorted(path["hops"] for path in body["candidates"]), oracle.candidates(src, dst)
                shares.take(src, dst, body["candidates"])
                if said != right:
                    problems.append(f"/paths from {src} to {dst} says {said}, right is {right}")
        return problems

    def _get(self, path: str) -> Any:
        """As ``self.client.get``, but ten times as fast, for the many."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", REST_PORT, timeout=60)
        try:
            self._connection.request("GET", f"/sopa/v1{path}")
            return json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException):
            self._connection = None  # the controller has been restarted meanwhile
            return self._get(path)

    def _wrong_maps(self, oracle: Oracle, shares: Shares) -> list[str]:
        problems = []
        racks = [self.tree.name(edge) for edge in self.tree.switches(Level.EDGE)]
        for host in self._living():
            name = self.tree.name(host)
            table = table_in_force(self.its.lab.interface(host, 0), self.its.lab.netns(host))
            if table is None:
                problems.append(f"{name} labels nothing")
                continue
            for rack in racks:
                first = next(self.tree.hosts_of(self.tree.switch(rack)))
                turns = table.candidates(self.tree.ip(first)) or ()
                problems += shares.wrong_turns(name, (self.tree.name(self.tree.edge_of(host)), rack), turns)
                held = sorted(set(turns))
                if held != oracle.rack_words(name, rack):
                    problems.append(f"{name} to {rack} takes {held}, right is {oracle.rack_words(name, rack)}")
        return problems

    def _wrong_rules(self) -> list[str]:
        problems = []
        failures = Failures(self.tree, self._told())
        killed = self._active("switch")
        for switch in self.tree.switches():
            name = self.tree.name(switch)
            if name in killed:
                continue
            entries = eventually(partial(self.its.lab.ovs.ofctl, "dump-flows", name))
            cookies = [int(found, 16) for found in _COOKIE.findall(entries)]
            held = Counter(cookie >> 32 & 0xFFFFFF for cookie in cookies if cookie != LEARNED_COOKIE)
            rules = switch_rules(self.tree, switch, failures, self.tree.no_label)
            right = Counter(digest(flow) for flow in rules.flows)
            if held != right:
                problems.append(f"{name} has {(held - right).total()} stale entries and lacks {(right - held).total()}")
        return problems

    def _told(self) -> dict[str, str]:
        """Return what has failed, and why, as the controller says."""
        told = self.client.get("/failures").json()["failures"]
        return {failure["name"]: failure["reason"] for failure in told}

    def _wrong_packets(self, oracle: Oracle, certain: Oracle | None = None) -> list[str]:
        """Return which packets were lost, and which came where none can; what ``certain`` does not connect may come or not."""
        certain = certain or oracle
        pairs = {(a, b) for a in oracle.hosts for b in oracle.hosts if a != b and certain.connected(a, b)}
        for _ in range(MAX_REPETITIONS):
            before = _overruns()
            lost, found = self.probes.lost_and_found(pairs)
            self.packets += self.probes.sent
            overruns = _overruns() - before
            if not lost or not overruns:
                break  # otherwise a process or the kernel had no time to read, as something else ran on this machine
            self.repeated.append(f"{lost.total()} packets lost, overruns {dict(overruns)}")
            print(f"      sent again: {self.repeated[-1]}", flush=True)
        problems = []
        found = Counter({probe: found[probe] for probe in found if probe[1:3] in pairs or not oracle.connected(*probe[1:3])})
        if lost:
            problems.append(f"{lost.total()} packets between connected hosts were lost: {'; '.join(describe(lost))}")
        if found:
            problems.append(f"{found.total()} packets came where none can or twice: {'; '.join(describe(found))}")
        return problems

    def checked(self) -> dict[str, Any]:
        return {"packets": self.packets, "repeated": self.repeated}

    def holdings(self) -> dict[str, float]:
        """Return the resources that controller, agents and kernel use."""
        controller = self.client.get("/process").json()
        agents = [agent.pid for agent in self.agents]
        return {
            "controller_mib": controller["memory_mib"],
            "controller_files": controller["open_files"],
            "controller_greenlets": controller["greenlets"],
            "agents_mib": round(sum(map(resident_mib, agents)), 1),
            "agents_files": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in agents),
            "bpf_maps": _bpf_maps(),
            "namespaces": len({_namespace(pid) for pid in os.listdir("/proc") if pid.isdigit()} - {""}),
        }


def _overruns() -> Counter[str]:
    """Return how many packets the kernel has dropped because nobody read them in time, by queue.

    The queues are the backlogs of processors (net.core.netdev_max_backlog) and the sockets by which Open vSwitch reads ports, each
    of which keeps some 250 small packets (net.core.rmem_default).
    """
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    backlogs = {f"processor {number}": int(line.split()[1], 16) for number, line in enumerate(lines)}
    sockets = run("ss --packet --memory --numeric --no-header --oneline")
    return Counter(backlogs) + Counter({port: int(drops) for port, drops in _SOCKET.findall(sockets)})


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def _bpf_maps() -> int:
    count, at = 0, c_uint32(0)
    while libbpf.call("bpf_map_get_next_id", at, byref(at)) == 0:
        count += 1
    return count
