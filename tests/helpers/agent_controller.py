"""A host with an agent as a process of its own, and a stand-in for its controller: what was acknowledged, how channels closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from experiments.emulation.processes import AgentProcess
from sopa_ryu.channel import protocol
from sopa_ryu.channel.messages import Ack, Counts, Report, from_agent, unpacked
from sopa_ryu.fabric.view import View
from tests.helpers.veth import Pair
from tests.helpers.waiting import eventually
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")


class AgentController:
    """A controller with one agent, of host 10.0.0.2 in a k=4 fat-tree."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = self.acknowledged = self.refused = 0
        self.asked: list[str] = []
        self.reports: list[Counts] = []
        self.closed: list[int | None] = []
        self.view = View(7, 1, Failures(FatTree(4)))
        self._channel: ServerConnection | None = None
        self._guard = threading.Lock()

    @property
    def connected(self) -> bool:
        """True while the agent's channel is open."""
        return self.connections > len(self.closed)

    def fail(self, name: str) -> int:
        """Let an element fail; return the version that says so, which is sent if the agent is connected."""
        with self._guard:
            before, failures = self.view, self.view.failures.with_failed(name)
            self.view = View(7, before.version + 1, failures)
            if self._channel is not None:
                with suppress(ConnectionClosed):  # it just has; the agent gets a snapshot when it is back
                    self._channel.send(protocol.delta(before, self.view))
            return self.view.version

    def send(self, text: str | bytes) -> None:
        with self._guard:
            if self._channel is not None:
                self._channel.send(text)

    def attend(self, channel: ServerConnection) -> None:
        with self._guard:
            self.connections += 1
            self._channel = channel
            self.asked.append(channel.request.path if channel.request is not None else "")
        try:
            channel.send(protocol.snapshot(self.view, ADDRESS))
            for text in channel:
                answer = from_agent(text)
                if isinstance(answer, Ack):
                    self.acknowledged = max(self.acknowledged, answer.version)
                    self.refused = answer.refused
                elif isinstance(answer, Report):
                    self.reports += unpacked(answer.streams)
        except ConnectionClosed:
            pass
        finally:
            with self._guard:
                if self._channel is channel:
                    self._channel = None
                self.closed.append(channel.protocol.close_rcvd and channel.protocol.close_rcvd.code)


@contextmanager
def agent_controller() -> Iterator[AgentController]:
    its = AgentController()
    with serve(its.attend, "127.0.0.1", 0) as server:
        its.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield its
        finally:
            server.shutdown()


class AgentHost:
    """The host's end of a `Pair`, on which an agent can be started."""

    def __init__(self, pair: Pair, controller: AgentController, directory: Path) -> None:
        self.pair, self.controller, self._directory = pair, controller, directory
        self.log = directory / "agent.log"
        self.log.touch()

    def agent(self, *options: str) -> AgentProcess:
        state = f"--state-dir={self._directory / 'state'}"
        return AgentProcess([f"host0@{self.pair.host}"], self.controller.url, self.log, [state, "--wait", *options])

    def acknowledge(self) -> None:
        """Wait until the version that there is now is in force."""
        eventually(lambda: self.controller.acknowledged, self.controller.view.version)

    def said(self) -> str:
        return self.log.read_text()

    def filters(self, side: str = "egress") -> str:
        return self.pair.on_host(f"tc filter show dev host0 {side}")
