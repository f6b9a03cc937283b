"""An agent and a controller that sends what it should not: refused, counted, and the path table in force unharmed."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from experiments.emulation.sopa_lab import SopaLab
from sopa_ryu.channel import protocol
from sopa_ryu.fabric.view import View
from tests.helpers.path_tables import table_in_force
from tests.helpers.sopa_lab import agent_of, in_lab
from tests.helpers.waiting import eventually
from topologies import Failures, FatTree

pytestmark = pytest.mark.lab

TREE = FatTree(4)
HOST = TREE.host("h0_0_2")
ADDRESS = IPv4Address("10.0.0.2")
HELD = View(7, 3, Failures(TREE, {"a2_0-c0_1": "down"}))


class FalseController:
    """Sends texts, and gives back what the agent answers."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.arrivals: queue.Queue[ServerConnection] = queue.Queue()
        self.channel: ServerConnection | None = None

    def accept(self) -> None:
        """Wait until the agent connects (again), and tell it a first state."""
        self.channel = self.arrivals.get(timeout=20)
        answer = self.ask(protocol.snapshot(HELD, ADDRESS))
        assert (answer["type"], answer["epoch"], answer["version"]) == ("ack", 7, 3)

    def ask(self, text: str | bytes) -> dict[str, Any]:
        assert self.channel is not None
        self.channel.send(text)
        answer: dict[str, Any] = json.loads(self.channel.recv(timeout=10))
        return answer


@contextmanager
def false_controller() -> Iterator[FalseController]:
    ended = threading.Event()

    def attend(channel: ServerConnection) -> None:
        its.arrivals.put(channel)
        ended.wait()

    with serve(attend, "127.0.0.1", 0) as server:
        its = FalseController(server.socket.getsockname()[1])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield its
        finally:
            ended.set()
            server.shutdown()


def test_a_malicious_controller_never_gets_an_invalid_table_into_force() -> None:
    def body(lab: SopaLab) -> None:
        interface = lab.lab.interface(HOST, 0), lab.lab.netns(HOST)
        with false_controller() as controller, agent_of(lab, HOST, controller=controller.url) as agent:
            controller.accept()
            table = table_in_force(*interface)
            assert table is not None
            assert set(table.candidates(IPv4Address("10.2.0.2")) or ()) == {(0, 0), (1, 0), (1, 1)}
            snapshot = json.loads(protocol.snapshot(HELD._replace(version=4), ADDRESS))
            bad: list[str | bytes] = [
                "{",
                b"\x00\xff",
                "[]",
                json.dumps({**snapshot, "host": "10.0.0.3"}),
                json.dumps({**snapshot, "version": 2}),
                json.dumps({**snapshot, "k": 5}),
                json.dumps({**snapshot, "failures": {"a9_9": "down"}}),
                json.dumps(
                    {"type": "delta", "epoch": 7, "base": 3, "version": 4, "failed": {"x": "down"}, "healed": []}
                ),
                json.dumps({"type": "delta", "epoch": 7, "base": 3, "version": 4, "failed": {}, "healed": ["c0_0"]}),
            ]
            for number, text in enumerate(bad, 1):
                answer = controller.ask(text)
                assert (answer["type"], answer["version"], answer["refused"]) == ("ack", 3, number)
                assert table_in_force(*interface) == table
            assert f"refused ({len(bad)} so far)" in agent.log.read_text()
            # a version from the future: something was missed
            future = {"type": "delta", "epoch": 7, "base": 5, "version": 6, "failed": {"c0_0": "down"}, "healed": []}
            assert controller.ask(json.dumps(future)) == {"type": "resync"}
            assert table_in_force(*interface) == table
            # too large: the connection ends, the agent comes back
            assert controller.channel is not None
            controller.channel.send("x" * (protocol.MAX_MESSAGE_BYTES + 1))
            controller.accept()
            assert table_in_force(*interface) == table
            # and what is right is taken as ever
            after = View(7, 4, Failures(TREE))
            assert controller.ask(protocol.delta(HELD, after))["version"] == 4
            eventually(lambda: table_in_force(*interface), lambda value: value != table)

    in_lab(body, agents=False)
