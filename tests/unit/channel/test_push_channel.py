"""The push channel by scripts, on a virtual clock: a controller, or a leader and relays, and agents that read or stand still.

Agents have letters: ``a`` is one of the first host, ``a2`` another one of it. In `scripts/push` there is one controller; in
`scripts/mcs` hosts that run MCS hear of each other, by one controller, and in `scripts/relayed` by relays and their leader.
"""

import json
import random
from typing import Any

import pytest

from sopa_ryu.agent.scatter.mcs_peers import McsPeers, Use
from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.mcs import ChannelKind
from sopa_ryu.channel.mcs_hosts import LOST_SECONDS, SETTLE_SECONDS
from sopa_ryu.fabric.view import View
from tests.helpers.golden import Script, Step, each_script
from tests.models.push_channel import TREE, Agent, Claim, PushChannel
from tests.models.relayed_channels import HOSTS, LEADER, RelayedChannels, follow, scattering, targets
from topologies import Failures, Host

SECONDS_TO_ALL = 5
"""A change is at all agents by then: a second at the leader, one at the relay, and what the channels between take."""
ROW = ("version", "lag", "lag_seconds", "acknowledged_ms", "last_contact_seconds", "refused", "refuses")
GARBAGE = ["", "{", b"\x00\xff", "[]", "{}"]


LETTERS = "abcdefghijklmnop"


def letters(hosts: set[Host]) -> str:
    return " ".join(sorted(LETTERS[HOSTS.index(host)] for host in hosts)) or "nobody"


class World:
    def __init__(self) -> None:
        self._begin(RelayedChannels())

    def handle(self, step: Step) -> str:
        name = step.command.replace("-", "_")
        method = getattr(self, "do_" + name, None) or getattr(self.its, name)
        said: list[str] = [*(method(*step.words, **step.options) or ()), *self._events()]
        return "\n".join(said)

    @property
    def leader(self) -> PushChannel:
        assert self.its.leader is not None
        return self.its.leader

    def channel_of(self, agent: Agent) -> PushChannel:
        return self.its.channel(self.its.at(agent) or LEADER)

    def session(self, name: str) -> AgentSession:
        session = self.channel_of(self.agents[name]).session(self.agents[name])
        assert session is not None
        return session

    def do_controller(self, settled: str = "yes") -> None:
        self._begin(RelayedChannels())
        if settled == "no":
            self.its.leader = PushChannel()

    def do_relays(self, count: str, old: str = "") -> None:
        self._begin(RelayedChannels(int(count), old.split(",") if old else ()))

    def do_four(self) -> None:
        """Begin anew with agents a and c at relay r0, and b and d at r1, of which each scatters to the three others."""
        self.do_relays("2")
        self.do_connect("a", "c", at="r0", mcs="paths")
        self.do_connect("b", "d", at="r1", mcs="paths")
        self.do_wait("15")
        assert all(len(targets(agent)) == 3 for agent in self.agents.values())

    def _begin(self, its: RelayedChannels) -> None:
        self.its, self.agents = its, dict[str, Agent]()
        self.vanished: dict[str, tuple[PushChannel, AgentSession]] = {}
        self._claims, self._seen = dict[str, Claim](), dict[tuple[str, str], Any]()

    def do_settle(self) -> list[str]:
        return [f"{self.leader.settle()} agents are awaited"]

    def do_restart(self) -> None:
        self.leader.start()
        self.leader.settle()

    def do_fail(self, *names: str, why: str = "down", times: str = "1") -> list[str]:
        """Make a version in which exactly these have failed; or several, of which each has another reason."""
        for number in range(int(times)):
            reason = why if times == "1" else f"{why} {number}"
            count = self.leader.fail(dict.fromkeys(names, reason))
        return [f"version {self.leader.view.version}: {count} agents are awaited"]

    def do_follow(self, epoch: str, version: str, failed: str = "") -> None:
        self.leader.follow(View(int(epoch), int(version), Failures(TREE, {failed: "down"} if failed else {}), "sopa"))

    def do_depose(self, why: str = "") -> None:
        self.leader.carry_out(self.leader.notifier.depose(True, why or None))

    def do_reinstate(self) -> None:
        self.leader.carry_out(self.leader.notifier.depose(False))

    def do_lead(self, old: str = "") -> None:
        self.its.old = set(old.split(",")) if old else set()
        self.its.lead()

    def do_wait(self, seconds: str, asleep: str = "") -> list[str]:
        """Let time pass; agents that are awake read all that comes. What changes is said with its second."""
        said, names = list[str](), self.agents if asleep == "all" else filter(None, asleep.split(","))
        if "." in seconds:
            self.leader.advance(float(seconds))
        else:
            look = lambda second: said.extend(f"{second} s: {each}" for each in self._events())  # noqa: E731 - it says
            self.its.pass_seconds(int(seconds), [self.agents[name] for name in names], look)
        return said

    def do_connect(self, *names: str, at: str = LEADER, mcs: str = "", peer: str = "") -> list[str]:
        """Let agents claim their hosts; ``mcs`` is the kind of their channels, if they run it."""
        said = []
        for name in names:
            if name not in self.agents:
                host = HOSTS[LETTERS.index(name[0])]
                self.agents[name] = Agent(host, peers=McsPeers(TREE.ip(host), ChannelKind(mcs)) if mcs else None)
                self.its.agents.append(self.agents[name])
            claim = self.its.channel(at).claim(self.agents[name], peer or None)
            self._claims[name] = claim
            if not claim.decided:
                said.append(f"{name} waits")
        return said

    def do_read(self, *names: str, heard: str = "all", count: str = "100") -> list[str]:
        """Let agents read what is due, one after the other; their answers arrive, or are under way."""
        said = []
        for name in names:
            agent, read = self.agents[name], []
            channel = self.channel_of(agent)
            while len(read) < int(count) and (due := self._due(name)):
                read.append(due[0])
                agent.read()
                while heard == "all" and channel.hear(agent):
                    pass
                channel.carry_out([])
            said.append(f"{name} reads {', '.join(read) or 'nothing'}" + self._version(agent))
        return said

    def do_on_its_way(self, *names: str) -> list[str]:
        return [f"{name}: {', '.join(self._due(name)) or 'nothing'}" for name in names]

    def _due(self, name: str) -> list[str]:
        """Return the kinds of the messages that are on their way to an agent."""
        connection = self.agents[name].connection
        return [json.loads(text)["type"] for text in connection.to_agent] if connection is not None else []

    def do_one_text(self, *names: str) -> list[str]:
        connections = [self.agents[name].connection for name in names]
        return [str(len({id(each.to_agent[0]) for each in connections if each is not None}))]

    def do_ack(self, name: str, version: str, epoch: str = "", refused: str = "0") -> list[str]:
        view = View(int(epoch or self.leader.view.epoch), int(version), Failures(TREE))
        return self._say(name, protocol.ack(view, int(refused)))

    def do_resync(self, name: str) -> list[str]:
        return self._say(name, protocol.RESYNC)

    def do_garbage(self, name: str, times: str) -> list[str]:
        return self._say(name, *(GARBAGE[number % len(GARBAGE)] for number in range(int(times))))

    def do_leave(self, *names: str) -> None:
        for name in names:
            self.its.leave(self.agents[name])

    def do_lose(self, *names: str) -> None:
        for name in names:
            self.its.leave(self.agents[name], says_so=False)

    def do_vanish(self, name: str) -> None:
        agent = self.agents[name]
        self.vanished[name] = self.channel_of(agent), self.session(name)
        agent.connection = None

    def do_notice(self, name: str, left: str = "no") -> None:
        channel, session = self.vanished.pop(name)
        channel.carry_out(channel.notifier.closed(session, left=left == "yes"))

    def do_tell(self, name: str) -> list[str]:
        channel = self.channel_of(self.agents[name])
        row = channel.row(self.session(name))
        return [" ".join(f"{field} {row[field]:g}" for field in ROW)]

    def do_sessions(self) -> list[str]:
        notifier = self.leader.notifier
        return [
            f"{letters(set(notifier.sessions))}; {notifier.behind(self.leader.view.version)} behind; "
            f"refused {notifier.refused['claims']} claims, {notifier.refused['messages']} messages"
        ]

    def do_uses(self, *names: str) -> list[str]:
        return [
            f"{name} scatters to {letters(targets(self.agents[name]))}, accepts {letters(targets(self.agents[name], Use.ACCEPTS))}"
            for name in names
        ]

    def _say(self, name: str, *texts: str | bytes) -> list[str]:
        agent = self.agents[name]
        channel, session = self.channel_of(agent), self.session(name)
        session.connection.to_controller.extend(texts)
        while channel.hear(agent):
            pass
        return [f"acknowledged {session.acknowledged}, refused {session.refused}, it refuses {session.refuses}"]

    def _version(self, agent: Agent) -> str:
        return f": version {agent.view.version}" if agent.view is not None else ""

    def _events(self) -> list[str]:
        """Say what has changed since this was asked last."""
        said, uses, kinds = [], [], dict[str, list[str]]()
        for name, claim in list(self._claims.items()):
            if claim.decided:
                del self._claims[name]
                said.append(f"{name} is rejected: {claim.error}" if claim.error is not None else f"{name} is accepted")
        for name, agent in self.agents.items():
            if self._changed("open", name, agent.connection is not None) and agent.connection is None:
                said.append(f"{name} has no channel")
            if agent.peers is not None:
                known = len(self._seen.get(("kinds", name), []))
                if self._changed("kinds", name, list(agent.kinds)):
                    kinds.setdefault(", ".join(agent.kinds[known:]), []).append(name)
                if self._changed("targets", name, targets(agent)):
                    uses.append(f"{name} scatters to {letters(targets(agent))}")
        said += [f"{' '.join(names)} read {each}" for each, names in kinds.items()] + uses
        for where, channel in self.its.channels():
            if self._changed("completed", where, list(channel.completed)) and channel.completed:
                said.append(f"version {channel.completed[-1]} is completed{'' if where == LEADER else f' at {where}'}")
        return said

    def _changed(self, what: str, name: str, now: object) -> bool:
        before = self._seen.get((what, name), type(now)())
        self._seen[what, name] = now
        return now != before


@each_script(__file__, "push", "mcs", "relayed")
def test_push_channel(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    if script.path.stem == "long_list":
        monkeypatch.setattr("sopa_ryu.channel.mcs_hosts.MAX_IN_SNAPSHOT", 3)
    if script.path.stem == "many_hosts":
        for module in ("relayed", "handed_mcs"):
            monkeypatch.setattr(f"sopa_ryu.channel.{module}.MAX_HOSTS", 2)
    script.play(World().handle)


# -- what no sequence of events may lead to ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(15))
def test_with_ports_whoever_is_scattered_to_knows_the_sender(seed: int) -> None:
    """Whatever connects, leaves, is lost, is slow, or restarts: as long as the receiver's agent lives, it can translate."""
    draw, its = random.Random(seed), RelayedChannels()
    channel = its.channel(LEADER)
    agents = its.agents = [scattering(host, ChannelKind.PORTS) for host in HOSTS[:6]]
    for _ in range(150):
        agent = draw.choice(agents)
        match draw.choice(("connect", "connect", "read", "read", "read", "lose", "time", "time", "restart")):
            case "connect" if channel.session(agent) is None:
                channel.claim(agent)
            case "lose" if channel.session(agent) is not None:
                channel.leave(agent, says_so=draw.random() < 0.5)
            case "read":
                follow(channel, *draw.sample(agents, 4))
            case "time":
                its.pass_seconds(draw.choice((1, 2, 40)))  # all read before one is not waited for
            case "restart" if draw.random() < 0.1:
                channel.start()
                channel.settle()
        for sender in agents:
            for receiver in agents:
                if receiver.host in targets(sender):
                    assert receiver.peers is not None
                    assert TREE.ip(sender.host) in receiver.peers.uses(), (seed, sender.host, receiver.host)
    for agent in agents:
        if channel.session(agent) is None:
            channel.claim(agent)
    its.pass_seconds(20)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:6]) - {agent.host}


@pytest.mark.parametrize("seed", range(4))
def test_after_any_events_all_that_run_mcs_scatter_to_each_other_and_to_nobody_else(seed: int) -> None:
    draw, its = random.Random(seed), RelayedChannels(3)
    agents = [scattering(host) for host in HOSTS[:8]]
    kinds = ["connect", "end", "time", "connect", "end", "time", "connect", "relay", "channel", "leader"]
    for _ in range(150):
        agent, relay = draw.choice(agents), draw.choice(list(its.relays))
        match draw.choice(kinds):
            case "connect" if its.at(agent) is None:
                its.connect(agent, relay)
            case "end" if its.at(agent) is not None:
                its.leave(agent, says_so=draw.random() < 0.5)
            case "time":
                its.pass_seconds(draw.choice((1, 2, 40)))
            case "relay" if draw.random() < 0.3:
                its.kill(relay)
            case "channel":
                its.break_off(relay)
            case "leader" if draw.random() < 0.3:
                its.lead() if its.leader is None else its.no_leader()
    if its.leader is None:
        its.lead()
    its.pass_seconds(int(LOST_SECONDS + SETTLE_SECONDS) + 2 * SECONDS_TO_ALL)
    running = [agent for agent in agents if its.at(agent) is not None]
    leaving = draw.choice(running)
    for agent in running:
        assert targets(agent) == {other.host for other in running} - {agent.host}
    its.leave(leaving)
    its.pass_seconds(SECONDS_TO_ALL)
    assert all(leaving.host not in targets(agent) for agent in running if agent is not leaving)
