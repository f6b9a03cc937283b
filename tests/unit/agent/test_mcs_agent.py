"""An agent with the policy ``mcs`` on an interface in memory: the order of what it does, and what it does without a controller."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address
from unittest.mock import patch

import pytest

from sopa_ryu.agent import channels
from sopa_ryu.agent.agent_options import Options
from sopa_ryu.agent.follower import LOAD_RETRY_SECONDS, Follower
from sopa_ryu.agent.host_agent import HostAgent
from sopa_ryu.agent.keeper import Keeper
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.mcs import McsOptions
from sopa_ryu.agent.mcs_peers import LEASE_SECONDS, McsPeers, Use
from sopa_ryu.channel import mcs
from sopa_ryu.channel.addresses import MAX_RETRY_SECONDS
from sopa_ryu.channel.mcs import ChannelKind, HostList
from sopa_ryu.channel.protocol import Ack
from tests.models.memory_channel import MemoryController
from tests.models.memory_labeller import (
    MemoryChanges,
    MemoryInterface,
    MemoryLabeller,
    MemoryPlace,
    MemoryScattering,
    MemorySettings,
)
from tests.models.virtual_clock import VirtualLoop

ADDRESS, OTHER, THIRD = IPv4Address("10.0.0.2"), IPv4Address("10.2.1.3"), IPv4Address("10.3.1.3")
BOTH = HostList(4, frozenset([ADDRESS, OTHER]), 4, True)


class Agents:
    """One interface, one controller, and agents one after the other."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.interface = MemoryInterface()
        self.acknowledged: list[Ack] = []
        self.controller = MemoryController(ADDRESS, self.acknowledged.append)
        self.controller.hosts = BOTH
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, kind: ChannelKind) -> MemoryScattering:
        options = Options(("http://192.0.2.1:8080",), mcs=McsOptions(kind=kind))
        scattering = MemoryScattering()
        labeller = MemoryLabeller(self.interface, scattering)
        follower = Follower(ADDRESS, options.controllers, peers=McsPeers(ADDRESS, kind))
        place, settings = MemoryPlace(self.interface, ADDRESS), MemorySettings(self.interface)
        keeper = Keeper(place, labeller, settings, MemoryChanges(self.interface), Counter())
        agent = HostAgent(Interface("host0"), options, follower, labeller, keeper)
        agent.start()
        self._tasks.append(self.loop.create_task(agent.run()))
        return scattering

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._tasks.clear()

    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds)
        for task in self._tasks:
            assert not task.done() or task.result() is None


@pytest.fixture
def agents() -> Iterator[Agents]:
    its = Agents()
    with patch.object(channels, "connect", its.controller.connect):
        yield its
        its.end()
    its.loop.close()


def test_a_successor_knows_the_hosts_before_it_takes_the_killed_ones_place(agents: Agents) -> None:
    agents.start(ChannelKind.PATHS)
    agents.wait(1.0)
    agents.end()
    successor = agents.start(ChannelKind.PATHS)
    assert successor.before is None
    agents.wait(1.0)
    assert successor.before == {OTHER: Use.SCATTERS}


def test_a_list_is_acknowledged_after_it_is_in_force(agents: Agents) -> None:
    scattering = agents.start(ChannelKind.PATHS)
    agents.wait(1.0)
    assert [ack.mcs for ack in agents.acknowledged] == [4]
    scattering.refusals = 1
    agents.controller.hosts = after = HostList(5, frozenset([ADDRESS, OTHER, THIRD]), 4, True)
    agents.controller.say(mcs.change(BOTH, after))
    agents.wait(LOAD_RETRY_SECONDS / 2)
    assert scattering.uses == {OTHER: Use.SCATTERS}
    assert [ack.mcs for ack in agents.acknowledged] == [4]
    agents.wait(LOAD_RETRY_SECONDS)
    assert scattering.uses == {OTHER: Use.SCATTERS, THIRD: Use.SCATTERS}
    assert [ack.mcs for ack in agents.acknowledged] == [4, 5]


@pytest.mark.parametrize("kind", ChannelKind)
def test_without_a_controller_paths_go_on_and_ports_end_after_a_while(
    agents: Agents, kind: ChannelKind, caplog: pytest.LogCaptureFixture
) -> None:
    scattering = agents.start(kind)
    agents.wait(1.0)
    assert scattering.uses == {OTHER: Use.SCATTERS}
    agents.controller.up = False
    agents.controller.cut()
    agents.wait(LEASE_SECONDS - 1)
    assert scattering.uses == {OTHER: Use.SCATTERS}
    with caplog.at_level(logging.WARNING, "sopa.agent"):
        agents.wait(MAX_RETRY_SECONDS + 1)
    ends = kind is ChannelKind.PORTS
    assert scattering.uses == {OTHER: Use.ACCEPTS if ends else Use.SCATTERS}
    assert ("nothing is scattered until it answers" in caplog.text) is ends
    agents.controller.up = True
    agents.wait(MAX_RETRY_SECONDS + 1)
    assert scattering.uses == {OTHER: Use.SCATTERS}


def test_idle_connections_are_removed_once_a_second_and_a_refusal_is_said_once(
    agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    scattering = agents.start(ChannelKind.PATHS)
    scattering.sweep_refusals = 3
    agents.controller.up = False
    with caplog.at_level(logging.ERROR, "sopa.agent"):
        agents.wait(10.5)
    assert 9 <= scattering.sweeps <= 10
    assert caplog.text.count("idle connections cannot be removed") == 1
