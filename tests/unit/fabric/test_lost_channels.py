"""Channels that are lost while switches forward: what is known of a switch then, and what must not follow from knowing nothing."""

from __future__ import annotations

import logging

import pytest

from flowrules.model import Table
from sopa_ryu.fabric.contest import ALIVE_SECONDS
from sopa_ryu.fabric.management import GRACE_SECONDS
from tests.models.memory_fabric import HOLD_SECONDS, MemoryFabric
from topologies import FatTree, Level, Switch
from topologies.failures import Reason


@pytest.fixture
def fabric() -> MemoryFabric:
    made = MemoryFabric()
    made.connect_all()
    made.advance(1)
    assert made.state.settled
    return made


def lose(fabric: MemoryFabric, *names: str) -> None:
    """Break the channels of switches, without anything happening to the switches."""
    for name in names:
        fabric.disconnect(fabric.tree.switch(name))


def cut(fabric: MemoryFabric, name: str, trouble: Reason | None) -> None:
    """Take both ends of a link down, make them silent or mend them."""
    link = fabric.tree.link_by_name(name)
    assert isinstance(link.lower, Switch)
    fabric.switches[link.lower].set_port(fabric.tree.port(link.lower, link.upper), trouble)
    fabric.switches[link.upper].set_port(fabric.tree.port(link.upper, link.lower), trouble)
    fabric.settle()


def links_of(fabric: MemoryFabric, name: str) -> list[str]:
    tree, switch = fabric.tree, fabric.tree.switch(name)
    return [tree.name(tree.link(switch, there)) for there in tree.ports(switch).values() if isinstance(there, Switch)]


def restart(fabric: MemoryFabric, name: str) -> None:
    """Restart a switch as its neighbours see it; it does not connect."""
    for link in links_of(fabric, name):
        cut(fabric, link, Reason.SILENT)
    fabric.restart_switch(fabric.tree.switch(name))
    for link in links_of(fabric, name):
        cut(fabric, link, None)


def drops(fabric: MemoryFabric) -> list[str]:
    """Return the edge switches that drop packets because no path is left."""
    return [
        fabric.tree.name(switch)
        for switch, device in fabric.switches.items()
        if switch.level is Level.EDGE
        and any(entry.flow and entry.flow.purpose == "no way left: drop" for entry in device.entries.values())
    ]


POD = ("e1_0", "e1_1", "a1_0", "a1_1")
CORES = ("c0_0", "c0_1", "c1_0", "c1_1")
EVERY = tuple(map(FatTree(4).name, FatTree(4).switches()))


@pytest.mark.parametrize("names", [("a2_0",), ("e2_0",), POD, CORES, (*POD, *CORES), EVERY])
@pytest.mark.parametrize("together", [True, False])
def test_a_healthy_data_plane_loses_no_path(fabric: MemoryFabric, names: tuple[str, ...], together: bool) -> None:
    for name in names:
        lose(fabric, name)
        fabric.advance(0 if together else 6)
    fabric.advance(100)
    assert fabric.state.version == 1
    assert set(fabric.state.fabric()["no_channel"]) == set(names)
    assert set(fabric.state.fabric()["missing"]) == set(names)
    for name in names:
        fabric.connect(fabric.tree.switch(name))
    fabric.rest()
    assert fabric.state.version == 1
    assert not fabric.state.fabric()["no_channel"]


@pytest.mark.parametrize("name", ["e2_0", "a2_0", "c1_0"])
@pytest.mark.parametrize("noticed", ["before", "after"])
def test_a_switch_that_dies_is_excluded_with_its_last_link(fabric: MemoryFabric, name: str, noticed: str) -> None:
    if noticed == "before":
        lose(fabric, name)
    for link in links_of(fabric, name):
        assert name not in fabric.state.failures
        cut(fabric, link, Reason.SILENT)
    if noticed == "after":  # echo requests take longer than BFD
        fabric.advance(8)
        lose(fabric, name)
    assert dict(fabric.state.failures) == {name: Reason.DOWN}
    fabric.rest()


@pytest.mark.parametrize("name", ["e2_0", "a2_0", "c1_0"])
def test_a_switch_that_restarts_without_a_channel_stays_out(fabric: MemoryFabric, name: str) -> None:
    lose(fabric, name)
    restart(fabric, name)
    fabric.advance(60)
    assert dict(fabric.state.failures) == {name: Reason.DOWN}
    fabric.connect(fabric.tree.switch(name))
    assert dict(fabric.state.failures) == {name: Reason.DOWN}
    fabric.settle()
    fabric.advance(HOLD_SECONDS)
    assert not fabric.state.failures
    fabric.rest()


def test_a_switch_that_comes_back_without_rules_is_out_until_it_has_them(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a2_0")
    fabric.restart_switch(switch)
    fabric.connect(switch)
    fabric.settle()
    assert dict(fabric.state.failures) == {"a2_0": Reason.NO_RULES}  # it has them now, and is held down
    fabric.advance(HOLD_SECONDS)
    assert not fabric.state.failures
    fabric.rest()


def test_a_link_that_was_cut_long_before_says_nothing_of_its_switch(fabric: MemoryFabric) -> None:
    cut(fabric, "e0_0-a0_0", Reason.DOWN)
    fabric.advance(60)
    lose(fabric, "a0_1", "e0_0")  # its other neighbour cannot tell either
    fabric.advance(60)
    assert dict(fabric.state.failures) == {"e0_0-a0_0": Reason.DOWN}
    assert not drops(fabric)


def test_an_edge_switch_is_not_given_up_while_a_link_of_it_may_carry(fabric: MemoryFabric) -> None:
    lose(fabric, "a0_1", "e0_0")
    cut(fabric, "e0_0-a0_0", Reason.SILENT)
    assert dict(fabric.state.failures) == {"e0_0-a0_0": Reason.SILENT}
    assert not drops(fabric)
    fabric.rest()


def test_one_end_speaks_for_a_link_whose_other_end_has_no_channel(fabric: MemoryFabric) -> None:
    lose(fabric, "c0_0")
    cut(fabric, "a1_0-c0_0", Reason.DOWN)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN}
    lose(fabric, "a1_0")  # now neither does
    cut(fabric, "a1_0-c0_0", None)
    fabric.advance(60)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN}
    fabric.connect(fabric.tree.switch("a1_0"))
    fabric.rest()
    assert not fabric.state.failures


def test_a_port_that_was_down_before_stays_down_until_the_other_end_says_it_is_back(fabric: MemoryFabric) -> None:
    core, port = fabric.switches[fabric.tree.switch("c0_0")], 2
    core.set_port(port, Reason.DOWN)
    fabric.settle()
    lose(fabric, "c0_0")
    fabric.advance(60)
    assert dict(fabric.state.failures) == {"a1_0-c0_0": Reason.DOWN}
    core.set_port(port, None)
    cut(fabric, "a1_0-c0_0", Reason.SILENT)
    cut(fabric, "a1_0-c0_0", None)
    fabric.advance(60)
    assert not fabric.state.failures


# -- rules that cannot be changed -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "switch", "kept"), [("a2_0-c0_0", "a0_0", "a0_0-c0_0"), ("a2_1", "e0_0", "e0_0-a0_1")]
)
def test_a_label_that_old_rules_ignore_is_not_offered(
    fabric: MemoryFabric, remote: str, switch: str, kept: str
) -> None:
    links = [remote] if "-" in remote else links_of(fabric, remote)
    for link in links:
        cut(fabric, link, Reason.DOWN)
    fabric.advance(1)
    lose(fabric, switch)
    for link in links:
        cut(fabric, link, None)
    fabric.rest()  # which checks what the switch does with each label
    assert dict(fabric.state.failures) == {kept: Reason.NO_CHANNEL}
    assert not drops(fabric)
    fabric.connect(fabric.tree.switch(switch))
    fabric.rest()
    assert not fabric.state.failures


def test_a_switch_lost_in_the_middle_of_an_update_may_have_either_rules(fabric: MemoryFabric) -> None:
    cut(fabric, "a2_0-c0_0", Reason.DOWN)
    channel = fabric.channel(fabric.tree.switch("a0_0"))
    assert channel is not None
    channel.holds_answers = True
    cut(fabric, "a2_0-c0_0", None)
    fabric.advance(HOLD_SECONDS)  # it is sent the rules of the healthy fabric
    assert not fabric.state.failures
    lose(fabric, "a0_0")
    assert dict(fabric.state.failures) == {"a0_0-c0_0": Reason.NO_CHANNEL}
    fabric.connect(fabric.tree.switch("a0_0"))
    fabric.rest()
    assert not fabric.state.failures


def test_a_switch_that_refused_its_rules_stays_out_without_a_channel(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a1_0")
    fabric.switches[switch].limits = dict.fromkeys(Table, 0)
    fabric.drain("a0_0-c0_1")
    fabric.settle()
    lose(fabric, "a1_0")
    fabric.advance(60)
    assert fabric.state.failures["a1_0"] == Reason.NO_RULES


# -- a controller that starts without hearing everything --------------------------------------------------------------


@pytest.mark.parametrize("absent", [("c0_0",), CORES, POD, ("e0_0", "a0_0", "a0_1")])
def test_a_controller_started_in_an_operating_fabric_presumes_the_rest(
    fabric: MemoryFabric, absent: tuple[str, ...]
) -> None:
    fabric.restart_controller()
    for switch in fabric.switches:
        if fabric.tree.name(switch) not in absent:
            fabric.connect(switch)
    fabric.advance(60)
    assert fabric.state.settled
    assert not fabric.state.failures
    assert set(fabric.state.fabric()["no_channel"]) == set(absent)
    assert not drops(fabric)
    fabric.check()


def test_a_switch_that_is_dead_when_the_controller_starts_is_not_connected(fabric: MemoryFabric) -> None:
    lose(fabric, "c1_1")
    for link in links_of(fabric, "c1_1"):
        cut(fabric, link, Reason.SILENT)
    fabric.restart_controller()
    for switch in fabric.switches:
        if fabric.tree.name(switch) != "c1_1":
            fabric.connect(switch)
    fabric.advance(11)
    assert dict(fabric.state.failures) == {"c1_1": Reason.NOT_CONNECTED}


# -- faults of the management network, and pauses ---------------------------------------------------------------------


def test_many_lost_channels_are_one_fault_and_no_switch_is_judged_meanwhile(
    fabric: MemoryFabric, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sopa"):
        lose(fabric, *POD, "c0_0", "c0_1")
    assert [record.getMessage() for record in caplog.records if "management network: 5 OpenFlow" in record.getMessage()]
    assert sum(record.levelno >= logging.WARNING for record in caplog.records) == 5  # four switches, then the fault
    assert fabric.state.fabric()["management"]["fault"] is True
    fabric.settle()
    for link in links_of(fabric, "c0_0"):
        cut(fabric, link, Reason.SILENT)
    assert "c0_0" not in fabric.state.failures
    fabric.advance(GRACE_SECONDS)
    assert fabric.state.failures["c0_0"] == Reason.DOWN
    assert fabric.state.fabric()["management"] == {
        "fault": False,
        "detail": "",
        "channels_faults": 1,
        "pauses_faults": 0,
    }
    fabric.rest()


@pytest.mark.parametrize("lost", [(), ("a0_0",), POD, EVERY[:-1], EVERY])
def test_a_controller_that_stood_still_withdraws_nothing(fabric: MemoryFabric, lost: tuple[str, ...]) -> None:
    fabric.stand_still(13, [fabric.tree.switch(name) for name in lost])
    fabric.settle()
    fabric.advance(4)
    for name in lost:
        fabric.connect(fabric.tree.switch(name))
    fabric.rest()
    assert fabric.state.version == 1
    assert fabric.state.fabric()["management"]["pauses_faults"] == 1
    assert fabric.state.fabric()["management"]["fault"] is False


def test_what_arrived_during_a_pause_counts_as_it_is_at_the_end(fabric: MemoryFabric) -> None:
    device = fabric.switches[fabric.tree.switch("a0_0")]
    device.set_port(3, Reason.DOWN)
    device.set_port(3, None)
    device.set_port(4, Reason.DOWN)
    fabric.stand_still(13)
    fabric.settle()
    assert dict(fabric.state.failures) == {"a0_0-c0_1": Reason.DOWN}
    assert [list(change.failed) for change in fabric.state.changes] == [["a0_0-c0_1"]]
    fabric.rest()


# -- two connections of one datapath id -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["e0_0", "a0_0", "c0_0"])
def test_an_impostor_is_closed_and_not_believed(
    fabric: MemoryFabric, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    switch = fabric.tree.switch(name)
    evil = fabric.connect_impostor(switch)
    evil.switch.set_port(3, Reason.SILENT)
    fabric.settle()
    assert not evil.is_open
    assert f"second connection of switch {name} from 192.0.2.66 closed: the one from 192.0.2.1 lives" in caplog.text
    fabric.notice_lost()
    cut(fabric, links_of(fabric, name)[0], Reason.DOWN)
    assert list(fabric.state.failures) == [links_of(fabric, name)[0]]  # the right one is heard
    assert fabric.core.switches.contests.decided == {"older": 1, "newer": 0}
    assert not evil.switch.handled
    fabric.rest()


def test_a_newer_connection_takes_over_from_one_that_does_not_answer(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    old = fabric.channel(switch)
    new = fabric.connect(switch)
    fabric.settle()
    assert fabric.session(switch).connection is old
    fabric.advance(ALIVE_SECONDS)
    assert fabric.session(switch).connection is new
    assert fabric.core.switches.contests.decided == {"older": 0, "newer": 1}
    assert fabric.state.version == 1
    fabric.rest()


def test_of_several_newer_connections_the_first_takes_over(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    new = fabric.connect(switch)
    evil = fabric.connect_impostor(switch)
    fabric.notice_lost()
    assert fabric.session(switch).connection is new
    fabric.settle()
    assert not evil.is_open
    fabric.rest()


def test_a_newer_connection_that_leaves_changes_nothing(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    old = fabric.channel(switch)
    assert old is not None
    old.holds_answers = True
    evil = fabric.connect_impostor(switch)
    evil.close()
    fabric.observe(fabric.core.switch_disconnected, evil)
    fabric.advance(10)
    assert fabric.session(switch).connection is old
    assert fabric.state.version == 1
    fabric.rest()


@pytest.mark.parametrize(
    ("names", "accepted"),
    [
        (["e0_0"], True),
        (["0000000000010000", "somewhere.example"], True),
        (["e0_1"], False),
        ([], False),
        (None, False),
    ],
)
def test_a_certificate_may_have_to_name_the_switch(names: list[str] | None, accepted: bool) -> None:
    fabric = MemoryFabric()
    manager = fabric.core.switches
    manager.rejections.bind_certificates = True
    switch = Switch(Level.EDGE, 0, 0)
    channel = fabric.switches[switch].connect()
    channel.names = names
    fabric.core.switch_connected(channel, fabric.now)
    assert (switch in manager.sessions) is accepted
    assert manager.rejections.misnamed == (not accepted)
    assert accepted or "certificate" in fabric.state.rejected[channel.dpid]
