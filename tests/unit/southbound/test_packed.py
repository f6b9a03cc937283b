"""What is packed and read without Ryu, because there is so much of it, is what Ryu would write and read; what ports say."""

import random
import struct
from collections.abc import Iterator

import pytest

from flowrules.model import Output, SwitchRules, ToGroup
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.messages import AddFlow, AddGroup, DeleteFlow, DeleteGroup, Installed, Modification, ModifyGroup
from sopa_ryu.fabric.traffic import PortCounters
from sopa_ryu.runtime.library import ProtocolDesc, ofproto_v1_3, ofproto_v1_3_parser
from sopa_ryu.southbound import lldp, openflow, rule_audit
from topologies import Clos, Failures, FatTree
from topologies.fabric_file import parse
from topologies.failures import Reason

TREE = FatTree(4)


@pytest.mark.parametrize(
    "tree", [TREE, parse("pods: 1\nedges: 2\naggregations: 2\ncores: 0\nhosts: 2\ngateways: [h0_0_2]\n").fabric]
)
def test_no_rule_is_said_to_drop_what_has_its_port_already(tree: Clos) -> None:
    for switch in tree.switches():
        wanted = switch_rules(tree, switch)
        after = {flow.goto for flow in wanted.flows if any(isinstance(action, Output | ToGroup) for action in flow.write)}
        told = rule_audit.rules(tree.name(switch), wanted, 1, 1, [], {})["entries"]
        assert [entry for entry in told if entry["table"] in after and "drop" in entry["does"]] == []
        assert any("drop" in entry["does"] for entry in told)


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


@pytest.mark.parametrize(("dpid", "port"), [(0x020001, 1), (2**64 - 1, 0xFFFFFEFF), (0, 48)])
def test_a_probe_is_a_packet_out(dpid: int, port: int) -> None:
    expected = openflow.packet_out(ProtocolDesc(ofproto_v1_3.OFP_VERSION), port, lldp.frame(dpid, port))
    expected.set_xid(77)
    expected.serialize()
    assert openflow.with_xid(openflow.packed_probe(dpid, port), 77) == bytes(expected.buf)


NUMBERS = ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"]


def statistics(flags: int, *ports: tuple[int, ...], kind: int = ofproto_v1_3.OFPMP_PORT_STATS) -> bytes:
    body = b"".join(struct.pack("!I4x12QII", *port) for port in ports)
    return struct.pack("!BBHIHH4x", 4, ofproto_v1_3.OFPT_MULTIPART_REPLY, 16 + len(body), 9, kind, flags) + body


def drawn_port(choose: random.Random, number: int) -> tuple[int, ...]:
    counters = [choose.choice((0, choose.getrandbits(40), (1 << 64) - 1)) for _ in range(12)]
    return (number, *counters, choose.choice((0, choose.getrandbits(20), (1 << 32) - 1)), choose.randrange(10**9))


@pytest.mark.parametrize("seed", range(5))
def test_port_statistics_are_those_that_ryu_reads(seed: int) -> None:
    choose = random.Random(f"{seed} ports")
    ports = [drawn_port(choose, number) for number in (*range(1, 49), ofproto_v1_3.OFPP_LOCAL)]
    message = statistics(seed % 2, *ports)
    found = openflow.port_statistics(9, message)
    assert found is not None
    assert (found.xid, openflow.is_last(found)) == (9, not seed % 2)
    parsed = ofproto_v1_3_parser.OFPPortStatsReply.parser(
        ProtocolDesc(4), 4, ofproto_v1_3.OFPT_MULTIPART_REPLY, len(message), 9, bytearray(message)
    )
    expected = {}
    for each in parsed.body[:-1]:  # without that of the bridge itself
        seconds = None if each.duration_sec == (1 << 32) - 1 else each.duration_sec + each.duration_nsec / 1e9
        numbers = {name: getattr(each, name) for name in NUMBERS}
        known = {name: None if value == (1 << 64) - 1 else value for name, value in numbers.items()}
        expected[each.port_no] = PortCounters(
            known["rx_bytes"], known["tx_bytes"], known["rx_packets"], known["tx_packets"],
            known["rx_dropped"], known["tx_dropped"], known["rx_errors"], known["tx_errors"], seconds,
        )  # fmt: skip
    assert dict(found.body) == expected


def test_what_are_no_port_statistics_is_left_to_ryu_or_refused() -> None:
    port = drawn_port(random.Random(1), 1)
    assert openflow.port_statistics(9, statistics(0, kind=ofproto_v1_3.OFPMP_FLOW)) is None
    assert openflow.port_statistics(9, statistics(0)) == openflow.PortStatistics(9, 0, [])
    for cut in (1, 8, 111):
        with pytest.raises(ValueError, match="port statistics"):
            openflow.port_statistics(9, statistics(0, port)[:-cut])
    with pytest.raises(ValueError, match="port statistics"):
        openflow.port_statistics(9, statistics(0)[:12])


def test_an_entry_is_removed_by_its_table_priority_and_match_alone() -> None:
    message = openflow.flow_delete(ProtocolDesc(4), Installed(1, 40, 7, (("eth_type", 0x800),)))
    assert (message.command, message.table_id, message.priority) == (ofproto_v1_3.OFPFC_DELETE_STRICT, 1, 40)
    assert list(message.match.items()) == [("eth_type", 0x800)]


@pytest.mark.parametrize(
    ("config", "state", "trouble"),
    [
        (0, ofproto_v1_3.OFPPS_LIVE, None),
        (0, 0, Reason.SILENT),
        (0, ofproto_v1_3.OFPPS_LINK_DOWN, Reason.DOWN),
        (0, ofproto_v1_3.OFPPS_LINK_DOWN | ofproto_v1_3.OFPPS_LIVE, Reason.DOWN),
        (ofproto_v1_3.OFPPC_PORT_DOWN, ofproto_v1_3.OFPPS_LIVE, Reason.DOWN),
    ],
)
def test_a_port_is_silent_that_is_up_and_not_live(config: int, state: int, trouble: Reason | None) -> None:
    port = ofproto_v1_3_parser.OFPPort(1, "02:00:00:00:00:01", b"port1", config, state, 0, 0, 0, 0, 0, 0)
    assert openflow.port_trouble(port) is trouble
