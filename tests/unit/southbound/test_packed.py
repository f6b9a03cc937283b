"""Modifications that are packed once for many switches are those that Ryu makes for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ryu.ofproto import ofproto_v1_3
from ryu.ofproto.ofproto_protocol import ProtocolDesc

from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.messages import AddFlow, AddGroup, DeleteFlow, DeleteGroup, Installed, Modification, ModifyGroup
from sopa_ryu.southbound import openflow
from topologies import Failures, FatTree

TREE = FatTree(4)


def modifications(rules: SwitchRules) -> Iterator[Modification]:
    for version in (1, 2):
        yield from (AddFlow(flow, version) for flow in rules.flows)
    yield from (DeleteFlow(Installed(flow.table, flow.priority, 0, flow.match)) for flow in rules.flows)
    for group in rules.groups:
        yield from (AddGroup(group), ModifyGroup(group), DeleteGroup(group.id))


@pytest.mark.parametrize("failed", [{}, {"a0_0-c0_1": "down", "c1_0": "drained"}])
def test_they_differ_in_nothing_but_the_transaction_id(failed: dict[str, str]) -> None:
    datapath = ProtocolDesc(ofproto_v1_3.OFP_VERSION)
    for switch in TREE.switches():
        for number, one in enumerate(modifications(switch_rules(TREE, switch, Failures(TREE, failed)))):
            expected = openflow.encode(datapath, one)
            expected.set_xid(number)
            expected.serialize()
            assert openflow.with_xid(openflow.packed(one), number) == bytes(expected.buf), one
