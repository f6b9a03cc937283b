"""A leader and relays in memory, with the channels between them, on a virtual clock; relays and leader are `PushChannel`."""

from collections.abc import Callable, Collection, Iterator

from sopa_ryu.agent.scatter.mcs_peers import McsPeers, Use
from sopa_ryu.channel import relayed
from sopa_ryu.channel.handed_mcs import HandedMcsHosts
from sopa_ryu.channel.mcs import ChannelKind
from sopa_ryu.channel.messages import encode
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import AnsweringHosts, McsLists, Relayed
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Host

HOSTS = list(TREE.hosts())
LEADER = "leader"


def scattering(host: Host, kind: ChannelKind = ChannelKind.PATHS) -> Agent:
    return Agent(host, peers=McsPeers(TREE.ip(host), kind))


def targets(agent: Agent, use: Use = Use.SCATTERS) -> set[Host]:
    uses = agent.peers.uses() if agent.peers is not None else {}
    return {TREE.host_by_ip(host) for host, its in uses.items() if its is use}


def follow(channel: PushChannel, *agents: Agent) -> None:
    """Let agents of a channel read what is due, and their answers arrive, until there is nothing more."""
    busy = True
    while busy:
        busy = False
        for agent in agents:
            if channel.session(agent) is not None:
                busy |= agent.read() | channel.hear(agent)
                channel.carry_out([])


class Relay:
    def __init__(self) -> None:
        self.channel = PushChannel(relays=True)
        self.channel.settle()
        self.uplink: Relayed | None = None
        its = self.channel.notifier.mcs_hosts
        assert isinstance(its, HandedMcsHosts)
        self.mcs = its


class RelayedChannels:
    """A leader and relays; ``old`` are the names of those that do not speak of MCS, "leader" for the leader."""

    def __init__(self, relays: int = 0, old: Collection[str] = ()) -> None:
        self.relays = {f"r{number}": Relay() for number in range(relays)}
        self.old = set(old)
        self.agents: list[Agent] = []
        self.lead()

    def lead(self) -> None:
        """Let another member lead: it knows nothing of relays and agents yet."""
        self.leader: PushChannel | None = PushChannel()
        self.leader.settle()
        notifier = self.leader.notifier
        if self.relays:
            notifier.depose(True, "another")
            notifier.depose(False)
        self.desk = RelayDesk(TREE, notifier.probe_lists, mcs=notifier.mcs_hosts)
        for name in self.relays:
            self.break_off(name)

    def break_off(self, name: str) -> None:
        relay = self.relays[name]
        if relay.uplink is not None:
            self.desk.left(relay.uplink)
            relay.uplink = None
            relay.mcs.ended()

    def no_leader(self) -> None:
        for name in self.relays:
            self.break_off(name)
        self.leader = None

    def kill(self, name: str) -> None:
        """Kill a relay and start it again: its agents' channels are lost, and it knows nothing."""
        self.break_off(name)
        for agent in self.agents:
            if self.at(agent) == name:
                agent.connection = None
        self.relays[name] = Relay()

    def channels(self) -> Iterator[tuple[str, PushChannel]]:
        for name, relay in self.relays.items():
            yield name, relay.channel
        if self.leader is not None:
            yield LEADER, self.leader

    def channel(self, name: str) -> PushChannel:
        return dict(self.channels())[name]

    def connect(self, agent: Agent, name: str = LEADER) -> None:
        assert self.channel(name).claim(agent).accepted
        if agent not in self.agents:
            self.agents.append(agent)

    def at(self, agent: Agent) -> str | None:
        return next((name for name, channel in self.channels() if channel.session(agent)), None)

    def leave(self, agent: Agent, *, says_so: bool = True) -> None:
        name = self.at(agent)
        assert name is not None
        self.channel(name).leave(agent, says_so=says_so)

    def pass_seconds(self, seconds: int, asleep: Collection[Agent] = (), look: Callable[[int], None] = lambda second: None) -> None:
        for second in range(seconds):
            for name in self.relays:
                self._exchange(name)
            for _, channel in self.channels():
                channel.advance(1.0)
                follow(channel, *(agent for agent in self.agents if agent not in asleep))
            look(second + 1)

    def _exchange(self, name: str) -> None:
        relay = self.relays[name]
        if self.leader is None:
            return
        if relay.uplink is None:
            relay.uplink, former = self.desk.entered(name, "192.0.2.1", object())
            assert former is None
            relay.mcs.opened()
            self.desk.received(relay.uplink, encode(AnsweringHosts((), traces=True, mcs=not self.old & {name, LEADER})))
        while (told := relay.mcs.take()) is not None:
            self.desk.received(relay.uplink, encode(told))
        self.desk.bring()
        while (text := self.desk.due(relay.uplink)) is not None:
            for news in relayed.from_leader(text, len(HOSTS)):
                assert isinstance(news, McsLists)
                relay.mcs.follow(news)
