"""Entries for cables that a fabric has not got."""

from __future__ import annotations

from flowrules.switch_rules import switch_rules
from topologies import Clos


def test_a_core_switch_has_no_entry_for_a_pod_without_a_cable() -> None:
    tree = Clos(4, 2, 2, 4, 2, links={"a2_0-c0_1": "absent"})
    for name, pods in (("c0_0", [0, 1, 2, 3]), ("c0_1", [0, 1, 3])):
        down = [flow for flow in switch_rules(tree, tree.switch(name)).flows if flow.purpose == "to a pod"]
        assert [dict(flow.match)["ipv4_dst"][0] for flow in down] == [f"10.{pod}.0.0" for pod in pods]  # type: ignore[index]
