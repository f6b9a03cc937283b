"""The cabling as probes show it, with a real controller and real Open vSwitch: probes are handed in at dummy ports.

What is concluded from probes is in `tests/unit/fabric/scripts/wiring`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sopa_ryu.southbound import lldp
from tests.helpers.fabrics import Fabric, running
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch


@pytest.fixture(scope="module")
def cabled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A fabric whose controller sends probes, of which none arrives by itself."""
    with running(4, tmp_path_factory.mktemp("cabled"), "--sopa-hold-down=0", "--sopa-hold-down-max=0") as fabric:
        yield fabric


def hear(fabric: Fabric, at: str, port: int, frame: bytes) -> None:
    """A frame arrives at a switch's port."""
    fabric.ovs.appctl("netdev-dummy/receive", f"{at}-eth{port}", frame.hex())


def probe(fabric: Fabric, sender: str, port: int) -> bytes:
    return lldp.frame(fabric.tree.dpid(fabric.tree.switch(sender)), port)


def wiring(fabric: Fabric) -> dict[str, Any]:
    return fabric.controller.get("/wiring").json()


def problems(fabric: Fabric) -> dict[str, str]:
    return {each["link"]: each["kind"] for each in wiring(fabric)["problems"]}


def test_probes_that_arrive_at_both_planned_ends_are_right_and_those_of_hosts_do_not_count(cabled: Fabric) -> None:
    def taken() -> bool:
        """Tell whether the edge switch has dropped the host's."""
        lines = cabled.ovs.ofctl("dump-flows", "e0_0").splitlines()
        return any("in_port=1 " in line and "n_packets=1" in line for line in lines)

    assert wiring(cabled)["links"] == 32
    hear(cabled, "e0_0", 1, probe(cabled, "c0_1", 4))
    eventually(taken)
    broken = probe(cabled, "c0_0", 1)
    hear(cabled, "a0_0", 3, broken[:16] + b"\xff" * (len(broken) - 16))
    eventually(cabled.controller.log.read_text, Containing("a frame that is no LLDP arrived"))
    hear(cabled, "a0_0", 3, probe(cabled, "c0_0", 1))
    hear(cabled, "c0_0", 1, probe(cabled, "a0_0", 3))
    eventually(lambda: wiring(cabled)["right"], 1)
    assert problems(cabled) == {}
