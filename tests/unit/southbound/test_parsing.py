"""Ryu's parsers with a bound: whatever arrives ends in a message or an error, soon."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

PARSE = """
import sys
from sopa_ryu import manager
manager.make_ryu_importable()
from ryu.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3, ofproto_v1_3_parser
from sopa_ryu.southbound import parsing
parsing.bound()
datapath = ofproto_protocol.ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
for line in sys.stdin:
    data = bytes.fromhex(line)
    try:
        found = ofproto_parser.msg(datapath, *ofproto_parser.header(data), data)
        print(type(found).__name__)
    except (parsing.MalformedError, parsing.OFPTruncatedMessage, parsing.OFPUnknownVersion) as error:
        print("refused", type(error).__name__, error)
"""


def message(kind: int, body: bytes, version: int = 4) -> str:
    return (struct.pack("!BBHI", version, kind, 8 + len(body), 1) + body).hex()


def parsed(*messages: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PARSE],
        input="\n".join(messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


FLOW = struct.pack("!HBxIIHHHHH2xQQQ", 80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
EMPTY_MATCH = struct.pack("!HH4x", 1, 4)


@pytest.mark.parametrize(
    "endless",
    [
        message(0, bytes(16)),  # hello: elements
        message(19, struct.pack("!HH4x", 1, 0) + bytes(64)),  # flow entries
        message(19, struct.pack("!HH4x", 1, 0) + FLOW + EMPTY_MATCH + bytes(16)),  # instructions
        message(19, struct.pack("!HH4x", 1, 0) + FLOW + EMPTY_MATCH + struct.pack("!HH4xHH4x", 4, 16, 0, 0)),  # actions
        message(19, struct.pack("!HH4x", 7, 0) + bytes(64)),  # groups
        message(19, struct.pack("!HH4x", 7, 0) + struct.pack("!HBxI", 24, 0, 1) + bytes(16)),  # buckets
        message(19, struct.pack("!HH4x", 9, 0) + bytes(64)),  # meters
        message(19, struct.pack("!HH4x", 12, 0) + bytes(64)),  # tables' features
        message(23, bytes(64)),  # queues
        message(17, struct.pack("!HH4x", 1, 0) + bytes(96), version=1),  # of another version
    ],
)
def test_a_part_without_a_length_ends(endless: str) -> None:
    (found,) = parsed(endless)
    assert found.startswith(("refused", "OFP"))


def test_right_messages_are_parsed_however_many_parts_they_have() -> None:
    entry = struct.pack("!HBxIIHHHHH2xQQQ", 56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) + EMPTY_MATCH
    many = message(19, struct.pack("!HH4x", 1, 0) + entry * 1000)
    hello = message(0, struct.pack("!HHI", 1, 8, 0x12))
    assert parsed(hello, many, message(21, b"")) == ["OFPHello", "OFPFlowStatsReply", "OFPBarrierReply"]


SERIALIZE = """
import sys
from sopa_ryu import manager
manager.make_ryu_importable()
from ryu.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3, ofproto_v1_3_parser
from sopa_ryu.southbound import parsing
from sopa_ryu.southbound.instructions import encode
from flowrules.switch_rules import switch_rules
from topologies import FatTree
parsing.bound()
datapath = ofproto_protocol.ProtocolDesc(version=ofproto_v1_3.OFP_VERSION)
data = bytes.fromhex(sys.stdin.read())
ofproto_parser.msg(datapath, *ofproto_parser.header(data), data)  # a short message, whose bound is small
tree = FatTree(16)
for _ in range(20):
    for flow in switch_rules(tree, tree.switch("e0_0")).flows:
        message = ofproto_v1_3_parser.OFPFlowMod(datapath, instructions=list(encode(flow)))
        message.serialize()
print("all")
"""


def test_what_is_sent_between_two_messages_has_no_bound() -> None:
    """Ryu unpacks fields while it serializes some actions."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SERIALIZE],
        input=message(21, b""),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr[-500:]) == ("all", "")
