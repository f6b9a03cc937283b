"""One suite for the switch in memory and for Open vSwitch: messages in, answers and refusals out, entries and groups after."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flowrules.model import Bucket, Field, Flow, Group, Output, SwitchRules, Table, ToGroup, does
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric import rule_changes
from sopa_ryu.fabric.messages import (
    AddFlow,
    AddGroup,
    DeleteFlow,
    DeleteGroup,
    FlowsRequest,
    GroupsRequest,
    Installed,
    InstalledState,
    Message,
    Modification,
    ModifyGroup,
    Refusal,
    RoleRequest,
    SendProbe,
)
from tests.helpers.switch_devices import TREE, Device, MemoryDevice, OvsDevice, Peer
from tests.models.memory_switch import Answered, PortChanged, Refused
from topologies import Failures
from topologies.failures import Reason
from topologies.lab.private_ovs import PrivateOvs

STALE = Refusal("role_request_failed", "role request failed, code 0, refused message type 24")
TABLE_FULL = Refusal("flow_mod_failed", "flow mod failed, code 1, refused message type 14")
NO_GROUP = Refusal("bad_action", "bad action, code 9, refused message type 14")
GROUP_EXISTS = Refusal("group_mod_failed", "group mod failed, code 0, refused message type 15")
UNKNOWN_GROUP = Refusal("group_mod_failed", "group mod failed, code 8, refused message type 15")


def slave(message_type: int) -> Refusal:
    return Refusal("bad_request", f"bad request, code 10, refused message type {message_type}", is_slave=True)


@pytest.fixture(scope="module")
def ovs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateOvs]:
    with PrivateOvs(tmp_path_factory.mktemp("ovs"), dummy=True) as its:
        yield its


@pytest.fixture
def real(ovs: PrivateOvs) -> Iterator[OvsDevice]:
    device = OvsDevice(ovs)
    yield device
    device.remove()


@pytest.fixture(params=["memory", pytest.param("ovs", marks=pytest.mark.switch)])
def device(request: pytest.FixtureRequest) -> Device:
    return MemoryDevice() if request.param == "memory" else request.getfixturevalue("real")


# -- what they have in common -----------------------------------------------------------------------------------------

Known = tuple[set[tuple[int, int, int, frozenset[Field]]], dict[int, tuple[int, ...]]]

GROUP = Group(1, (Bucket(3), Bucket(4)))
TURNED = Group(1, (Bucket(4), Bucket(3)))
PLAIN = Flow(Table.DOWN, 40, (("eth_type", 0x0800), ("ipv4_dst", "10.0.0.2")), "to a host", apply=(Output(1),))
OTHER = PLAIN._replace(apply=(Output(2),))
HIGHER = PLAIN._replace(priority=41)
GROUPED = Flow(Table.UP, 20, (("metadata", 7),), "by a group", apply=(ToGroup(1),))


def installed(flow: Flow, version: int = 1) -> Installed:
    return Installed(flow.table, flow.priority, rule_changes.cookie(flow, version), flow.match, does(flow))


def read(peer: Peer) -> InstalledState:
    flows, groups = FlowsRequest(), GroupsRequest()
    first, second = peer.exchange(flows, groups)
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert (first.request, second.request) == (flows, groups)
    return InstalledState(first.answer, second.answer)


def known(peer: Peer) -> Known:
    """Return what a switch has, without the order, which OpenFlow leaves open."""
    state = read(peer)
    return {(int(e.table), e.priority, e.cookie, frozenset(e.match)) for e in state.flows}, state.groups


def having(*flows: Flow, groups: dict[int, tuple[int, ...]] | None = None, version: int = 1) -> Known:
    entries = (installed(flow, version) for flow in flows)
    return {(int(e.table), e.priority, e.cookie, frozenset(e.match)) for e in entries}, groups or {}


def role(peer: Peer, generation: int | None = None, *, slave: bool = False) -> bool | Refusal:
    request = RoleRequest(generation, slave)
    (event,) = peer.exchange(request)
    assert not isinstance(event, PortChanged)
    assert event.request is request
    return event.refusal if isinstance(event, Refused) else bool(event.answer)


def refusals(peer: Peer, *changes: Modification | SendProbe) -> list[Refusal]:
    events = peer.exchange(*changes)
    assert all(isinstance(event, Refused) and event.request is None for event in events)
    return [event.refusal for event in events if isinstance(event, Refused)]


# -- roles ------------------------------------------------------------------------------------------------------------


def test_the_latest_claim_makes_the_master(device: Device) -> None:
    first, second = device.connect(), device.connect()
    assert role(first) is False
    assert role(first, 5) is True
    assert role(first) is True
    assert role(second, 4) == STALE
    assert role(second) is False
    assert role(first) is True
    assert role(second, 5) is True  # an equal one is not stale
    assert role(first) is False
    assert role(first, 9) is True
    assert role(second) is False


def test_a_standby_asks_to_be_the_slave_and_takes_nothing_from_the_master(device: Device) -> None:
    first, second = device.connect(), device.connect()
    assert role(first, 5) is True
    assert role(second, 4, slave=True) == STALE
    assert role(second, 5, slave=True) is False
    assert role(first) is True
    assert refusals(second, AddFlow(PLAIN, 1)) == [slave(14)]
    assert role(second, 6) is True
    assert role(first, 5, slave=True) == STALE
    assert role(first) is False


def test_a_slave_may_read_but_change_nothing(device: Device) -> None:
    first, second = device.connect(), device.connect()
    role(first, 1)
    assert refusals(first, AddGroup(GROUP), AddFlow(PLAIN, 1)) == []
    role(second, 2)
    before = having(PLAIN, groups={1: (3, 4)})
    assert known(first) == known(second) == before
    assert refusals(first, AddFlow(HIGHER, 1), DeleteFlow(installed(PLAIN))) == [slave(14)] * 2
    changes = AddGroup(Group(2, ())), ModifyGroup(TURNED), DeleteGroup(1)
    assert refusals(first, *changes) == [slave(15)] * 3
    assert refusals(first, SendProbe(3)) == [slave(13)]
    assert known(first) == before


def test_who_has_claimed_nothing_may_change_everything(device: Device) -> None:
    master, equal = device.connect(), device.connect()
    role(master, 1)
    assert refusals(equal, AddFlow(PLAIN, 1), SendProbe(3)) == []
    assert known(master) == having(PLAIN)


def test_a_lost_master_has_no_successor_and_leaves_all_entries(device: Device) -> None:
    first, second = device.connect(), device.connect()
    role(second, 4)
    role(first, 7)
    refusals(first, AddGroup(GROUP), AddFlow(PLAIN, 1))
    device.disconnect(first)
    assert role(second) is False
    assert refusals(second, AddFlow(HIGHER, 1)) == [slave(14)]
    assert role(second, 6) == STALE
    again = device.connect()
    assert role(again) is False
    assert known(again) == having(PLAIN, groups={1: (3, 4)})
    assert refusals(again, AddFlow(HIGHER, 1)) == []
    assert role(again, 7) is True


def test_a_restart_loses_entries_groups_and_generation(device: Device) -> None:
    peer = device.connect()
    role(peer, 7)
    refusals(peer, AddGroup(GROUP), AddFlow(PLAIN, 1))
    device.restart()
    peer = device.connect()
    assert known(peer) == having()
    assert role(peer) is False
    assert role(peer, 1) is True


# -- entries and groups -----------------------------------------------------------------------------------------------


def test_an_entry_replaces_one_of_its_table_priority_and_match(device: Device) -> None:
    peer = device.connect()
    assert refusals(peer, AddFlow(PLAIN, 1), AddFlow(HIGHER, 1), AddFlow(OTHER, 2)) == []
    assert known(peer)[0] == having(HIGHER)[0] | having(OTHER, version=2)[0]
    reordered = PLAIN._replace(match=PLAIN.match[::-1])
    refusals(peer, AddFlow(reordered, 3))
    assert known(peer)[0] == having(HIGHER)[0] | having(reordered, version=3)[0]


def test_a_deletion_takes_exactly_one_entry_whatever_its_cookie(device: Device) -> None:
    peer = device.connect()
    refusals(peer, AddFlow(PLAIN, 1), AddFlow(HIGHER, 1))
    assert refusals(peer, DeleteFlow(installed(PLAIN, 99))) == []
    assert known(peer) == having(HIGHER)
    assert refusals(peer, DeleteFlow(installed(PLAIN))) == []  # nothing to delete is no error
    wider = installed(HIGHER)._replace(match=HIGHER.match[:1])
    assert refusals(peer, DeleteFlow(wider)) == []
    assert known(peer) == having(HIGHER)


def test_an_entry_that_names_a_missing_group_is_refused(device: Device) -> None:
    peer = device.connect()
    assert refusals(peer, AddFlow(PLAIN, 1), AddFlow(GROUPED, 1), AddFlow(HIGHER, 1)) == [NO_GROUP]
    assert known(peer) == having(PLAIN, HIGHER)
    assert refusals(peer, AddGroup(GROUP), AddFlow(GROUPED, 1)) == []
    assert known(peer) == having(PLAIN, HIGHER, GROUPED, groups={1: (3, 4)})


def test_a_group_is_added_once_and_modified_only_if_it_is_there(device: Device) -> None:
    peer = device.connect()
    assert refusals(peer, ModifyGroup(GROUP)) == [UNKNOWN_GROUP]
    assert refusals(peer, AddGroup(GROUP), AddGroup(TURNED)) == [GROUP_EXISTS]
    assert known(peer) == having(groups={1: (3, 4)})
    assert refusals(peer, ModifyGroup(TURNED), DeleteGroup(9)) == []
    assert known(peer) == having(groups={1: (4, 3)})


def test_a_deleted_group_takes_its_entries_with_it(device: Device) -> None:
    peer = device.connect()
    refusals(peer, AddGroup(GROUP), AddFlow(GROUPED, 1), AddFlow(PLAIN, 1))
    assert refusals(peer, DeleteGroup(1)) == []
    assert known(peer) == having(PLAIN)


def test_a_full_table_refuses_new_entries_but_not_better_ones(device: Device) -> None:
    peer = device.connect()
    refusals(peer, AddFlow(PLAIN, 1))
    device.limit(Table.DOWN, 1)
    assert refusals(peer, AddFlow(HIGHER, 1), AddFlow(OTHER, 2)) == [TABLE_FULL]
    assert known(peer) == having(OTHER, version=2)
    assert refusals(peer, DeleteFlow(installed(PLAIN)), AddFlow(HIGHER, 1)) == []
    assert known(peer) == having(HIGHER)
    assert refusals(peer, AddFlow(PLAIN, 1)) == [TABLE_FULL]
    device.limit(Table.DOWN, None)
    assert refusals(peer, AddFlow(PLAIN, 1)) == []
    assert known(peer) == having(HIGHER, PLAIN)


def test_a_limit_below_what_is_there_removes_nothing(device: Device) -> None:
    peer = device.connect()
    refusals(peer, AddFlow(PLAIN, 1), AddFlow(HIGHER, 1))
    device.limit(Table.DOWN, 1)
    assert known(peer) == having(PLAIN, HIGHER)
    assert refusals(peer, AddFlow(OTHER, 2)) == []
    assert refusals(peer, DeleteFlow(installed(PLAIN)), AddFlow(PLAIN, 1)) == [TABLE_FULL]


# -- the rules of the fabric ------------------------------------------------------------------------------------------


def apply(peer: Peer, rules: SwitchRules, version: int) -> list[Modification]:
    """Read, change what differs, and return that."""
    changes = rule_changes.reconcile(rules, read(peer), version)
    assert refusals(peer, *changes) == []
    return changes


@pytest.mark.parametrize("name", ["e0_0", "a1_1", "c1_0"])
def test_the_rules_of_a_switch_are_read_back_as_they_were_written(device: Device, name: str) -> None:
    switch, peer = TREE.switch(name), device.connect()
    failures = Failures(TREE, {"a0_0-c0_1": Reason.DOWN, "e1_1-a1_0": Reason.SILENT, "a2_0": Reason.DRAINED})
    hosts = [TREE.host("h0_0_2")]
    healthy, failed = switch_rules(TREE, switch), switch_rules(TREE, switch, failures, hosts)
    for version, rules in enumerate([healthy, failed, healthy], 1):
        apply(peer, rules, version)
        flows, groups = known(peer)
        assert {entry[:2] + entry[3:] for entry in flows} == {
            (int(flow.table), flow.priority, frozenset(flow.match)) for flow in rules.flows
        }
        assert groups == {group.id: tuple(bucket.port for bucket in group.buckets) for group in rules.groups}
        assert apply(peer, rules, version) == []


@pytest.mark.parametrize("name", ["e0_0", "a1_1"])
def test_the_difference_of_two_rule_sets_leads_from_one_to_the_other(device: Device, name: str) -> None:
    switch, peer = TREE.switch(name), device.connect()
    failures = Failures(TREE, {"a0_0-c0_1": Reason.DOWN, "e1_1-a1_0": Reason.SILENT})
    healthy, failed = switch_rules(TREE, switch), switch_rules(TREE, switch, failures)
    apply(peer, healthy, 1)
    assert refusals(peer, *rule_changes.difference(healthy, failed, 2)) == []
    assert rule_changes.reconcile(failed, read(peer), 3) == []
    assert refusals(peer, *rule_changes.difference(failed, healthy, 3)) == []
    assert rule_changes.reconcile(healthy, read(peer), 4) == []


def test_a_learned_entry_survives_all_but_its_own_deletion(device: Device) -> None:
    peer = device.connect()
    rules = switch_rules(TREE, TREE.switch("e0_0"))
    apply(peer, rules, 1)
    device.arp(1)
    # besides, Open vSwitch has learned that it has just learned something at that port
    found = (entry for entry in read(peer).flows if rule_changes.is_learned(entry))
    (learned,) = (entry for entry in found if entry.table == Table.DELIVER)
    assert learned == Installed(Table.DELIVER, 1, rule_changes.LEARNED_COOKIE, (("metadata", (1, 0xFFFF)),))
    assert apply(peer, rules, 2) == []
    refusals(peer, DeleteGroup(1), DeleteGroup(2))
    apply(peer, rules, 3)
    assert learned in read(peer).flows
    assert refusals(peer, DeleteFlow(learned)) == []
    assert learned not in read(peer).flows


# -- ports ------------------------------------------------------------------------------------------------------------


def await_report(peer: Peer, expected: PortChanged) -> None:
    """Wait for a report of a port; one that is added or goes down may be reported as not LIVE before."""
    report = peer.report()
    if report != expected and report.trouble is Reason.SILENT:
        report = peer.report()
    assert report == expected


def test_changes_of_ports_are_reported_to_every_controller(device: Device) -> None:
    master, other = device.connect(), device.connect()
    role(other, 1)
    role(master, 2)
    for trouble in (Reason.DOWN, None, Reason.SILENT, None, Reason.SILENT, Reason.DOWN, None):
        device.set_port(3, trouble)
        for peer in (master, other):
            await_report(peer, PortChanged(3, trouble))


def test_a_port_that_is_removed_and_added_again_is_reported(device: Device) -> None:
    peer = device.connect()
    device.remove_port(4)
    gone = peer.report()
    assert (gone.port, gone.deleted) == (4, True)
    device.add_port(4)
    await_report(peer, PortChanged(4, None))


# -- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.switch
@pytest.mark.parametrize("seed", range(2))
def test_both_switches_say_the_same_to_whatever_they_are_sent(real: OvsDevice, seed: int) -> None:
    chance, memory = random.Random(seed), MemoryDevice()
    peers = [(memory.connect(), real.connect()) for _ in range(2)]
    # the purpose is another one for each action: Output(1) == ToGroup(1), as both are tuples
    flows = [
        Flow(table, priority, match, repr(apply), apply=apply)
        for table in (Table.DOWN, Table.UP)
        for priority in (10, 20)
        for match in ((), (("metadata", 1),))
        for apply in ((), (Output(1),), (ToGroup(1),), (ToGroup(2),))
    ]
    groups = [Group(number, (Bucket(port),)) for number in (1, 2) for port in (3, 4)]

    def message() -> Message:
        flow, group, version = chance.choice(flows), chance.choice(groups), chance.randrange(1, 4)
        modifications: list[Message] = [AddFlow(flow, version)] * 5 + [DeleteFlow(installed(flow, version))] * 3
        modifications += [AddGroup(group), AddGroup(group), ModifyGroup(group), DeleteGroup(group.id)]
        requests: list[Message] = [RoleRequest(None), RoleRequest(chance.randrange(3, 9)), SendProbe(3)]
        return chance.choice(modifications + requests)

    for _ in range(40):
        ours, theirs = chance.choice(peers)
        messages = [message() for _ in range(chance.randrange(1, 12))]
        assert ours.exchange(*messages) == theirs.exchange(*messages)
        assert known(ours) == known(theirs)
