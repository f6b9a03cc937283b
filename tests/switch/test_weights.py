"""Flows without a label in an uneven fabric, in real Open vSwitch: each uplink has them in proportion to its weight."""

from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.fabrics import packet, running
from topologies import Clos

pytestmark = pytest.mark.switch

FLOWS = 600


def test_unlabelled_flows_follow_the_weights(tmp_path: Path) -> None:
    """The ``bundle`` action hashes over the places in its list, so that a port which is there twice has twice as many flows."""
    links: dict[str, float | str] = {f"e0_{leaf}-a0_1": 5000 for leaf in range(4)}
    tree = Clos(1, 4, 2, 0, 2, mbit={"host": 10000, "edge": 10000}, links=links)
    src, dst = tree.host("h0_0_2"), tree.host("h0_3_3")
    with running(tree, tmp_path) as fabric:
        edge = tree.edge_of(src)
        taken = Counter(
            fabric.trace(edge, f"in_port=1,{packet(fabric, src, dst)},tp_src={port},tp_dst=80").ports[0]
            for port in range(10_000, 10_000 + FLOWS)
        )
        body = fabric.controller.get("/paths", src="h0_0_2", dst="h0_3_3").json()
    shares = [path["weight"] for path in body["candidates"]]
    assert shares == pytest.approx([2 / 3, 1 / 3])
    for index, share in enumerate(shares):
        # four standard deviations of a binomial distribution
        assert taken[tree.uplink_port(edge.level, index)] / FLOWS == pytest.approx(share, abs=0.08), taken
