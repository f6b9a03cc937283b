"""The controller under test, with real switches and one agent that behaves, and what must stay true of it."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from sopa_ryu.channel import messages, protocol
from tests.contract.running import Running, running
from tests.helpers.memory import resident_mib
from tests.helpers.waiting import eventually

CHECK_SECONDS = 1.0
BAD_SWITCH = "e0_0"
"""The switch whose messages are garbled. Every other switch must stay connected."""


class Broken(AssertionError):
    """The controller did what garbled input must not cause."""


class Target:
    """A controller, its 20 switches and one agent."""

    def __init__(self, fabric: Running, agent: ClientConnection) -> None:
        self.fabric = fabric
        self.tree = fabric.tree
        self._agent = agent
        self.address = self.tree.ip(list(self.tree.hosts())[-1])
        self.openflow_port = int(fabric.controller.openflow.rpartition(":")[2])
        self.rest_port = int(fabric.controller.url.rpartition(":")[2])
        self.token = fabric.agent["Authorization"]
        self._logged = 0
        self._next_check = 0.0
        self._version = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        view = None
        with suppress(ConnectionClosed):
            for text in self._agent:
                view = protocol.follow(messages.from_controller(text), view, self.address) or view
                if view is not None:
                    self._agent.send(protocol.ack(view, 0))
                    self._version = view.version

    def check(self, now: bool = False) -> None:
        """Check once a second that the controller answers, that no other switch is lost, and that it logged no traceback."""
        if time.monotonic() < self._next_check and not now:
            return
        self._next_check = time.monotonic() + CHECK_SECONDS
        try:
            body = self.fabric.body("/fabric")
        except OSError as error:
            raise Broken(f"the controller does not answer: {error}\n{self.fabric.controller.log_tail(40)}") from error
        if set(body["missing"]) - {BAD_SWITCH}:
            raise Broken(f"other switches are lost: {body['missing']}\n{self.fabric.controller.log_tail(40)}")
        log = self.fabric.controller.log.read_text(errors="replace")
        new, self._logged = log[self._logged :], len(log)
        if (at := new.find("Traceback (most recent call last)")) >= 0:
            raise Broken(f"the controller logged a traceback:\n{new[max(0, at - 500) : at + 3000]}")

    def heal(self) -> None:
        """Wait until everything is as at the start; then make a version that the agent has to receive."""
        self.fabric.controller.wait_connected(self.tree.switch_count)
        self.fabric.failing()
        for method in ("PUT", "DELETE"):
            self.fabric.drain(method, "c0_0")
        wanted = self.fabric.body("/fabric")["version"]
        eventually(lambda: self._version, lambda version: version >= wanted)
        self.check(now=True)

    def memory_mib(self) -> float:
        return resident_mib(self.fabric.controller.pid)


class Kind:
    """A kind of input; each step sends something and returns what was sent last."""

    def __init__(self, target: Target, draw: random.Random) -> None:
        self.target, self.draw = target, draw

    def step(self) -> bytes:
        raise NotImplementedError

    def close(self) -> None:
        """Put back what was changed: nothing."""


@contextmanager
def target(directory: Path) -> Iterator[Target]:
    with running(4, directory) as fabric:
        address = fabric.tree.ip(list(fabric.tree.hosts())[-1])
        url = f"{fabric.controller.url.replace('http', 'ws')}/sopa/v1/agents/{address}"
        # the answers to pings come from a thread of the library, also while nothing is read
        with connect(url, additional_headers=fabric.agent, proxy=None, compression=None) as agent:
            yield Target(fabric, agent)
