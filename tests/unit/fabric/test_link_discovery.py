"""Link discovery: when probes are sent and by which ports, and what their arrival at a wrong port changes."""

from __future__ import annotations

import logging

import pytest

from sopa_ryu.fabric.messages import GenerationRequest, Heard, SendProbe
from tests.models.memory_fabric import MemoryFabric
from topologies import Switch
from topologies.failures import Reason


@pytest.fixture
def fabric() -> MemoryFabric:
    """A settled k=4 fabric in which no probes are on their way."""
    fabric = MemoryFabric()
    fabric.connect_all()
    fabric.advance(1)
    forget_messages(fabric)
    return fabric


def forget_messages(fabric: MemoryFabric) -> None:
    for device in fabric.switches.values():
        device.handled.clear()


def probed(fabric: MemoryFabric, switch: Switch) -> list[int]:
    """Return the ports from which a switch was requested to send probes, in order."""
    return [message.port for _, message in fabric.switches[switch].handled if isinstance(message, SendProbe)]


def test_a_port_that_comes_up_is_probed_immediately(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    fabric.switches[switch].set_port(3, Reason.DOWN)
    fabric.settle()
    forget_messages(fabric)
    fabric.switches[switch].set_port(3, None)
    fabric.settle()
    assert probed(fabric, switch) == [3]


def test_no_probe_goes_to_a_host(fabric: MemoryFabric) -> None:
    edge = fabric.tree.switch("e0_0")
    for port in (1, 9):
        fabric.switches[edge].set_port(port, Reason.DOWN)
        fabric.switches[edge].set_port(port, None)
    fabric.settle()
    assert probed(fabric, edge) == []


def test_a_switch_is_not_probed_before_its_role_is_known(fabric: MemoryFabric) -> None:
    switch = fabric.tree.switch("a0_0")
    fabric.take(switch)
    fabric.advance(6)  # the role is checked
    channel = fabric.channel(switch)
    assert channel is not None
    forget_messages(fabric)
    channel.holds_messages = True
    fabric.switches[switch].set_port(3, Reason.SILENT)  # which is a reason to ask again
    fabric.settle()
    fabric.advance(33)  # the claim is given up once, but not answered
    assert [type(message) for message in channel.inbox] == [GenerationRequest, GenerationRequest]
    channel.holds_messages = False
    fabric.settle()
    assert probed(fabric, switch) == []


def fabric_ports(fabric: MemoryFabric, switch: Switch) -> list[int]:
    return sorted(port for here, port in fabric.plan if here == switch)


def test_a_switch_is_probed_when_it_connects_and_when_it_has_its_rules() -> None:
    fabric = MemoryFabric()
    edge, *_ = fabric.switches
    fabric.connect(edge)
    fabric.settle()
    assert probed(fabric, edge) == [3, 4, 3, 4]


def test_once_settled_a_switch_is_probed_when_it_has_its_rules(fabric: MemoryFabric) -> None:
    core = fabric.tree.switch("c0_0")
    fabric.restart_switch(core)
    fabric.connect(core)
    fabric.settle()
    kinds = [type(message) for _, message in fabric.switches[core].handled]
    assert probed(fabric, core) == [1, 2, 3, 4]
    assert kinds[-4:] == [SendProbe] * 4


def test_each_port_between_switches_is_probed_once_per_interval(fabric: MemoryFabric) -> None:
    fabric.advance(20)
    forget_messages(fabric)
    for round_ in range(1, 11):
        fabric.advance(1)
        assert sum(bool(probed(fabric, switch)) for switch in fabric.switches) == 2 * round_
    for switch in fabric.switches:
        assert probed(fabric, switch) == fabric_ports(fabric, switch)


def test_with_an_interval_of_zero_nothing_is_probed() -> None:
    fabric = MemoryFabric(probe_seconds=0)
    fabric.connect_all()
    switch = fabric.tree.switch("a0_0")
    fabric.switches[switch].set_port(3, Reason.DOWN)
    fabric.switches[switch].set_port(3, None)
    fabric.rest()
    assert not any(probed(fabric, switch) for switch in fabric.switches)


def test_the_first_probes_show_exchanged_cables_before_the_fabric_settles() -> None:
    fabric = MemoryFabric()
    core = fabric.tree.switch("c0_0")
    fabric.swap((core, 1), (core, 2))
    fabric.connect_all()
    fabric.advance(0.5)
    assert fabric.state.settled
    assert dict(fabric.state.failures) == dict.fromkeys(["a0_0-c0_0", "a1_0-c0_0"], Reason.MISWIRED)
    assert fabric.state.version == 2


def test_a_frame_of_another_sender_makes_a_link_miswired(
    fabric: MemoryFabric, caplog: pytest.LogCaptureFixture
) -> None:
    channel = fabric.channel(fabric.tree.switch("a0_0"))
    assert channel is not None
    foreign = Heard(0x99, 1, "")
    assert fabric.core.probe_heard(channel, 3, foreign, fabric.now).tell_agents
    assert dict(fabric.state.failures) == {"a0_0-c0_0": Reason.MISWIRED}
    [message] = [message for message in caplog.messages if "miswired and" in message]
    assert message == (
        "link a0_0-c0_0 is miswired and excluded from candidate paths: a0_0 port 3 leads to datapath 0x0000000000000099 "
        "port 1, not to c0_0 port 1; recable it"
    )
    assert not fabric.core.probe_heard(channel, 3, foreign, fabric.now).tell_agents
    assert not fabric.core.probe_heard(
        channel, 1, Heard(fabric.tree.dpid(fabric.tree.switch("e0_0")), 3, ""), fabric.now
    ).visible


def test_lldp_of_a_device_beside_right_probes_is_a_warning(
    fabric: MemoryFabric, caplog: pytest.LogCaptureFixture
) -> None:
    """As lldpd on a switch sends it, at every port, twice a minute, over ports that come up again."""
    device = Heard(None, None, "e0_0, 02:00:00:00:00:07 port eth1")
    for _ in range(6):
        for switch in fabric.tree.switches():
            channel = fabric.channel(switch)
            assert channel is not None
            for port in fabric.tree.ports(switch):
                assert not fabric.core.probe_heard(channel, port, device, fabric.now).tell_agents
        fabric.advance(30.0)
    assert not fabric.state.failures
    assert fabric.state.version == 1
    said = [message for message in caplog.messages if "also hears LLDP" in message]
    assert len(said) == fabric.tree.k * fabric.tree.switch_count - fabric.tree.host_count
    assert any(
        line.startswith("a0_0 port 3 also hears LLDP of e0_0, 02:00:00:00:00:07 port eth1: the link") for line in said
    )


def test_a_wrong_cable_that_is_put_right_is_used_again(fabric: MemoryFabric, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.wiring")
    one, other = (fabric.tree.switch("a0_0"), 3), (fabric.tree.switch("a0_0"), 4)

    def exchange() -> None:
        device = fabric.switches[one[0]]
        for port in (3, 4):
            device.set_port(port, Reason.DOWN)
        fabric.swap(one, other)
        for port in (3, 4):
            device.set_port(port, None)
        fabric.settle()

    exchange()
    assert dict(fabric.state.failures) == dict.fromkeys(["a0_0-c0_0", "a0_0-c0_1"], Reason.DOWN)  # held down
    fabric.advance(2.1)
    assert dict(fabric.state.failures) == dict.fromkeys(["a0_0-c0_0", "a0_0-c0_1"], Reason.MISWIRED)
    exchange()
    fabric.rest()
    assert not fabric.state.failures
    assert "link a0_0-c0_0: miswiring cleared" in caplog.messages


def test_what_a_switch_has_heard_stays_known_while_its_channel_is_lost(fabric: MemoryFabric) -> None:
    core = fabric.tree.switch("c0_0")
    channel = fabric.channel(core)
    assert channel is not None
    fabric.observe(fabric.core.probe_heard, channel, 1, Heard(0x99, 1, ""))
    assert list(fabric.state.failures) == ["a0_0-c0_0"]
    fabric.disconnect(core)
    fabric.advance(60)
    assert list(fabric.state.failures) == ["a0_0-c0_0"]
    fabric.connect(core)
    fabric.advance(120)
    assert not fabric.state.failures
