"""Link discovery: when probes are sent and by which ports, and what their arrival at a wrong port changes."""

from __future__ import annotations

import pytest

from sopa_ryu.fabric.messages import RoleRequest, SendProbe
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
    """Return the ports that a switch was told to send probes from, in order."""
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
    assert [type(message) for message in channel.inbox] == [RoleRequest, RoleRequest]
    channel.holds_messages = False
    fabric.settle()
    assert probed(fabric, switch) == []
