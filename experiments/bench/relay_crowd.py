"""``python -m experiments.bench.relay_crowd``: light agents of many hosts in one process, for the bench `relays`.

An agent here is a WebSocket that acknowledges every message and, when its channel is lost, goes to the next relay at once, in the
order of the real agent (`sopa_ryu.channel.addresses`), and 0.5 s later if all have failed; it has no path table. So that thousands
leave the processor to what is measured, messages are not parsed as JSON. Each has an address of its own in 127.0.0.0/8, as hosts
have.

The process answers each line of its standard input with a line of JSON: what its agents have. The line ``leave`` has its first
agent end before.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import select
import socket
import sys
import time
from collections import Counter

from experiments.bench.light_agent import acknowledged, frame_bounds, listed
from sopa_ryu.channel.addresses import ordered
from sopa_ryu.runtime.process import allow_files

RETRY_SECONDS = 0.5
_IP_BIND_ADDRESS_NO_PORT = 24
_CLOSE = bytes([0x88, 0x82, 0, 0, 0, 0]) + (1000).to_bytes(2, "big")


class Agent:
    """One agent, and its present connection."""

    __slots__ = (
        "acknowledged",
        "address",
        "at",
        "buffer",
        "failed",
        "listed",
        "number",
        "open",
        "ports",
        "socket",
        "source",
    )

    def __init__(self, number: int, address: str, source: str, ports: list[int]) -> None:
        self.number = number
        self.address = address
        self.source = source
        self.ports = ports
        self.at = 0
        self.failed = 0
        self.open = False
        self.buffer = b""
        self.acknowledged = 0
        self.listed = 0
        self.socket: socket.socket | None = None


class Crowd:
    """All agents of the process.

    Args:
        relays: Ports on loopback.
        addresses: Of the hosts.
        offset: Number of the first host, from which source addresses follow.
        query: Of the agents' requests.
    """

    def __init__(self, relays: list[int], addresses: list[str], offset: int, token: str, query: str = "") -> None:
        self._token, self._query = token, query
        self._poll = select.epoll()
        by_url = {f"http://127.0.0.1:{port}": port for port in relays}
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
        self.moves = 0

    def run(self) -> None:
        """Follow the relays until standard input ends."""
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
                if line.startswith("leave"):
                    self._leave()
                self._report()
                continue
            agent = self._by_file.get(file)
            if agent is not None:
                self._ready(agent, event)
        while self._later and self._later[0][0] <= time.monotonic():
            self._connect(heapq.heappop(self._later)[1])
        return True

    def _report(self) -> None:
        connected = Counter(agent.ports[agent.at] for agent in self._agents if agent.open)
        answer = {
            "connected": {str(port): count for port, count in connected.items()},
            "latest": self._latest,
            "reached": sum(agent.acknowledged == self._latest and agent.open for agent in self._agents),
            "last": self._last,
            "moves": self.moves,
            "listed": Counter(agent.listed for agent in self._agents if agent.open),
            "fewest": self._fewest,
            "heard": self._heard,
        }
        self._fewest = min((agent.listed for agent in self._agents if agent.open), default=0)
        print(json.dumps(answer), flush=True)

    def _leave(self) -> None:
        agent = next(agent for agent in self._agents if agent.open)
        assert agent.socket is not None
        agent.socket.send(_CLOSE)
        del self._by_file[agent.socket.fileno()]
        agent.socket.close()
        agent.open = False

    # -- one agent ----------------------------------------------------------------------------------------------------

    def _connect(self, number: int) -> None:
        agent = self._agents[number]
        its = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        its.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        its.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        its.bind((agent.source, 0))
        agent.socket, agent.buffer, agent.open = its, b"", False
        self._by_file[its.fileno()] = agent
        with contextlib.suppress(BlockingIOError):
            its.connect(("127.0.0.1", agent.ports[agent.at]))
        self._poll.register(its.fileno(), select.EPOLLOUT)

    def _ready(self, agent: Agent, event: int) -> None:
        its = agent.socket
        assert its is not None
        try:
            if event & select.EPOLLOUT:
                problem = its.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if problem:
                    raise OSError(problem, "connect")
                its.send(
                    f"GET /sopa/v1/agents/{agent.address}?{self._query} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
                    f"Connection: Upgrade\r\nAuthorization: Bearer {self._token}\r\n"
                    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
                )
                self._poll.modify(its.fileno(), select.EPOLLIN)
                return
            data = its.recv(1 << 16)
            if not data:
                raise ConnectionError("closed")
            self._received(agent, its, data)
        except BlockingIOError:
            return
        except OSError:
            self._lost(agent)

    def _lost(self, agent: Agent) -> None:
        """Go to the next relay at once, until all have been tried."""
        assert agent.socket is not None
        del self._by_file[agent.socket.fileno()]
        agent.socket.close()
        agent.failed = 1 if agent.open else agent.failed + 1
        agent.open = False
        agent.at = (agent.at + 1) % len(agent.ports)
        self.moves += 1
        pause = 0.0 if agent.failed < len(agent.ports) else RETRY_SECONDS
        heapq.heappush(self._later, (time.monotonic() + pause, agent.number))

    def _received(self, agent: Agent, its: socket.socket, data: bytes) -> None:
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
            if data[0] & 15 == 8:
                raise ConnectionError("closed by the relay")
            start, end = bounds
            self._acknowledge(agent, its, data[start:end])
            data = data[end:]
        agent.buffer = data

    def _acknowledge(self, agent: Agent, its: socket.socket, message: bytes) -> None:
        if message not in self._acks:
            if len(self._acks) > 64:
                self._acks.clear()
            self._acks[message] = *acknowledged(message), listed(message)
        ack, version, change = self._acks[message]
        its.send(ack)
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
    asked = json.loads(sys.stdin.readline())
    allow_files()
    Crowd(**asked).run()


if __name__ == "__main__":
    main()
