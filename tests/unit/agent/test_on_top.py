"""Which interfaces are on top of another one: only their MTU is the agent's to change."""

import pytest

from sopa_ryu.agent.kernel.link_attributes import StackedLink, on_top


@pytest.mark.parametrize(("link", "is_on_top"), [
    *[(StackedLink(1500, kind, lower=2), True) for kind in ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec")],
    (StackedLink(1500, "bridge"), True),  # of which it is a port
    (StackedLink(1500, "bond"), False),
    (StackedLink(9000, "veth", lower=2, elsewhere=True), False),  # the peer has that index in another namespace
    (StackedLink(9000, "veth", lower=2), False),  # the peer is the interface itself
    (StackedLink(1500, "vlan", lower=2, elsewhere=True), False),  # on top of another namespace's interface
    (StackedLink(1500, "macvlan", lower=2, elsewhere=True), False),
    (StackedLink(1450, "vxlan", lower=2), False),
    (StackedLink(1476, "gre", lower=2), False),
    (StackedLink(1500, "dummy"), False),
    (StackedLink(1500, "vlan", lower=7), False),
])  # fmt: skip
def test_what_sends_through_an_interface_is_on_top_of_it(link: StackedLink, is_on_top: bool) -> None:
    port, other_port = StackedLink(1500, master=3), StackedLink(1500, "veth", master=3)
    links = {2: port, 3: link, 4: StackedLink(1500, "vlan", lower=3), 7: other_port}
    assert on_top(2, links) == ([3, 4] if is_on_top else [])
