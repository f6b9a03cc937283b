"""Rules that somebody changes behind the controller's back, on real Open vSwitch: found, and put right when a switch reconnects.

That they are read and put right again and again is in `tests/unit/fabric/scripts/coordinator/tampered.txt` and, with packets, in
`tests/faults`; that nothing else is found wrong in `test_memory_switch.py`.
"""

from functools import partial
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.switch


def rounds() -> list[list[list[str]]]:
    """Return ofctl's arguments in rounds of one change for each switch: switches do not depend on each other."""
    changes = [line.split() for line in (Path(__file__).parent / "scripts/by_hand.txt").read_text().splitlines()]
    of_switch = [[change for change in changes if change[1] == name] for name in ("e0_0", "a0_0", "c0_0")]
    return [[change for change in each if change] for each in zip_longest(*of_switch)]


def right(fabric: Fabric, name: str) -> bool:
    """Tell whether `sopa rules` says that exactly the intended rules are installed."""
    return bool(fabric.controller.get(f"/switches/{name}/rules").json().get("right"))


def test_what_is_changed_by_hand_is_said_as_it_is(shared: Fabric) -> None:
    for changes in rounds():
        for change in changes:
            shared.ovs.ofctl(*change)
            switch = change[1]
            assert not right(shared, switch), change
            # a reconnecting switch is reconciled, actions included, and loses no entry on the way
            shared.ovs.appctl("bridge/reconnect", switch)
        for change in changes:
            eventually(partial(right, shared, change[1]), True)
