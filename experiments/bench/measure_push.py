"""The time until 3,456 simulated agents of a k=24 fabric acknowledge a failure, with a bare WebSocket server as baseline."""

from __future__ import annotations

import selectors
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.bench.light_agent import acknowledged, frame_bounds
from experiments.bench.measuring import peak_mib
from experiments.emulation.processes import ChildProcess, ControllerProcess, free_ports
from sopa_ryu.runtime.process import allow_files
from topologies import Clos, FatTree, Level
from topologies.lab.private_ovs import OPENFLOW, PrivateOvs

K = 24
ROUNDS = 15
DRAINED = "a3_1-c1_2"
PING, PONG = 0x9, 0xA
"""Opcodes (RFC 6455, section 5.2)."""

_SERVER = Path(__file__).with_name("bare_server.py")


def measure() -> dict[str, Any]:
    """Connect an agent per host, then drain and restore a link repeatedly. Agents are informed as of a failure.

    Returns:
        Milliseconds from the request to the last acknowledgement, over twice ``ROUNDS``: the ``first`` one, median and maximum;
        likewise for a bare eventlet WebSocket server with messages of the same size (``bare_*``); and peak memory in MiB.
    """
    tree = FatTree(K)
    allow_files()
    openflow, rest = free_ports(2)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        options = ["--sopa-settle=1", "--sopa-lldp-interval=0"]
        controller = ControllerProcess(K, directory / "controller.log", openflow, rest, options=options)
        # one real switch is enough: the others count as failed, which adds work for the controller
        with controller, PrivateOvs(directory / "ovs", dummy=True) as ovs:
            _one_switch(tree, ovs, controller.openflow)
            controller.wait_connected(1)
            paths = [f"/sopa/v1/agents/{tree.ip(host)}" for host in tree.hosts()]
            with Crowd(rest, paths, controller.agent_token_file.read_text().strip()) as crowd:
                crowd.connect()
                controller.wait_agents(len(paths))
                delays = [_drain(controller, turn) for turn in range(2 * ROUNDS)]
                size = crowd.last_bytes
            memory = peak_mib(controller.pid)
        bare, bare_memory = _bare(directory, paths, size)
    return {
        "k": K,
        "agents": len(paths),
        "message_bytes": size,
        "first_ms": round(delays[0], 1),
        "median_ms": round(statistics.median(delays), 1),
        "worst_ms": round(max(delays), 1),
        "limit_ms": 500,
        "mib": memory,
        "limit_mib": 512,
        "bare_first_ms": round(bare[0], 1),
        "bare_median_ms": round(statistics.median(bare), 1),
        "bare_worst_ms": round(max(bare), 1),
        "bare_mib": bare_memory,
    }


def _one_switch(tree: Clos, ovs: PrivateOvs, controller: str) -> None:
    words = ["add-br", "c0_0", "--", "set", "bridge", "c0_0", "datapath_type=dummy", "fail_mode=secure"]
    words += [f"protocols={OPENFLOW}", f"other-config:datapath-id={tree.dpid(tree.switch('c0_0')):016x}"]
    words += ["--", "set-controller", "c0_0", controller]
    for port in range(1, tree.port_count(Level.CORE) + 1):
        words += ["--", "add-port", "c0_0", f"p{port}", "--", "set", "interface", f"p{port}", "type=dummy"]
        words.append(f"ofport_request={port}")
    ovs.vsctl(*words)


def _drain(controller: ControllerProcess, turn: int) -> float:
    """Return the milliseconds until every agent has acknowledged, as measured by the controller."""
    method = "DELETE" if turn % 2 else "PUT"
    version = controller.change(method, f"/drains/{DRAINED}").raise_for_status().json()["version"]
    return float(controller.wait_acknowledged(version - 1, pause=0.1)["acknowledged_ms"])


def _bare(directory: Path, paths: Sequence[str], size: int) -> tuple[list[float], float]:
    """Measure a server that only sends and counts answers, with the same number of clients."""
    (port,) = free_ports(1)
    command = [sys.executable, str(_SERVER), str(port), str(len(paths)), str(size), str(2 * ROUNDS)]
    with ChildProcess(command, directory / "bare.log") as server:
        server.wait_until(lambda: "listening" in server.log_tail(), "it listened")
        with Crowd(port, paths) as crowd:
            crowd.connect()
            server.wait_until(lambda: "done" in server.log_tail(), "all rounds were done", 120)
        lines = server.log.read_text().split("listening")[1].split()
        return [float(word) for word in lines[: 2 * ROUNDS]], peak_mib(server.pid)


class Crowd:
    """Simulated agents: raw sockets in one thread that acknowledge every message, at some 10 µs per message."""

    def __init__(self, port: int, paths: Sequence[str], token: str = "") -> None:
        self.last_bytes = self.pongs = 0
        self._port = port
        self._token = token
        self._paths = paths
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._ended = False
        self._thread = threading.Thread(target=self._answer, daemon=True)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended = True
        if self._thread.is_alive():
            self._thread.join()
        for each in self._sockets:
            each.close()
        self._selector.close()

    def connect(self) -> None:
        """Open every channel, then start to acknowledge."""
        for path in self._paths:
            channel = socket.create_connection(("127.0.0.1", self._port))
            channel.sendall(
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Authorization: Bearer {self._token}\r\n"
                "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            received = b""
            while b"\r\n\r\n" not in received:
                received += channel.recv(1)
            if not received.startswith(b"HTTP/1.1 101"):
                raise RuntimeError(f"{path}: {received[:200].decode(errors='replace')}")
            channel.setblocking(False)
            self._sockets.append(channel)
            self._selector.register(channel, selectors.EVENT_READ, _reader(channel, self))
        self._thread.start()

    def ping(self, at: int) -> None:
        """Send one agent's ping; `pongs` counts the answers."""
        self._sockets[at % len(self._sockets)].send(bytes([0x80 | PING, 0x80 | 4, 0, 0, 0, 0]) + at.to_bytes(4))

    def _answer(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(0.1):
                key.data()


def _reader(channel: socket.socket, crowd: Crowd) -> Callable[[], None]:
    buffer = bytearray()

    def read() -> None:
        try:
            data = channel.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            crowd._selector.unregister(channel)
            return
        buffer.extend(data)
        while buffer:
            is_pong = buffer[0] & 0x0F == PONG
            if (bounds := frame_bounds(buffer)) is None:
                return
            message = bytes(buffer[slice(*bounds)])
            del buffer[: bounds[1]]
            if is_pong:
                crowd.pongs += 1
                continue
            crowd.last_bytes = len(message)
            channel.send(acknowledged(message)[0])

    return read
