"""Concurrent TCP flows by iperf3 between hosts of the lab."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from topologies import Host
from topologies.lab.network import Lab

SERVER_PORT = 5201
CLIENT_PORT = 5301
CONTROL_PORT = 40000
FINISH_SECONDS = 30.0


class TrafficError(RuntimeError):
    """A flow did not start or did not end. The message has the output of iperf3."""


@dataclass(frozen=True)
class FlowResult:
    """The result of one TCP flow.

    Attributes
    ----------
    mbit : float
        Received payload in Mbit/s, over the whole time.
    bytes : int
        Received payload.
    seconds : float
    retransmits : int
        Segments retransmitted by the sender, counted by its kernel.
    series : list of float
        Received payload in each second, in Mbit/s.
    """

    src: Host
    dst: Host
    mbit: float
    bytes: int
    seconds: float
    retransmits: int
    series: list[float] = field(repr=False)


class IperfFlows:
    """One iperf3 flow per pair, started together, as a context manager.

    Parameters
    ----------
    lab : Lab
    pairs : sequence of (Host, Host)
        Senders and receivers; a host sends and receives at most once.
    seconds : float
        Sending time of every flow.
    server_port : int
        Has to differ between runs in one lab.

    Raises
    ------
    TrafficError
        If iperf3 cannot be started or fails.
    """

    def __init__(
        self, lab: Lab, pairs: Sequence[tuple[Host, Host]], seconds: int, server_port: int = SERVER_PORT
    ) -> None:
        self.lab = lab
        self.pairs = list(pairs)
        self.seconds = seconds
        self.server_port = server_port
        self._clients: list[subprocess.Popen[str]] = []
        self._stack = ExitStack()

    def __enter__(self) -> IperfFlows:
        with ExitStack() as stack:
            for _, dst in self.pairs:
                self._spawn(stack, dst, "iperf3", "-s", "-1", "-J", "-p", str(self.server_port))
            for _, dst in self.pairs:
                self._wait_listening(dst)
            for src, _ in self.pairs:
                # a fixed port for the control connection: with the same seed, every packet takes the same path in every run
                self._run(src, "sysctl", "-qw", f"net.ipv4.ip_local_port_range={CONTROL_PORT} {CONTROL_PORT}")
            for src, dst in self.pairs:
                self._clients.append(
                    self._spawn(
                        stack, src, "iperf3", "-c", str(self.lab.tree.ip(dst)), "-p", str(self.server_port),
                        "--cport", str(CLIENT_PORT), "-t", str(self.seconds), "-C", "cubic", "-J", "--get-server-output",
                    )
                )  # fmt: skip
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def results(self, tick: Callable[[float], None] = lambda _seconds: None) -> list[FlowResult]:
        """Wait for the end of the flows, and return their results in the order of the pairs.

        Parameters
        ----------
        tick : callable
            Called several times a second with the waiting time in seconds.
        """
        started = time.monotonic()
        deadline = started + self.seconds + FINISH_SECONDS
        said: list[str] = []
        while len(said) < len(self._clients):
            now = time.monotonic()
            if now > deadline:
                late = len(self._clients) - len(said)
                raise TrafficError(
                    f"{late} of {len(self._clients)} flows are still running {FINISH_SECONDS:g} s after their end"
                )
            tick(now - started)
            with contextlib.suppress(subprocess.TimeoutExpired):
                said.append(self._clients[len(said)].communicate(timeout=0.2)[0])
        return [self._result(pair, text) for pair, text in zip(self.pairs, said, strict=True)]

    def _result(self, pair: tuple[Host, Host], text: str) -> FlowResult:
        try:
            answer: dict[str, Any] = json.loads(text)
            end = answer["end"]
            received = end["sum_received"]
            return FlowResult(
                *pair,
                mbit=received["bits_per_second"] / 1e6,
                bytes=received["bytes"],
                seconds=received["seconds"],
                retransmits=end["sum_sent"]["retransmits"],
                series=[
                    interval["sum"]["bits_per_second"] / 1e6 for interval in answer["server_output_json"]["intervals"]
                ],
            )
        except (ValueError, KeyError) as error:
            name = self.lab.tree.name
            said = json.loads(text).get("error", text[-300:]) if text.startswith("{") else text[-300:]
            raise TrafficError(f"the flow from {name(pair[0])} to {name(pair[1])} failed: {said or error}") from error

    def _command(self, host: Host, *words: str) -> list[str]:
        return ["nsenter", f"--net={self.lab.netns(host)}", *words]

    def _run(self, host: Host, *words: str) -> str:
        done = subprocess.run(self._command(host, *words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise TrafficError(f"{self.lab.tree.name(host)}: {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _spawn(self, stack: ExitStack, host: Host, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command(host, *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        stack.callback(_end, process)
        return process

    def _wait_listening(self, host: Host) -> None:
        deadline = time.monotonic() + 10
        while not self._run(host, "ss", "-Hltn", f"sport = {self.server_port}"):
            if time.monotonic() > deadline:
                raise TrafficError(f"iperf3 does not listen on {self.lab.tree.name(host)}")
            time.sleep(0.02)


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate()
