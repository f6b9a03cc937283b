"""The messages of the push channel: views arrive unchanged; what is rejected, `scripts/formats` shows (test_formats.py)."""

from __future__ import annotations

import contextlib
import json
import random
from ipaddress import IPv4Address

from sopa_ryu.channel import protocol
from sopa_ryu.channel.mcs import HostChange, HostList
from sopa_ryu.channel.protocol import ProtocolError
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


def test_a_snapshot_with_a_list_of_hosts_that_run_mcs_is_one_for_agents_that_know_none() -> None:
    its = HostList(4, frozenset([ADDRESS, IPv4Address("10.0.0.3")]), 3, True)
    text = protocol.snapshot(IN_FORCE, ADDRESS, its)
    assert json.loads(text)["mcs"] == ["10.0.0.2", "10.0.0.3"]
    assert protocol.receive(text, None, ADDRESS) == IN_FORCE
    assert protocol.hosts_named(text) == HostChange(4, True, its.hosts, frozenset(), 3, True)
    assert protocol.hosts_named(protocol.snapshot(IN_FORCE, ADDRESS)) is None


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
