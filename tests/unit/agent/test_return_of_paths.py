"""A section is left for losses that only it explains, and comes back after probes in a row."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import PathHealth
from sopa_ryu.channel.probes import Stream

FAR, SILENT = IPv4Address("10.2.1.3"), IPv4Address("10.2.1.4")


@pytest.mark.parametrize("every", [2, 4])
def test_a_section_in_which_one_of_some_probes_is_lost_does_not_come_back(every: int) -> None:
    health = PathHealth()
    for number in range(40):
        health.decided(Fate(Stream(FAR, number % 2, number // 2 % 2), came_back=number % 2 == 1), 0.01 * number)
    [dead] = health.avoided.dead
    for number in range(1000):
        now = 1.0 + 0.05 * number
        health.decided(Fate(Stream(FAR, 1, number % 2), came_back=True), now)
        health.decided(Fate(Stream(FAR, 0, number % 2), came_back=number % every > 0), now)
        health.tick(now)
    assert health.avoided.dead == {dead}
    for number in range(1000):
        health.decided(Fate(Stream(FAR, 0, number % 2), came_back=True), 51.0 + 0.05 * number)
        health.tick(51.0 + 0.05 * number)
    assert not health.avoided.dead


def probes_until_left(*, crowded: bool = False, silent: int = 0) -> int:
    """Return how many probes are lost on a link before it is left, with others to a host that has never answered."""
    health = PathHealth()
    for number in range(100):
        health.decided(Fate(Stream(FAR, number % 2, number // 2 % 2), came_back=True), 0.01 * number)
    for number in range(1000):
        now = 1.0 + 0.01 * number
        for other in range(silent):
            health.decided(Fate(Stream(SILENT, (number + other) % 2, number // 2 % 2), came_back=False), now)
        bad = Fate(Stream(FAR, number % 2, number // 2 % 2), came_back=number % 2 == 1, crowded=crowded)
        health.decided(bad, now)
        if health.avoided.dead:
            assert {section.up1 for section in health.avoided.dead} == {0}
            return number // 2 + 1
    raise AssertionError("it is never left")


def test_losses_while_a_queue_was_full_count_a_part() -> None:
    assert probes_until_left(crowded=True) > 2 * probes_until_left()


def test_a_host_that_does_not_answer_hides_no_dead_path() -> None:
    assert probes_until_left(silent=4) <= probes_until_left() + 1
