"""A section that is avoided comes back only after probes in a row."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import PathHealth
from sopa_ryu.channel.probes import Stream

FAR = IPv4Address("10.2.1.3")


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
