"""The messages of the push channel: views arrive unchanged; what is rejected, `scripts/formats` shows (test_formats.py)."""

import contextlib
import json
import random
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import protocol
from sopa_ryu.channel.mcs import HostList
from sopa_ryu.channel.messages import HostChange, ProtocolError, from_controller
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")
TREE = FatTree(4, "2001:db8:1::/48")
NAMES = [TREE.name(each) for each in (*TREE.switches(), *TREE.links())]
FAILED = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["down", "silent"]), max_size=6)
IN_FORCE = View(7, 3, Failures(TREE, {"a0_0": "down", "e1_0-a1_0": "drained"}))


def test_messages_have_the_fields_of_the_contract() -> None:
    snapshot = {"type": "snapshot", "epoch": 7, "version": 3, "host": "10.0.0.2", "k": 4}
    snapshot["prefix6"] = "2001:db8:1::/48"
    snapshot["failures"] = {"a0_0": "down", "e1_0-a1_0": "drained"}
    assert json.loads(protocol.snapshot(IN_FORCE, ADDRESS)) == snapshot
    delta = {"type": "delta", "epoch": 7, "base": 3, "version": 5}
    delta |= {"failed": {"a0_0": "silent", "c1_1": "down"}, "healed": ["e1_0-a1_0"]}
    after = View(7, 5, Failures(TREE, delta["failed"]))
    assert json.loads(protocol.delta(IN_FORCE, after)) == delta
    # a later controller's fields are taken no notice of
    assert protocol.follow(from_controller(json.dumps({**snapshot, "more": 1})), None, ADDRESS) == IN_FORCE
    assert protocol.follow(from_controller(json.dumps({**delta, "more": 1})), IN_FORCE, ADDRESS) == after


def test_a_snapshot_with_a_list_of_hosts_that_run_mcs_is_one_for_agents_that_know_none() -> None:
    its = HostList(4, frozenset([ADDRESS, IPv4Address("10.0.0.3")]), 3, True)
    text = protocol.snapshot(IN_FORCE, ADDRESS, its)
    assert json.loads(text)["mcs"] == ["10.0.0.2", "10.0.0.3"]
    assert protocol.follow(from_controller(text), None, ADDRESS) == IN_FORCE
    whole, none = from_controller(text), from_controller(protocol.snapshot(IN_FORCE, ADDRESS))
    assert whole.hosts == HostChange(4, tuple(sorted(its.hosts)), (), 3, True)
    assert none.hosts is None


@given(st.lists(st.tuples(st.integers(1, 9), FAILED), min_size=1, max_size=8))
def test_deltas_over_any_number_of_versions_equal_a_snapshot(steps: list[tuple[int, dict[str, str]]]) -> None:
    sent = View(1, 1, Failures(TREE))
    held = protocol.follow(from_controller(protocol.snapshot(sent, ADDRESS)), None, ADDRESS)
    for more, failed in steps:
        before, sent = sent, View(1, sent.version + more, Failures(TREE, failed))
        held = protocol.follow(from_controller(protocol.delta(before, sent)), held, ADDRESS)
        assert held == sent


def test_no_bytes_raise_anything_but_a_protocol_error() -> None:
    draw = random.Random("fuzz")
    delta = protocol.delta(IN_FORCE, View(7, 4, Failures(TREE)))
    good = [protocol.snapshot(IN_FORCE, ADDRESS), delta, protocol.ack(IN_FORCE, 0)]
    texts: list[str | bytes] = ["", "[" * 100_000, b"\xff\xfe", '"\ud800"', "NaN", "1e999", '{"type": ["snapshot"]}']
    for _ in range(2000):
        octets = bytearray(draw.choice(good).encode())
        for _ in range(draw.randrange(1, 4)):
            octets[draw.randrange(len(octets))] = draw.randrange(256)
        texts.append(bytes(octets[: draw.randrange(len(octets) + 1)]))
    for text in texts:
        with contextlib.suppress(ProtocolError):
            protocol.follow(from_controller(text), IN_FORCE, ADDRESS)
        with contextlib.suppress(ProtocolError):
            protocol.answer(text, IN_FORCE)
