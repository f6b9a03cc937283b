"""A steady UDP stream between two hosts of a lab that records which datagrams were lost."""

from __future__ import annotations

import socket
import struct
import time

from experiments.emulation.threads import Threads
from sopa_ryu.agent.kernel.netns import inside
from topologies import Host
from topologies.lab.network import Lab

PORT = 9800
_NUMBER = struct.Struct("!I")
_SO_RCVBUFFORCE = 33
_LATE_SECONDS = 1.0


class UdpStream(Threads):
    """Sends datagrams with a payload of so many bytes from entering until leaving the context."""

    def __init__(self, lab: Lab, src: Host, dst: Host, per_second: int = 1000, size: int = 100) -> None:
        super().__init__(self._send, self._receive)
        self.sent_at: list[float] = []
        self.arrived: set[int] = set()
        self._interval = 1.0 / per_second
        self._padding = bytes(size - _NUMBER.size)
        self._to = str(lab.tree.ip(dst)), PORT
        with inside(lab.netns(src)):
            self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with inside(lab.netns(dst)):
            self._receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._receiver.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 22)
        self._receiver.bind(("", PORT))
        self._receiver.settimeout(0.1)

    def close(self) -> None:
        """Close both ends."""
        self._sender.close()
        self._receiver.close()

    def lost(self, first: float = 0.0, last: float = float("inf")) -> list[float]:
        """Return the sending times of lost datagrams among those sent between two moments (seconds since 1970)."""
        return [moment for number, moment in enumerate(self.sent_at) if number not in self.arrived and first <= moment <= last]

    def _send(self) -> None:
        due = time.monotonic()
        while not self.ended.is_set():
            self.sent_at.append(time.time())
            self._sender.sendto(_NUMBER.pack(len(self.sent_at) - 1) + self._padding, self._to)
            due += self._interval
            time.sleep(max(0.0, due - time.monotonic()))

    def _receive(self) -> None:
        last = time.monotonic()
        while not self.ended.is_set() or time.monotonic() - last < _LATE_SECONDS:
            try:
                self.arrived.add(int(_NUMBER.unpack_from(self._receiver.recv(2000))[0]))
            except TimeoutError:
                continue
            last = time.monotonic()
