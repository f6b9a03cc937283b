"""Agents of a cluster on two relays that follow its terms and versions late, each in its own time.

The leaders' views are a list that only grows: versions rise, over terms, too. Each relay is a real notifier that stands somewhere
in the list, and agents move between them. What an agent has in force never goes back.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sopa_ryu.channel import arbiter, protocol
from sopa_ryu.channel.arbiter_notifier import ArbiterNotifier
from sopa_ryu.channel.notifier import MAX_DELTA_VERSIONS
from sopa_ryu.channel.protocol import GapError
from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Failures

HOSTS = list(TREE.hosts())[:4]
ADDRESS = TREE.ip(HOSTS[0])
ELEMENTS = ["a0_0", "c0_1", "a0_0-c0_0", "e1_0-a1_1"]
failures = st.dictionaries(st.sampled_from(ELEMENTS), st.sampled_from(["down", "silent", "drained"]))


def view(epoch: int, version: int, cluster: str = "sopa", **failed: str) -> View:
    return View(epoch, version, Failures(TREE, failed), cluster)


class ClusterMachine(RuleBasedStateMachine):
    """Leaders that make versions and change, relays that lag, and agents that move between relays."""

    def __init__(self) -> None:
        super().__init__()
        self.views = [view(1_000, 1)]
        self.relays = [PushChannel(), PushChannel()]
        self.at = [0, 0]
        self.agents = [Agent(host) for host in HOSTS]
        self.on: list[int | None] = [None] * len(HOSTS)
        self.highest = [(0, 0)] * len(HOSTS)
        self.refused = [0] * len(HOSTS)

    @initialize()
    def begin(self) -> None:
        for relay in self.relays:
            relay.follow(self.views[0])
        for number in range(len(HOSTS)):
            self.move(number, number % 2)
            self.read_all(number)

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule(reasons=failures, count=st.sampled_from([1, 2, MAX_DELTA_VERSIONS + 3]))
    def commit(self, reasons: dict[str, str], count: int) -> None:
        for number in range(count):
            last = self.views[-1]
            some = {name: why for name, why in reasons.items() if number % 2 == 0}
            self.views.append(View(last.epoch, last.version + 1, Failures(TREE, some), "sopa"))

    @rule(more=st.sampled_from([1, 7, 10**6]), reasons=failures, same=st.booleans())
    def lead(self, more: int, reasons: dict[str, str], same: bool) -> None:
        """Another member leads: it goes on with the failures of the last view, or with what it has seen itself."""
        last = self.views[-1]
        failed = last.failures if same else Failures(TREE, reasons)
        self.views.append(View(last.epoch + more, last.version + 1, failed, "sopa"))

    @precondition(lambda self: any(at < len(self.views) - 1 for at in self.at))
    @rule(relay=st.integers(0, 1), steps=st.sampled_from([1, 1, 3, 1000]))
    def learn(self, relay: int, steps: int) -> None:
        """A relay learns of later views, of each or of the last only."""
        self.at[relay] = min(len(self.views) - 1, self.at[relay] + steps)
        if self.relays[relay].view != self.views[self.at[relay]]:
            self.relays[relay].follow(self.views[self.at[relay]])

    @rule(number=st.integers(0, len(HOSTS) - 1))
    def move_and_read(self, number: int) -> None:
        """An agent goes to the other relay, as when its own has ended."""
        on = self.on[number]
        self.move(number, 0 if on is None else 1 - on)
        self.read_all(number)

    @rule(number=st.integers(0, len(HOSTS) - 1), reasons=failures, count=st.integers(1, 3), leads=st.booleans())
    def move_to_one_behind(self, number: int, reasons: dict[str, str], count: int, leads: bool) -> None:
        """An agent goes from a relay that has just learned of views to one that has not."""
        on = self.on[number]
        if on is None:
            return
        self.commit(reasons, count)
        if leads:
            self.lead(1, reasons, same=False)
        self.learn(on, len(self.views))
        self.read_all(number)
        self.move_and_read(number)

    @rule(numbers=st.sets(st.integers(0, len(HOSTS) - 1), min_size=2))
    def catch_up(self, numbers: set[int]) -> None:
        for number in sorted(numbers):
            self.read_all(number)

    @rule(number=st.integers(0, len(HOSTS) - 1), relay=st.integers(0, 1))
    def move(self, number: int, relay: int) -> None:
        self.leave(number)
        self.agents[number].failed = False  # a snapshot comes first
        self.relays[relay].claim(self.agents[number])
        self.on[number] = relay

    @rule(number=st.integers(0, len(HOSTS) - 1))
    def read(self, number: int) -> None:
        """One message is read, and its answer is on its way."""
        self.step(number)

    @rule(number=st.integers(0, len(HOSTS) - 1))
    def arrive(self, number: int) -> None:
        self.arrives(number)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def pass_time(self, seconds: float) -> None:
        for relay in self.relays:
            relay.advance(seconds)

    # -- what has to hold ---------------------------------------------------------------------------------------------

    @invariant()
    def nothing_in_force_goes_back(self) -> None:
        for number, agent in enumerate(self.agents):
            if agent.view is not None:
                now = agent.view.epoch, agent.view.version
                assert now >= self.highest[number]
                self.highest[number] = now
                assert agent.view in self.views

    @invariant()
    def relays_count_only_what_is_wrong(self) -> None:
        for relay in self.relays:
            assert relay.notifier.refused["messages"] == 0
            assert all(relay.missing(version) for version in relay.awaited)
            assert len(relay.completed) == len(set(relay.completed))
            for session in relay.sessions:
                assert session.acknowledged <= relay.view.version

    @rule()
    def rest(self) -> None:
        """Relays learn all, agents that have left a relay go to the other, and all read: everyone has the last view."""
        for relay in (0, 1):
            self.learn(relay, len(self.views))
        for _ in range(3):
            for number, agent in enumerate(self.agents):
                if agent.connection is None:
                    self.move(number, number % 2)
                self.read_all(number)
        assert [agent.view for agent in self.agents] == [self.views[-1]] * len(self.agents)
        for relay in self.relays:
            assert relay.notifier.behind(relay.view.version) == 0
            assert relay.awaited == {}
            assert relay.notifier.sessions.keys() == {agent.host for agent in relay.sessions.values()}
            for session in relay.sessions:
                row = relay.notifier.tell(session, relay.view.version, relay.now)
                assert (row["lag"], row["lag_seconds"]) == (0, 0.0)

    def teardown(self) -> None:
        self.rest()

    # -- helpers ------------------------------------------------------------------------------------------------------

    def step(self, number: int) -> bool:
        """Let an agent read one message; one of a lower term makes it leave."""
        agent, on = self.agents[number], self.on[number]
        if on is None:
            return False
        before = agent.view
        read = agent.read()
        if agent.leaves:
            assert before is not None
            assert agent.view is before, "a lower term changes nothing"
            self.refused[number] += 1
            self.leave(number)
        assert agent.refused == self.refused[number], "nothing but lower terms is refused"
        self.relays[on].carry_out([])
        return read

    def read_all(self, number: int) -> None:
        while self.step(number) | self.arrives(number):
            pass

    def arrives(self, number: int) -> bool:
        on = self.on[number]
        return (
            on is not None and self.agents[number].connection is not None and self.relays[on].hear(self.agents[number])
        )

    def leave(self, number: int) -> None:
        agent, on = self.agents[number], self.on[number]
        agent.leaves = False
        if on is not None and self.relays[on].session(agent) is not None:
            self.relays[on].leave(agent)
        self.on[number] = None


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=40)


# -- the rules one by one ---------------------------------------------------------------------------------------------


def test_a_snapshot_names_the_cluster_and_only_then() -> None:
    assert '"cluster": "sopa"' in protocol.snapshot(view(3, 1), ADDRESS)
    assert "cluster" not in protocol.snapshot(view(3, 1, ""), ADDRESS)


def test_a_delta_keeps_the_cluster_and_leads_to_no_other_term() -> None:
    held, after = view(3, 10), view(3, 11, a0_0="down")
    assert protocol.receive(protocol.delta(held, after), held, ADDRESS) == after
    with pytest.raises(GapError):
        protocol.receive(protocol.delta(view(2, 10), view(2, 11)), held, ADDRESS)


def test_an_arbiters_term_rises_with_the_leaders() -> None:
    now = view(7, 1)
    notifier = ArbiterNotifier(TREE, lambda: now, epoch=2)
    notifier.enter("192.0.2.7", None, 0.0)
    assert notifier.term == arbiter.next_term(7, 0)
