"""An agent with several controllers, over real WebSockets: it leaves those that die, stop or are of a lower term.

The controllers are processes with the real notifier and channel; the agent's kernel side is in memory.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.follower import Answer, Follower, Leave, Load
from sopa_ryu.channel import addresses, protocol
from sopa_ryu.channel.addresses import MIN_RETRY_SECONDS
from sopa_ryu.fabric.view import View
from tests.helpers.agent_controller import agent_controller
from tests.helpers.channel_server import ChannelServer, channel_server
from tests.helpers.running_agent import RunningAgent
from tests.helpers.waiting import eventually
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")
TREE = FatTree(4)
URLS = ("http://192.0.2.31:8080", "http://192.0.2.32:8080")


def view(epoch: int, version: int, cluster: str = "sopa", **failed: str) -> View:
    return View(epoch, version, Failures(TREE, failed), cluster)


Start = Callable[..., RunningAgent]


@pytest.fixture
def agent() -> Iterator[Start]:
    with ExitStack() as started:

        def start(*urls: str) -> RunningAgent:
            made = RunningAgent(urls)
            started.callback(made.end)
            return made

        yield start


def at_work(servers: list[ChannelServer], its: RunningAgent) -> ChannelServer:
    """Wait until an agent has what a controller sends; return that controller."""
    eventually(lambda: its.version[1], 1)
    return next(server for server in servers if server.url == its.at)


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGSTOP])
def test_an_agent_leaves_a_controller_that_dies_or_stops_and_keeps_its_paths(
    agent: Start, kind: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    with channel_server(cluster="sopa") as one, channel_server(cluster="sopa") as two:
        its = agent(one.url, two.url)
        first = at_work([one, two], its)
        assert first.url == its.follower.controllers.urls[0]
        table = its.agent.labeller.tables
        other = two if first is one else one
        first.signal(kind)
        eventually(lambda: its.at, other.url)
        eventually(other.acknowledged, 1)
        assert its.agent.labeller.tables is table
        assert its.follower.swaps == 1
        assert its.follower.refused == 0
        said = "no answer" if kind is signal.SIGKILL else "it has not answered a ping for 1.5 s"
        assert f"asking {other.url} next" in caplog.text
        assert kind is signal.SIGKILL or said in caplog.text


def test_an_agent_goes_back_once_a_channel_is_open_there(
    agent: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(addresses, "BACK_SECONDS", 0.2)
    caplog.set_level(logging.INFO, "sopa.agent")
    with channel_server(cluster="sopa") as one, channel_server(cluster="sopa") as two:
        its = agent(one.url, two.url)
        first = at_work([one, two], its)
        other = two if first is one else one
        first.signal(signal.SIGKILL)
        eventually(lambda: its.at, other.url)
        eventually(other.acknowledged, 1)
        warned = caplog.text.count("no controller at")
        with channel_server(port=int(first.url.rpartition(":")[2]), cluster="sopa") as again:
            eventually(lambda: its.at, first.url)
            eventually(again.acknowledged, 1)
            eventually(lambda: len(other.agents()), 0)
            assert its.follower.swaps == 1
            assert f"back at controller {first.url}" in caplog.text
            assert caplog.text.count("no controller at") == warned  # it was never without one
            again.signal(signal.SIGKILL)
            eventually(lambda: its.at, other.url)


def test_an_agent_does_not_go_back_to_one_that_is_behind(agent: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "BACK_SECONDS", 0.2)
    with agent_controller() as one, agent_controller() as two:
        one.view = two.view = view(7, 4)
        its = agent(one.url, two.url)
        eventually(lambda: its.version, (7, 4))
        eventually(lambda: its.at is not None)
        home, other = (one, two) if its.at == one.url else (two, one)
        home.refuses = True
        home.cut()
        eventually(lambda: its.at, other.url)
        home.view, home.refuses = view(7, 3), False
        before = len(home.closed)
        eventually(lambda: len(home.closed), lambda count: count >= before + 2, seconds=30.0)  # it came, and left again
        assert its.at == other.url
        home.view = view(7, 4)
        eventually(lambda: its.at, home.url, seconds=30.0)
        assert its.follower.swaps == 1


def test_a_lower_term_is_refused_with_its_close_code_and_the_next_one_is_followed(agent: Start) -> None:
    with agent_controller() as old, agent_controller() as new:
        old.view, new.view = view(6, 9), view(7, 3, c0_0="down")
        its = agent(new.url, old.url)
        eventually(lambda: its.version, lambda seen: seen in ((6, 9), (7, 3)))
        eventually(lambda: its.at is not None)
        if its.at == old.url:  # by the hash of its port
            old.cut()
            eventually(lambda: its.version, (7, 3))
        new.refuses = True
        new.cut()
        eventually(lambda: old.closed.count(protocol.LOWER_TERM), lambda count: count >= 2)
        assert its.version == (7, 3)
        assert its.follower.refused == old.closed.count(protocol.LOWER_TERM) or its.follower.refused > 1
        new.refuses = False
        eventually(lambda: its.at, new.url)
        assert its.version == (7, 3)


def test_with_one_controller_only_its_end_ends_the_channel(agent: Start) -> None:
    with channel_server() as one:
        its = agent(one.url)
        at_work([one], its)
        assert its.at == one.url
        assert not its.follower.controllers.several


# -- the decisions ----------------------------------------------------------------------------------------------------


def follower(*urls: str) -> Follower:
    made = Follower(ADDRESS, urls or URLS, seed=1)
    made.start(inherited=False)
    return made


def load(its: Follower, what: View) -> None:
    todo = its.receive(protocol.snapshot(what, ADDRESS))
    assert isinstance(todo, Load)
    its.loaded(todo)


def test_a_lower_term_changes_nothing_and_its_channel_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    its = follower()
    its.connect()
    load(its, view(7, 3))
    assert its.disconnect("closed", 60.0) == 0.0
    for count in range(1, 5):
        its.connect()
        todo = its.receive(protocol.snapshot(view(6, 9, a0_0="down"), ADDRESS))
        assert isinstance(todo, Leave)
        assert todo.code == 4001
        assert its.refused == count
        assert (its.view and its.view.version, its.swaps) == (3, 1)
        delay = its.disconnect(todo.problem, 60.0)
        assert (delay > 0) is (count % 2 == 1)  # all have been asked
    assert caplog.text.count("term 6 of cluster 'sopa', but a view of term 7 is in force") == 2  # once for each URL


def test_with_one_url_a_lower_term_is_asked_for_again_later_and_later() -> None:
    its = follower(URLS[0])
    its.connect()
    load(its, view(7, 3))
    delays = []
    for _ in range(6):
        its.connect()
        todo = its.receive(protocol.snapshot(view(6, 9), ADDRESS))
        assert isinstance(todo, Leave)
        delays.append(its.disconnect(todo.problem, 1.0))
    assert delays[0] <= MIN_RETRY_SECONDS < 2.0 < delays[-1]


def test_an_agent_ahead_of_its_relay_keeps_and_acknowledges_what_it_has() -> None:
    its = follower()
    its.connect()
    load(its, view(7, 3))
    todo = its.receive(protocol.snapshot(view(7, 2, a0_0="down"), ADDRESS))
    assert isinstance(todo, Answer)
    assert protocol.answer(todo.text, view(7, 2)) == protocol.Ack(7, 3, 0)


def test_log_lines_name_the_url_in_use_and_the_next(caplog: pytest.LogCaptureFixture) -> None:
    its = follower()
    first, second = its.controllers.urls
    with caplog.at_level(logging.INFO, "sopa.agent"):
        its.connect()
        its.disconnect("closed", 60.0)
        its.connect()
    assert f"connected to controller {first}" in caplog.text
    assert (
        f"no controller at {first}: closed; packets go unlabelled until it answers; asking {second} next" in caplog.text
    )
    assert f"connected to controller {second}" in caplog.text
