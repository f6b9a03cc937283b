"""Which labels the packets of a host of a lab carry on its wire, and when, by the kernel's time of sending."""

from __future__ import annotations

import socket
import struct

from experiments.emulation.threads import Threads
from flowrules import label
from sopa_ryu.agent.kernel.netns import inside
from topologies import Host
from topologies.lab.network import Lab

_IPV4, _OUTGOING = 0x0800, 4
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_TIME = struct.Struct("qq")


class LabelWire(Threads):
    """Captures a host's packets of a protocol to a destination port, from entering until leaving the context.

    ``seen`` has each packet's time in seconds since 1970, and the two hops of its label; None without a label.
    """

    def __init__(self, lab: Lab, host: Host, protocol: int, port: int) -> None:
        super().__init__(self._capture)
        self.seen: list[tuple[float, tuple[int, int] | None]] = []
        self._protocol, self._port = protocol, port
        with inside(lab.netns(host)):
            self._wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))  # all: sees what goes out, too
            self._wire.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 22)
            self._wire.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._wire.bind((lab.interface(host, 0), 0x0003))
        self._wire.settimeout(0.1)

    def close(self) -> None:
        """Close the socket."""
        self._wire.close()

    def last(self, labels: set[tuple[int, int]], since: float) -> float | None:
        """Return when one of these labels was seen last from a moment on; None if it has not been."""
        return max((at for at, hops in list(self.seen) if at >= since and hops in labels), default=None)

    def next(self, labels: set[tuple[int, int]], since: float) -> float | None:
        """Return when one of these labels was seen first from a moment on; None if it has not been."""
        return min((at for at, hops in list(self.seen) if at >= since and hops in labels), default=None)

    def _capture(self) -> None:
        while not self.ended.is_set():
            try:
                frame, ancillary, _, address = self._wire.recvmsg(128, 64)
            except TimeoutError:
                continue
            if address[1] != _IPV4 or address[2] != _OUTGOING or frame[23] != self._protocol:
                continue
            at = 14 + (frame[14] & 15) * 4
            if struct.unpack_from("!H", frame, at + 2)[0] != self._port:
                continue
            seconds, nanoseconds = _TIME.unpack(ancillary[0][2])
            word = label.parse_mac(":".join(f"{octet:02x}" for octet in frame[6:12]))
            self.seen.append((seconds + nanoseconds / 1e9, word))
