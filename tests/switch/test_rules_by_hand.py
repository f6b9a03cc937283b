"""Rules that somebody changes behind the controller's back, on real Open vSwitch: found, and put right when a switch reconnects.

That they are read and put right again and again is in `tests/unit/fabric/scripts/coordinator/tampered.txt` and, with packets, in
`tests/faults`; that nothing else is found wrong in `test_memory_switch.py`.
"""

from functools import partial
from itertools import zip_longest

import pytest

from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.switch

CHANGES = [
    ("mod-flows", "e0_0", "table=1,ip,nw_dst=10.0.0.2,actions=drop"),
    ("mod-flows", "e0_0", "table=0,arp,actions=drop"),
    ("mod-flows", "e0_0", "table=0,udp,nw_ttl=255,nw_frag=first,actions=goto_table:1"),
    ("mod-flows", "e0_0", "table=3,actions=bundle(symmetric_l3l4+udp,7,hrw,ofport,members:3,4)"),
    ("mod-flows", "e0_0", "table=4,actions=output:1"),
    ("mod-flows", "a0_0", "table=2,actions=group:2"),
    ("mod-flows", "a0_0", "table=0,priority=10,actions=write_metadata:0x3,goto_table:1"),
    ("mod-flows", "c0_0", "table=1,ip,nw_dst=10.2.0.0/16,actions=output:1"),
    ("del-flows", "c0_0", ""),
    ("add-flow", "a0_0", "table=0,priority=99,udp,actions=NORMAL"),
    ("add-flow", "a0_0", "table=0,priority=30,in_port=1,cookie=0x50aaaaaa00000001,actions=drop"),
    ("mod-group", "a0_0", "group_id=1,type=ff,bucket=watch_port:4,output:4"),
    ("mod-group", "a0_0", "group_id=1,type=all,bucket=output:3,bucket=output:4"),
]


def rounds() -> list[list[tuple[str, str, str]]]:
    """Return the changes in rounds of one for each switch: switches do not depend on each other."""
    of_switch = [[change for change in CHANGES if change[1] == name] for name in ("e0_0", "a0_0", "c0_0")]
    return [[change for change in each if change] for each in zip_longest(*of_switch)]


def right(fabric: Fabric, name: str) -> bool:
    """Tell whether `sopa rules` says that exactly the intended rules are installed."""
    return bool(fabric.controller.get(f"/switches/{name}/rules").json().get("right"))


def test_what_is_changed_by_hand_is_said_as_it_is(shared: Fabric) -> None:
    for changes in rounds():
        for command, switch, change in changes:
            shared.ovs.ofctl(command, switch, *([change] if change else []))
            assert not right(shared, switch), change
            # a reconnecting switch is reconciled, actions included, and loses no entry on the way
            shared.ovs.appctl("bridge/reconnect", switch)
        for _, switch, _ in changes:
            eventually(partial(right, shared, switch), True)
