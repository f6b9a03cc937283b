"""The controller's core, rule by rule: each test is one thing that happens to a fabric of switches in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from flowrules.model import Flow, Table
from flowrules.switch_rules import fabric_rules
from sopa_ryu.fabric.coordinator import SETTLE_SECONDS_A_SWITCH
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import (
    UNKNOWN_INSTRUCTIONS,
    AddFlow,
    BarrierRequest,
    DeleteFlow,
    FlowsRequest,
    GenerationRequest,
    GroupsRequest,
    Installed,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.phase import Phase
from sopa_ryu.fabric.switch_errors import ANOTHER_MASTER
from tests.models.memory_fabric import MemoryFabric, place_of
from tests.models.memory_switch import Answered
from topologies import Switch
from topologies.failures import Reason

FOREIGN = Flow(Table.DOWN, 77, (), "another application's")


def settled(k: int = 4, **options: float) -> MemoryFabric:
    """Return a fabric whose switches all have their rules, a second after they have connected."""
    fabric = MemoryFabric(k, **options)
    fabric.connect_all()
    fabric.advance(1)
    assert fabric.state.settled
    assert not fabric.state.failures
    return fabric


@pytest.fixture
def fabric() -> MemoryFabric:
    return settled()


# -- switches that do not answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe_seconds", [0.0, 1.0])
def test_a_switch_that_does_not_answer_is_given_up_after_30_s(probe_seconds: float) -> None:
    fabric = settled(probe_seconds=probe_seconds)
    silent = fabric.tree.switch("a0_0")
    channel = fabric.channel(silent)
    assert channel is not None
    channel.holds_answers = True
    fabric.switches[fabric.tree.switch("c0_0")].set_port(2, Reason.DOWN)
    fabric.settle()
    fabric.advance(29.9)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN}
    fabric.advance(0.2)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN, "a0_0": Reason.NO_RULES}
    assert fabric.state.rejected == {channel.dpid: "a0_0: no answer to BarrierRequest in 30 s"}


# -- versions ---------------------------------------------------------------------------------------------------------


def test_of_two_versions_that_one_event_makes_both_are_reported(fabric: MemoryFabric) -> None:
    for name in ("a0_0", "a1_0"):
        channel = fabric.channel(fabric.tree.switch(name))
        assert channel is not None
        channel.holds_answers = True
    fabric.drain("c0_1")
    fabric.settle()
    fabric.advance(30)
    assert [list(change.failed) for change in fabric.state.changes] == [["c0_1"], ["a0_0"], ["a1_0"]]
    fabric.rest()
    assert fabric.run.in_force[:3] == [2, 3, 4]
    assert all(change.installed_ms is not None for change in fabric.state.changes)


def test_a_version_is_sent_to_the_switches_whose_rules_it_changes(fabric: MemoryFabric) -> None:
    before = {switch: len(each.handled) for switch, each in fabric.switches.items()}
    fabric.switches[fabric.tree.switch("a0_0")].set_port(4, Reason.DOWN)
    fabric.settle()
    assert list(fabric.state.failures) == ["a0_0-c0_1"]
    asked = {fabric.tree.name(switch) for switch, each in fabric.switches.items() if len(each.handled) > before[switch]}
    were, are = dict(fabric_rules(fabric.tree)), dict(fabric_rules(fabric.tree, fabric.state.failures))
    differing = {fabric.tree.name(switch) for switch in fabric.switches if were[switch] != are[switch]}
    assert asked == differing < {fabric.tree.name(switch) for switch in fabric.switches}
    assert fabric.run.in_force[-1] == fabric.state.version
    # the others have its rules, too
    assert {session.version for session in fabric.core.switches.sessions.values()} == {fabric.state.version}
    fabric.rest()


def test_a_version_that_changes_no_rules_is_in_force_at_once(fabric: MemoryFabric) -> None:
    before = {switch: len(each.handled) for switch, each in fabric.switches.items()}
    edge = fabric.tree.switch("e0_0")
    fabric.switches[edge].set_port(1, Reason.DOWN)
    fabric.settle()
    assert list(fabric.state.failures) == ["h0_0_2-e0_0"]
    assert before == {switch: len(each.handled) for switch, each in fabric.switches.items()}
    assert fabric.run.in_force[-1] == fabric.state.version
    assert fabric.state.changes[-1].installed_ms is not None
    fabric.rest()


def test_a_switch_that_was_behind_gets_the_later_version_although_its_rules_do_not_change_then(
    fabric: MemoryFabric,
) -> None:
    behind = fabric.tree.switch("a1_0")
    channel = fabric.channel(behind)
    assert channel is not None
    channel.holds_answers = True
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    fabric.switches[fabric.tree.switch("e0_0")].set_port(1, Reason.DOWN)
    fabric.settle()
    assert fabric.core.switches.sessions[behind].version < fabric.state.version
    channel.holds_answers = False
    fabric.rest()
    assert fabric.core.switches.sessions[behind].version == fabric.state.version


def test_what_is_reported_at_one_moment_is_one_version(fabric: MemoryFabric) -> None:
    version, core, now = fabric.state.version, fabric.core, fabric.now
    dead = fabric.tree.switch("a0_0")

    def reports() -> Iterator[Callable[[], Effects]]:
        for port, neighbour in fabric.tree.ports(dead).items():
            assert isinstance(neighbour, Switch), port
            channel = fabric.channel(neighbour)
            assert channel is not None
            yield partial(core.port_status, channel, fabric.tree.port(neighbour, dead), Reason.DOWN, now)
        channel = fabric.channel(dead)
        assert channel is not None
        yield partial(core.switch_disconnected, channel, now)

    effects = core.together(reports(), now)
    assert fabric.state.version == version + 1
    assert dict(fabric.state.failures) == {"a0_0": Reason.DOWN}
    assert effects.tell_agents
    assert {session.switch for session in effects.due} >= {fabric.tree.switch("a1_0"), fabric.tree.switch("e0_1")}


# -- time -------------------------------------------------------------------------------------------------------------


def test_a_controller_without_switches_does_not_wait_for_a_hold_down(fabric: MemoryFabric) -> None:
    device = fabric.switches[fabric.tree.switch("a0_0")]
    device.set_port(3, Reason.DOWN)
    device.set_port(3, None)
    fabric.settle()
    assert fabric.state.next_tick == fabric.now + 2  # it is held down
    for switch in fabric.switches:
        fabric.disconnect(switch)
    fabric.advance(10)
    assert fabric.core.next_tick > fabric.now


# -- connections ------------------------------------------------------------------------------------------------------


def test_a_rejected_connection_outlives_the_end_of_the_one_before(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    device = fabric.switches[switch]
    device.remove_port(4)
    fabric.connect(switch)
    assert fabric.state.rejected == {device.dpid: "a0_0 has ports 1-3, but a k=4 fat-tree's switch has 1-4"}
    fabric.notice_lost()
    assert device.dpid in fabric.state.rejected
    device.set_port(4, None)
    fabric.rest()
    assert not fabric.state.rejected
    assert not fabric.state.failures


def test_a_switch_of_another_network_is_rejected_and_sent_nothing(fabric: MemoryFabric) -> None:
    stranger = fabric.connect_stranger(0x010400)
    fabric.settle()
    assert "no switch of a k=4 fat-tree" in fabric.state.rejected[0x010400]
    assert not stranger.handled
    assert not fabric.state.failures


def test_a_switch_with_wrong_ports_is_admitted_once_they_are_right() -> None:
    fabric = MemoryFabric()
    switch = fabric.tree.switch("c1_1")
    device = fabric.switches[switch]
    device.remove_port(4)
    fabric.connect_all()
    assert not device.handled
    fabric.advance(11)
    assert dict(fabric.state.failures) == {"c1_1": Reason.NOT_CONNECTED}
    device.set_port(4, None)
    fabric.settle()
    assert switch in fabric.state.connected
    assert not fabric.state.rejected
    fabric.rest()


def test_a_switch_that_reconnects_before_its_loss_is_noticed_did_not_fail(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a2_0")
    fabric.connect(switch)
    fabric.settle()
    fabric.notice_lost()
    assert fabric.state.version == 1
    assert switch in fabric.state.connected
    fabric.rest()


def test_a_switch_that_reconnects_has_only_what_differs_changed(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("e0_0")
    device = fabric.switches[switch]
    *_, gone = [entry.installed for entry in device.entries.values()]
    device.handle(device.connect(), DeleteFlow(gone))
    device.learn(1)
    device.handled.clear()
    fabric.connect(switch)
    fabric.notice_lost()
    fabric.settle()
    kinds = [type(message) for _, message in device.handled if not isinstance(message, SendProbe)]
    assert kinds == [GenerationRequest, RoleRequest, FlowsRequest, GroupsRequest, AddFlow, BarrierRequest]
    assert device.entries[place_of(gone)].installed._replace(cookie=0) == gone._replace(cookie=0)
    assert any(entry.flow is None for entry in device.entries.values())


@pytest.mark.parametrize("change", ["instructions", "missing", "foreign", "group"])
def test_what_another_program_changed_is_put_right_without_a_version(fabric: MemoryFabric, change: str) -> None:
    switch = fabric.tree.switch("e0_0")
    device = fabric.switches[switch]
    before = fabric.read_rules(switch)
    fabric.check_rules(switch)
    assert not fabric.session(switch).is_to_mend
    place, entry = next((place, entry) for place, entry in device.entries.items() if entry.installed.priority == 40)
    if change == "instructions":
        changed = entry.installed._replace(does=UNKNOWN_INSTRUCTIONS)
        device.entries[place] = entry._replace(installed=changed)
    elif change == "missing":
        del device.entries[place]
    elif change == "foreign":
        foreign = Installed(0, 99, 0x1234, (), UNKNOWN_INSTRUCTIONS)
        device.entries[place_of(foreign)] = entry._replace(installed=foreign)
    else:
        device.groups[1] = device.groups[1]._replace(buckets=device.groups[1].buckets[:1])
    fabric.check_rules(switch)
    fabric.settle()
    after = fabric.read_rules(switch)
    assert (set(after.flows), after.groups) == (set(before.flows), before.groups)
    assert fabric.session(switch).sent.mended == 1
    assert (fabric.state.version, dict(fabric.state.failures)) == (1, {})
    assert fabric.session(switch).phase is Phase.IN_FORCE


def test_rules_that_were_read_before_an_update_mend_nothing(fabric: MemoryFabric) -> None:
    """What was read belongs to the rules of then: compared with those of now it would undo the update."""
    switch = fabric.tree.switch("e0_0")
    read = fabric.read_rules(switch)
    fabric.switches[fabric.tree.switch("a2_0")].set_port(3, Reason.DOWN)
    # the update is on its way when the answer is there
    while fabric.session(switch).phase is Phase.IN_FORCE and fabric.session(switch).version == 1:
        fabric.steps()[0]()
    fabric.check_rules(switch, read)
    assert not fabric.session(switch).is_to_mend
    fabric.settle()
    assert fabric.session(switch).sent.mended == 0
    assert fabric.session(switch).version == fabric.state.version > 1


# -- start ------------------------------------------------------------------------------------------------------------


def test_it_settles_half_a_second_after_the_last_switch() -> None:
    fabric = MemoryFabric()
    *first, last = fabric.switches
    for switch in first:
        fabric.connect(switch)
    fabric.advance(5)
    assert not fabric.state.settled
    fabric.connect(last)
    fabric.advance(0.49)
    assert not fabric.state.settled
    fabric.advance(0.01)
    assert fabric.state.settled
    assert not fabric.state.failures
    assert fabric.run.sent is not None


def test_it_settles_10_s_after_the_last_switch_that_has_connected() -> None:
    fabric = MemoryFabric(8)
    *first, late, _ = fabric.switches
    for switch in first:
        fabric.connect(switch)
    fabric.advance(3)
    fabric.connect(late)
    fabric.advance(9.99)
    assert not fabric.state.settled
    assert fabric.run.sent is None
    fabric.advance(0.01)
    assert fabric.state.settled


def test_switches_that_trickle_in_are_waited_for_as_long_as_the_fabric_is_large() -> None:
    fabric = MemoryFabric(2)
    edge, late, *_ = fabric.switches
    fabric.advance(100)
    fabric.connect(edge)
    fabric.advance(6)
    fabric.connect(late)
    fabric.advance(4 + 5 * SETTLE_SECONDS_A_SWITCH - 0.01)
    assert not fabric.state.settled
    assert fabric.run.sent is None
    fabric.advance(0.01)
    assert fabric.state.settled
    assert set(fabric.state.failures.values()) == {Reason.NOT_CONNECTED}
    assert len(fabric.state.failures) == 3
    assert fabric.run.sent == fabric.state.view
    assert fabric.run.in_force == [2]


def test_a_switch_that_reconnects_again_and_again_delays_nothing() -> None:
    fabric = MemoryFabric(8)
    flapping, *_ = fabric.switches
    for _ in range(10):
        fabric.connect(flapping)
        fabric.advance(0.5)
        fabric.disconnect(flapping)
        fabric.advance(0.5)
    assert fabric.state.settled


def test_an_earlier_controllers_rules_stay_until_failures_are_known(fabric: MemoryFabric) -> None:
    device = fabric.switches[fabric.tree.switch("a0_0")]
    device.set_port(3, Reason.DOWN)
    fabric.rest()
    fabric.restart_controller()
    *first, last = fabric.switches
    for switch in first:
        fabric.connect(switch)
    before = dict(device.entries)
    fabric.advance(9)
    assert device.entries == before
    assert fabric.session(fabric.tree.switch("a0_0")).phase is Phase.WAITING
    fabric.connect(last)
    fabric.advance(0.5)
    assert len(fabric.state.connected) == 20
    assert dict(fabric.state.failures) == {"a0_0-c0_0": Reason.DOWN}
    places = {place: (repr(entry.flow), entry.installed.cookie >> 32) for place, entry in before.items()}
    assert {place: (repr(e.flow), e.installed.cookie >> 32) for place, e in device.entries.items()} == places


def test_an_empty_switch_has_its_rules_before_that(fabric: MemoryFabric) -> None:
    fabric.restart_controller()
    first, *_ = fabric.switches
    fabric.switches[first].restart()
    fabric.connect(first)
    fabric.settle()
    assert not fabric.state.settled
    assert fabric.state.connected == {first}


# -- updates ----------------------------------------------------------------------------------------------------------


def test_two_versions_while_a_barrier_is_awaited_become_one_update(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a1_0")
    channel, device = fabric.channel(switch), fabric.switches[switch]
    assert channel is not None
    channel.holds_messages = True
    device.handled.clear()
    for version, name in enumerate(["a0_0-c0_1", "a2_0-c0_1", "a3_0-c0_0"], 2):
        fabric.drain(name)
        fabric.settle()
        assert fabric.state.version == version
    assert fabric.run.in_force == []
    channel.holds_messages = False
    fabric.settle()
    assert sum(isinstance(message, BarrierRequest) for _, message in device.handled) == 2
    assert fabric.session(switch).version == 4
    assert fabric.run.in_force == [2, 3, 4]
    fabric.check()


def test_a_slow_switch_does_not_delay_the_others(fabric: MemoryFabric) -> None:
    slow = fabric.tree.switch("a1_0")
    channel = fabric.channel(slow)
    assert channel is not None
    channel.holds_answers = True
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    versions = {switch: session.version for switch, session in fabric.core.switches.sessions.items()}
    assert versions == dict.fromkeys(versions, 2) | {slow: 1}
    assert fabric.run.sent == fabric.state.view


def test_refused_rules_are_tried_again_after_2_4_8_s(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a1_0")
    device = fabric.switches[switch]
    device.limits = dict.fromkeys(Table, 0)
    device.handled.clear()
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    assert fabric.state.failures["a1_0"] == Reason.NO_RULES
    assert "a1_0: flow mod failed, code 1" in fabric.state.rejected[device.dpid]
    start, claims = fabric.now, []
    for _ in range(150):
        fabric.advance(0.1)
        claims += [round(fabric.now - start) for _, message in device.handled if isinstance(message, RoleRequest)]
        device.handled.clear()
    assert claims == [2, 6, 14]
    device.limits.clear()
    fabric.rest()
    assert dict(fabric.state.failures) == {"a0_0-c0_1": Reason.DRAINED}
    assert not fabric.state.rejected


def test_answers_that_come_too_late_change_nothing(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a1_0")
    channel = fabric.channel(switch)
    assert channel is not None
    channel.holds_answers = True
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    fabric.advance(31)
    assert fabric.state.failures["a1_0"] == Reason.NO_RULES
    assert channel.outbox
    channel.holds_answers = False
    fabric.settle()
    assert fabric.state.failures["a1_0"] == Reason.NO_RULES
    assert fabric.session(switch).phase is Phase.BACKING_OFF
    fabric.rest()


def test_an_unanswered_role_check_does_not_delay_an_update(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a1_0")
    channel = fabric.channel(switch)
    assert channel is not None
    channel.holds_answers = True
    fabric.advance(12)  # two checks are due
    assert fabric.session(switch).version == 1
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    assert [type(event.request) for event in channel.outbox if isinstance(event, Answered)] == [
        RoleRequest,
        BarrierRequest,
    ]
    fabric.advance(29.9)
    assert "a1_0" not in fabric.state.failures
    fabric.advance(0.2)
    assert fabric.state.failures["a1_0"] == Reason.NO_RULES
    fabric.rest()


# -- masters ----------------------------------------------------------------------------------------------------------


def test_roles_are_checked_every_5_s_spread_over_the_switches(fabric: MemoryFabric) -> None:
    fabric.advance(10)
    for device in fabric.switches.values():
        device.handled.clear()
    counts = []
    for _ in range(10):
        fabric.advance(0.5)
        counts.append(0)
        for device in fabric.switches.values():
            counts[-1] += sum(isinstance(message, RoleRequest) for _, message in device.handled)
            device.handled.clear()
    assert counts == [2] * 10


def test_another_master_is_noticed_within_5_s_and_its_switch_not_touched(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    device = fabric.switches[switch]
    other = fabric.take(switch)
    device.handle(other, AddFlow(FOREIGN, 1))
    fabric.advance(5.3)
    assert fabric.state.rejected == {device.dpid: f"a0_0: {ANOTHER_MASTER}"}
    assert switch not in fabric.state.connected
    assert not fabric.state.failures  # it forwards
    device.handled.clear()
    fabric.drain("a1_0-c0_1")
    fabric.advance(30)
    assert not device.handled
    assert fabric.run.in_force == [2]


def test_a_later_master_of_several_switches_keeps_one_that_connects(fabric: MemoryFabric) -> None:
    switch, other = fabric.tree.switch("a0_0"), fabric.tree.switch("c1_1")
    fabric.disconnect(switch)
    fabric.take(switch)
    fabric.take(other)
    fabric.connect(switch)
    fabric.advance(3)  # the other switches are asked for the role first
    assert fabric.session(switch).phase is Phase.TAKEN
    assert fabric.state.rejected[fabric.tree.dpid(switch)] == f"a0_0: {ANOTHER_MASTER}"
    fabric.restart_controller()
    fabric.connect_all()
    fabric.rest()
    assert switch in fabric.state.connected


@pytest.mark.parametrize("stays", [True, False])
def test_a_later_generation_is_presumed_another_masters_while_a_switch_has_one(
    fabric: MemoryFabric, stays: bool
) -> None:
    switch, other = fabric.tree.switch("a0_0"), fabric.tree.switch("c1_1")
    fabric.disconnect(switch)
    fabric.switches[switch].generation = fabric.epoch + 10**9  # of this controller, before its clock was set back
    master = fabric.take(other)
    if not stays:
        master.close()
    fabric.connect(switch)
    fabric.rest()
    assert fabric.session(switch).phase is Phase.TAKEN
    assert fabric.state.rejected[fabric.tree.dpid(switch)] == f"a0_0: {ANOTHER_MASTER}"
    assert not fabric.state.failures  # it forwards
    fabric.restart_switch(other)
    fabric.connect(other)
    fabric.rest()
    fabric.disconnect(switch)
    fabric.connect(switch)
    fabric.rest()
    assert fabric.state.connected == fabric.switches.keys()


def test_a_generation_ahead_without_another_master_is_continued(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    fabric.disconnect(switch)
    fabric.switches[switch].generation = fabric.epoch + 10**9
    fabric.connect(switch)
    fabric.settle()
    assert fabric.session(switch).phase is Phase.BACKING_OFF
    assert not fabric.state.failures
    fabric.advance(3)
    assert switch in fabric.state.connected
    assert fabric.switches[switch].generation == fabric.epoch + 10**9 + 1


@pytest.mark.parametrize("ahead", [1, 10**9, (1 << 62)])
def test_a_controller_whose_clock_went_back_takes_its_switches(ahead: int) -> None:
    fabric = settled()
    late = fabric.epoch + 2000 + ahead
    for device in fabric.switches.values():
        device.generation = late % (1 << 64)
    fabric.restart_controller()
    fabric.connect_all()
    fabric.advance(1)
    assert fabric.state.connected == fabric.switches.keys()
    assert not fabric.state.failures
    assert fabric.core.switches.generation.number == (late + 1) % (1 << 64)
    fabric.rest()


def test_a_generation_that_wraps_around_goes_on() -> None:
    fabric = settled()
    fabric.core.switches.generation.number = (1 << 64) - 3
    for device in fabric.switches.values():
        device.generation = (1 << 64) - 2
        fabric.disconnect(fabric.tree.switch_by_dpid(device.dpid))
    fabric.connect_all()
    fabric.advance(10)
    assert fabric.state.connected == fabric.switches.keys()
    assert fabric.core.switches.generation.number == (1 << 64) - 1


def test_a_controller_deposed_at_most_switches_knows_it_and_again_when_it_is_not(fabric: MemoryFabric) -> None:
    switches = list(fabric.switches)
    others = [fabric.take(switch) for switch in switches[:10]]
    fabric.advance(6)
    assert not fabric.core.is_deposed  # it is the master of as many
    others.append(fabric.take(switches[10]))
    fabric.advance(6)
    assert fabric.core.is_deposed
    assert not fabric.state.failures
    for switch in switches[:3]:
        fabric.restart_switch(switch)
        fabric.connect(switch)
    fabric.advance(6)
    assert not fabric.core.is_deposed


def test_a_switch_that_loses_its_generation_is_taken_back(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    fabric.take(switch)
    fabric.advance(6)
    fabric.restart_switch(switch)
    fabric.connect(switch)
    fabric.rest()
    assert switch in fabric.state.connected


# -- what agents are sent ---------------------------------------------------------------------------------------------


def test_agents_are_sent_each_version_before_switches_have_confirmed_it(fabric: MemoryFabric) -> None:
    fabric.drain("a0_0-c0_1")
    assert fabric.run.sent is not None
    assert fabric.run.sent.version == 2
    assert fabric.run.in_force == []
    fabric.settle()
    assert fabric.run.in_force == [2]


def test_what_agents_have_acknowledged_is_kept_with_its_change(fabric: MemoryFabric) -> None:
    host, *_ = fabric.agents
    fabric.drain("a0_0-c0_1")
    view = fabric.agents[host]
    assert view is not None
    assert (view.epoch, view.version, dict(view.failures)) == (fabric.epoch, 2, {"a0_0-c0_1": Reason.DRAINED})
    change = fabric.state.change(2)
    assert change is not None
    assert change.acknowledged_ms == 0.0
    assert fabric.core.acknowledged(99, fabric.now) == []


def test_a_version_that_one_event_made_with_another_is_acknowledged_with_it(fabric: MemoryFabric) -> None:
    fabric.state.drain({"a0_0-c0_1"}, fabric.now)
    fabric.drain("a0_1-c1_1")
    assert [(change.version, change.agents, change.acknowledged_ms) for change in fabric.state.changes] == [
        (2, len(fabric.agents), 0.0),
        (3, len(fabric.agents), 0.0),
    ]
