"""Captures: of the packets of traced flows at hosts, and of all links of a lab."""

from __future__ import annotations

import ctypes
import selectors
import signal
import socket
import struct
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flowrules.label import OPTION_LENGTH, OPTION_TYPE, UNUSED, parse_mac
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Host
from topologies.lab.startable import Startable

SNAP_BYTES = 96
MAX_PACKETS = 20_000
_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS, _SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 35, 26, 33
_TIMESPEC = struct.Struct("=qq")
_FILTER = struct.Struct("=HBBI")
_OPTION = bytes([OPTION_TYPE, OPTION_LENGTH])
_NO_PATH = UNUSED, UNUSED
_SEQUENCES = 1 << 32


@dataclass
class TracedFlow:
    """A traced flow and its packets."""

    number: int
    src: Host
    dst: Host
    port: int
    sent: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Time, sequence number, up1, up2."""
    arrived: list[tuple[float, int]] = field(default_factory=list)


class Capture:
    """Records the data packets of flows from `start` to `stop`, in a thread: time and path at the sender, order at the receiver.

    Each flow has two packet sockets, at the interfaces of sender and receiver. The tap of the sender is behind its own queue, so
    delays are those of the fabric. Timestamps are taken by the kernel, from one clock.
    """

    def __init__(self, tree: Clos, netns: Callable[[Host], str], interface: Callable[[Host], str], flows: list[TracedFlow]) -> None:
        self.flows = flows
        self._tree = tree
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._read, daemon=True, name="capture")
        self._ended = threading.Event()
        for flow in flows:
            for host, take in ((flow.src, self._take_sent), (flow.dst, self._take_arrived)):
                with inside(netns(host)):
                    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
                tap.setblocking(False)
                _attach(tap, int(tree.ip(flow.src)), flow.port)
                tap.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
                with inside(netns(host)):
                    tap.bind((interface(host), _ETH_P_ALL))
                self._selector.register(tap, selectors.EVENT_READ, (flow, take))

    def start(self) -> None:
        """Start recording."""
        self._thread.start()

    def stop(self) -> None:
        """Stop recording and close all sockets. May be called again."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def arrivals(self, flow: TracedFlow, begin: float) -> list[list[float]]:
        """Return ``[seconds, packet, up1, up2, delay_ms]`` of each received data packet that was also captured at the sender.

        ``begin`` of the run is in seconds since 1970.
        """
        if not flow.sent:
            return []
        first = flow.sent[0][1]
        waiting: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        for at, sequence, up1, up2 in flow.sent:
            waiting[(sequence - first) % _SEQUENCES].append((at, up1, up2))
        number = {offset: place for place, offset in enumerate(sorted(waiting))}
        found = []
        for at, sequence in flow.arrived:
            offset = (sequence - first) % _SEQUENCES
            if waiting.get(offset):
                sent_at, up1, up2 = waiting[offset].pop(0)
                found.append([round(at - begin, 6), number[offset], up1, up2, round(1000 * (at - sent_at), 3)])
        return found

    def _read(self) -> None:
        while not self._ended.is_set():
            for key, _ in self._selector.select(0.1):
                flow, take = key.data
                try:
                    while True:
                        data, ancillary, _, address = key.fileobj.recvmsg(SNAP_BYTES, 64)  # type: ignore[union-attr]
                        seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2][:16])
                        take(flow, seconds + nanoseconds / 1e9, data, address[2])
                except BlockingIOError:
                    continue

    def _take_sent(self, flow: TracedFlow, at: float, frame: bytes, kind: int) -> None:
        if kind != socket.PACKET_OUTGOING or len(flow.sent) >= MAX_PACKETS:
            return
        header = (frame[14] & 15) * 4
        sequence = _sequence_of_data(frame, header)
        if sequence is None:
            return
        up = parse_mac(frame[6:12].hex(":")) or _NO_PATH
        if header > 20 and frame[34:36] == _OPTION:
            up = frame[36], frame[37]
        flow.sent.append((at, sequence, *up))

    def _take_arrived(self, flow: TracedFlow, at: float, frame: bytes, kind: int) -> None:
        if kind == socket.PACKET_OUTGOING or len(flow.arrived) >= MAX_PACKETS:
            return
        sequence = _sequence_of_data(frame, (frame[14] & 15) * 4)
        if sequence is not None:
            flow.arrived.append((at, sequence))


def _sequence_of_data(frame: bytes, header: int) -> int | None:
    total = int.from_bytes(frame[16:18], "big")
    tcp = 14 + header
    if total <= header + (frame[tcp + 12] >> 4) * 4:
        return None
    return int.from_bytes(frame[tcp + 4 : tcp + 8], "big")


def _attach(tap: socket.socket, source: int, port: int) -> None:
    """Attach a classic BPF filter: TCP over IPv4 from an address and a port."""
    program = [
        (0x28, 0, 0, 12),
        (0x15, 0, 8, 0x0800),
        (0x30, 0, 0, 23),
        (0x15, 0, 6, socket.IPPROTO_TCP),
        (0x20, 0, 0, 26),
        (0x15, 0, 4, source),
        (0xB1, 0, 0, 14),
        (0x48, 0, 0, 14),
        (0x15, 0, 1, port),
        (0x06, 0, 0, SNAP_BYTES),
        (0x06, 0, 0, 0),
    ]
    code = b"".join(_FILTER.pack(*instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    tap.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(buffer)))


BUFFER_KIB = 65536
MIN_DATA_BYTES = 200
"""Packets with less are acknowledgements."""
STOP_SECONDS = 30.0


class CaptureError(RuntimeError):
    """tcpdump has ended, or has lost packets. The message has its output."""


class LinkCapture(Startable):
    """TCP's packets of data at all interfaces of this network namespace, as a context manager."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it captures."""
        command = ["tcpdump", "-i", "any", "-y", "LINUX_SLL2", "-n", "-s", str(SNAP_BYTES), "-B", str(BUFFER_KIB)]
        command += ["--time-stamp-precision=nano", "-Z", "root", "-w", str(self.file), f"tcp and ip[2:2] >= {MIN_DATA_BYTES}"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:  # ends with the process
            said += line
            if line.startswith("tcpdump: listening"):
                return
        self._process.wait()
        raise CaptureError(f"tcpdump ended: {said.strip()}")

    def stop(self) -> None:
        """End it. May be repeated. Raises `CaptureError` if it has lost packets."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        lost = [line for line in said.splitlines() if "dropped by kernel" in line]
        if not lost or not lost[0].startswith("0 "):
            raise CaptureError(f"the capture has lost packets: {said.strip()}")
