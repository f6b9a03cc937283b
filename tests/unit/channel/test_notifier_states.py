"""The push channel under any sequence of events: at rest agents have the fabric's version, and each version was completed once.

The controller's notifier is the real one, and agents answer by the agent's own functions; connections, green threads and the clock
are those of `tests.models.push_channel`.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import CUT_SECONDS, PING_SECONDS, ROUND_SECONDS
from sopa_ryu.channel.claims import CLAIM_SECONDS, ForeignClaimError, TakenClaimError
from sopa_ryu.channel.notifier import MAX_DELTA_VERSIONS, MAX_REFUSED
from tests.models.push_channel import TREE, Agent, Claim, PushChannel
from tests.models.relayed_channels import follow
from topologies import Host

HOSTS = list(TREE.hosts())[:3]
PROCESSES = 2 * len(HOSTS)  # two agent processes of each host
ELEMENTS = ["a0_0", "c0_1", "a0_0-c0_0", "e1_0-a1_1", "a3_1-c1_1"]

numbers = st.integers(0, PROCESSES - 1)
failures = st.dictionaries(st.sampled_from(ELEMENTS), st.sampled_from(["down", "silent", "drained"]))
wrong = ["", "{", "[]", b"\x00\xff", '{"type": "ack"}', '{"type": "attack"}']
garbage = st.sampled_from([*wrong, '{"type": "ack", "epoch": 1, "version": 4096}'])
with_agents = precondition(lambda self: any(agent.connection for agent in self.agents))


class ChannelMachine(RuleBasedStateMachine):
    """Agents that come, go, lag, vanish and send garbage, and a controller that makes versions and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = PushChannel()
        self.agents = [Agent(HOSTS[number // 2]) for number in range(PROCESSES)]

    @initialize(settled=st.booleans(), some=st.sets(numbers))
    def begin(self, settled: bool, some: set[int]) -> None:
        if settled:
            self.channel.settle()
        self.connect(some, outside=False)

    @rule(some=st.sets(numbers), outside=st.booleans())
    def connect(self, some: set[int], outside: bool) -> None:
        for number in sorted(some):
            agent = self.agents[number]
            if agent.connection is None and not any(claim.agent is agent for claim in self.pending()):
                self.channel.claim(agent, "192.168.0.7" if outside else None)

    @with_agents
    @rule(number=numbers)
    def connect_a_second(self, number: int) -> None:
        """An agent that answers keeps its place."""
        holder = self.connected(number)
        claim = self.channel.claim(Agent(holder.host))
        follow(self.channel, holder)
        assert isinstance(claim.error, TakenClaimError) or holder.connection is None

    @rule(number=numbers, other=st.sampled_from(list(TREE.hosts())[3:]))
    def connect_from_another_host(self, number: int, other: Host) -> None:
        rejected = self.channel.notifier.refused["claims"]
        claim = self.channel.claim(Agent(self.agents[number].host), str(TREE.ip(other)))
        assert isinstance(claim.error, ForeignClaimError)
        assert self.channel.notifier.refused["claims"] == rejected + 1

    @with_agents
    @rule(number=numbers, loads=st.booleans())
    def read(self, number: int, loads: bool) -> None:
        """An agent reads a message; if its kernel refuses the path sets, it asks for a snapshot, to try again."""
        self.connected(number).read(loads=loads)
        self.channel.carry_out([])  # its writer may go on

    @with_agents
    @rule(number=numbers)
    def catch_up(self, number: int) -> None:
        """A slow agent that goes on finds what was on its way, and one message for all that came later."""
        agent = self.connected(number)
        session = self.channel.session(agent)
        assert session is not None
        began, on_way = len(agent.kinds), len(session.connection.to_agent) + self.channel.waiting(session)
        while agent.read():
            self.channel.carry_out([])
        assert len(agent.kinds) - began <= on_way + 1
        if self.channel.settled:
            assert session.sent == self.channel.view

    @with_agents
    @rule(number=numbers)
    def arrive(self, number: int) -> None:
        self.channel.hear(self.connected(number))

    @with_agents
    @rule(number=numbers)
    def withhold_an_acknowledgement(self, number: int) -> None:
        its = self.connected(number).connection
        if its and its.to_controller and its.to_controller[-1] != protocol.RESYNC:
            its.to_controller.pop()

    @with_agents
    @rule(number=numbers, text=garbage | st.just(protocol.RESYNC), count=st.sampled_from([1, 1, MAX_REFUSED]))
    def send_garbage_or_ask_for_a_snapshot(self, number: int, text: str | bytes, count: int) -> None:
        its = self.connected(number).connection
        assert its is not None
        its.to_controller.extend([text] * count)

    @with_agents
    @rule(number=numbers, vanishes=st.booleans())
    def leave(self, number: int, vanishes: bool) -> None:
        """An agent leaves, or its machine loses its power and nothing tells the controller."""
        agent = self.connected(number)
        if vanishes:
            self.agents[self.agents.index(agent)] = Agent(agent.host)
        else:
            self.channel.leave(agent)

    @precondition(lambda self: not self.channel.settled)
    @rule()
    def settle(self) -> None:
        self.channel.settle()

    @with_agents
    @precondition(lambda self: self.channel.settled)
    @rule(reasons=failures, slow=st.sets(numbers))
    def change(self, reasons: dict[str, str], slow: set[int]) -> None:
        """A new version reaches every agent that reads, whatever the others do."""
        self.channel.fail(reasons)
        for number, agent in enumerate(self.agents):
            if agent.connection is not None and number not in slow:
                follow(self.channel, agent)
                assert agent.connection is None or agent.view == self.channel.view

    @with_agents
    @precondition(lambda self: self.channel.settled)
    @rule(reasons=st.lists(failures, min_size=1, max_size=3), count=st.integers(1, MAX_DELTA_VERSIONS + 6))
    def change_often(self, reasons: list[dict[str, str]], count: int) -> None:
        for number in range(count):
            self.channel.fail(reasons[number % len(reasons)])

    @rule(seconds=st.sampled_from([0.01, CLAIM_SECONDS, PING_SECONDS + 2, CUT_SECONDS + 2]), awake=st.sets(numbers))
    def pass_time(self, seconds: float, awake: set[int]) -> None:
        until = self.channel.now + seconds
        while self.channel.now < until:
            self.channel.advance(min(ROUND_SECONDS, until - self.channel.now))
            follow(self.channel, *(self.agents[number] for number in sorted(awake)))

    @rule(some=st.sets(numbers))
    def restart(self, some: set[int]) -> None:
        self.channel.start()
        self.connect(some, outside=False)

    @invariant()
    def agents_have_what_was_a_version(self) -> None:
        for agent in self.agents:
            assert agent.refused == 0
            its = agent.view
            assert its is None or dict(its.failures) == self.channel.history[its.epoch, its.version]

    @invariant()
    def versions_are_completed_when_the_last_agent_has_them(self) -> None:
        assert all(self.channel.missing(version) for version in self.channel.awaited)
        assert len(self.channel.completed) == len(set(self.channel.completed))

    @invariant()
    def a_host_has_one_agent_which_is_not_a_babbler(self) -> None:
        hosts = [session.host for session in self.channel.sessions]
        assert sorted(hosts) == sorted(set(hosts))
        assert set(self.channel.notifier.sessions.values()) == set(self.channel.sessions)
        assert all(session.refused < MAX_REFUSED for session in self.channel.sessions)

    @invariant()
    def claims_are_decided_in_time(self) -> None:
        assert all(claim.deadline > self.channel.now for claim in self.pending())

    @rule()
    def rest(self) -> None:
        """Nothing happens any more: agents read and answer, and time passes until the silent ones must be gone."""
        if not self.channel.settled:
            self.channel.settle()
        follow(self.channel, *self.agents)
        self.channel.advance(CLAIM_SECONDS)
        follow(self.channel, *self.agents)
        connected = {id(agent) for agent in self.agents if agent.connection is not None}
        for _ in range(int((CUT_SECONDS + PING_SECONDS) / ROUND_SECONDS)):
            self.channel.advance(ROUND_SECONDS)
            follow(self.channel, *self.agents)
        view = self.channel.view
        assert connected == {id(agent) for agent in self.agents if agent.connection is not None}
        assert connected == {id(agent) for agent in self.channel.sessions.values()}
        assert all(agent.view == view for agent in self.channel.sessions.values())
        assert (self.channel.notifier.behind(view.version), self.channel.awaited, self.pending()) == (0, {}, [])
        for session in self.channel.sessions:
            row = self.channel.row(session)
            assert (row["lag"], row["lag_seconds"]) == (0, 0.0)

    def teardown(self) -> None:
        self.rest()

    def connected(self, number: int) -> Agent:
        connected = [agent for agent in self.agents if agent.connection is not None]
        return connected[number % len(connected)]

    def pending(self) -> list[Claim]:
        return [claim for claim in self.channel.claims if not claim.decided]


TestChannel = ChannelMachine.TestCase
TestChannel.settings = settings(max_examples=25, stateful_step_count=50)
