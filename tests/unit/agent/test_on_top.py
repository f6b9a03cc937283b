"""Which interfaces are on top of another one: only their MTU is the agent's to change."""

import pytest

from sopa_ryu.agent.kernel.link_attributes import Link, on_top

ETH = Link(1500)


@pytest.mark.parametrize("kind", ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"])
def test_what_sends_through_an_interface_is_on_top_of_it(kind: str) -> None:
    links = {2: ETH, 3: Link(1500, kind, lower=2), 4: Link(1500, "vlan", lower=3), 5: Link(1500, kind, lower=9), 9: ETH}
    assert on_top(2, links) == [3, 4]


@pytest.mark.parametrize("other", [
    Link(9000, "veth", lower=2, elsewhere=True),  # the peer has that index in another namespace
    Link(9000, "veth", lower=2),  # the peer is the interface itself
    Link(1500, "vlan", lower=2, elsewhere=True),  # on top of another namespace's interface
    Link(1500, "macvlan", lower=2, elsewhere=True),
    Link(1450, "vxlan", lower=2),
    Link(1476, "gre", lower=2),
    Link(1500, "dummy"),
    Link(1500, "vlan", lower=7),
])  # fmt: skip
def test_what_does_not_send_through_it_is_not(other: Link) -> None:
    assert on_top(2, {2: ETH, 7: ETH, 40: other}) == []


def test_a_bridge_is_on_top_of_its_ports_and_not_of_its_other_ports() -> None:
    port, other = Link(1500, master=5), Link(1500, "veth", master=5)
    assert on_top(2, {2: port, 3: other, 5: Link(1500, "bridge"), 6: Link(1500, "vlan", 5)}) == [5, 6]
    assert on_top(2, {2: port, 5: Link(1500, "bond")}) == []
