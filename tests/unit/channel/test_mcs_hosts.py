"""The controller's lists of the hosts that run MCS: who is on them, who hears of it when, and what no message may lead to."""

from __future__ import annotations

import json
import random
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.mcs_peers import McsPeers, Use
from sopa_ryu.channel import mcs, protocol
from sopa_ryu.channel.mcs import ChannelKind, HostChange, HostList, Variant
from sopa_ryu.channel.mcs_hosts import LOST_SECONDS, SETTLE_SECONDS
from sopa_ryu.channel.protocol import ProtocolError
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Host

HOSTS = list(TREE.hosts())[:6]
PATHS, PORTS = ChannelKind.PATHS, ChannelKind.PORTS


def scattering(host: Host, kind: ChannelKind = PATHS) -> Agent:
    return Agent(host, peers=McsPeers(TREE.ip(host), kind))


def listed(agent: Agent) -> set[Host]:
    assert agent.peers is not None
    return {TREE.host_by_ip(address) for address in agent.peers.listed}


def targets(agent: Agent) -> set[Host]:
    """The hosts that an agent scatters to."""
    assert agent.peers is not None
    return {TREE.host_by_ip(host) for host, use in agent.peers.uses().items() if use is Use.SCATTERS}


def follow(channel: PushChannel, *agents: Agent) -> None:
    """Let agents read what is due, and their answers arrive, until there is nothing more."""
    busy = True
    while busy:
        busy = False
        for agent in agents:
            busy |= agent.read() | channel.hear(agent)
            channel.carry_out([])


def pass_seconds(channel: PushChannel, seconds: int, *agents: Agent) -> None:
    for _ in range(seconds):
        channel.advance(1.0)
        follow(channel, *agents)


@pytest.fixture
def channel() -> PushChannel:
    channel = PushChannel()
    channel.settle()
    channel.advance(SETTLE_SECONDS + 1)
    return channel


def connected(channel: PushChannel, *agents: Agent) -> None:
    for agent in agents:
        assert channel.claim(agent).accepted
    follow(channel, *agents)


def test_hosts_hear_of_each_other_and_no_version_is_made(channel: PushChannel) -> None:
    agents = [scattering(host) for host in HOSTS[:3]]
    version = channel.view
    connected(channel, *agents)
    pass_seconds(channel, 2, *agents)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:3]) - {agent.host}
        assert agent.kinds == ["snapshot", "mcs"]
    assert channel.view == version
    assert channel.completed == []


def test_an_agent_without_mcs_gets_the_messages_that_it_always_got(channel: PushChannel) -> None:
    plain, other = Agent(HOSTS[0]), scattering(HOSTS[1])
    channel.claim(plain)
    assert plain.connection is not None
    assert json.loads(plain.connection.to_agent[0]) == json.loads(protocol.snapshot(channel.view, TREE.ip(plain.host)))
    connected(channel, other)
    pass_seconds(channel, 5, plain, other)
    assert plain.kinds == ["snapshot"]
    assert listed(other) == set()


def test_a_host_is_listed_only_after_it_has_acknowledged_a_version(channel: PushChannel) -> None:
    first, slow = scattering(HOSTS[0]), scattering(HOSTS[1])
    connected(channel, first)
    channel.claim(slow)
    pass_seconds(channel, 3, first)
    assert listed(first) == set()
    follow(channel, slow)
    pass_seconds(channel, 1, first, slow)
    assert listed(first) == {HOSTS[1]}


def test_one_that_comes_later_finds_the_list_in_its_snapshot(channel: PushChannel) -> None:
    first, second = scattering(HOSTS[0]), scattering(HOSTS[1])
    connected(channel, first)
    pass_seconds(channel, 2, first)
    connected(channel, second)
    assert targets(second) == {HOSTS[0]}


def test_one_that_leaves_is_taken_off_and_one_that_is_lost_stays_for_a_while(channel: PushChannel) -> None:
    agents = [scattering(host) for host in HOSTS[:3]]
    connected(channel, *agents)
    pass_seconds(channel, 2, *agents)
    channel.leave(agents[1])
    channel.leave(agents[2], says_so=False)
    pass_seconds(channel, 2, agents[0])
    assert targets(agents[0]) == {HOSTS[2]}
    pass_seconds(channel, int(LOST_SECONDS), agents[0])
    assert targets(agents[0]) == set()
    assert agents[0].peers is not None
    assert set(agents[0].peers.uses().values()) == {Use.ACCEPTS}  # what they still scatter is understood


def test_one_that_comes_back_with_another_policy_is_taken_off(channel: PushChannel) -> None:
    first, second = scattering(HOSTS[0]), scattering(HOSTS[1])
    connected(channel, first, second)
    pass_seconds(channel, 2, first, second)
    channel.leave(second, says_so=False)
    connected(channel, Agent(HOSTS[1]))
    pass_seconds(channel, 2, first)
    assert targets(first) == set()


def test_hosts_of_different_kinds_do_not_scatter_to_each_other(channel: PushChannel) -> None:
    agents = [scattering(HOSTS[0], PATHS), scattering(HOSTS[1], PORTS), scattering(HOSTS[2], PORTS)]
    connected(channel, *agents)
    pass_seconds(channel, 4, *agents)
    assert [targets(agent) for agent in agents] == [set(), {HOSTS[2]}, {HOSTS[1]}]


def test_a_burst_of_newcomers_is_one_message_to_each(channel: PushChannel) -> None:
    first = scattering(HOSTS[0])
    connected(channel, first)
    pass_seconds(channel, 2, first)
    first.kinds.clear()
    others = [scattering(host) for host in HOSTS[1:]]
    connected(channel, *others)
    pass_seconds(channel, 2, first, *others)
    assert first.kinds == ["mcs"]
    assert targets(first) == set(HOSTS[1:])


def test_with_ports_a_host_waits_until_all_know_that_it_scatters(channel: PushChannel) -> None:
    slow, newcomer = scattering(HOSTS[0], PORTS), scattering(HOSTS[1], PORTS)
    connected(channel, slow)
    pass_seconds(channel, 3, slow)
    connected(channel, newcomer)
    pass_seconds(channel, 3, newcomer)
    assert targets(newcomer) == set()
    pass_seconds(channel, 2, slow, newcomer)
    assert targets(newcomer) == {HOSTS[0]}


def test_with_ports_one_that_never_answers_does_not_keep_the_others_waiting(channel: PushChannel) -> None:
    agents = [scattering(host, PORTS) for host in HOSTS[:3]]
    connected(channel, agents[0], agents[1])
    pass_seconds(channel, 3, agents[0], agents[1])
    connected(channel, agents[2])
    pass_seconds(channel, 9, agents[1], agents[2])
    assert HOSTS[1] in targets(agents[2])


def test_the_hosts_of_the_controller_before_stay_until_all_have_come_back(channel: PushChannel) -> None:
    agents = [scattering(host) for host in HOSTS[:3]]
    connected(channel, *agents)
    pass_seconds(channel, 2, *agents)
    channel.start()
    channel.settle()
    connected(channel, agents[0], agents[1])
    pass_seconds(channel, 3, *agents[:2])
    assert targets(agents[0]) == {HOSTS[1], HOSTS[2]}
    pass_seconds(channel, int(SETTLE_SECONDS), *agents[:2])
    assert targets(agents[0]) == {HOSTS[1]}


@pytest.mark.parametrize("seed", range(30))
def test_with_ports_whoever_is_scattered_to_knows_the_sender(seed: int) -> None:
    """Whatever connects, leaves, is lost, is slow, or restarts: as long as the receiver's agent lives, it can translate."""
    draw = random.Random(seed)
    channel = PushChannel()
    channel.settle()
    agents = [scattering(host, PORTS) for host in HOSTS]

    def check() -> None:
        for sender in agents:
            for receiver in agents:
                if receiver.host in targets(sender):
                    assert receiver.peers is not None
                    assert TREE.ip(sender.host) in receiver.peers.uses(), (seed, sender.host, receiver.host)

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
                # all read within the time after which one is not waited for
                pass_seconds(channel, draw.choice((1, 2, 40)), *agents)
            case "restart" if draw.random() < 0.1:
                channel.start()
                channel.settle()
        check()
    for agent in agents:
        if channel.session(agent) is None:
            channel.claim(agent)
    pass_seconds(channel, 20, *agents)
    for agent in agents:
        assert targets(agent) == set(HOSTS) - {agent.host}


def test_a_member_that_becomes_leader_takes_no_host_away(channel: PushChannel) -> None:
    agents = [scattering(host) for host in HOSTS[:3]]
    connected(channel, *agents)
    pass_seconds(channel, 2, *agents)
    standby = PushChannel()
    standby.carry_out(standby.notifier.depose(True, "another leads"))
    standby.advance(LOST_SECONDS)
    standby.settle()
    channel.carry_out(channel.notifier.depose(True, "another leads"))
    standby.carry_out(standby.notifier.depose(False))
    for agent in agents:
        connected(standby, agent)
        pass_seconds(standby, 1, agent)
        assert targets(agent) == set(HOSTS[:3]) - {agent.host}
    pass_seconds(standby, int(SETTLE_SECONDS) + 2, *agents)
    for agent in agents:
        assert targets(agent) == set(HOSTS[:3]) - {agent.host}
    standby.carry_out(standby.notifier.depose(True, "another leads"))
    channel.carry_out(channel.notifier.depose(False))
    connected(channel, *agents[:2])
    pass_seconds(channel, int(SETTLE_SECONDS) + 2, *agents[:2])
    assert targets(agents[0]) == {HOSTS[1]}, "what it knew when it led before counts no longer"


# -- messages ---------------------------------------------------------------------------------------------------------

ONE, TWO = (IPv4Address(f"10.0.0.{number}") for number in (2, 3))


def test_a_snapshot_with_a_list_is_one_for_agents_that_know_none(channel: PushChannel) -> None:
    its = HostList(4, frozenset([ONE, TWO]), 3, True)
    text = protocol.snapshot(channel.view, ONE, its)
    assert json.loads(text)["mcs"] == ["10.0.0.2", "10.0.0.3"]
    assert protocol.receive(text, None, ONE) == channel.view
    assert protocol.hosts_named(text) == HostChange(4, True, its.hosts, frozenset(), 3, True)
    assert protocol.hosts_named(protocol.snapshot(channel.view, ONE)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"added": "10.0.0.2"},
        {"added": ["10.0.0"]},
        {"added": [7]},
        {"removed": None},
        {"number": -1},
        {"number": True},
        {"known": 9},
        {"complete": 1},
    ],
)
def test_a_malformed_list_is_rejected_as_a_message(wrong: dict[str, object]) -> None:
    good = json.loads(mcs.change(HostList(1, frozenset(), 1, True), HostList(2, frozenset([ONE]), 1, True)))
    assert protocol.hosts_named(json.dumps(good)) is not None
    with pytest.raises(ProtocolError):
        protocol.hosts_named(json.dumps(good | wrong))


@pytest.mark.parametrize("version", ["", "-1", "1.0", "9" * 30])
def test_what_an_agent_says_of_itself_is_not_trusted(version: str) -> None:
    query = {"policy": ["m" * 99], "mcs": [version], "channel-kind": ["paths"]}
    assert mcs.requested(query) == ("m" * mcs.MAX_NAME, None)
    assert mcs.requested({}) == (None, None)
    assert mcs.requested({"mcs": ["2"], "channel-kind": ["rays"]}) == (None, Variant(2, "rays"))
