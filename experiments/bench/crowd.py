"""Light agents of many hosts: WebSockets that acknowledge every message, in processes of their own beside the bench.

An agent here, when its channel is lost, goes to the next server at once, in the order of the real agent
(`sopa_ryu.channel.addresses`), and 0.5 s later if all have failed; it has no path table. So that thousands leave the processor to
what is measured, messages are not parsed as JSON. Each has an address of its own in 127.0.0.0/8, as hosts have.

``python -m experiments.bench.crowd`` answers each line of its standard input with a line of JSON: what its agents have. The line
``leave`` has its first agent end before; ``ping RATE SECONDS`` has them ping, until all is answered.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import re
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.bench.frame import wait
from experiments.emulation.processes import ControllerProcess
from sopa_ryu.channel.addresses import ordered
from sopa_ryu.runtime.process import allow_files
from topologies import Clos

CONNECT_SECONDS = 600.0
PING_SECONDS = 60.0
"""For the last answer."""
POLL_SECONDS = 0.25
RETRY_SECONDS = 0.5
SPACING_SECONDS = 0.002
CLOSE, PING, PONG = 0x8, 0x9, 0xA
"""Opcodes (RFC 6455, section 5.2)."""
_CLOSED = bytes([0x80 | CLOSE, 0x82, 0, 0, 0, 0]) + (1000).to_bytes(2, "big")
_IP_BIND_ADDRESS_NO_PORT = 24
_LISTED = re.compile(rb'"mcs": \[|^\{"type": "mcs"')
_HELD = re.compile(rb'"epoch": (\d+),.*?"version": (\d+)')


def addresses_of(tree: Clos) -> list[str]:
    """Return the addresses of all hosts."""
    return [str(tree.ip(host)) for host in tree.hosts()]


class Crowd:
    """Agents in one process or several, from entering until leaving the context; ``query`` is that of their requests."""

    def __init__(
        self, ports: Sequence[int], addresses: Sequence[str], token: str = "", query: str = "", processes: int = 1
    ) -> None:
        share = -(-len(addresses) // processes)
        self._agents = len(addresses)
        self._parts = [
            {"ports": [*ports], "addresses": [*addresses[at : at + share]], "offset": at, "token": token, "query": query}
            for at in range(0, len(addresses), share)
        ]
        self._processes: list[subprocess.Popen[str]] = []

    @classmethod
    def at(cls, controller: ControllerProcess, tree: Clos) -> Crowd:
        """Return an agent of a controller for each host."""
        return cls([controller.rest_port], addresses_of(tree), controller.agent_token_file.read_text().strip())

    def __enter__(self) -> Crowd:
        command = [sys.executable, "-m", __name__]
        for part in self._parts:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._processes.append(process)
            _tell(process, json.dumps(part))
        for process in self._processes:
            _answer(process)  # it polls its standard input, of which a reader of lines must not keep anything
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def wait_connected(self) -> float:
        """Wait until every agent has a channel; return when that was (monotonic seconds)."""
        connected = 0

        def all_connected() -> bool:
            nonlocal connected
            connected = sum(sum(part["connected"].values()) for part in self.report())
            return connected == self._agents

        problem = f"of {self._agents} agents are connected"
        wait(all_connected, lambda: f"{connected} {problem}", CONNECT_SECONDS, POLL_SECONDS)
        return time.monotonic()

    def report(self) -> list[dict[str, Any]]:
        """Return what the agents of each process have."""
        for process in self._processes:
            _tell(process, "report")
        return [_answer(process) for process in self._processes]

    def leave(self) -> None:
        """Have one agent end."""
        _tell(self._processes[0], "leave")
        _answer(self._processes[0])

    def ping(self, rate: float, seconds: float) -> None:
        """Have the agents of a single process ping at a rate in 1/s, evenly spread; return when all pings are answered."""
        [process] = self._processes
        _tell(process, f"ping {rate} {seconds}")
        if unanswered := _answer(process)["unanswered"]:
            raise RuntimeError(f"{unanswered} pings were not answered")


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


# -- messages -------------------------------------------------------------------------------------------------------------


def frame_bounds(data: bytes | bytearray) -> tuple[int, int] | None:
    """Return where the payload of the first frame of a server begins and ends (RFC 6455, section 5.2); None if it is not complete.

    >>> frame_bounds(b"\\x81\\x02ok..."), frame_bounds(b"\\x81\\x7e\\x01")
    ((2, 4), None)
    """
    if len(data) < 2:
        return None
    length, at = data[1], 2
    if length >= 126:
        at = 4 if length == 126 else 10
        length = int.from_bytes(data[2:at], "big")
    return (at, at + length) if len(data) >= at + length else None


def acknowledged(message: bytes) -> tuple[bytes, int]:
    """Return the frame that acknowledges a message, and the version in it; 0 for a message that has none."""
    held = _HELD.search(message)
    epoch, version = held.groups() if held is not None else (b"0", b"0")
    text = b'{"type": "ack", "epoch": %s, "version": %s, "refused": 0}' % (epoch, version)
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text, int(version)


def listed(message: bytes) -> tuple[bool, int] | None:
    """Return by how many a message changes the hosts that run MCS, as an agent knows them, behind whether it is the whole number.

    None if it says nothing of them, or only that others are still to come.

    >>> listed(b'{"type": "mcs", "number": 2, "added": ["10.0.0.2"], "removed": [], "known": 1, "complete": true}')
    (False, 1)
    >>> listed(b'{"type": "ping"}')
    """
    if _LISTED.search(message) is None:
        return None
    values = json.loads(message)
    if values["type"] == "mcs":
        return False, len(values["added"]) - len(values["removed"])
    return (True, len(values["mcs"])) if values["mcs_complete"] or values["mcs"] else None


# -- one process ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Agent:
    """One agent, and its present connection: ``at`` which of its ports, and how many servers have failed since it was connected."""

    number: int
    address: str
    source: str
    ports: list[int]
    at: int = 0
    failed: int = 0
    open: bool = False
    buffer: bytes = b""
    acknowledged: int = 0
    listed: int = 0
    channel: socket.socket | None = None


class Agents:
    """All agents of the process. Source addresses follow from the number of the first host, ``offset``."""

    def __init__(self, ports: list[int], addresses: list[str], offset: int, token: str, query: str = "") -> None:
        self._token, self._query = token, query
        self._poll = select.epoll()
        by_url = {f"http://127.0.0.1:{port}": port for port in ports}
        self._agents = [
            Agent(number, address, _source(offset + number), [by_url[url] for url in ordered(list(by_url), address)])
            for number, address in enumerate(addresses)
        ]
        self._by_file: dict[int, Agent] = {}
        self._later: list[tuple[float, int]] = []
        self._latest = 0
        self._last = 0.0
        self._acks: dict[bytes, tuple[bytes, int, tuple[bool, int] | None]] = {}
        self._fewest = 0
        self._heard = 0.0
        self._bytes = self._pongs = 0

    def run(self) -> None:
        """Follow the servers until standard input ends."""
        self._poll.register(sys.stdin.fileno(), select.EPOLLIN)
        for number in range(len(self._agents)):
            self._connect(number)
            if number % 64 == 0:
                self._turn(0.0)
        while self._turn(0.2):
            pass

    def _turn(self, seconds: float) -> bool:
        for file, event in self._poll.poll(seconds):
            if file == sys.stdin.fileno():
                line = sys.stdin.readline()
                if not line:
                    return False
                command, *values = line.split()
                if command == "leave":
                    self._leave()
                self._report(self._ping(*map(float, values)) if command == "ping" else 0)
                continue
            agent = self._by_file.get(file)
            if agent is not None:
                self._ready(agent, event)
        while self._later and self._later[0][0] <= time.monotonic():
            self._connect(heapq.heappop(self._later)[1])
        return True

    def _report(self, unanswered: int) -> None:
        connected = Counter(agent.ports[agent.at] for agent in self._agents if agent.open)
        answer = {
            "connected": {str(port): count for port, count in connected.items()},
            "latest": self._latest,
            "reached": sum(agent.acknowledged == self._latest and agent.open for agent in self._agents),
            "last": self._last,
            "listed": Counter(agent.listed for agent in self._agents if agent.open),
            "fewest": self._fewest,
            "heard": self._heard,
            "bytes": self._bytes,
            "unanswered": unanswered,
        }
        self._fewest = min((agent.listed for agent in self._agents if agent.open), default=0)
        print(json.dumps(answer), flush=True)

    def _leave(self) -> None:
        agent = next(agent for agent in self._agents if agent.open)
        assert agent.channel is not None
        agent.channel.send(_CLOSED)
        del self._by_file[agent.channel.fileno()]
        agent.channel.close()
        agent.open = False

    def _ping(self, rate: float, seconds: float) -> int:
        """Ping at a rate, spread over the time as pings of many hosts are; return how many are not answered in the end."""
        channels = [agent.channel for agent in self._agents if agent.open and agent.channel is not None]
        began, sent, before = time.monotonic(), 0, self._pongs
        while (elapsed := time.monotonic() - began) < seconds or self._pongs - before < sent:
            if elapsed > seconds + PING_SECONDS:
                break
            due = int(min(elapsed, seconds) * rate)
            for number in range(sent, due):
                frame = bytes([0x80 | PING, 0x80 | 4, 0, 0, 0, 0]) + number.to_bytes(4)
                channels[number % len(channels)].send(frame)
            sent = max(sent, due)
            self._turn(SPACING_SECONDS)
        return sent - (self._pongs - before)

    # -- one agent ----------------------------------------------------------------------------------------------------

    def _connect(self, number: int) -> None:
        agent = self._agents[number]
        channel = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        channel.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel.bind((agent.source, 0))
        agent.channel, agent.buffer, agent.open = channel, b"", False
        self._by_file[channel.fileno()] = agent
        with contextlib.suppress(BlockingIOError):
            channel.connect(("127.0.0.1", agent.ports[agent.at]))
        self._poll.register(channel.fileno(), select.EPOLLOUT)

    def _ready(self, agent: Agent, event: int) -> None:
        channel = agent.channel
        assert channel is not None
        try:
            if event & select.EPOLLOUT:
                problem = channel.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if problem:
                    raise OSError(problem, "connect")
                channel.send(
                    f"GET /sopa/v1/agents/{agent.address}?{self._query} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                    f"Connection: Upgrade\r\nAuthorization: Bearer {self._token}\r\n"
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
                )
                self._poll.modify(channel.fileno(), select.EPOLLIN)
                return
            data = channel.recv(1 << 16)
            if not data:
                raise ConnectionError("closed")
            self._received(agent, channel, data)
        except BlockingIOError:
            return
        except OSError:
            self._lost(agent)

    def _lost(self, agent: Agent) -> None:
        """Go to the next server at once, until all have been tried."""
        assert agent.channel is not None
        del self._by_file[agent.channel.fileno()]
        agent.channel.close()
        agent.failed = 1 if agent.open else agent.failed + 1
        agent.open = False
        agent.at = (agent.at + 1) % len(agent.ports)
        pause = 0.0 if agent.failed < len(agent.ports) else RETRY_SECONDS
        heapq.heappush(self._later, (time.monotonic() + pause, agent.number))

    def _received(self, agent: Agent, channel: socket.socket, data: bytes) -> None:
        data = agent.buffer + data
        if not agent.open:
            head, separator, rest = data.partition(b"\r\n\r\n")
            if not separator:
                agent.buffer = data
                return
            if not head.startswith(b"HTTP/1.1 101"):
                raise ConnectionError(head.decode(errors="replace"))
            agent.open, agent.failed, data = True, 0, rest
        while data:
            bounds = frame_bounds(data)
            if bounds is None:
                break
            opcode, (start, end) = data[0] & 15, bounds
            if opcode == CLOSE:
                raise ConnectionError("closed by the server")
            if opcode == PONG:
                self._pongs += 1
            else:
                self._acknowledge(agent, channel, data[start:end])
            data = data[end:]
        agent.buffer = data

    def _acknowledge(self, agent: Agent, channel: socket.socket, message: bytes) -> None:
        if message not in self._acks:
            if len(self._acks) > 64:
                self._acks.clear()
            self._acks[message] = *acknowledged(message), listed(message)
        ack, version, change = self._acks[message]
        self._bytes = len(message)
        channel.send(ack)
        if change is not None:
            agent.listed = change[1] + (0 if change[0] else agent.listed)
            self._fewest = min(self._fewest, agent.listed)
            self._heard = time.monotonic()
        if version:
            agent.acknowledged = version
            if version >= self._latest:
                self._latest, self._last = version, time.monotonic()


def _source(number: int) -> str:
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def main() -> None:
    """Read the crowd from the first line of standard input, as JSON, and run it."""
    agents = json.loads(sys.stdin.readline())
    allow_files()
    print("{}", flush=True)
    Agents(**agents).run()


if __name__ == "__main__":
    main()
