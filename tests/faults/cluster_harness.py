"""A lab with three controllers to whose parts faults are done, and what has to be true after each."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Self

import httpx

from experiments.emulation.cluster_parts import ClusterParts, PartGroup, PartKind
from experiments.emulation.flow_monitor import FlowMonitors
from experiments.emulation.host_agents import AgentsLog
from experiments.emulation.processes import ControllerProcess
from experiments.emulation.sopa_lab import SopaLab
from tests.faults.cluster_history import Committed, wrong_agents, wrong_commits, wrong_switches
from tests.faults.cluster_plan import ETCD, ETCD_LEADER, LEADER, RELAY, UNTIL_ANOTHER_LEADS, Fault, Step
from tests.faults.harness import OPTIONS, FaultyLab, Wrong
from tests.faults.hostile import HostileSwitch
from tests.faults.management import set_clock
from tests.faults.oracle import Oracle
from tests.faults.shares import Shares
from tests.helpers.veth import run
from tests.helpers.waiting import eventually
from topologies import Clos, Failures
from topologies.lab.management import Way

ANSWER_SECONDS = 30.0
LINK_AFTER_SECONDS = 0.3
"""From the beginning of the faults to the links' changes: most of them happen while the faults last."""
DISK_MIB = 256
"""etcd's log is written to files of 64 MiB, of which it has two ahead."""
FULL = "full"


class FaultyCluster(FaultyLab):
    """A lab with a cluster, monitors of all switches, and everything that was committed, commanded and put in force so far."""

    def __init__(self, tree: Clos) -> None:
        # the oracle knows what the controller excludes, and not what a host has left for a while by its own probes
        its = SopaLab(tree, None, controllers=3, controller_options=OPTIONS, agent_options=["--keep-paths"])
        super().__init__(tree, its)
        self.cluster: ClusterParts = its.cluster
        self.down: set[str] = set()
        self.deposed: list[str] = []
        self.commits: dict[int, Committed] = {}
        self._disk = self.cluster.etcd.data(len(self.cluster.names(PartKind.ETCD)) - 1)
        self._full = self.cluster.names(PartKind.ETCD)[-1]

    def __enter__(self) -> Self:
        self._disk.mkdir(parents=True)
        # it goes with the lab's mount namespace
        run(f"mount -t tmpfs -o size={DISK_MIB}m,mode=700 disk {self._disk}")
        return super().__enter__()

    def _watch(self, stack: ExitStack) -> None:
        names = [self.tree.name(switch) for switch in self.tree.switches()]
        self.monitors = stack.enter_context(FlowMonitors(names, self.its.directory))
        self.agents_log = AgentsLog(self.its.agent.log)

    def do(self, step: Step) -> None:
        """Do the faults of a step and its changes of links, undo the faults, wait until everything has settled, and check it."""
        began, oracle, term = time.monotonic(), self.oracle(), self._term()
        hostile = {fault.role for fault in step.faults if fault.kind == "hostile"}
        hostile_only = all(fault.kind == "hostile" for fault in step.faults)
        undo = [(began + fault.seconds, self._break(fault)) for fault in step.faults]
        if step.links:
            time.sleep(LINK_AFTER_SECONDS)  # see there
            for name, up in step.links:
                self.its.lab.set_link(name, up=up)
                (self.down.discard if up else self.down.add)(name)
        elif all(fault.kind not in ("switches", "stale") for fault in step.faults):
            # whatever happens to the cluster, switches forward; who has no other way than by a hostile one may be cut off
            self._check_forwarding(oracle, Oracle(self.graph, self.down | hostile), hostile)
        if hostile_only:  # one switch decides for nobody: meanwhile the others' links are told to all
            eventually(lambda: _others(self._told(), hostile), _others(self.down, hostile))
        for until, mend in sorted(undo, key=lambda each: each[0]):
            if until == UNTIL_ANOTHER_LEADS:
                # another fault's end may have ended this one
                eventually(lambda: self._term() > term or not self._unusual())
            else:
                time.sleep(max(0.0, until - time.monotonic()))  # how long a fault lasts
            mend()
        self._mend_all()
        self.settle()
        self.check()
        later = {each.term for each in self.commits.values() if each.term > term}
        if hostile_only and later:
            self.deposed.append(f"{len(later)} times by {step}")
            if len(later) > 1:  # the first may be that of a machine that stood still
                raise Wrong(f"the leader has changed {self.deposed[-1]}")

    def _check_forwarding(self, oracle: Oracle, certain: Oracle, hostile: set[str]) -> None:
        """Check packets; once more if a hostile switch was excluded meanwhile.

        Switches take rules independently of each other: what one hashes onto an excluded switch the next one may have no way for.
        """
        before = self._told().keys() & hostile
        if (problems := self._wrong_packets(oracle, certain)) and (changed := before ^ (self._told().keys() & hostile)):
            print(f"      sent again: {problems}, as {changed} was excluded or came back", flush=True)
            problems = self._wrong_packets(oracle, certain)
        if problems:
            raise Wrong("\n".join(problems))

    def _term(self) -> int:
        """Return the term of who leads, as the engine says; 0 while it says nothing."""
        return int((self.cluster.record("leader") or {"term": 0})["term"])

    def _unusual(self) -> bool:
        """Return True while a part stands still or is cut off."""
        states = {self.cluster.state(name) for name in self.cluster.parts}
        return "stopped" in states or bool(self.cluster.network.cut_machines())

    def _break(self, fault: Fault) -> Callable[[], None]:
        """Begin a fault, and return what ends it."""
        cluster = self.cluster
        if fault.kind == "switches":
            self._restart_switches()
            return lambda: None
        if fault.kind == "hostile":
            hostile = HostileSwitch(self.its.lab.ovs, fault.role, *fault.what)
            hostile.start()
            return hostile.stop
        name = self._part(fault.role)
        match fault.kind:
            case "kill" | "clock":
                cluster.kill(name)
                return lambda: self._start(name, fault.kind == "clock")
            case "pause" | "stale":
                if not cluster.running(name):
                    return lambda: None  # the step's other fault has ended it
                cluster.pause(name)
                return lambda: self._resume(name, fault.kind == "stale")
            case "partition":
                group, way = fault.what
                ways = tuple(Way) if way == "both" else (Way(way),)
                cluster.partition(name, None if group == "all" else [PartGroup(group)], ways)
                return lambda: cluster.heal(name)
            case "disk":
                self._fill()
                return self._free
        raise ValueError(f"no fault is called {fault.kind}")

    def _part(self, role: str) -> str:
        """Return the name of the part that has a role now."""
        leader = self.cluster.leader() or self.cluster.names(PartKind.CONTROLLER)[0]
        if role == LEADER:
            return leader
        if role == RELAY:
            return self.cluster.names(PartKind.RELAY)[0]
        if role in (ETCD, ETCD_LEADER):
            names = self.cluster.names(PartKind.ETCD)
            for name, endpoint in zip(names, self.cluster.address.endpoints, strict=True):
                with contextlib.suppress(httpx.HTTPError):
                    url = f"http://{endpoint}/v3/maintenance/status"
                    status = httpx.post(url, json={}, timeout=1.0).raise_for_status().json()
                    if (status.get("leader") == status["header"]["member_id"]) == (role == ETCD_LEADER):
                        return name
            return names[0]  # none says who leads
        return next(name for name in self.cluster.names(PartKind.CONTROLLER) if name != leader)

    def _start(self, name: str, clock_back: bool = False) -> None:
        part = self.cluster.parts[name]
        if isinstance(part, ControllerProcess):
            set_clock(part, clock_back)
        if not part.running:
            self.cluster.restart(name)

    def _resume(self, name: str, restart_switches: bool) -> None:
        if restart_switches:  # which forget what generation id they have had
            self._restart_switches()
        if self.cluster.state(name) == "stopped":
            self.cluster.resume(name)

    def _restart_switches(self) -> None:
        self.monitors.follow()
        self.monitors.stop()
        self.its.lab.ovs.restart()
        self.monitors.start()

    def _fill(self) -> None:
        with (self._disk / FULL).open("wb") as filler:
            eventually(lambda: self._take_all(filler.fileno()))

    def _take_all(self, filler: int) -> bool:
        left = os.statvfs(self._disk)
        with contextlib.suppress(OSError):  # etcd has written meanwhile
            os.posix_fallocate(filler, 0, max(1, left.f_bavail * left.f_frsize))
            return True
        return False

    def _free(self) -> None:
        (self._disk / FULL).unlink(missing_ok=True)
        if not self.cluster.parts[self._full].running:  # it ends itself when it cannot write
            self.cluster.restart(self._full)

    def _mend_all(self) -> None:
        """Start what a fault has ended besides its own part, and undo what two faults of one part have left."""
        for name in self.cluster.network.cut_machines():
            self.cluster.heal(name)
        for name in self.cluster.parts:
            state = self.cluster.state(name)
            if state == "ended":
                self._start(name)
            elif state == "stopped":
                self.cluster.resume(name)

    def oracle(self) -> Oracle:
        return Oracle(self.graph, sorted(self.down))

    def _unsettled(self) -> str:
        records = self.cluster.records()
        if "leader" not in records or "view" not in records:
            return f"the engine has {sorted(records)}"
        leader, view = records["leader"], records["view"]
        if leader["term"] != view["term"]:
            return f"the view is of term {view['term']}, the leader {leader}"
        if set(view["failures"]) != self.down:
            return f"the view has {view['failures']}, down are {sorted(self.down)}"
        for kind, prefix in ((PartKind.CONTROLLER, "members/"), (PartKind.RELAY, "relays/")):
            for name in self.cluster.names(kind):
                its = records.get(prefix + name)
                if its is None or (its["version"], its["term"]) != (view["version"], view["term"]):
                    return f"{name} says {its}, the view is {view}"
        try:
            fabric = httpx.get(f"{leader['url']}/sopa/v1/fabric", timeout=ANSWER_SECONDS).json()
        except (httpx.HTTPError, ValueError) as error:
            return f"{leader['url']}: {error}"
        if fabric["connected"] != self.tree.switch_count or not fabric["settled"]:
            return f"the leader has {fabric['connected']} switches, settled {fabric['settled']}"
        if not self.cluster.agents_know(len(self.its.labelling)):
            relays = {key: record for key, record in records.items() if key.startswith("relays/")}
            return f"not all agents have version {view['version']}: {relays}"
        stale = self._wrong_rules()
        return stale[0] if stale else ""

    def _told(self) -> dict[str, str]:
        view = self.cluster.record("view")
        return dict(view["failures"]) if view else {}

    def _versions(self) -> int:
        """Check everything that has ever been committed, commanded and put in force, and return how many versions there were."""
        # what was done before what was committed: a version may be committed, and put in force, between the two
        in_force, written = self.agents_log.follow(), self.monitors.follow()
        self._read_commits()
        commits = [self.commits[revision] for revision in sorted(self.commits)]
        problems = wrong_commits(commits) + wrong_agents(in_force, {(each.term, each.version) for each in commits})
        if problems := problems + wrong_switches(written, {each.version for each in commits}):
            raise Wrong("\n".join(problems[:20]))
        return len(commits)

    def _problems(self) -> list[str]:
        oracle = self.oracle()
        return [*self._wrong_maps(oracle, Shares(Failures(self.tree, self._told()))), *self._wrong_packets(oracle)]

    def _read_commits(self) -> None:
        """Read all views that the engine has had since the last time, by its revisions: it keeps them all."""
        revision = 0
        while True:
            kept = self._view_at(revision)
            if kept is None or int(kept["mod_revision"]) in self.commits:
                return
            revision = int(kept["mod_revision"])
            view = json.loads(base64.b64decode(kept["value"]))
            self.commits[revision] = Committed(revision, view["term"], view["version"])
            revision -= 1

    def _view_at(self, revision: int) -> dict[str, Any] | None:
        """Return the engine's key `view` at a revision, 0 for now; None if there was none."""
        words = ["get", f"/{self.cluster.address.name}/view", "--write-out=json", f"--rev={revision}"]
        return next(iter(json.loads(self.cluster.etcd.ctl(*words)).get("kvs", [])), None)

    def holdings(self) -> dict[str, float]:
        return {}  # nobody has looked at those of a cluster

    def checked(self) -> dict[str, Any]:
        return {
            "deposed": self.deposed,
            "terms": len({each.term for each in self.commits.values()}),
            "versions": len(self.commits),
            "put_in_force": len(self.agents_log.entries),
            "entries_written": sum(map(len, self.monitors.written.values())),
            **super().checked(),
        }


def _others(failures: Iterable[str], switches: set[str]) -> list[str]:
    """Return what has failed besides some switches and their links."""
    return sorted(name for name in failures if switches.isdisjoint(name.split("-")))
