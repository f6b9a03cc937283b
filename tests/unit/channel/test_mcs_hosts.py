"""The messages of the hosts that run MCS: lists, and what no message may lead to. Who is on them, test_push_channel.py shows."""

from __future__ import annotations

import json
from ipaddress import IPv4Address

import pytest

from sopa_ryu.channel import mcs, protocol
from sopa_ryu.channel.mcs import HostChange, HostList, Variant
from sopa_ryu.channel.protocol import ProtocolError
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

VIEW = View(1, 1, Failures(FatTree(4)))
ONE, TWO = (IPv4Address(f"10.0.0.{number}") for number in (2, 3))


def test_a_snapshot_with_a_list_is_one_for_agents_that_know_none() -> None:
    its = HostList(4, frozenset([ONE, TWO]), 3, True)
    text = protocol.snapshot(VIEW, ONE, its)
    assert json.loads(text)["mcs"] == ["10.0.0.2", "10.0.0.3"]
    assert protocol.receive(text, None, ONE) == VIEW
    assert protocol.hosts_named(text) == HostChange(4, True, its.hosts, frozenset(), 3, True)
    assert protocol.hosts_named(protocol.snapshot(VIEW, ONE)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"added": "10.0.0.2"},
        {"added": ["10.0.0"]},
        {"added": [7]},
        {"removed": None},
        {"number": -1},
        {"number": True},
        {"known": 9},
        {"complete": 1},
    ],
)
def test_a_malformed_list_is_rejected_as_a_message(wrong: dict[str, object]) -> None:
    good = json.loads(mcs.change(HostList(1, frozenset(), 1, True), HostList(2, frozenset([ONE]), 1, True)))
    assert protocol.hosts_named(json.dumps(good)) is not None
    with pytest.raises(ProtocolError):
        protocol.hosts_named(json.dumps(good | wrong))


@pytest.mark.parametrize("version", ["", "-1", "1.0", "9" * 30])
def test_what_an_agent_says_of_itself_is_not_trusted(version: str) -> None:
    query = {"policy": ["m" * 99], "mcs": [version], "channel-kind": ["paths"]}
    assert mcs.requested(query) == ("m" * mcs.MAX_NAME, None)
    assert mcs.requested({}) == (None, None)
    assert mcs.requested({"mcs": ["2"], "channel-kind": ["rays"]}) == (None, Variant(2, "rays"))
