"""What a window counts, and for how long."""

from __future__ import annotations

import numpy as np

from sopa_ryu.health.elements import Elements
from sopa_ryu.health.window import Window, nothing
from topologies import FatTree


def test_crossings_are_those_of_the_last_slots() -> None:
    elements = Elements(FatTree(4))
    window = Window(elements, slots=3, seconds=10)
    for second in range(0, 100, 5):
        window.take(second, np.full(elements.total + 1, second, np.float32), nothing())
    assert window.crossings[0] == sum(range(70, 100, 5))
    assert [slot.number for slot in window.last(9)] == [9, 8, 7]
