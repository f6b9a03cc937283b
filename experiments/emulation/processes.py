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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Otherwise imported at the first request, during which CPython before 3.11.5 may fail in a garbage collection (gh-106176).
import httpcore  # noqa: F401
import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from sopa_ryu.rest.access import AGENTS, OPERATORS
from topologies import Clos, FatTree
from topologies.lab.startable import Startable

ANSWER_SECONDS = 60.0
CHANGE_SECONDS = 20.0
READY_SECONDS = 120.0
STOP_SECONDS = 60.0  # a process that hangs: on a machine that stands still, an orderly end takes several seconds
POLL_SECONDS = 0.1  # an answer of the controller costs it several milliseconds


_PORTS = range(20_000, 32_000)  # below those that the kernel uses for outgoing connections
_next_ports: dict[int, Iterator[int]] = {}  # by process, because forks share this module


def free_ports(count: int) -> list[int]:
    """Return TCP ports on loopback that are unused now, and unlikely to be requested by other processes at the same time."""
    candidates = _next_ports.setdefault(os.getpid(), itertools.count(os.getpid() * 1009))
    ports: list[int] = []
    while len(ports) < count:
        port = _PORTS[next(candidates) % len(_PORTS)]
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def metric_samples(url: str) -> list[Sample]:
    """Return what ``GET /metrics`` of a process answers."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").raise_for_status().text)
    return [sample for family in families for sample in family.samples]


class ProcessError(RuntimeError):
    """A child process ended or did not become ready. The message has the end of its output."""


class ControllerRest(ABC):
    """Requests to a controller, with the tokens of ``state_dir``, and waiting for what it says."""

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
        return httpx.request(method, f"{self.url}/sopa/v1{path}", headers=headers, timeout=self.answer_seconds, verify=self.verify)

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
        """Wait for a wanted change after version ``since`` that all agents have acknowledged, and return it.

        Raises `ProcessError` after `CHANGE_SECONDS`.
        """
        deadline = time.monotonic() + CHANGE_SECONDS
        while time.monotonic() < deadline:
            for change in reversed(self.get("/changes").json()["changes"]):
                if change["version"] > since and change["acknowledged_ms"] is not None and wanted(change):
                    return dict(change)
            time.sleep(pause)
        raise ProcessError(f"no expected change after version {since} was acknowledged by all agents in {CHANGE_SECONDS:g} s")


class ChildProcess(Startable):
    """A child process with its output in a file, as a context manager. ``environment`` adds to that of this process."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command = list(command)
        self.log = log
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True from the start of the process until it has ended."""
        return self._process is not None and self._process.poll() is None

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
            ended = not self.running
            if ended or time.monotonic() > deadline:
                problem = "ended" if ended else f"waited {seconds:g} s"
                raise ProcessError(f"{self.command[0]}: {problem} before {what}:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class _ServerProcess(ChildProcess):
    """A child process that has started once its REST interface answers."""

    # without TLS False, or each request would read all certificates of the machine, for nothing
    verify: ssl.SSLContext | bool = False

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        address: str,
        answering: str,
        ca_file: Path | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(command, log, environment)
        self._url = f"{'https' if ca_file else 'http'}://{address}"
        self._answering = answering
        if ca_file:
            self.verify = ssl.create_default_context(cafile=ca_file)

    @property
    def url(self) -> str:
        """URL of its REST interface, as it is reached from here."""
        return self._url

    def start(self) -> None:
        """Start it and wait until it answers. A relay may not have seen the engine yet."""
        super().start()
        self.wait_answers()

    def wait_answers(self) -> None:
        """Wait until it answers."""
        self.wait_until(self._answers, "REST answered")

    def _answers(self) -> bool:
        try:
            return self.at(self._answering).status_code == 200
        except httpx.TransportError:
            return False

    def at(self, path: str, **headers: str) -> httpx.Response:
        """Send a GET; the path is that of the URL."""
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=ANSWER_SECONDS, verify=self.verify)


class ControllerProcess(_ServerProcess, ControllerRest):
    """``ryu-manager sopa_ryu.app`` as a child process.

    Args:
        fabric: The fabric, or k of a fat-tree.
        openflow_port, rest_port: By default free ones.
        rest_host: Address that REST and the push channel listen on.
        ca_file: CA of its certificate, if the options name one: requests then use TLS.
        reached_at: Address at which REST is reached from here.
        enter: Words before the command that run it elsewhere, with the same process id: on a machine of `ManagementNetwork`.
    """

    def __init__(
        self,
        fabric: Clos | int,
        log: Path,
        openflow_port: int | None = None,
        rest_port: int | None = None,
        rest_host: str = "127.0.0.1",
        options: Sequence[str] = (),
        ca_file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        reached_at: str = "127.0.0.1",
        enter: Sequence[str] = (),
    ) -> None:
        if openflow_port is None or rest_port is None:
            openflow_port, rest_port = free_ports(2)
        self.openflow_port, self.rest_port = openflow_port, rest_port
        self.openflow = f"tcp:{reached_at}:{openflow_port}"
        self.state_dir = log.with_suffix(".state")
        command = [*enter, sys.executable, "-m", "sopa_ryu.manager", *_fabric_options(fabric, log)]
        command += [f"--ofp-tcp-listen-port={openflow_port}", f"--wsapi-port={rest_port}", f"--wsapi-host={rest_host}"]
        command += [f"--sopa-state-dir={self.state_dir}", "--sopa-insecure", *options, "sopa_ryu.app"]
        super().__init__(command, log, f"{reached_at}:{rest_port}", "/sopa/v1/fabric", ca_file, environment)

    def read_anew(self, text: str) -> None:
        """Have it take another text of its fabric file, by a restart in place, and wait until it answers."""
        self.log.with_suffix(".fabric.yaml").write_text(text)
        epoch = self.fabric()["epoch"]
        os.kill(self.pid, signal.SIGUSR1)

        def has_restarted() -> bool:
            with contextlib.suppress(httpx.HTTPError):  # it ends meanwhile
                return bool(self.fabric()["epoch"] != epoch)
            return False

        self.wait_until(has_restarted, "it had restarted")


class RelayProcess(_ServerProcess):
    """``sopa relay`` as a child process; its name is that of the log's file.

    Args:
        cluster: The engine's address, ``etcd://HOST:PORT/NAME``.
        state_dir: With the files of tokens.
        host, port: Where it listens.
        ca_file, enter: As of `ControllerProcess`.
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
        enter: Sequence[str] = (),
    ) -> None:
        self.name, self.state_dir = log.stem, state_dir
        command = [*enter, sys.executable, "-m", "sopa_ryu.cli", "relay", f"--cluster={cluster}", f"--listen={host}:{port}"]
        command += [f"--name={self.name}", f"--state-dir={state_dir}", *options]
        super().__init__(command, log, f"{host}:{port}", "/metrics", ca_file)

    get = _ServerProcess.at


class AgentProcess(ChildProcess):
    """``sopa agent`` as a child process.

    Args:
        interfaces: Values of ``--iface``: ``eth0``, or ``eth0@/proc/PID/ns/net``.
        controller: URL of the controller, or those of relays and controllers.
        enter: As of `ControllerProcess`.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        controller: str | Sequence[str],
        log: Path,
        options: Sequence[str] = (),
        enter: Sequence[str] = (),
    ) -> None:
        urls = [controller] if isinstance(controller, str) else controller
        command = [*enter, sys.executable, "-m", "sopa_ryu.cli", "agent", *(f"--controller={url}" for url in urls)]
        super().__init__([*command, *(f"--iface={interface}" for interface in interfaces), *options], log)


class SpreaderProcess(ChildProcess):
    """``sopa parser follow`` as a child process, ready once bursts are spread.

    Args:
        ports: The interfaces to hosts, by the names of edge switches.
        controller: URL of the controller, or those of relays.
    """

    def __init__(self, tree: Clos, ports: Mapping[str, Sequence[str]], controller: str | Sequence[str], log: Path) -> None:
        urls = [controller] if isinstance(controller, str) else controller
        command = [sys.executable, "-m", "sopa_ryu.cli", "parser", "follow", _fabric_option(tree, log, "--"),
                   *(f"--controller={url}" for url in urls),
                   *(f"--edge={edge}={','.join(interfaces)}" for edge, interfaces in ports.items())]  # fmt: skip
        super().__init__(command, log)

    def start(self) -> None:
        """Return once the first path tables are in force."""
        self.log.unlink(missing_ok=True)
        super().start()
        self.wait_until(lambda: "are spread over" in self.log.read_text(), "bursts were spread")


def _fabric_options(fabric: Clos | int, log: Path) -> list[str]:
    """Return a controller's options for a fabric; for a number as an operator types them."""
    prefix6 = [] if isinstance(fabric, int) else [f"--sopa-prefix6={fabric.prefix6 or 'none'}"]
    return [_fabric_option(fabric, log), *prefix6]


def _fabric_option(fabric: Clos | int, log: Path, prefix: str = "--sopa-") -> str:
    """Return the option for a fabric, or for a fat-tree of k; a fabric's file is written beside the log."""
    tree = FatTree(fabric) if isinstance(fabric, int) else fabric
    if tree.is_plain and not tree.aliases:
        return f"{prefix}k={tree.k}"
    file = log.with_suffix(".fabric.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**tree.document(), **tree.aliases.document()}, indent=2) + "\n")  # JSON is YAML
    return f"{prefix}fabric={file}"
