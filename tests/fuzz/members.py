"""Three controllers, their etcd, switches and an agent, beside which a peer lies, and what no peer may change of them."""

import contextlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address
from pathlib import Path

from websockets.exceptions import WebSocketException

from experiments.emulation.processes import ProcessError
from tests.floods.measure import waited
from tests.fuzz.target import Broken
from tests.helpers.cluster import TOKEN, Cluster, running_cluster
from tests.helpers.memory import children, resident_mib
from tests.helpers.openflow_switch import PlainSwitch
from tests.helpers.relay import Agent, agent
from tests.helpers.slow_writes import SlowWrites
from tests.helpers.waiting import eventually
from topologies import Clos

TREE = Clos(pods=2, edges=1, aggregations=2, cores=2, hosts=2)
LIAR, HONEST = "a0_1", "a1_1"
"""Switches that are not Open vSwitch: the one that may lie, and one whose echoes are measured."""
AGENTS = ("10.0.0.3", "10.1.0.2")
"""Hosts whose agents are honest, run MCS and probe."""
MAX_MEDIAN_SECONDS, MAX_SECONDS = 0.25, 5.0
"""Of the answers to others while a sequence is played: this machine is busy, which has single answers wait."""
MAX_GROWTH_MIB = 50.0
MAX_LOG_BYTES, LOG_SECONDS = 100_000, 60.0
HEAL_SECONDS = 60.0
ASK_SECONDS = 0.05
MCS = "policy=mcs&mcs=1&channel-kind=paths&probes=1"


class Asked:
    """Something that processes are asked again and again in a thread, and how long the answers take.

    The time in which a process, or this thread, waited for a processor does not count: other programs of this machine had it.
    """

    def __init__(self, name: str, ask: Callable[[], object], pids: Callable[[], list[int]]) -> None:
        self.name = name
        self._ask, self._pids = ask, pids
        self._took: list[float] = []
        self._since = time.monotonic()
        self.problem = ""
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(ASK_SECONDS):  # the rate of the questions
            self._since, before = time.monotonic(), self._waited()
            try:
                self._ask()
            except (OSError, HTTPException, WebSocketException, Broken) as error:
                self.problem = f"{self.name}: {error!r}"
            self._took.append(max(0.0, time.monotonic() - self._since - (self._waited() - before)))

    def _waited(self) -> float:
        with suppress(OSError, ProcessError):  # a process has ended, which `check` notices
            return sum(map(waited, ("thread-self", *self._pids())))
        return 0.0

    def take(self) -> list[float]:
        """Return the seconds of the answers since the last call, and of the one that is waited for if that is long."""
        taken, self._took = self._took, []
        waits = time.monotonic() - self._since
        return [*taken, waits] if waits > 2 * MAX_MEDIAN_SECONDS else taken


class Members:
    """A peer of one kind beside three controllers. Subclasses play steps, and say what else has to stay true.

    Attributes:
        leads_on: Whether the leader stays the same whatever the peer does.
    """

    leads_on = True
    options: tuple[str, ...] = ()
    proxy: Callable[..., SlowWrites] = SlowWrites

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self.stack = cluster, stack
        members = cluster.members
        self.targets = [member.openflow for member in members.values()]
        self.honest, self.liar = self._switch(HONEST), self._switch(LIAR)
        self.begun()
        cluster.wait_whole()
        self.leader = str(cluster.leader())
        self.agents = [self._agent(members[self.leader].url, address) for address in AGENTS if self.leads_on]
        self._agents_are_well()
        if self.leads_on:
            eventually(lambda: len(children(members[self.leader].pid)), 2)  # its front, and the estimator
        self._processes = {name: sorted(children(member.pid)) for name, member in members.items()}
        self.asked = [
            Asked("GET /fabric", self._fabric, self._leaders),
            Asked("an echo of another switch", self._echo, self._all),
            *(Asked(f"a ping of {its.address}'s agent", partial(self._ping, its), self._leaders) for its in self.agents),
        ]
        self.term = cluster.fabric(self.leader)["epoch"]
        for its in self.asked:
            stack.callback(its.end)
        self._memory: dict[str, float] = {}
        eventually(self._has_grown, False)
        self._most = 0.0
        self._slowest = 0.0
        self._log_at, self._logged = time.monotonic(), self._log_sizes()
        self._read = dict(self._logged)

    def begun(self) -> None:
        """Begin what has to be there before the members count as whole."""

    def _switch(self, name: str, source: str = "127.0.0.1") -> PlainSwitch:
        switch = self.cluster.tree.switch(name)
        self.cluster.ovs.vsctl("del-controller", name)
        its = PlainSwitch(self.cluster.tree.dpid(switch), self.cluster.tree.ports(switch), self.targets, source)
        its.open()
        self.stack.callback(its.cut)
        return its

    def _agent(self, url: str, address: str) -> Agent:
        return self.stack.enter_context(agent(url, address, TOKEN, MCS, {"probes": None, "trace": None}))

    def _leaders(self) -> list[int]:
        """Return the processes of the leader."""
        pid = self.cluster.members[self.leader].pid
        return [pid, *self._processes[self.leader]]

    def _all(self) -> list[int]:
        return [member.pid for member in self.cluster.members.values()]

    # -- others, who are asked ------------------------------------------------------------------------------------------

    def _fabric(self) -> None:
        """Ask the leader, and see that nothing has failed but what the liar may say to have failed."""
        connection = HTTPConnection(self.cluster.members[self.leader].url.rpartition("/")[2], timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", "/sopa/v1/fabric")
            body = json.loads(connection.getresponse().read())
        if wrong := [each["name"] for each in body["failures"] if not self.may_fail(each["name"])]:
            raise Broken(f"these have not failed: {wrong}")
        if lost := set(body["missing"]) - {LIAR}:
            raise Broken(f"other switches are lost: {lost}")

    def may_fail(self, name: str) -> bool:
        """Return whether the peer may make a link or switch fail."""
        return False

    def _echo(self) -> None:
        for channel in list(self.honest.alive):
            self.honest.echoed.pop(channel, None)
            asked = time.monotonic()
            self.honest.echo(channel)
            while channel in self.honest.alive and channel not in self.honest.echoed:
                if time.monotonic() > asked + 30:
                    raise Broken("no answer to an echo in 30 s")
                time.sleep(0.0005)  # a thread of its own reads it

    def _ping(self, its: Agent) -> None:
        if not its.channel.ping().wait(30):
            raise Broken("no answer to a ping in 30 s")

    def _agents_are_well(self) -> None:
        """Wait until every honest agent follows the present version, and knows the others that run MCS."""

        def behind() -> list[str]:
            version = self.cluster.fabric(self.leader).get("version")
            for its in self.agents:
                its.follow_all()
            return [str(its.address) for its in self.agents if its.view is None or its.view.version != version]

        eventually(behind, [], seconds=HEAL_SECONDS)
        eventually(self._scatter, [{*map(IPv4Address, AGENTS)}] * len(self.agents), seconds=HEAL_SECONDS)

    def _scatter(self) -> list[set[IPv4Address]]:
        """Return which honest hosts each honest agent scatters to."""
        for its in self.agents:
            its.follow_all()
        return [its.scatters & {*map(IPv4Address, AGENTS)} for its in self.agents]

    # -- what has to stay true --------------------------------------------------------------------------------------------

    def _resident(self) -> dict[str, float]:
        return {name: resident_mib(member.pid) for name, member in self.cluster.members.items()}

    def _has_grown(self) -> bool:
        """Return whether the members have more memory than a second before, as in their first seconds."""
        before, self._memory = self._memory, self._resident()
        time.sleep(1.0)  # see there
        return any(mib > before.get(name, 0.0) + 0.3 for name, mib in self._resident().items())

    def _log_sizes(self) -> dict[str, int]:
        return {name: member.log.stat().st_size for name, member in self.cluster.members.items()}

    def check(self) -> None:
        """Check what no peer may change at any time."""
        for name, member in self.cluster.members.items():
            if not member.running or sorted(children(member.pid)) != self._processes[name]:
                raise Broken(f"{name}, or a process of it, has ended:\n{member.log_tail(20)}")
        for name, mib in self._resident().items():
            self._most = max(self._most, mib - self._memory[name])
            if mib - self._memory[name] > MAX_GROWTH_MIB:
                raise Broken(f"{name} has {mib:.0f} MiB, and had {self._memory[name]:.0f}")
        self._check_logs()
        for its in self.asked:
            if its.problem:
                problem, its.problem = its.problem, ""
                raise Broken(problem)
        if self.leads_on and not all(len(hosts) == len(AGENTS) for hosts in self._scatter()):
            raise Broken(f"honest hosts scatter to {self._scatter()}")
        if self.leads_on and (now := self.cluster.fabric(self.leader).get("epoch")) != self.term:
            raise Broken(f"{self.leader} led with term {self.term}, and now the term is {now}")

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
        if time.monotonic() > self._log_at + LOG_SECONDS:
            self._log_at, self._logged = time.monotonic(), sizes

    def _check_answers(self) -> None:
        for its in self.asked:
            took = its.take()
            if not took:
                continue
            median, worst = statistics.median(took), max(took)
            self._slowest = max(self._slowest, median)
            if median > MAX_MEDIAN_SECONDS or worst > MAX_SECONDS:
                raise Broken(f"{its.name}: {len(took)} answers, the median after {median:.3f} s, the slowest after {worst:.3f} s")

    def heal(self) -> None:
        """Behave, and wait until all is as at the start."""
        self._check_answers()
        self.behave()
        with _soon("the members, switches and failures are not as at the start"):
            eventually(lambda: self.cluster.is_in_force({}), seconds=HEAL_SECONDS, sleep=lambda _: time.sleep(0.1))
            eventually(self._is_whole, seconds=HEAL_SECONDS, sleep=lambda _: time.sleep(0.1))
        if not self.leads_on:
            self.leader = str(self.cluster.leader())
        else:
            with _soon("the honest agents are not as at the start"):
                self._agents_are_well()
        for its in self.asked:
            its.take()

    def _is_whole(self) -> bool:
        """Tell whether all members agree who leads, and have all switches and the same version."""
        bodies = [self.cluster.fabric(name) for name in self.cluster.members]
        count = self.cluster.tree.switch_count
        views = {(body.get("epoch"), body.get("version"), body.get("connected")) for body in bodies}
        roles = sorted(str(body.get("cluster", {}).get("role")) for body in bodies)
        return len(views) == 1 and bodies[0].get("connected") == count and roles == ["leader", "standby", "standby"]

    def behave(self) -> None:
        """End all lies."""

    def play(self, step: str) -> None:
        raise NotImplementedError

    def said(self) -> str:
        return f"memory at most {self._most:.0f} MiB more, others' median answers after at most {self._slowest:.3f} s"

    @classmethod
    @contextmanager
    def start(cls, directory: Path) -> Iterator["Members"]:
        """Start the members with a peer that behaves."""
        options = [each.format(directory=directory) for each in cls.options]
        with running_cluster(directory, *options, size=3, tree=TREE, proxy=cls.proxy) as cluster, ExitStack() as stack:
            yield cls(cluster, stack)


@contextmanager
def _soon(what: str) -> Iterator[None]:
    try:
        yield
    except AssertionError as error:
        raise Broken(f"{what}: {error}") from error


def wait(seconds: str) -> None:
    """Let the liar say nothing for a time."""
    time.sleep(min(2.0, float(seconds)))


silent = suppress(OSError, EOFError, KeyError, WebSocketException)
"""What a liar meets when the other side has closed its channel."""
