"""Ryu's parsers with a bound: whatever arrives ends in a message or an error, soon."""

import struct
import subprocess
import sys

PARSE = """
import sys
from sopa_ryu import manager
manager.make_ryu_importable()
from sopa_ryu.runtime.library import ofproto_parser, ofproto_protocol, ofproto_v1_3, ofproto_v1_3_parser
from sopa_ryu.southbound import parsing
from sopa_ryu.southbound.instructions import encode
from flowrules.switch_rules import switch_rules
from topologies import FatTree
parsing.bound()
datapath = ofproto_protocol.ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
for line in sys.stdin:
    data = bytes.fromhex(line)
    try:
        found = ofproto_parser.msg(datapath, *ofproto_parser.header(data), data)
        print(type(found).__name__)
    except (parsing.MalformedError, parsing.OFPTruncatedMessage, parsing.OFPUnknownVersion) as error:
        print("refused", type(error).__name__, error)
# what is sent between two messages has no bound, although Ryu unpacks fields while it serializes some actions
tree = FatTree(16)
for _ in range(20):
    for flow in switch_rules(tree, tree.switch("e0_0")).flows:
        message = ofproto_v1_3_parser.OFPFlowMod(datapath, instructions=list(encode(flow)))
        message.serialize()
print("all sent")
"""


def message(kind: int, body: bytes, version: int = 4) -> str:
    return (struct.pack("!BBHI", version, kind, 8 + len(body), 1) + body).hex()


FLOWS, GROUPS, METERS, FEATURES = (struct.pack("!HH4x", kind, 0) for kind in (1, 7, 9, 12))
FLOW = struct.pack("!HBxIIHHHHH2xQQQ", 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
EMPTY_MATCH = struct.pack("!HH4x", 1, 4)
ENDLESS = {
    "hello's elements": message(0, bytes(16)),
    "flow entries": message(19, FLOWS + bytes(64)),
    "instructions": message(19, FLOWS + FLOW + EMPTY_MATCH + bytes(16)),
    "actions": message(19, FLOWS + FLOW + EMPTY_MATCH + struct.pack("!HH4xHH4x", 4, 16, 0, 0)),
    "groups": message(19, GROUPS + bytes(64)),
    "buckets": message(19, GROUPS + struct.pack("!HBxI", 24, 0, 1) + bytes(16)),
    "meters": message(19, METERS + bytes(64)),
    "tables' features": message(19, FEATURES + bytes(64)),
    "queues": message(23, bytes(64)),
    "of another version": message(17, FLOWS + bytes(96), version=1),
}
ENTRY = struct.pack("!HBxIIHHHHH2xQQQ", 56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) + EMPTY_MATCH
RIGHT = {
    message(0, struct.pack("!HHI", 1, 8, 0x12)): "OFPHello",
    message(19, FLOWS + ENTRY * 1000): "OFPFlowStatsReply",  # however many parts it has
    message(21, b""): "OFPBarrierReply",  # a short one, whose bound is small
}


def test_whatever_arrives_ends_in_a_message_or_an_error() -> None:
    """One process for all, since Ryu's import takes longer than any of them; a part without a length would never end."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE],
        input="\n".join([*ENDLESS.values(), *RIGHT]),
        capture_output=True,
        text=True,
        check=True,
    )
    *endless, hello, many, barrier, last = done.stdout.splitlines()
    assert len(endless) == len(ENDLESS)
    for what, found in zip(ENDLESS, endless, strict=True):
        assert found.startswith(("refused", "OFP")), what
    assert [hello, many, barrier] == list(RIGHT.values())
    assert last == "all sent", done.stderr[-500:]
