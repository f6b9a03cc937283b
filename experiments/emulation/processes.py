"""Controllers and agents as child processes that are ready after start and ended for certain, for labs, benchmarks and tests."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Otherwise imported at the first request, during which CPython before 3.11.5 may fail in a garbage collection (gh-106176).
import httpcore  # noqa: F401
import httpx

from sopa_ryu.rest.access import AGENTS, OPERATORS
from topologies import Clos, FatTree
from topologies.lab.startable import Startable

READY_SECONDS = 120.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1  # an answer of the controller costs it several milliseconds
ANSWER_SECONDS = 60.0
CHANGE_SECONDS = 20.0


class ProcessError(RuntimeError):
    """A child process ended or did not become ready. The message has the end of its output."""


_PORTS = range(20_000, 32_000)  # below those that the kernel uses for outgoing connections
_next_ports: dict[int, Iterator[int]] = {}  # by process, because forks share this module


def free_ports(count: int) -> list[int]:
    """Return TCP ports on loopback that are unused now, and unlikely to be requested by other processes at the same time."""
    candidates = _next_ports.setdefault(os.getpid(), itertools.count(os.getpid() * 1009))
    found: list[int] = []
    while len(found) < count:
        port = _PORTS[next(candidates) % len(_PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


class ChildProcess(Startable):
    """A child process with its output in a file, as a context manager.

    Parameters
    ----------
    command : sequence of str
    log : Path
        File of its output.
    environment : mapping of str to str, optional
        Variables in addition to the environment of this process.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running process."""
        if self._process is None:
            raise ProcessError(f"{self.command[0]} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start the process without waiting."""
        with self.log.open("ab") as output:
            # a new session: Ctrl-C at the prompt of a lab is meant for the command that runs there
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End the process with a signal, or by SIGKILL after `STOP_SECONDS`, and return its exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(how)
        try:
            status = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._process = None
        return status

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = READY_SECONDS) -> None:
        """Wait for a condition. Raises `ProcessError` if the process ends first, or after ``seconds``."""
        deadline = time.monotonic() + seconds
        while not ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                problem = "ended" if ended else f"waited {seconds:g} s"
                raise ProcessError(f"{self.command[0]}: {problem} before {what}:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class ControllerProcess(ChildProcess):
    """``ryu-manager sopa_ryu.app`` as a child process.

    Parameters
    ----------
    fabric : Clos or int
        The fabric, or k of a fat-tree.
    log : Path
    openflow_port, rest_port : int
        TCP ports to listen on.
    rest_host : str
        Address that REST and the push channel listen on.
    options : sequence of str
        Further options of ``ryu-manager``.
    ca_file : Path, optional
        CA of its certificate, if the options name one: requests then use TLS.
    environment : mapping of str to str, optional
    """

    def __init__(
        self,
        fabric: Clos | int,
        log: Path,
        openflow_port: int = 6653,
        rest_port: int = 8080,
        rest_host: str = "127.0.0.1",
        options: Sequence[str] = (),
        ca_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = f"{'https' if ca_file else 'http'}://127.0.0.1:{rest_port}"
        # without TLS False, or each request would read all certificates of the machine, for nothing
        self._verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else False
        self.openflow = f"tcp:127.0.0.1:{openflow_port}"
        command = [sys.executable, "-m", "sopa_ryu.manager", _fabric_option(fabric, log)]
        command += [f"--ofp-tcp-listen-port={openflow_port}", f"--wsapi-port={rest_port}", f"--wsapi-host={rest_host}"]
        self.state_dir = log.with_suffix(".state")
        command += [f"--sopa-state-dir={self.state_dir}"]
        super().__init__([*command, *options, "sopa_ryu.app"], log, environment)

    def start(self) -> None:
        """Start it and wait until REST answers."""
        super().start()
        self.wait_until(self._answers, "REST answered")

    def fabric(self) -> dict[str, Any]:
        """Return the answer of ``GET /sopa/v1/fabric``."""
        body: dict[str, Any] = self.get("/fabric").raise_for_status().json()
        return body

    @property
    def token_file(self) -> Path:
        """Path of the operator token."""
        return self.state_dir / OPERATORS

    @property
    def agent_token_file(self) -> Path:
        """Path of the agent token."""
        return self.state_dir / AGENTS

    def change(self, method: str, path: str) -> httpx.Response:
        """Send a PUT or DELETE below ``/sopa/v1`` with the operator token."""
        headers = {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        return httpx.request(
            method, f"{self.url}/sopa/v1{path}", headers=headers, timeout=ANSWER_SECONDS, verify=self._verify
        )

    def get(self, path: str, **params: str) -> httpx.Response:
        """Send a GET below ``/sopa/v1``."""
        return httpx.get(f"{self.url}/sopa/v1{path}", params=params, timeout=ANSWER_SECONDS, verify=self._verify)

    def _answer(self, path: str, **params: str) -> dict[str, Any] | None:
        """Return the body of an answer; None from a controller that is too busy with the start of a large lab."""
        answer = self.get(path, **params)
        body: dict[str, Any] | None = answer.json() if answer.status_code == httpx.codes.OK else None
        return body

    def wait_connected(self, switches: int, seconds: float = 300.0) -> None:
        """Wait until a number of switches have their rules, and the controller has settled."""

        def ready() -> bool:
            body = self._answer("/fabric")
            return body is not None and bool(body["connected"] == switches and body["settled"])

        self.wait_until(ready, f"{switches} switches were connected", seconds)

    def wait_agents(self, agents: int, seconds: float = 300.0) -> None:
        """Wait until exactly that many agents have acknowledged the current version."""
        self.wait_until(lambda: self.agents_know(agents), f"{agents} agents had acknowledged", seconds)

    def agents_know(self, agents: int) -> bool:
        """Return True if exactly that many agents have acknowledged the current version."""
        body = self._answer("/agents", limit="1")
        return body is not None and bool(body["total"] == agents and not body["behind"])

    def wait_acknowledged(
        self, since: int, wanted: Callable[[dict[str, Any]], bool] = lambda _change: True, pause: float = 0.02
    ) -> dict[str, Any]:
        """Wait for a change after version ``since`` that all agents have acknowledged, and return it.

        Parameters
        ----------
        since : int
        wanted : callable
            Selects changes; default: any.
        pause : float
            Seconds between requests.

        Raises
        ------
        ProcessError
            After 20 s.
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

    def _answers(self) -> bool:
        try:
            return self.get("/fabric").status_code == 200
        except httpx.TransportError:
            return False


class RelayProcess(ChildProcess):
    """``sopa relay`` as a child process; its name is that of the log's file.

    Parameters
    ----------
    cluster : str
        The engine's address, ``etcd://HOST:PORT/NAME``.
    log : Path
    port : int
        TCP port to listen on.
    state_dir : Path
        With the files of tokens.
    host : str
        Address to listen on.
    options : sequence of str
        Further options of ``sopa relay``.
    ca_file : Path, optional
        CA of its certificate, if the options name one: requests then use TLS.
    """

    def __init__(
        self,
        cluster: str,
        log: Path,
        port: int,
        state_dir: Path,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        ca_file: Path | None = None,
    ) -> None:
        self.name = log.stem
        self.url = f"{'https' if ca_file else 'http'}://{host}:{port}"
        self.state_dir = state_dir
        self._verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else False
        command = [sys.executable, "-m", "sopa_ryu.cli", "relay", f"--cluster={cluster}", f"--listen={host}:{port}"]
        command += [f"--name={self.name}", f"--state-dir={state_dir}"]
        super().__init__([*command, *options], log)

    def start(self) -> None:
        """Start it and wait until it answers; it may not have seen the engine yet."""
        super().start()
        self.wait_until(self._answers, "the relay answered")

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Send a GET; the path is that of the URL."""
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=ANSWER_SECONDS, verify=self._verify)

    def _answers(self) -> bool:
        try:
            return self.get("/metrics").status_code == 200
        except httpx.TransportError:
            return False


class AgentProcess(ChildProcess):
    """``sopa agent`` as a child process.

    Parameters
    ----------
    interfaces : sequence of str
        Values of ``--iface``: ``eth0``, or ``eth0@/proc/PID/ns/net``.
    controller : str
        URL of the controller.
    log : Path
    options : sequence of str
        Further options of ``sopa agent``.
    """

    def __init__(self, interfaces: Sequence[str], controller: str, log: Path, options: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "sopa_ryu.cli", "agent", "--controller", controller]
        super().__init__([*command, *(f"--iface={interface}" for interface in interfaces), *options], log)


def _fabric_option(fabric: Clos | int, log: Path) -> str:
    """Return the controller's option for a fabric, or for a fat-tree of k; a fabric's file is written beside the log."""
    tree = FatTree(fabric) if isinstance(fabric, int) else fabric
    if tree.k is not None and tree == FatTree(tree.k):
        return f"--sopa-k={tree.k}"
    file = log.with_suffix(".fabric.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tree.document(), indent=2) + "\n")  # JSON is YAML
    return f"--sopa-fabric={file}"
