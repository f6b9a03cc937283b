"""What a host agent does with what controllers say, by scripts: `scripts/follower` has one message after the other.

`scripts/controllers` has an agent at work with two controllers, on a virtual clock: which one it follows, when it leaves, and what
it puts in force before what.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import closing
from ipaddress import IPv4Address
from urllib.parse import parse_qs, urlsplit

import pytest

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.follower import Follower, Hosts, Leave, Load, Probe, Reply, Trace
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.scatter.mcs_peers import McsPeers, Use
from sopa_ryu.channel import protocol
from sopa_ryu.channel.addresses import MAX_REPORTED, Loss
from sopa_ryu.channel.mcs import ChannelKind, HostList
from sopa_ryu.channel.messages import from_agent
from sopa_ryu.fabric.view import View
from tests.helpers.agent_log import log_lines
from tests.helpers.golden import Script, Step, each_script
from tests.models.memory_channel import MemoryController
from tests.models.memory_labeller import MemoryInterface, MemoryScattering, host_agent
from tests.models.virtual_clock import VirtualLoop
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")
TREE = FatTree(4)
URLS = ("http://192.0.2.31:8080", "http://192.0.2.32:8080")
LIMITS = (0.0, 0.5, 1.0, 2.0, 4.0, 5.0)


def view(number: str, names: list[str], cluster: str = "", tree: FatTree = TREE) -> View:
    """Return a view by its epoch and version, ``7.3``."""
    epoch, version = number.split(".")
    return View(int(epoch), int(version), Failures(tree, dict.fromkeys(names, "down")), cluster)


def hosts(text: str) -> HostList:
    """Return a list of hosts that run MCS, ``2:10.0.0.2,10.2.1.3``."""
    number, _, names = text.partition(":")
    return HostList(int(number), frozenset(map(IPv4Address, filter(None, names.split(",")))), int(number), True)


def said_of(uses: Mapping[IPv4Address, Use]) -> str:
    return ", ".join(f"{host} {use.name.lower()}" for host, use in sorted(uses.items())) or "no host"


class Messages:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.views: dict[str, View] = {}
        self.todo: Load | None = None
        self.now = 0.0
        self.caplog = caplog

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command.replace("-", "_"))(*step.words, **step.options)
        return "\n".join([said or "", *log_lines(self.caplog)])

    def do_follower(self, urls: str = "1", inherited: str = "no", mcs: str = "", probes: str = "no") -> str:
        peers = McsPeers(ADDRESS, ChannelKind(mcs)) if mcs else None
        its = self.its = Follower(ADDRESS, URLS[: int(urls)], seed=1, peers=peers, probes=probes == "yes", now=lambda: self.now)
        return "attaches its program" if its.start(inherited=inherited == "yes") else "leaves the program that is there"

    def do_snapshot(self, number: str, *names: str, cluster: str = "", mcs: str = "", prefix6: str | None = None) -> str:
        self.views[number] = view(number, list(names), cluster, FatTree(4, prefix6))
        return self._receive(protocol.snapshot(self.views[number], ADDRESS, hosts(mcs) if mcs else None))

    def do_delta(self, base: str, number: str, *names: str) -> str:
        self.views[number] = view(number, list(names))
        return self._receive(protocol.delta(self.views.get(base) or view(base, []), self.views[number]))

    def do_hosts(self, before: str, after: str) -> str:
        return self._receive(protocol.host_change(hosts(before), hosts(after)))

    def do_wrong_snapshot(self, number: str, change: str) -> str:
        return self._receive(json.dumps(json.loads(protocol.snapshot(view(number, []), ADDRESS)) | json.loads(change)))

    def do_message(self, text: str) -> str:
        return self._receive(text)

    def do_loaded(self) -> str:
        failures = self.todo.view.failures
        assert self.todo.table == path_table(failures.tree, TREE.host_by_ip(ADDRESS), failures, 1, Policy.ROUND_ROBIN)
        return self._answer(self.its.loaded(self.todo)) + f"; {self.its.swaps} swaps, {self.its.cut_off} racks cut off"

    def do_refused(self, what: str) -> str:
        refuse = {"table": self.its.not_loaded, "hosts": self.its.not_noted}[what]
        return self._answer(refuse(RuntimeError("no memory")))

    def do_wait(self, seconds: str) -> None:
        self.now += float(seconds)

    def do_connect(self) -> None:
        self.its.connect()

    def do_disconnect(self, problem: str, seconds: str = "0") -> str:
        delay = self.its.disconnect(Loss(problem, float(seconds)))
        limit = next(each for each in LIMITS if delay <= each)
        assert delay >= limit / 2
        return f"asks again in {limit / 2:g} to {limit:g} s" if limit else "asks the next one"

    def do_uses(self) -> str:
        return said_of(self.its.peers.uses())

    def do_in_force(self) -> str:
        return "nothing" if self.its.view is None else f"{self.its.view.epoch}.{self.its.view.version}"

    def _receive(self, text: str | bytes) -> str:
        match self.its.receive(text):
            case Load() as todo:
                self.todo = todo
                more = (", attaches its program" if todo.attach else "") + (", notes hosts" if todo.hosts else "")
                return f"loads {todo.view.epoch}.{todo.view.version}{more}"
            case Reply() as answer:
                return self._answer(answer)
            case Hosts(answer):
                return "notes hosts; " + self._answer(answer)
            case Probe(assignment, answer):
                streams = ", ".join(f"{each.destination} {each.up1} {each.up2}" for each in assignment.streams)
                return f"probes {streams} every {assignment.interval_ms:g} ms; " + self._answer(answer)
            case Trace(asked, answer):
                return f"{'cancel' if asked.cancel else 'request'} of trace {asked.number}; " + self._answer(answer)
            case Leave(code, reason, _):
                return f"leaves with {code}: {reason}"

    def _answer(self, answer: Reply) -> str:
        its = json.loads(answer.text)
        if its["type"] == "ack":
            number = f", hosts {its['mcs']}" if "mcs" in its else ""
            said = f"acknowledges {its['epoch']}.{its['version']}, {its['refused']} refused{number}"
        elif its["type"] == "traced":
            traced = from_agent(answer.text)
            guess = "" if traced.flow is None or traced.flow.exact else ", not exact"
            said = f"of the flow: {traced.flow.labels if traced.flow is not None else traced.problem}{guess}"
        else:
            said = f"asks for a snapshot after {answer.delay:g} s"
        return said + ("; makes room for the next table" if answer.settle else "")


@each_script(__file__, "follower")
def test_messages(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.agent")
    script.play(Messages(caplog).handle)


def test_the_problems_of_an_absence_are_logged_up_to_a_number(caplog: pytest.LogCaptureFixture) -> None:
    its = Follower(ADDRESS, URLS[:1])
    for number in range(100):  # whatever varies in them
        its.disconnect(Loss(f"refused from port {number}"))
    assert len(caplog.messages) == MAX_REPORTED


class AtWork:
    """An agent at work, and two controllers: ``first`` comes first for its host."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.loop, self.interface, self.acks, self.caplog = VirtualLoop(), MemoryInterface(), list[str](), caplog
        self.told = ""
        noted = lambda ack: self.acks.append(str(ack.mcs))  # noqa: E731
        self.controllers = {name: MemoryController(ADDRESS, noted) for name in ("first", "second")}
        self.do_agent()

    def connect(self, url: str, **options: object) -> object:
        name = next(name for its, name in self.names.items() if its.rpartition("/")[2] in url)
        told = parse_qs(urlsplit(url).query).get(protocol.FIRST, [])
        self.told = "".join(f", which knows that {self.names[first]} comes first" for first in told)
        return self.controllers[name].connect(url, **options)

    def handle(self, step: Step) -> str:
        name = step.command.replace("-", "_")
        if hasattr(self, "do_" + name):
            getattr(self, "do_" + name)(*step.words, **step.options)
        else:
            getattr(self.controllers[step.words[0]], name)()
        left = [(name, code) for name, its in self.controllers.items() for code in its.take_codes()]
        its, lines = self.follower, log_lines(self.caplog)
        at = self.names[its.controllers.url] + self.told if its.connected else "nobody"
        version = f"{its.view.epoch}.{its.view.version}" if its.view is not None else "nothing"
        for url, name in self.names.items():
            lines = [line.replace(url, name) for line in lines]
        codes = [f"{name} is left with {code}" for name, code in left]
        return "\n".join([f"follows {at}: {version}, {its.swaps} swaps", *codes, *self._scattering(), *lines])

    def _scattering(self) -> list[str]:
        """Say what MCS may do with which host, since when, and which lists of hosts were acknowledged."""
        its, acks = self.mcs, self.acks[:]
        self.acks.clear()
        if its is None:
            return []
        before = "not attached" if its.before is None else f"attached with {said_of(its.before)}"
        said = f"{said_of(its.uses)}; {before}; {its.sweeps} sweeps"
        return [said, *([f"acknowledges hosts {' '.join(acks)}"] if acks else [])]

    def do_agent(self, mcs: str = "") -> None:
        self.loop.end_tasks()
        of_mcs = {"policy": "mcs", "channel_kind": ChannelKind(mcs)} if mcs else {}
        options = AgentOptions(URLS, seed=0, probes=False, **of_mcs)
        self.mcs = MemoryScattering() if mcs else None
        agent = host_agent(self.interface, ADDRESS, options, self.mcs)
        self.follower = agent.follower
        self.names = dict(zip(self.follower.controllers.urls, ("first", "second"), strict=True))
        agent.start()
        self.task = self.loop.create_task(agent.run())

    def do_hosts(self, name: str, text: str) -> None:
        """Let a controller have another list of hosts that run MCS, and tell its agent."""
        its = self.controllers[name]
        before, its.hosts = its.hosts, hosts(text)
        if before is not None:
            its.say(protocol.host_change(before, its.hosts))

    def do_refuse(self, changes: str = "0", sweeps: str = "0") -> None:
        self.mcs.refusals, self.mcs.sweep_refusals = int(changes), int(sweeps)

    def do_view(self, name: str, number: str, *names: str) -> None:
        self.controllers[name].enter(view(number, list(names), "sopa"))

    def do_wait(self, seconds: str) -> None:
        self.loop.advance(float(seconds))


@each_script(__file__, "controllers")
def test_several_controllers(script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.agent")
    its = AtWork(caplog)
    monkeypatch.setattr("sopa_ryu.channel.client._Connect", its.connect)
    with closing(its.loop):
        script.play(its.handle)
