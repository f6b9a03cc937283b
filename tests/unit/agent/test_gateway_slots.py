"""The slots by which flows to the outside choose a gateway."""

from __future__ import annotations

from collections import Counter
from ipaddress import IPv4Network

import pytest

from sopa_ryu.agent.paths.path_table import GATEWAY_SLOTS, PathTable, WayOut

WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), ((0, 0),)) for pod in range(4))


def slots(ways: tuple[WayOut, ...]) -> list[bytes]:
    table = PathTable(IPv4Network("10.0.0.0/8"), 1, (), (), ways_out=ways)
    return [ways[index].mac for index in table.slots]


@pytest.mark.parametrize("gone", WAYS)
def test_a_gateway_that_leaves_moves_its_own_flows_only(gone: WayOut) -> None:
    before, after = slots(WAYS), slots(tuple(way for way in WAYS if way != gone))
    assert len(before) == len(after) == GATEWAY_SLOTS
    assert {was for was, now in zip(before, after, strict=True) if was != now} == {gone.mac}
    assert min(Counter(before).values()) > GATEWAY_SLOTS / len(WAYS) / 2
