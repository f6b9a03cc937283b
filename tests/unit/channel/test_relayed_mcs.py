"""Hosts behind different relays hear of each other by the leader: who is listed where, after which events, and for how long."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from sopa_ryu.agent.mcs_peers import McsPeers, Use
from sopa_ryu.channel import relayed, relayed_mcs
from sopa_ryu.channel.handed_mcs import HandedMcsHosts
from sopa_ryu.channel.mcs import ChannelKind
from sopa_ryu.channel.mcs_hosts import LOST_SECONDS, MAX_IN_SNAPSHOT, SETTLE_SECONDS
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import Relayed, RelayedError
from sopa_ryu.channel.relayed_mcs import News, Told
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Host

HOSTS = list(TREE.hosts())
SECONDS_TO_ALL = 5
"""A change is at all agents by then: a second at the leader, one at the relay, and what the channels between take."""


class Relay:
    """A relay with its agents, and its channel to the leader."""

    def __init__(self) -> None:
        self.channel = PushChannel(relays=True)
        self.channel.settle()
        self.uplink: Relayed | None = None

    @property
    def mcs(self) -> HandedMcsHosts:
        its = self.channel.notifier.mcs_hosts
        assert isinstance(its, HandedMcsHosts)
        return its


class Cluster:
    """A leader and relays; ``old`` are the names of those that do not speak of MCS, ``"leader"`` for the leader."""

    def __init__(self, relays: int = 2, old: frozenset[str] = frozenset()) -> None:
        self.relays = {f"r{number}": Relay() for number in range(relays)}
        self.old = old
        self.agents: list[Agent] = []
        self.lead()

    def lead(self) -> None:
        """Let another member lead: it knows nothing of relays and agents yet."""
        self.leader: PushChannel | None = PushChannel()
        self.leader.settle()
        notifier: Notifier = self.leader.notifier
        notifier.depose(True, "another")
        notifier.depose(False)
        self.desk = RelayDesk(TREE, notifier.probe_lists, mcs=notifier.mcs_hosts)
        for name in self.relays:
            self.lose(name)

    def lose(self, name: str) -> None:
        """Let the channel of a relay to the leader break."""
        relay = self.relays[name]
        if relay.uplink is not None:
            self.desk.left(relay.uplink)
            relay.uplink = None
            relay.mcs.ended()

    def lose_leader(self) -> None:
        """Let there be no leader."""
        for name in self.relays:
            self.lose(name)
        self.leader = None

    def kill(self, name: str) -> None:
        """Kill a relay and start it again: its agents' channels are lost, and it knows nothing."""
        self.lose(name)
        for agent in self.agents:
            if self.at(agent) == name:
                agent.connection = None
        self.relays[name] = Relay()

    def connect(self, agent: Agent, name: str) -> None:
        assert self.relays[name].channel.claim(agent).accepted
        if agent not in self.agents:
            self.agents.append(agent)

    def at(self, agent: Agent) -> str | None:
        """The relay that an agent is connected to."""
        return next((name for name, relay in self.relays.items() if relay.channel.session(agent)), None)

    def leave(self, agent: Agent, *, says_so: bool = True) -> None:
        name = self.at(agent)
        assert name is not None
        self.relays[name].channel.leave(agent, says_so=says_so)

    def pass_seconds(self, seconds: int = SECONDS_TO_ALL) -> None:
        for _ in range(seconds):
            for name in self.relays:
                self._exchange(name)
            for relay in self.relays.values():
                relay.channel.advance(1.0)
                self._follow(relay.channel)
            if self.leader is not None:
                self.leader.advance(1.0)
                self._follow(self.leader)

    def _follow(self, channel: PushChannel) -> None:
        busy = True
        while busy:
            busy = False
            for agent in self.agents:
                if channel.session(agent) is not None:
                    busy |= agent.read() | channel.hear(agent)
                    channel.carry_out([])

    def _exchange(self, name: str) -> None:
        relay = self.relays[name]
        if self.leader is None:
            return
        if relay.uplink is None:
            relay.uplink, former = self.desk.entered(name, "192.0.2.1", object())
            assert former is None
            relay.mcs.opened()
            hosts = json.loads(relayed.hosts([]))
            if self.old & {name, "leader"}:
                del hosts["mcs"]
            self.desk.received(relay.uplink, json.dumps(hosts))
        while (told := relay.mcs.take()) is not None:
            self.desk.received(relay.uplink, relayed_mcs.told_text(told))
        self.desk.bring()
        while (text := self.desk.due(relay.uplink)) is not None:
            for news in relayed.read_down(text, len(HOSTS)):
                assert isinstance(news, News)
                relay.mcs.follow(news)


def scattering(host: Host, kind: ChannelKind = ChannelKind.PATHS) -> Agent:
    return Agent(host, peers=McsPeers(TREE.ip(host), kind))


def targets(agent: Agent) -> set[Host]:
    """The hosts that an agent scatters to."""
    assert agent.peers is not None
    return {TREE.host_by_ip(host) for host, use in agent.peers.uses().items() if use is Use.SCATTERS}


def four(cluster: Cluster) -> list[Agent]:
    """Agents of four hosts, two at each of two relays, that scatter to each other."""
    agents = [scattering(host) for host in HOSTS[:4]]
    for place, agent in enumerate(agents):
        cluster.connect(agent, f"r{place % 2}")
    cluster.pass_seconds(int(SETTLE_SECONDS) + SECONDS_TO_ALL)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:4]) - {agent.host}
    return agents


def test_hosts_of_two_relays_hear_of_each_other_and_of_those_at_the_leader() -> None:
    cluster = Cluster()
    agents = four(cluster)
    at_leader = scattering(HOSTS[4])
    assert cluster.leader is not None
    assert cluster.leader.claim(at_leader).accepted
    cluster.agents.append(at_leader)
    cluster.pass_seconds()
    assert targets(at_leader) == set(HOSTS[:4])
    for agent in agents:
        assert targets(agent) == set(HOSTS[:5]) - {agent.host}
    cluster.leader.leave(at_leader)
    cluster.pass_seconds()
    assert targets(agents[0]) == set(HOSTS[1:4])


def test_one_that_leaves_is_taken_off_everywhere_and_one_that_is_lost_stays_for_a_while() -> None:
    cluster = Cluster()
    one, other, leaving, lost = four(cluster)
    cluster.leave(leaving)
    cluster.leave(lost, says_so=False)
    cluster.pass_seconds()
    assert targets(one) == {other.host, lost.host}
    assert targets(other) == {one.host, lost.host}
    cluster.pass_seconds(int(LOST_SECONDS))
    assert targets(one) == {other.host}
    assert targets(other) == {one.host}


def test_one_that_goes_to_another_relay_is_listed_all_the_time_and_ends_there() -> None:
    cluster = Cluster()
    one, other, moving, _ = four(cluster)
    cluster.leave(moving, says_so=False)
    cluster.connect(moving, "r1")
    for _ in range(10):
        cluster.pass_seconds(1)
        assert moving.host in targets(one) & targets(other)
    assert targets(moving) == set(HOSTS[:4]) - {moving.host}
    cluster.leave(moving)
    cluster.pass_seconds()
    assert moving.host not in targets(one) | targets(other)


def test_one_that_ends_elsewhere_is_taken_off_where_its_old_channel_was_never_closed() -> None:
    cluster = Cluster()
    one, other, moving, _ = four(cluster)
    former = cluster.relays["r0"].channel
    session = former.session(moving)
    assert session is not None
    moving.connection = None  # r0 does not notice
    cluster.connect(moving, "r1")
    cluster.pass_seconds()
    cluster.leave(moving)
    cluster.pass_seconds()
    assert moving.host not in targets(one) | targets(other)
    former.carry_out(former.notifier.closed(session))
    cluster.pass_seconds()
    assert moving.host not in targets(one) | targets(other)


@pytest.mark.parametrize("says_so", [True, False])
def test_what_its_former_relay_says_later_of_one_that_has_moved_changes_nothing(says_so: bool) -> None:
    cluster = Cluster()
    one, other, moving, _ = four(cluster)
    former = cluster.relays["r0"].channel
    session = former.session(moving)
    assert session is not None
    moving.connection = None
    cluster.connect(moving, "r1")
    cluster.pass_seconds()
    former.carry_out(former.notifier.closed(session, left=says_so))
    for _ in range(int(LOST_SECONDS) + 2 * SECONDS_TO_ALL):
        cluster.pass_seconds(1)
        assert moving.host in targets(other)
    assert moving.host in targets(one)


def test_one_that_ends_in_the_first_seconds_of_a_leader_is_taken_off_at_once() -> None:
    cluster = Cluster()
    one, other, leaving, _ = four(cluster)
    cluster.lead()
    cluster.pass_seconds(3)
    cluster.leave(leaving)
    cluster.pass_seconds()
    assert leaving.host not in targets(one) | targets(other)
    assert cluster.leader is not None
    assert not cluster.leader.notifier.mcs_hosts.is_complete


def test_a_host_that_runs_another_policy_by_now_is_taken_off_wherever_it_was() -> None:
    cluster = Cluster()
    one, other, changing, _ = four(cluster)
    cluster.leave(changing, says_so=False)
    plain = Agent(changing.host)
    cluster.connect(plain, "r1")
    cluster.pass_seconds()
    assert changing.host not in targets(one) | targets(other)
    cluster.leave(plain)
    back = scattering(changing.host)
    cluster.connect(back, "r0")
    cluster.pass_seconds()
    assert back.host in targets(one) & targets(other)


def test_a_killed_relays_hosts_stay_while_their_agents_look_for_another() -> None:
    cluster = Cluster()
    agents = four(cluster)
    stays = [agent for agent in agents if cluster.at(agent) == "r1"]
    gone = [agent for agent in agents if agent not in stays]
    cluster.kill("r0")
    for second in range(int(SETTLE_SECONDS) + 10):
        if second == 5:
            for agent in gone:
                cluster.connect(agent, "r1")
        cluster.pass_seconds(1)
        for agent in agents:
            assert targets(agent) == set(HOSTS[:4]) - {agent.host}


@pytest.mark.parametrize("without", [1, 30, 200], ids="{} s without a leader".format)
def test_no_host_stops_scattering_when_another_member_leads(without: int) -> None:
    cluster = Cluster()
    agents = four(cluster)
    cluster.lose_leader()
    for second in range(without + int(SETTLE_SECONDS) + 10):
        if second == without:
            cluster.lead()
        cluster.pass_seconds(1)
        for agent in agents:
            assert targets(agent) == set(HOSTS[:4]) - {agent.host}, second


def test_what_ends_and_begins_without_a_leader_is_known_at_its_relay_and_everywhere_once_one_leads() -> None:
    cluster = Cluster()
    one, other, leaving, lost = four(cluster)  # of r0, r1, r0, r1
    cluster.lose_leader()
    cluster.leave(leaving)
    cluster.leave(lost, says_so=False)
    new = scattering(HOSTS[5])
    cluster.connect(new, "r0")
    cluster.pass_seconds()
    assert targets(one) == {other.host, lost.host, new.host}
    assert targets(new) == {one.host, other.host, lost.host}
    assert targets(other) == {one.host, leaving.host, lost.host}, "nobody has told r1"
    cluster.lead()
    cluster.pass_seconds(int(SETTLE_SECONDS) + SECONDS_TO_ALL)
    assert targets(one) == {other.host, new.host}, "a new leader has not heard of who was lost before"
    assert targets(other) == {one.host, new.host}
    assert targets(new) == {one.host, other.host}


def test_what_ends_while_its_relays_channel_is_broken_is_taken_off_by_the_same_leader() -> None:
    cluster = Cluster()
    one, other, leaving, _ = four(cluster)
    cluster.lose("r0")
    cluster.leave(leaving)
    cluster.pass_seconds()
    assert leaving.host not in targets(one) | targets(other)


@pytest.mark.parametrize("old", ["leader", "r0"])
def test_an_older_leader_or_relay_is_treated_as_before(old: str) -> None:
    cluster = Cluster(old=frozenset([old]))
    agents = [scattering(host) for host in HOSTS[:4]]
    for place, agent in enumerate(agents):
        cluster.connect(agent, f"r{place % 2}")
    cluster.pass_seconds(int(SETTLE_SECONDS) + SECONDS_TO_ALL)
    for agent, its in zip(agents, (2, 3, 0, 1), strict=True):
        assert targets(agent) == {HOSTS[its]}, "those of its own relay"


def test_a_leader_of_an_older_release_after_one_that_speaks_leaves_each_relay_its_own() -> None:
    cluster = Cluster()
    agents = four(cluster)
    cluster.old = frozenset(["leader"])
    cluster.lead()
    cluster.pass_seconds(int(SETTLE_SECONDS) - 5)
    assert targets(agents[0]) == set(HOSTS[1:4])
    cluster.pass_seconds(SECONDS_TO_ALL + 10)
    for agent, its in zip(agents, (2, 3, 0, 1), strict=True):
        assert targets(agent) == {HOSTS[its]}
    cluster.old = frozenset()
    cluster.lead()
    cluster.pass_seconds(int(SETTLE_SECONDS) + SECONDS_TO_ALL)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:4]) - {agent.host}


def test_hosts_that_scatter_by_ports_hear_of_those_of_their_relay_only() -> None:
    cluster = Cluster()
    agents = [scattering(host, ChannelKind.PORTS) for host in HOSTS[:4]]
    for place, agent in enumerate(agents):
        cluster.connect(agent, f"r{place % 2}")
    cluster.pass_seconds(int(SETTLE_SECONDS) + 10)
    for agent, its in zip(agents, (2, 3, 0, 1), strict=True):
        assert targets(agent) == {HOSTS[its]}


@pytest.mark.parametrize("seed", range(6))
def test_after_any_events_all_that_run_it_scatter_to_each_other_and_to_nobody_else(seed: int) -> None:
    draw = random.Random(seed)
    cluster = Cluster(3)
    agents = [scattering(host) for host in HOSTS[:8]]
    for _ in range(150):
        agent = draw.choice(agents)
        match draw.choice(
            ("connect", "connect", "connect", "end", "lose", "time", "time", "relay", "channel", "leader")
        ):
            case "connect" if cluster.at(agent) is None:
                cluster.connect(agent, draw.choice(list(cluster.relays)))
            case "end" if cluster.at(agent) is not None:
                cluster.leave(agent)
            case "lose" if cluster.at(agent) is not None:
                cluster.leave(agent, says_so=False)
            case "time":
                cluster.pass_seconds(draw.choice((1, 2, 40)))
            case "relay" if draw.random() < 0.3:
                cluster.kill(draw.choice(list(cluster.relays)))
            case "channel":
                cluster.lose(draw.choice(list(cluster.relays)))
            case "leader" if draw.random() < 0.3:
                if cluster.leader is not None:
                    cluster.lose_leader()
                else:
                    cluster.lead()
    if cluster.leader is None:
        cluster.lead()
    cluster.pass_seconds(int(LOST_SECONDS + SETTLE_SECONDS) + 2 * SECONDS_TO_ALL)
    running = {agent.host for agent in agents if cluster.at(agent) is not None}
    for agent in agents:
        if agent.host in running:
            assert targets(agent) == running - {agent.host}
    [leaving] = draw.sample([agent for agent in agents if agent.host in running], 1) if running else [None]
    if leaving is not None:
        cluster.leave(leaving)
        cluster.pass_seconds()
        assert all(leaving.host not in targets(agent) for agent in agents if cluster.at(agent) is not None)


def test_a_long_list_is_a_message_of_its_own_with_one_text_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_IN_SNAPSHOT < 27_648
    monkeypatch.setattr("sopa_ryu.channel.mcs_hosts.MAX_IN_SNAPSHOT", 3)
    cluster = Cluster()
    agents = four(cluster)
    late = [scattering(host) for host in HOSTS[4:6]]
    for agent in late:
        cluster.connect(agent, "r0")
        [snapshot] = agent.connection.to_agent if agent.connection else []
        assert json.loads(snapshot)["mcs"] == []
    for agent in late:
        agent.read()
        cluster.relays["r0"].channel.carry_out([])
    texts = [agent.connection.to_agent[0] for agent in late if agent.connection]
    assert texts[0] is texts[1]
    cluster.pass_seconds()
    for agent in (*agents, *late):
        assert targets(agent) == set(HOSTS[:6]) - {agent.host}
    moving = agents[0]
    cluster.leave(moving, says_so=False)
    cluster.connect(moving, "r1")
    moving.read()
    assert targets(moving) == set(HOSTS[1:6]), "what it knows stays until the message behind the snapshot"


def test_many_hosts_are_several_messages_of_which_the_last_makes_the_list_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("relayed_mcs", "handed_mcs"):
        monkeypatch.setattr(f"sopa_ryu.channel.{module}.MAX_HOSTS", 2)
    cluster = Cluster()
    agents = [scattering(host) for host in HOSTS[:6]]
    for place, agent in enumerate(agents):
        cluster.connect(agent, f"r{place % 2}")
    cluster.pass_seconds(int(SETTLE_SECONDS) + SECONDS_TO_ALL)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:6]) - {agent.host}
    cluster.lead()
    for _ in range(int(SETTLE_SECONDS) + SECONDS_TO_ALL):
        cluster.pass_seconds(1)
        for agent in agents:
            assert targets(agent) == set(HOSTS[:6]) - {agent.host}
    cluster.lose("r1")
    uplink, _ = cluster.desk.entered("r1", "192.0.2.1", object())
    cluster.desk.received(uplink, relayed.hosts([]))
    assert uplink in cluster.desk.bring()
    parts = []
    while (text := cluster.desk.due(uplink)) is not None:
        parts += [news for news in relayed.read_down(text, len(HOSTS)) if isinstance(news, News)]
    assert [news.complete for news in parts] == [False, False, False, True]
    assert sorted(place for news in parts for places in news.added.values() for place in places) == list(range(6))


_TOLD = json.loads(relayed_mcs.told_text(Told(1, {1: [0]}, [], [], [])))
_NEWS = json.loads(relayed_mcs.news_text(News(1, True, {1: [0]}, {1: []})))


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": -1},
        {"number": True},
        {"here": [[1, [16]]]},
        {"here": [[1, [True]]]},
        {"here": [[1]]},
        {"here": [[256, []]]},
        {"here": [[1, []], [1, []]]},
        {"here": {}},
        {"lost": [-1]},
        {"left": None},
        {"none": "0"},
        {"lost": list(range(16)) * 2},
    ],
)
def test_a_malformed_message_of_a_relay_changes_nothing(wrong: dict[str, object]) -> None:
    cluster = Cluster()
    four(cluster)
    relay = cluster.relays["r0"].uplink
    assert relay is not None
    with pytest.raises(RelayedError):
        cluster.desk.received(relay, json.dumps(_TOLD | wrong))
    assert cluster.desk.bring() == []


@pytest.mark.parametrize(
    "wrong",
    [{"heard": -1}, {"complete": 1}, {"lists": [[1, [0]]]}, {"lists": [[1, [0], [99]]]}, {"lists": [[-1, [], []]]}],
)
def test_a_malformed_message_of_the_leader_is_rejected(wrong: dict[str, object]) -> None:
    read: Callable[[dict[str, object]], list[object]] = lambda message: list(  # noqa: E731 - one expression, used twice
        relayed.read_down(json.dumps(message), len(HOSTS))
    )
    assert len(read(_NEWS)) == 1
    with pytest.raises(RelayedError):
        read(_NEWS | wrong)
