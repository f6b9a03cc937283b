"""The messages of the push channel: views arrive unchanged; all else is rejected and changes nothing."""

from __future__ import annotations

import contextlib
import json
import random
from ipaddress import IPv4Address
from typing import Any

import pytest

from sopa_ryu.channel import protocol
from sopa_ryu.channel.protocol import Ack, GapError, ProtocolError
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")
TREE = FatTree(4)
NAMES = [TREE.name(each) for each in (*TREE.switches(), *TREE.links())]


def view(version: int, epoch: int = 7, **failures: str) -> View:
    return View(epoch, version, Failures(TREE, {name.replace("__", "-"): why for name, why in failures.items()}))


IN_FORCE = view(3, a0_0="down", e1_0__a1_0="drained")


def test_a_snapshot_has_the_fields_of_the_contract() -> None:
    message = json.loads(protocol.snapshot(IN_FORCE, ADDRESS))
    assert message == {
        "type": "snapshot",
        "epoch": 7,
        "version": 3,
        "host": "10.0.0.2",
        "k": 4,
        "failures": {"a0_0": "down", "e1_0-a1_0": "drained"},
    }
    assert protocol.receive(json.dumps(message), None, ADDRESS) == IN_FORCE


def test_a_delta_has_the_changes_and_its_base_version() -> None:
    after = view(5, a0_0="silent", c1_1="down")
    message = json.loads(protocol.delta(IN_FORCE, after))
    assert message == {
        "type": "delta",
        "epoch": 7,
        "base": 3,
        "version": 5,
        "failed": {"a0_0": "silent", "c1_1": "down"},
        "healed": ["e1_0-a1_0"],
    }


def test_deltas_over_any_number_of_versions_equal_a_snapshot() -> None:
    for seed in range(50):
        draw = random.Random(f"{seed} deltas")
        versions = [
            View(
                1,
                number,
                Failures(
                    TREE, {name: draw.choice(["down", "silent"]) for name in draw.sample(NAMES, draw.randrange(6))}
                ),
            )
            for number in range(1, 20)
        ]
        in_force: View | None = protocol.receive(protocol.snapshot(versions[0], ADDRESS), None, ADDRESS)
        at = 0
        while at < len(versions) - 1:
            to = draw.randrange(at + 1, len(versions))
            in_force = protocol.receive(protocol.delta(versions[at], versions[to]), in_force, ADDRESS)
            assert in_force == versions[to]
            at = to


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (view(2), view(4)),  # one was missed
        (view(4), view(5)),  # from the future
        (view(3, epoch=6), view(4, epoch=6)),  # a controller that is no more
        (view(3, epoch=8), view(4, epoch=8)),  # one that was started anew
    ],
)
def test_a_delta_of_another_version_or_epoch_is_a_gap(before: View, after: View) -> None:
    with pytest.raises(GapError):
        protocol.receive(protocol.delta(before, after), IN_FORCE, ADDRESS)


def test_a_delta_before_the_first_snapshot_is_a_gap() -> None:
    with pytest.raises(GapError, match="nothing is in force"):
        protocol.receive(protocol.delta(view(1), view(2)), None, ADDRESS)


def test_an_unknown_type_of_message_is_a_gap() -> None:
    with pytest.raises(GapError, match="is unknown"):
        protocol.receive('{"type": "patch"}', IN_FORCE, ADDRESS)


def test_a_ping_changes_nothing() -> None:
    assert protocol.receive(protocol.PING, IN_FORCE, ADDRESS) is IN_FORCE
    assert protocol.receive(protocol.PING, None, ADDRESS) is None


SNAPSHOT: dict[str, Any] = json.loads(protocol.snapshot(IN_FORCE, ADDRESS))
DELTA: dict[str, Any] = json.loads(protocol.delta(IN_FORCE, view(4)))


@pytest.mark.parametrize(
    "message",
    [
        {**SNAPSHOT, "host": "10.0.0.3"},
        {key: value for key, value in SNAPSHOT.items() if key != "host"},
        {**SNAPSHOT, "version": 2},  # older than what is in force
        {**SNAPSHOT, "version": -1},
        {**SNAPSHOT, "version": "3"},
        {**SNAPSHOT, "version": True},
        {**SNAPSHOT, "version": 1 << 70},
        {**SNAPSHOT, "epoch": None},
        {**SNAPSHOT, "k": 5},
        {**SNAPSHOT, "k": 1 << 40},
        {**SNAPSHOT, "k": 2, "host": "10.3.0.2"},
        {**SNAPSHOT, "failures": ["a0_0"]},
        {**SNAPSHOT, "failures": {"a0_0": 1}},
        {**SNAPSHOT, "failures": {"a9_0": "down"}},
        {**SNAPSHOT, "failures": {"c0_0-a0_0": "down"}},
        {**DELTA, "failed": None},
        {**DELTA, "failed": {"banana": "down"}},
        {**DELTA, "healed": "a0_0"},
        {**DELTA, "healed": [1]},
        {**DELTA, "healed": ["c0_0"]},  # it has not failed
        {**DELTA, "healed": ["a0_0"], "failed": {"a0_0": "down"}},
        {**DELTA, "version": 3},
        {**DELTA, "base": 3.0},
        [],
        "snapshot",
        None,
    ],
)
def test_contradictory_or_misdirected_messages_are_rejected_with_a_reason(message: Any) -> None:
    with pytest.raises(ProtocolError) as rejected:
        protocol.receive(json.dumps(message), IN_FORCE, ADDRESS)
    assert not isinstance(rejected.value, GapError)
    assert 5 < len(str(rejected.value)) < 300


def test_no_bytes_raise_anything_but_a_protocol_error() -> None:
    draw = random.Random("fuzz")
    good = [protocol.snapshot(IN_FORCE, ADDRESS), protocol.delta(IN_FORCE, view(4)), protocol.ack(IN_FORCE, 0)]
    texts: list[str | bytes] = ["", "[" * 100_000, b"\xff\xfe", "NaN", "1e999", '{"type": ["snapshot"]}']
    for _ in range(2000):
        octets = bytearray(draw.choice(good).encode())
        for _ in range(draw.randrange(1, 4)):
            octets[draw.randrange(len(octets))] = draw.randrange(256)
        texts.append(bytes(octets[: draw.randrange(len(octets) + 1)]))
    for text in texts:
        for take in (
            lambda text: protocol.receive(text, IN_FORCE, ADDRESS),
            lambda text: protocol.answer(text, IN_FORCE),
        ):
            with contextlib.suppress(ProtocolError):
                take(text)


def test_an_agent_acknowledges_what_is_in_force() -> None:
    assert protocol.answer(protocol.ack(IN_FORCE, 2), IN_FORCE) == Ack(7, 3, 2)
    assert protocol.answer(protocol.ack(None, 0), IN_FORCE) == Ack(0, 0, 0)
    assert protocol.answer(protocol.RESYNC, IN_FORCE) is None


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ack", "epoch": 7, "version": 4},  # from the future
        {"type": "ack", "epoch": 7},
        {"type": "ack", "epoch": 7, "version": -1},
        {"type": "ack", "epoch": 7, "version": 3, "refused": "many"},
        {"type": "snapshot"},
        {},
        17,
    ],
)
def test_malformed_or_impossible_acknowledgements_are_rejected(message: Any) -> None:
    with pytest.raises(ProtocolError):
        protocol.answer(json.dumps(message), IN_FORCE)
