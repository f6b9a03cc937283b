"""Three controllers, their etcd, switches and agents, beside which a peer lies, and what no peer may change of them."""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from websockets.exceptions import WebSocketException

from experiments.emulation.processes import ProcessError
from tests.floods.measure import waited
from tests.fuzz.peers import Broken
from tests.helpers.cluster import TOKEN, Cluster, running_cluster
from tests.helpers.memory import children, resident_mib
from tests.helpers.openflow_switch import PlainSwitch
from tests.helpers.relay import Agent, agent
from tests.helpers.waiting import eventually
from topologies import Clos

TREE = Clos(pods=2, edges=1, aggregations=2, cores=2, hosts=2)
LIAR, HONEST = "a0_1", "a1_1"
"""Switches that are not Open vSwitch: the one that may lie, and one whose echoes are measured."""
AGENTS = (IPv4Address("10.0.0.3"), IPv4Address("10.1.0.2"))
"""Hosts whose agents are honest, run MCS and probe."""
MCS = "policy=mcs&mcs=1&channel-kind=paths&probes=1"
MAX_MEDIAN_SECONDS, MAX_SECONDS = 0.25, 15.0
"""Of the answers to others while a sequence is played: this machine is busy, which has single answers wait."""
MAX_GROWTH_MIB, MAX_LOG_BYTES, LOG_SECONDS = 50.0, 100_000, 60.0
HEAL_SECONDS = 120.0
ASK_SECONDS, ANSWER_SECONDS, TIMER_SECONDS = 0.05, 30.0, 0.02

silent = suppress(OSError, EOFError, KeyError, ValueError, AssertionError, HTTPException, WebSocketException)
"""What a liar meets when the other side has closed its channel; websockets asserts that it has not."""


class Machine:
    """How long, in seconds, this machine has stood still so far, as a thread with a timer sees it."""

    def __init__(self) -> None:
        self.late = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            time.sleep(TIMER_SECONDS)  # a control
            self.late += max(0.0, time.monotonic() - began - 2 * TIMER_SECONDS)


class Asked:
    """Something that processes are asked again and again in a thread, and how long the answers take.

    What does not count: the time in which a process, or this thread, waited for a processor, or the machine stood still.
    """

    machine = Machine()

    def __init__(self, name: str, ask: Callable[[], object], pids: Callable[[], list[int]]) -> None:
        self.name, self._ask, self._pids = name, ask, pids
        self.problem = ""
        self.ended = threading.Event()
        self._took: list[float] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self.ended.wait(ASK_SECONDS):  # the rate of the questions
            since, before = time.monotonic(), self._waited()
            try:
                self._ask()
            except (OSError, LookupError, HTTPException, WebSocketException, Broken) as error:
                self.problem = f"{self.name}: {error!r}"
            now = time.monotonic()
            # several may wait at the same time: the longest is certain
            delays = [after - start for start, after in zip(before, self._waited(), strict=False)]
            self._took.append(max(0.0, now - since - max(delays)))

    def _waited(self) -> list[float]:
        found = [self.machine.late]
        with suppress(OSError, ProcessError):  # a process has ended, which `Members.check` notices
            found += map(waited, ("thread-self", *self._pids()))
        return found

    def take(self) -> list[float]:
        """Return the seconds of the answers since the last call."""
        taken, self._took = self._took, []
        return taken


class Members:
    """A peer beside three controllers; implements `tests.fuzz.peers.Peer`. Subclasses play steps, and end their lies.

    Attributes:
        leads_on: Whether the leader stays the same whatever the peer does.
    """

    leads_on = True

    def __init__(self, cluster: Cluster, stack: ExitStack, *, timed: bool) -> None:
        self.cluster, self._stack, self._timed = cluster, stack, timed
        if self.leads_on:  # another leader would install their rules anew, which they do not keep
            self._honest, self.liar = self._switch(HONEST), self._switch(LIAR)
        self.begun()
        cluster.wait_whole()
        cluster.wait_in_force({})  # of the switches whose channels it has taken
        self.leader = str(cluster.leader())
        its, self._term = cluster.members[self.leader], cluster.fabric(self.leader)["epoch"]
        enter = stack.enter_context
        self._agents = [enter(agent(its.url, str(host), TOKEN, MCS, {"probes": None})) for host in AGENTS if self.leads_on]
        self._agents_are_well()
        if self.leads_on:
            eventually(lambda: len(children(its.pid)), 2)  # its front, and the estimator
        self._processes = self._children()
        self._asked = [Asked("GET /fabric", self._fabric, self._pids)]
        self._asked += [Asked(f"a ping of {its.address}", partial(self._ping, its), self._pids) for its in self._agents]
        if self.leads_on:
            self._asked.append(Asked("an echo of another switch", self._echo, self._pids))
        for asked in self._asked:
            stack.callback(asked.ended.set)
        self._memory: dict[str, float] = {}
        eventually(self._has_grown, False)  # as in the first seconds
        self._most = self._slowest = 0.0
        self._logged_at, self._logged = time.monotonic(), self._log_sizes()
        self._read = dict(self._logged)

    def begun(self) -> None:
        """Tell no lies yet."""

    def behave(self) -> None:
        """End all lies."""

    def may_fail(self, _name: str) -> bool:
        """Return whether the peer may make a link or switch fail."""
        return False

    def play(self, step: str) -> None:
        raise NotImplementedError

    def _switch(self, name: str) -> PlainSwitch:
        self.cluster.ovs.vsctl("del-controller", name)
        targets = [member.openflow for member in self.cluster.members.values()]
        its = PlainSwitch(TREE.dpid(TREE.switch(name)), TREE.ports(TREE.switch(name)), targets)
        its.open()
        self._stack.callback(self.cluster.ovs.vsctl, "set-controller", name, *targets)
        self._stack.callback(its.cut)
        return its

    # -- others, who ask ------------------------------------------------------------------------------------------------

    def _pids(self) -> list[int]:
        return [self.cluster.members[self.leader].pid, *self._processes[self.leader]]

    def _fabric(self) -> None:
        with closing(
            HTTPConnection(self.cluster.members[self.leader].url.rpartition("/")[2], timeout=ANSWER_SECONDS)
        ) as connection:
            connection.request("GET", "/sopa/v1/fabric")
            body = json.loads(connection.getresponse().read())
        wrong = {each["name"] for each in body["failures"] if not self.may_fail(each["name"])}
        if wrong or (self.leads_on and {*body["missing"]} - {LIAR}):
            raise Broken(f"these have not failed: {wrong}; missing: {body['missing']}")

    def _echo(self) -> None:
        for channel in list(self._honest.alive):
            until = time.monotonic() + ANSWER_SECONDS
            self._honest.echo(channel)
            while channel in self._honest.alive and channel not in self._honest.echoed:
                if time.monotonic() > until:
                    raise Broken("no answer")
                time.sleep(0.0005)  # a thread of its own reads it

    def _ping(self, its: Agent) -> None:
        if not its.channel.ping().wait(ANSWER_SECONDS):
            raise Broken("no answer")

    def _agents_are_well(self) -> None:
        """Wait until every honest agent follows the present version, and knows the others that run MCS."""

        def wrong() -> list[str]:
            version, scatters = self.cluster.fabric(self.leader).get("version"), self._scatter()
            views = [its.view.version if its.view else 0 for its in self._agents]
            return [
                f"{its} has {has}, {to}" for its, has, to in zip(AGENTS, views, scatters, strict=False) if has != version or not to
            ]

        eventually(wrong, [], seconds=HEAL_SECONDS)

    def _scatter(self) -> list[bool]:
        """Return of each honest agent whether its host scatters to all that are honest."""
        try:
            for its in self._agents:
                its.follow_all()
        except WebSocketException as error:
            raise Broken(f"the channel of an honest agent was closed: {error!r}") from error
        return [its.scatters >= {*AGENTS} for its in self._agents]

    # -- what has to stay true ------------------------------------------------------------------------------------------

    def _children(self) -> dict[str, list[int]]:
        return {name: sorted(children(member.pid)) for name, member in self.cluster.members.items()}

    def _resident(self) -> dict[str, float]:
        return {name: resident_mib(member.pid) for name, member in self.cluster.members.items()}

    def _has_grown(self) -> bool:
        before, self._memory = self._memory, self._resident()
        time.sleep(1.0)  # in which they may grow
        return any(mib > before.get(name, 0.0) + 0.3 for name, mib in self._resident().items())

    def _log_sizes(self) -> dict[str, int]:
        return {name: member.log.stat().st_size for name, member in self.cluster.members.items()}

    def check(self) -> None:
        for name, member in self.cluster.members.items():
            if not member.running or (self.leads_on and self._children() != self._processes):
                raise Broken(f"{name}, or a process of it, has ended:\n{member.log_tail(20)}")
            self._most = max(self._most, growth := self._resident()[name] - self._memory[name])
            if growth > MAX_GROWTH_MIB:
                raise Broken(f"{name} had {self._memory[name]:.0f} MiB, and has {growth:.0f} more")
        self._check_logs()
        for its in self._asked:
            problem, its.problem = its.problem, ""
            if problem:
                raise Broken(f"{problem}\n{self.cluster.members[self.leader].log_tail(20)}")
        if self.leads_on and (now := self.cluster.fabric(self.leader).get("epoch")) != self._term:
            raise Broken(f"{self.leader} led with term {self._term}, and now the term is {now}")
        if not all(self._scatter()):
            raise Broken("honest hosts do not scatter to each other any more")

    def _check_logs(self) -> None:
        sizes = self._log_sizes()
        for name, size in sizes.items():
            with self.cluster.members[name].log.open("rb") as log:
                log.seek(self._read[name])
                new = log.read(size - self._read[name]).decode(errors="replace")
            if (at := new.find("Traceback (most recent call last)")) >= 0:
                raise Broken(f"{name} logged a traceback:\n{new[max(0, at - 500) : at + 3000]}")
            if size - self._logged[name] > MAX_LOG_BYTES:
                raise Broken(f"{name} logged {size - self._logged[name]} bytes within a minute, the last ones:\n{new[-2000:]}")
        self._read = sizes
        if time.monotonic() > self._logged_at + LOG_SECONDS:
            self._logged_at, self._logged = time.monotonic(), sizes

    def heal(self) -> None:
        for its in self._asked:
            if took := its.take():
                median, worst = statistics.median(took), max(took)
                self._slowest = max(self._slowest, median)
                if self._timed and (median > MAX_MEDIAN_SECONDS or worst > MAX_SECONDS):
                    raise Broken(f"{its.name}: {len(took)} answers, the median after {median:.3f} s, one after {worst:.3f} s")
        self.behave()
        try:
            eventually(self._wrong, [], seconds=HEAL_SECONDS, sleep=lambda _: time.sleep(0.1))  # an answer costs 10 ms
            self._agents_are_well()
        except AssertionError as error:
            logs = "\n".join(member.log_tail(12) for member in self.cluster.members.values())
            raise Broken(f"not as at the start: {error}\n{logs}") from error
        self.leader = str(self.cluster.leader())
        for its in self._asked:
            its.take()

    def _wrong(self) -> list[object]:
        """Return what is not so: one leads, all say the same of the fabric, nothing has failed, and rules are in force."""
        bodies = [self.cluster.fabric(name) for name in self.cluster.members]
        roles = sorted(str(body.get("cluster", {}).get("role")) for body in bodies)
        views = {(body.get("epoch"), body.get("version"), body.get("connected")) for body in bodies}
        if roles != ["leader", "standby", "standby"] or len(views) != 1 or bodies[0].get("failures") or bodies[0].get("missing"):
            return [*roles, *views, bodies[0].get("failures"), bodies[0].get("missing")]
        return [] if self.cluster.is_in_force({}) else ["rules are not in force"]

    def said(self) -> str:
        return f"memory at most {self._most:.0f} MiB more, others' median answers after at most {self._slowest:.3f} s"

    @classmethod
    @contextmanager
    def start(cls, directory: Path, cluster: Cluster | None = None) -> Iterator[Self]:
        """Begin; on members that run, as in `make test`, nothing is judged by how fast it is."""
        with ExitStack() as stack:
            yield cls(cluster or stack.enter_context(members(directory)), stack, timed=cluster is None)


def members(directory: Path) -> AbstractContextManager[Cluster]:
    """Start the three controllers."""
    return running_cluster(directory, size=3, tree=TREE)


def wait(seconds: str) -> None:
    """Let the liar say nothing for a time."""
    time.sleep(min(2.0, float(seconds)))
