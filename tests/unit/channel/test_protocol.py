"""The push channel's messages: what is told arrives as it was, and whatever else arrives is refused and changes nothing."""

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


HELD = view(3, a0_0="down", e1_0__a1_0="drained")


def test_a_snapshot_says_everything_in_the_contracts_fields() -> None:
    message = json.loads(protocol.snapshot(HELD, ADDRESS))
    assert message == {
        "type": "snapshot",
        "epoch": 7,
        "version": 3,
        "host": "10.0.0.2",
        "k": 4,
        "failures": {"a0_0": "down", "e1_0-a1_0": "drained"},
    }
    assert protocol.receive(json.dumps(message), None, ADDRESS) == HELD


def test_a_delta_says_what_has_changed_since_which_version() -> None:
    after = view(5, a0_0="silent", c1_1="down")
    message = json.loads(protocol.delta(HELD, after))
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
        held: View | None = protocol.receive(protocol.snapshot(versions[0], ADDRESS), None, ADDRESS)
        at = 0
        while at < len(versions) - 1:
            to = draw.randrange(at + 1, len(versions))
            held = protocol.receive(protocol.delta(versions[at], versions[to]), held, ADDRESS)
            assert held == versions[to]
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
def test_a_delta_of_something_else_than_is_held_asks_for_a_snapshot(before: View, after: View) -> None:
    with pytest.raises(GapError):
        protocol.receive(protocol.delta(before, after), HELD, ADDRESS)


def test_without_a_snapshot_no_delta_is_taken() -> None:
    with pytest.raises(GapError, match="nothing is held"):
        protocol.receive(protocol.delta(view(1), view(2)), None, ADDRESS)


def test_an_unknown_kind_of_message_is_answered_with_a_snapshot_request() -> None:
    with pytest.raises(GapError, match="not known here"):
        protocol.receive('{"type": "patch"}', HELD, ADDRESS)


def test_a_ping_changes_nothing() -> None:
    assert protocol.receive(protocol.PING, HELD, ADDRESS) is HELD
    assert protocol.receive(protocol.PING, None, ADDRESS) is None


SNAPSHOT: dict[str, Any] = json.loads(protocol.snapshot(HELD, ADDRESS))
DELTA: dict[str, Any] = json.loads(protocol.delta(HELD, view(4)))


@pytest.mark.parametrize(
    "message",
    [
        {**SNAPSHOT, "host": "10.0.0.3"},
        {key: value for key, value in SNAPSHOT.items() if key != "host"},
        {**SNAPSHOT, "version": 2},  # older than what is held
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
    with pytest.raises(ProtocolError) as refused:
        protocol.receive(json.dumps(message), HELD, ADDRESS)
    assert not isinstance(refused.value, GapError)
    assert 5 < len(str(refused.value)) < 300


def test_no_bytes_whatever_raise_anything_else() -> None:
    draw = random.Random("fuzz")
    good = [protocol.snapshot(HELD, ADDRESS), protocol.delta(HELD, view(4)), protocol.ack(HELD, 0)]
    texts: list[str | bytes] = ["", "[" * 100_000, b"\xff\xfe", "NaN", "1e999", '{"type": ["snapshot"]}']
    for _ in range(2000):
        octets = bytearray(draw.choice(good).encode())
        for _ in range(draw.randrange(1, 4)):
            octets[draw.randrange(len(octets))] = draw.randrange(256)
        texts.append(bytes(octets[: draw.randrange(len(octets) + 1)]))
    for text in texts:
        for take in (lambda text: protocol.receive(text, HELD, ADDRESS), lambda text: protocol.answer(text, HELD)):
            with contextlib.suppress(ProtocolError):
                take(text)


def test_an_agent_acknowledges_what_it_holds() -> None:
    assert protocol.answer(protocol.ack(HELD, 2), HELD) == Ack(7, 3, 2)
    assert protocol.answer(protocol.ack(None, 0), HELD) == Ack(0, 0, 0)
    assert protocol.answer(protocol.RESYNC, HELD) is None


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
def test_an_acknowledgement_of_what_there_is_not_is_refused(message: Any) -> None:
    with pytest.raises(ProtocolError):
        protocol.answer(json.dumps(message), HELD)
