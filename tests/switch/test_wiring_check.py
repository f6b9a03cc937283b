"""The cabling as probes show it, with a real controller and real Open vSwitch: probes are handed in at dummy ports."""

from __future__ import annotations

from typing import Any

import pytest

from sopa_ryu.southbound import lldp
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch


def hear(fabric: Fabric, at: str, port: int, frame: bytes) -> None:
    """A frame arrives at a switch's port."""
    fabric.ovs.appctl("netdev-dummy/receive", f"{at}-eth{port}", frame.hex())


def probe(fabric: Fabric, sender: str, port: int) -> bytes:
    return lldp.frame(fabric.tree.dpid(fabric.tree.switch(sender)), port)


def wiring(fabric: Fabric) -> dict[str, Any]:
    body: dict[str, Any] = fabric.controller.get("/wiring").json()
    return body


def problems(fabric: Fabric) -> dict[str, str]:
    return {each["link"]: each["kind"] for each in wiring(fabric)["problems"]}


def test_a_link_whose_probes_arrive_at_both_planned_ends_is_right(fabric: Fabric) -> None:
    assert wiring(fabric)["links"] == 32
    hear(fabric, "a0_0", 3, probe(fabric, "c0_0", 1))
    hear(fabric, "c0_0", 1, probe(fabric, "a0_0", 3))
    eventually(lambda: wiring(fabric)["right"], 1)
    assert problems(fabric) == {}


def test_a_miswired_link_is_listed_and_excluded_until_its_cable_is_pulled(fabric: Fabric) -> None:
    hear(fabric, "a0_0", 3, probe(fabric, "c0_1", 1))  # where c0_0 should be
    eventually(lambda: problems(fabric), {"a0_0-c0_0": "swapped"})
    assert "a0_0 port 3 leads to c0_1 port 1, not to c0_0 port 1" in wiring(fabric)["problems"][0]["detail"]
    eventually(lambda: fabric.controller.fabric()["failures"])
    assert fabric.controller.fabric()["failures"] == [{"name": "a0_0-c0_0", "kind": "link", "reason": "miswired"}]
    paths = fabric.controller.get("/paths", src="10.0.0.2", dst="10.2.0.2").json()
    assert paths["excluded"] == [{"up": [0, 0], "reason": "link a0_0-c0_0 miswired"}]
    assert "is miswired and excluded from candidate paths" in fabric.controller.log_tail()
    switch = fabric.tree.switch("a0_0")
    fabric.dummy.set_port(switch, 3, up=False)
    eventually(lambda: problems(fabric), {"a0_0-c0_0": "missing"})
    fabric.dummy.set_port(switch, 3, up=True)
    eventually(lambda: fabric.controller.fabric()["failures"], [])


def test_a_link_that_comes_up_with_another_peer_is_never_used(fabric: Fabric) -> None:
    switch = fabric.tree.switch("a0_0")
    fabric.dummy.set_port(switch, 3, up=False)
    eventually(lambda: fabric.controller.fabric()["failures"])
    fabric.dummy.set_port(switch, 3, up=True)
    hear(fabric, "a0_0", 3, probe(fabric, "c0_1", 4))
    eventually(lambda: wiring(fabric)["refused"], 1)
    seen = set()

    def used() -> bool:
        failures = fabric.controller.get("/failures").json()["failures"]
        seen.update(failure["reason"] for failure in failures)
        return failures == [] or failures[0]["reason"] == "miswired"

    eventually(used)
    assert seen <= {"down", "silent", "miswired"}
    assert fabric.controller.fabric()["failures"] == [{"name": "a0_0-c0_0", "kind": "link", "reason": "miswired"}]


def test_a_foreign_device_on_a_link_is_named(fabric: Fabric) -> None:
    hear(fabric, "a0_0", 3, lldp.frame(0xFFFFFF, 1))
    eventually(lambda: problems(fabric), {"a0_0-c0_0": "foreign"})


def test_what_a_host_sends_as_a_probe_does_not_reach_the_controller(fabric: Fabric) -> None:
    hear(fabric, "e0_0", 1, probe(fabric, "c0_1", 4))
    hear(fabric, "a0_0", 3, probe(fabric, "c0_0", 1))
    hear(fabric, "c0_0", 1, probe(fabric, "a0_0", 3))
    eventually(lambda: wiring(fabric)["right"], 1)
    assert problems(fabric) == {}
    eventually(
        lambda: [line for line in dump(fabric, "e0_0") if "in_port=1 " in line],
        lambda lines: any("n_packets=1" in line for line in lines),
    )


def test_a_malformed_probe_is_said_and_changes_nothing(fabric: Fabric) -> None:
    frame = probe(fabric, "c0_0", 1)
    hear(fabric, "a0_0", 3, frame[:16] + b"\xff" * (len(frame) - 16))
    eventually(lambda: fabric.controller.log_tail(), Containing("a frame that is no LLDP arrived"))
    assert problems(fabric) == {}


def dump(fabric: Fabric, name: str) -> list[str]:
    return fabric.ovs.ofctl("dump-flows", name).splitlines()
