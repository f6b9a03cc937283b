"""Agents of a cluster on two relays that follow its terms and versions late, each in its own time.

The leaders' views are a list that only grows: versions rise, over terms, too. Each relay is a real notifier that stands somewhere
in the list, and agents move between them. What an agent has in force never goes back.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sopa_ryu.channel.notifier import MAX_DELTA_VERSIONS
from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Failures

HOSTS = list(TREE.hosts())[:4]
NUMBERS, RELAYS = st.integers(0, len(HOSTS) - 1), st.integers(0, 1)
NAMES, REASONS = ["a0_0", "c0_1", "a0_0-c0_0", "e1_0-a1_1"], ["down", "silent", "drained"]
FAILED = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(REASONS))


class ClusterMachine(RuleBasedStateMachine):
    """Leaders that make versions and change, relays that lag, and agents that move between relays."""

    @initialize()
    def begin(self) -> None:
        self.views = [View(1_000, 1, Failures(TREE), "sopa")]
        self.relays, self.known = [PushChannel(), PushChannel()], [0, 0]
        self.agents = [Agent(host) for host in HOSTS]
        self.on: list[int | None] = [None] * len(HOSTS)
        self.highest, self.refused = [(0, 0)] * len(HOSTS), [0] * len(HOSTS)
        for relay in self.relays:
            relay.follow(self.views[0])
        for number in range(len(HOSTS)):
            self.move(number, number % 2, reads=True)

    @rule(reasons=FAILED, count=st.sampled_from([1, 2, MAX_DELTA_VERSIONS + 3]))
    def commit(self, reasons: dict[str, str], count: int) -> None:
        for number in range(count):
            last, failures = self.views[-1], Failures(TREE, reasons if number % 2 == 0 else {})
            self.views.append(View(last.epoch, last.version + 1, failures, "sopa"))

    @rule(more=st.sampled_from([1, 7, 10**6]), reasons=FAILED, same=st.booleans())
    def lead(self, more: int, reasons: dict[str, str], same: bool) -> None:
        """Another member leads: it goes on with the failures of the last view, or with what it has seen itself."""
        last = self.views[-1]
        failures = last.failures if same else Failures(TREE, reasons)
        self.views.append(View(last.epoch + more, last.version + 1, failures, "sopa"))

    @precondition(lambda self: any(known < len(self.views) - 1 for known in self.known))
    @rule(relay=RELAYS, steps=st.sampled_from([1, 1, 3, 1000]), reads=st.sets(NUMBERS))
    def learn(self, relay: int, steps: int, reads: set[int]) -> None:
        """A relay learns of later views, of each or of the last only, and some agents read at once."""
        self.known[relay] = min(len(self.views) - 1, self.known[relay] + steps)
        if self.relays[relay].view != self.views[self.known[relay]]:
            self.relays[relay].follow(self.views[self.known[relay]])
        for number in sorted(reads):
            self.read_all(number)

    @rule(number=NUMBERS, relay=RELAYS, reads=st.booleans())
    def move(self, number: int, relay: int, reads: bool) -> None:
        """An agent goes to the other relay, as when its own has ended, or comes again to its own."""
        self.leave(number)
        self.agents[number].failed = False  # a snapshot comes first
        self.relays[relay].claim(self.agents[number])
        self.on[number] = relay
        if reads:
            self.read_all(number)

    @rule(number=NUMBERS, arrives=st.booleans())
    def read_one(self, number: int, arrives: bool) -> None:
        self.arrives(number) if arrives else self.read(number)

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def pass_time(self, seconds: float) -> None:
        for relay in self.relays:
            relay.advance(seconds)

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
            assert all(session.acknowledged <= relay.view.version for session in relay.sessions)

    @rule()
    def rest(self) -> None:
        """Relays learn all, agents that have left a relay go to the other, and all read: everyone has the last view."""
        for relay in (0, 1):
            self.learn(relay, len(self.views), set())
        for _ in range(3):
            for number, agent in enumerate(self.agents):
                if agent.connection is None:
                    self.move(number, number % 2, reads=False)
                self.read_all(number)
        assert [agent.view for agent in self.agents] == [self.views[-1]] * len(self.agents)
        for relay in self.relays:
            assert (relay.notifier.behind(relay.view.version), relay.awaited) == (0, {})
            assert relay.notifier.sessions.keys() == {agent.host for agent in relay.sessions.values()}

    def teardown(self) -> None:
        self.rest()

    def read(self, number: int) -> bool:
        """Let an agent read one message; one of a lower term makes it leave."""
        agent, on = self.agents[number], self.on[number]
        if on is None:
            return False
        before, read = agent.view, agent.read()
        if agent.leaves:
            assert agent.view is before is not None, "a lower term changes nothing"
            self.refused[number] += 1
            self.leave(number)
        assert agent.refused == self.refused[number], "nothing but lower terms is refused"
        self.relays[on].carry_out([])
        return read

    def arrives(self, number: int) -> bool:
        agent, on = self.agents[number], self.on[number]
        return on is not None and agent.connection is not None and self.relays[on].hear(agent)

    def read_all(self, number: int) -> None:
        while self.read(number) | self.arrives(number):
            pass

    def leave(self, number: int) -> None:
        agent, on = self.agents[number], self.on[number]
        agent.leaves = False
        if on is not None and self.relays[on].session(agent) is not None:
            self.relays[on].leave(agent)
        self.on[number] = None


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=25, stateful_step_count=40)
