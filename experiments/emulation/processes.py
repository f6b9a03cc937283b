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

import httpx

from experiments.emulation.controller_rest import ANSWER_SECONDS, READY_SECONDS, ControllerRest, ProcessError
from topologies import Clos, FatTree
from topologies.lab.startable import Startable

__all__ = ["AgentProcess", "ChildProcess", "ControllerProcess", "ProcessError", "RelayProcess", "free_ports"]

STOP_SECONDS = 15.0
POLL_SECONDS = 0.1  # an answer of the controller costs it several milliseconds


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

    Args:
        log: File of its output.
        environment: Variables in addition to the environment of this process.
    """

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


class ControllerProcess(ChildProcess, ControllerRest):
    """``ryu-manager sopa_ryu.app`` as a child process.

    Args:
        fabric: The fabric, or k of a fat-tree.
        openflow_port, rest_port: TCP ports to listen on.
        rest_host: Address that REST and the push channel listen on.
        options: Further options of ``ryu-manager``.
        ca_file: CA of its certificate, if the options name one: requests then use TLS.
        reached_at: Address at which REST is reached from here.
        enter: The words before the command that run it elsewhere, with the same process id: on a machine of
            `ManagementNetwork`.
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
        reached_at: str = "127.0.0.1",
        enter: Sequence[str] = (),
    ) -> None:
        self._url = f"{'https' if ca_file else 'http'}://{reached_at}:{rest_port}"
        if ca_file:
            self.verify = ssl.create_default_context(cafile=ca_file)
        self.openflow = f"tcp:{reached_at}:{openflow_port}"
        command = [*enter, sys.executable, "-m", "sopa_ryu.manager", _fabric_option(fabric, log)]
        command += [f"--ofp-tcp-listen-port={openflow_port}", f"--wsapi-port={rest_port}", f"--wsapi-host={rest_host}"]
        self.state_dir = log.with_suffix(".state")
        command += [f"--sopa-state-dir={self.state_dir}"]
        super().__init__([*command, *options, "sopa_ryu.app"], log, environment)

    def start(self) -> None:
        """Start it and wait until REST answers."""
        super().start()
        self.wait_answers()

    def wait_answers(self) -> None:
        """Wait until REST answers."""
        self.wait_until(self._answers, "REST answered")

    @property
    def url(self) -> str:
        """URL of its REST API, as it is reached from here."""
        return self._url

    def _answers(self) -> bool:
        try:
            return self.get("/fabric").status_code == 200
        except httpx.TransportError:
            return False


class RelayProcess(ChildProcess):
    """``sopa relay`` as a child process; its name is that of the log's file.

    Args:
        cluster: The engine's address, ``etcd://HOST:PORT/NAME``.
        port: TCP port to listen on.
        state_dir: With the files of tokens.
        host: Address to listen on.
        options: Further options of ``sopa relay``.
        ca_file: CA of its certificate, if the options name one: requests then use TLS.
        enter: As of `ControllerProcess`.
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
        self.name = log.stem
        self.url = f"{'https' if ca_file else 'http'}://{host}:{port}"
        self.state_dir = state_dir
        self._verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=ca_file) if ca_file else False
        command = [
            *enter,
            sys.executable,
            "-m",
            "sopa_ryu.cli",
            "relay",
            f"--cluster={cluster}",
            f"--listen={host}:{port}",
        ]
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

    Args:
        interfaces: Values of ``--iface``: ``eth0``, or ``eth0@/proc/PID/ns/net``.
        controller: URL of the controller, or those of relays and controllers.
        options: Further options of ``sopa agent``.
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


def _fabric_option(fabric: Clos | int, log: Path) -> str:
    """Return the controller's option for a fabric, or for a fat-tree of k; a fabric's file is written beside the log."""
    tree = FatTree(fabric) if isinstance(fabric, int) else fabric
    if tree.k is not None and tree == FatTree(tree.k):
        return f"--sopa-k={tree.k}"
    file = log.with_suffix(".fabric.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tree.document(), indent=2) + "\n")  # JSON is YAML
    return f"--sopa-fabric={file}"
