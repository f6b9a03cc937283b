"""Whatever happens to an agent and its controller, packets are labelled by what was acknowledged last."""

import json
from ipaddress import IPv4Address
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.host.mending import Part
from sopa_ryu.agent.kernel.changes import InterfaceChange
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section
from sopa_ryu.agent.paths.path_sets import PathSets
from sopa_ryu.agent.paths.path_table import PathTable, Policy
from sopa_ryu.channel import protocol
from sopa_ryu.channel.messages import Ack
from sopa_ryu.fabric.view import View
from tests.models.memory_channel import MemoryController
from tests.models.memory_labeller import MemoryInterface, host_agent
from tests.models.virtual_clock import VirtualLoop

ADDRESS = IPv4Address("10.0.0.2")
OPTIONS = AgentOptions(("http://192.0.2.1:8080",), seed=7)
QUIET_SECONDS = 90.0
NUMBERS = st.integers(0, 200)
SECONDS = st.sampled_from([0.0, 0.0005, 0.0015, 0.005, 0.02, 0.5, 2.5, 6.0])
AVOIDED = [NOTHING, Avoided(frozenset({Section(0)})), Avoided(frozenset({Section(1, 0)}), {Section(0, 1): 0.1})]


def table_of(view: View, avoided: Avoided = NOTHING) -> PathTable | None:
    tree = view.failures.tree
    sets = PathSets(tree, tree.host_by_ip(ADDRESS), OPTIONS.seed, Policy.ROUND_ROBIN)
    return sets.follow(view.failures, avoided)


def garbage(now: View) -> list[str | bytes]:
    """Return messages that an agent must refuse, or that change nothing for it."""
    snapshot = json.loads(protocol.snapshot(now, ADDRESS))
    base = {"type": "delta", "epoch": now.epoch, "base": now.version, "version": now.version + 1}
    gap = {"base": now.version + 5, "version": now.version + 6}
    wrong = [{}, [], {"type": "later"}]
    wrong += [snapshot | its for its in ({"host": "10.0.0.3"}, {"k": 5}, {"failures": {"a9_9": "down"}})]
    changes = [{"failed": {"x": "down"}}, {"healed": ["nothing"]}, {"version": now.version}, gap]
    wrong += [base | {"failed": {}, "healed": []} | its for its in changes]
    return ["{", b"\x00\xff", protocol.PING, *map(json.dumps, wrong)]


class AgentMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.loop = VirtualLoop()
        self.interface = MemoryInterface()
        self.controller = MemoryController(ADDRESS, self.check_ack)
        self.acknowledged: View | None = None
        self.patched = patch("sopa_ryu.channel.client._Connect", self.controller.connect)
        self.patched.start()
        self.start()

    def start(self) -> None:
        self.avoided = NOTHING
        self.agent = host_agent(self.interface, ADDRESS, OPTIONS)
        self.labeller = self.agent.labeller
        self.agent.start()
        self.task = self.loop.create_task(self.agent.run())

    def check_ack(self, ack: Ack) -> None:
        """Nothing is acknowledged before its table is in force."""
        if ack.epoch:
            self.acknowledged = self.controller.views[ack.epoch, ack.version]
            assert any(self.interface.in_force == table_of(self.acknowledged, avoided) for avoided in AVOIDED)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.loop.advance(seconds)
        if self.task.done():
            self.task.result()  # raises what ended the agent

    @rule(number=NUMBERS, seconds=SECONDS)
    def fail_or_heal(self, number: int, seconds: float) -> None:
        self.controller.toggle(number)
        self.wait(seconds)

    @rule(number=NUMBERS)
    def leave_a_gap(self, number: int) -> None:
        self.controller.lose = 1
        self.controller.toggle(number)

    @rule(which=st.integers(0, 12), seconds=SECONDS)
    def send_garbage(self, which: int, seconds: float) -> None:
        self.controller.say(garbage(self.controller.now)[which])
        self.wait(seconds)

    @rule(count=st.integers(1, 3), numbers=st.lists(NUMBERS, max_size=3), which=st.integers(0, 12), seconds=SECONDS)
    def refuse_loads(self, count: int, numbers: list[int], which: int, seconds: float) -> None:
        self.labeller.tables.refusals = count
        for number in numbers:
            self.controller.toggle(number)
        self.send_garbage(which, seconds)

    @rule(avoided=st.sampled_from(AVOIDED), seconds=SECONDS)
    def leave_or_take_paths(self, avoided: Avoided, seconds: float) -> None:
        self.avoided = avoided
        self.loop.create_task(self.agent.avoid(avoided))
        self.wait(seconds)

    @rule(what=st.sampled_from(["cut", "kill", "start"]))
    def the_connection_or_the_controller_goes_or_comes(self, what: str) -> None:
        getattr(self.controller, what)()

    @rule(k=st.sampled_from([4, 4, 6]))
    def restart_the_controller(self, k: int) -> None:
        self.controller.restart(k)

    @rule(times=st.integers(1, 6), refusals=st.integers(0, 3), seconds=SECONDS)
    def another_program_removes_the_labelling_program(self, times: int, refusals: int, seconds: float) -> None:
        self.labeller.refusals = refusals
        for _ in range(times):
            self.interface.remove_program()
            self.wait(seconds)

    @rule(part=st.sampled_from(list(Part)[1:]), seconds=SECONDS)
    def another_program_changes_a_setting(self, part: Part, seconds: float) -> None:
        self.interface.wrong[part] = f"{part} was set to something else"
        self.interface.notify(InterfaceChange.LINK)
        self.wait(seconds)

    @rule(kill=st.booleans())
    def end_the_agent_and_start_another(self, kill: bool) -> None:
        """One that is stopped takes its program away; one that is killed leaves what another program has not removed."""
        self.loop.end_tasks()
        if not kill:
            self.labeller.detach()
        if not kill or self.interface.removed:
            self.interface.removed = False
            self.interface.history[:] = [None]
            self.acknowledged = None
        self.start()

    @invariant()
    def every_table_was_one_of_the_controllers_and_stayed_until_the_next(self) -> None:
        tables = self.interface.history[1:]
        assert None not in tables, "packets went unlabelled although there was a table"
        views, at = list(reversed(self.controller.views.values())), 0
        for table in reversed(tables):  # what the host avoids may change within a version
            while at < len(views) and all(table != table_of(views[at], one) for one in AVOIDED):
                at += 1
            assert at < len(views), "an order that nobody sent"
        self.interface.history[:] = self.interface.history[-1:]

    @invariant()
    def one_thread_at_a_time_uses_the_path_tables(self) -> None:
        assert not self.interface.overlaps

    @rule()
    def come_to_rest(self) -> None:
        self.labeller.tables.refusals = self.controller.lose = self.labeller.refusals = 0
        self.controller.up = True
        self.wait(QUIET_SECONDS)
        if self.controller.lost:
            self.controller.toggle(0)  # shows the agent that it has missed something
            self.wait(QUIET_SECONDS)
        assert self.acknowledged == self.controller.now
        assert self.loop.run_until_complete(self.agent.avoid(self.avoided))
        self.wait(1.0)
        assert self.interface.in_force == table_of(self.controller.now, self.avoided)
        assert self.interface.attached is self.labeller
        assert self.agent.follower.connected
        assert not self.interface.wrong

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            try:
                self.come_to_rest()
            finally:
                self.loop.close()
                self.patched.stop()


AgentMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40)
TestAgent = AgentMachine.TestCase
