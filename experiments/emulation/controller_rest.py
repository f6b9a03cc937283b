"""A controller's REST interface, as labs, benchmarks and tests use it."""

from __future__ import annotations

import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Otherwise imported at the first request, during which CPython before 3.11.5 may fail in a garbage collection (gh-106176).
import httpcore  # noqa: F401
import httpx

from sopa_ryu.rest.access import AGENTS, OPERATORS

ANSWER_SECONDS = 60.0
CHANGE_SECONDS = 20.0
READY_SECONDS = 120.0


class ProcessError(RuntimeError):
    """A child process ended or did not become ready. The message has the end of its output."""


class ControllerRest(ABC):
    """Requests to a controller, and waiting for what it says.

    Attributes:
        state_dir: With the token files.
        verify: How its certificate is checked, if it has one.
        answer_seconds: How long an answer may take.
    """

    state_dir: Path
    # without TLS False, or each request would read all certificates of the machine, for nothing
    verify: ssl.SSLContext | bool = False
    answer_seconds = ANSWER_SECONDS

    @property
    @abstractmethod
    def url(self) -> str:
        """URL of the controller."""

    @abstractmethod
    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        """Wait for a condition. Raises `ProcessError` if a process ends first, or after ``seconds``."""

    @property
    def token_file(self) -> Path:
        """Path of the operator token."""
        return self.state_dir / OPERATORS

    @property
    def agent_token_file(self) -> Path:
        """Path of the agent token."""
        return self.state_dir / AGENTS

    def fabric(self) -> dict[str, Any]:
        """Return the answer of ``GET /sopa/v1/fabric``."""
        body: dict[str, Any] = self.get("/fabric").raise_for_status().json()
        return body

    def change(self, method: str, path: str) -> httpx.Response:
        """Send a PUT or DELETE below ``/sopa/v1`` with the operator token."""
        headers = {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        return httpx.request(
            method, f"{self.url}/sopa/v1{path}", headers=headers, timeout=self.answer_seconds, verify=self.verify
        )

    def get(self, path: str, **params: str) -> httpx.Response:
        """Send a GET below ``/sopa/v1``."""
        return httpx.get(f"{self.url}/sopa/v1{path}", params=params, timeout=self.answer_seconds, verify=self.verify)

    def answer(self, path: str, **params: str) -> dict[str, Any] | None:
        """Return the body of an answer; None from a controller that is too busy with the start of a large lab."""
        answer = self.get(path, **params)
        body: dict[str, Any] | None = answer.json() if answer.status_code == httpx.codes.OK else None
        return body

    def wait_connected(self, switches: int, seconds: float = 300.0) -> None:
        """Wait until a number of switches have their rules, and the controller has settled."""

        def ready() -> bool:
            body = self.answer("/fabric")
            return body is not None and bool(body["connected"] == switches and body["settled"])

        self.wait_until(ready, f"{switches} switches were connected", seconds)

    def wait_agents(self, agents: int, seconds: float = 300.0) -> None:
        """Wait until exactly that many agents have acknowledged the current version."""
        self.wait_until(lambda: self.agents_know(agents), f"{agents} agents had acknowledged", seconds)

    def agents_know(self, agents: int) -> bool:
        """Return True if exactly that many agents have acknowledged the current version."""
        body = self.answer("/agents", limit="1")
        return body is not None and bool(body["total"] == agents and not body["behind"])

    def wait_acknowledged(
        self, since: int, wanted: Callable[[dict[str, Any]], bool] = lambda _change: True, pause: float = 0.02
    ) -> dict[str, Any]:
        """Wait for a change after version ``since`` that all agents have acknowledged, and return it.

        Args:
            wanted: Selects changes; default: any.
            pause: Seconds between requests.

        Raises:
            ProcessError: After 20 s.
        """
        deadline = time.monotonic() + CHANGE_SECONDS
        while time.monotonic() < deadline:
            for change in reversed(self.get("/changes").json()["changes"]):
                if change["version"] > since and change["acknowledged_ms"] is not None and wanted(change):
                    return dict(change)
            time.sleep(pause)
        raise ProcessError(
            f"no expected change after version {since} was acknowledged by all agents in {CHANGE_SECONDS:g} s"
        )
