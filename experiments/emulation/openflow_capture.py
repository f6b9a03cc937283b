"""What a controller of a lab's cluster and the switches send one another, counted from the packets of its machine."""

from __future__ import annotations

import socket
import struct
from collections import Counter

from experiments.emulation.threads import Threads
from sopa_ryu.agent.kernel.netns import inside

OPENFLOW_PORT = 6653
COMMANDS = {13: "packet-out", 14: "flow-mod", 15: "group-mod"}
ROLE_REQUEST, ERROR = 24, 1
REFUSALS = {(1, 10): "IS_SLAVE", (11, 0): "STALE"}
_ETH_IPV4 = 0x0800
_HEADER = struct.Struct("!BBHI")
_SO_RCVBUFFORCE = 33


class OpenFlowCapture(Threads):
    """Counts a controller's commands and role requests, and errors by which switches refused some, at its machine's interface."""

    def __init__(self, netns: str, interface: str) -> None:
        super().__init__(self._read)
        self.sent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        with inside(netns):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_IPV4))
        self._socket.bind((interface, _ETH_IPV4))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
        self._socket.settimeout(0.1)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read(self) -> None:
        while not self.ended.is_set():
            try:
                self.count(self._socket.recv(65536))
            except TimeoutError:
                continue

    def count(self, frame: bytes) -> None:
        """Count the messages of a frame. Of one that begins within a message nothing is counted."""
        if len(frame) < 54 or frame[23] != socket.IPPROTO_TCP:
            return
        ip = 14 + (frame[14] & 15) * 4
        ports = struct.unpack_from("!HH", frame, ip)
        end = 14 + struct.unpack_from("!H", frame, 16)[0]
        data = frame[ip + (frame[ip + 12] >> 4) * 4 : end]
        while len(data) >= _HEADER.size and data[0] == 4:
            _, kind, length, _ = _HEADER.unpack_from(data)
            if length < _HEADER.size:
                return
            if ports[0] == OPENFLOW_PORT and (kind in COMMANDS or kind == ROLE_REQUEST):
                self.sent[COMMANDS.get(kind, "role-request")] += 1
            elif ports[1] == OPENFLOW_PORT and kind == ERROR and len(data) >= 12:
                kinds = struct.unpack_from("!HH", data, 8)
                self.refused[REFUSALS.get(kinds, f"error {kinds[0]}/{kinds[1]}")] += 1
            data = data[length:]
