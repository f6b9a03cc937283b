"""The keeper of an interface, with a virtual clock: when it looks, how often it puts something right."""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.keeper import LOOK_SECONDS, SETTINGS_SECONDS, Keeper
from sopa_ryu.agent.kernel.changes import Change
from sopa_ryu.agent.mending import CALM_SECONDS, MAX_WAIT_SECONDS, InterfaceAway, Part
from tests.models.memory_labeller import MemoryChanges, MemoryInterface, MemoryLabeller, MemoryPlace, MemorySettings
from tests.models.virtual_clock import VirtualLoop


class Kept:
    def __init__(self) -> None:
        self.loop, self.interface, self.mended = VirtualLoop(), MemoryInterface(), Counter[Part]()
        self.settings, labeller = MemorySettings(self.interface), MemoryLabeller(self.interface)
        labeller.attach()
        place = MemoryPlace(self.interface, IPv4Address("10.0.0.2"))
        self.keeper = Keeper(place, labeller, self.settings, MemoryChanges(self.interface), self.mended)
        self.task = self.loop.create_task(self.keeper.run())


@pytest.fixture
def kept() -> Iterator[Kept]:
    its = Kept()
    yield its
    its.loop.close()


@pytest.mark.parametrize("part", [Part.SEGMENTS, Part.REORDERING, Part.MIN_RTT, Part.MTU])
def test_a_setting_without_a_notification_is_found_within_the_interval(kept: Kept, part: Part) -> None:
    kept.loop.advance(1.0)
    kept.interface.wrong[part] = "it was set to something else"
    kept.loop.advance(SETTINGS_SECONDS + 1.0)
    assert kept.mended == {part: 1}


def test_what_wants_to_look_does_so_with_the_settings(kept: Kept) -> None:
    looked: list[float] = []
    kept.keeper.looks.append(lambda: looked.append(kept.loop.time()))
    kept.loop.advance(2 * SETTINGS_SECONDS + 1.0)
    assert len(looked) == kept.settings.reads == 2
    kept.interface.notify(Change.TRAFFIC_CONTROL)
    kept.loop.advance(1.0)
    assert len(looked) == 3


def test_a_namespace_that_is_removed_without_a_notification_is_found(kept: Kept) -> None:
    kept.loop.advance(1.0)
    kept.interface.away = "/run/netns/blue is gone, or another namespace"
    kept.loop.advance(LOOK_SECONDS + 1.0)
    assert isinstance(kept.task.exception(), InterfaceAway)


@pytest.mark.parametrize("part", Part)
def test_two_programs_that_want_different_things_do_not_spin(kept: Kept, part: Part) -> None:
    kept.loop.advance(1.0)
    for _ in range(600 * 2):  # ten minutes
        if part is Part.PROGRAM:
            kept.interface.remove_program()
        else:
            kept.interface.wrong[part] = "it was set to something else"
            kept.interface.notify(Change.LINK)
        kept.loop.advance(0.5)
    assert 600 / MAX_WAIT_SECONDS - 2 <= kept.mended[part] <= 600 / MAX_WAIT_SECONDS + 8
    # and after a calm, the next change is put right immediately
    kept.loop.advance(CALM_SECONDS + MAX_WAIT_SECONDS)
    before = kept.mended[part]
    kept.interface.remove_program()
    kept.loop.advance(0.1)
    assert kept.mended[part] == before + (part is Part.PROGRAM)
    assert kept.keeper.found.is_set()


def test_a_flood_of_notifications_does_not_make_it_read_the_settings_each_time(kept: Kept) -> None:
    for _ in range(1000):
        kept.interface.notify(Change.LINK)
        kept.loop.advance(0.01)
    assert 0 < kept.settings.reads <= 11
