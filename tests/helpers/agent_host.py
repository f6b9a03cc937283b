"""A host in a network namespace with an agent as a process of its own, and a stand-in for its controller."""

from __future__ import annotations

from pathlib import Path

from experiments.emulation.processes import AgentProcess
from tests.helpers.agent_controller import AgentController
from tests.helpers.veth import Pair
from tests.helpers.waiting import eventually


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
