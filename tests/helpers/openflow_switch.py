"""A switch on plain sockets that answers by values in the formats that Ryu declares, each of which a test may replace."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ryu.ofproto import ofproto_v1_3 as of

HEADER = struct.Struct(of.OFP_HEADER_PACK_STR)
MULTIPART = struct.Struct(of.OFP_MULTIPART_REPLY_PACK_STR)
FORMATS: dict[str, tuple[int, str]] = {
    "hello": (of.OFPT_HELLO, ""),
    "error": (of.OFPT_ERROR, of.OFP_ERROR_MSG_PACK_STR),
    "echo": (of.OFPT_ECHO_REPLY, ""),
    "features": (of.OFPT_FEATURES_REPLY, of.OFP_SWITCH_FEATURES_PACK_STR),
    "packet-in": (of.OFPT_PACKET_IN, of.OFP_PACKET_IN_PACK_STR + "HHII4x2x12sH"),  # its match has in_port
    "flow-removed": (of.OFPT_FLOW_REMOVED, of.OFP_FLOW_REMOVED_PACK_STR),
    "port-status": (of.OFPT_PORT_STATUS, of.OFP_PORT_STATUS_PACK_STR),
    "barrier": (of.OFPT_BARRIER_REPLY, ""),
    "role": (of.OFPT_ROLE_REPLY, of.OFP_ROLE_REQUEST_PACK_STR),
}
"""Type and format of each message but multipart answers."""
ROWS: dict[str, tuple[int, str]] = {
    "description": (of.OFPMP_DESC, of.OFP_DESC_PACK_STR),
    "flows": (of.OFPMP_FLOW, of.OFP_FLOW_STATS_PACK_STR),
    "port-statistics": (of.OFPMP_PORT_STATS, of.OFP_PORT_STATS_PACK_STR),
    "groups": (of.OFPMP_GROUP_DESC, of.OFP_GROUP_DESC_PACK_STR),
    "ports": (of.OFPMP_PORT_DESC, of.OFP_PORT_PACK_STR),
}
"""Type and format of the rows of each multipart answer."""
ANSWERS = {of.OFPT_ECHO_REQUEST: "echo", of.OFPT_FEATURES_REQUEST: "features", of.OFPT_BARRIER_REQUEST: "barrier",
           of.OFPT_ROLE_REQUEST: "role"}  # fmt: skip
LIVE, SPEED = of.OFPPS_LIVE, 10_000_000
NO_GENERATION = (1 << 64) - 1
MAX_BYTES = 65535
Values = Sequence[int | bytes]


def packed(kind: str, values: Values) -> bytes:
    """Return the body of a message, or a row, of values that fit into their fields or are cut."""
    form = (FORMATS.get(kind) or ROWS[kind])[1] or "!"
    bits = [8 * struct.calcsize("!" + code) for code in codes(kind)]
    cut = [value % (1 << size) if isinstance(value, int) else value for value, size in zip(values, bits, strict=True)]
    return struct.pack(form, *cut)


def codes(kind: str) -> list[str]:
    """Return the format of each field of a message or row."""
    form, found, count = (FORMATS.get(kind) or ROWS[kind])[1].lstrip("!"), [], ""
    for letter in form:
        if letter.isdigit():
            count += letter
            continue
        if letter != "x":
            found.append(count + letter)
        count = ""
    return found


class PlainSwitch:
    """A switch with a channel to each of some controllers, all of which it answers alike.

    Attributes:
        answer: Called with the kind of each answer, its values (of a multipart answer those of each row), the transaction and
            what sends a message on the channel, instead of sending it.
        alive: The channels that are open.
    """

    def __init__(self, dpid: int, ports: Iterable[int], targets: Iterable[str], source: str = "127.0.0.1") -> None:
        self.dpid, self.source, self.targets = dpid, source, list(targets)
        self.ports = list(ports)
        self.generation = NO_GENERATION
        self.answer: Callable[[str, Any, int, Callable[[bytes], None]], None] = self.send
        self.alive: dict[socket.socket, threading.Lock] = {}
        self.echoed: dict[socket.socket, float] = {}
        """Seconds of the last answer to `echo`."""
        self._closed = False
        self._master: socket.socket | None = None

    # -- channels -------------------------------------------------------------------------------------------------------

    def open(self, dpid: int | None = None) -> None:
        """Open all channels anew, maybe in another's name."""
        self.cut()
        self._closed, self.dpid = False, self.dpid if dpid is None else dpid
        for target in self.targets:
            _, host, port = target.split(":")
            threading.Thread(target=self._keep, args=((host, int(port)), self.dpid), daemon=True).start()

    def cut(self) -> None:
        """Close all channels."""
        self._closed = True
        for channel in list(self.alive):
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)
        while self.alive:
            time.sleep(0.001)  # until the threads have noticed
        self._closed = False

    def _keep(self, at: tuple[str, int], dpid: int) -> None:
        """Keep a channel, as a switch does: a second after it was closed it is opened anew."""
        while not self._closed and self.dpid == dpid:
            with contextlib.suppress(OSError, EOFError), socket.create_connection(at, 5, (self.source, 0)) as channel:
                channel.settimeout(None)
                self.alive[channel] = threading.Lock()
                try:
                    self.write(channel, FORMATS["hello"][0], 1, b"")
                    while True:
                        self._take(channel)
                finally:
                    del self.alive[channel]
            if self._closed:
                return
            time.sleep(1.0)

    def write(self, channel: socket.socket, kind: int, xid: int, body: bytes, count: int = 1) -> None:
        """Write a message, or one many times."""
        lock = self.alive.get(channel)
        if lock is None:
            raise OSError("the channel is closed")
        with lock:
            channel.sendall((HEADER.pack(of.OFP_VERSION, kind, HEADER.size + len(body), xid % (1 << 32)) + body) * count)

    def _take(self, channel: socket.socket) -> None:
        _, kind, length, xid = HEADER.unpack(_read(channel, HEADER.size))
        body = _read(channel, length - HEADER.size)
        if kind == of.OFPT_ECHO_REPLY:
            self.echoed[channel] = time.monotonic() - struct.unpack("!d", body)[0]
        elif kind == of.OFPT_MULTIPART_REQUEST:
            wanted = MULTIPART.unpack_from(body)[0]
            for name in (name for name, (number, _) in ROWS.items() if number == wanted):
                self.answer(name, self.rows(name), xid, lambda data: self.write(channel, of.OFPT_MULTIPART_REPLY, xid, data))
        elif kind in ANSWERS:
            name = ANSWERS[kind]
            if name == "role":
                values: Values = self._take_role(channel, *struct.unpack(of.OFP_ROLE_REQUEST_PACK_STR, body))
            else:
                values = self.values(name)
            self.answer(name, values, xid, lambda data: self.write(channel, FORMATS[name][0], xid, data + body * (name == "echo")))

    def _take_role(self, channel: socket.socket, role: int, generation: int) -> Values:
        """Follow a request (OpenFlow 1.3, section 6.3.4), and return what is true then."""
        if role > of.OFPCR_ROLE_EQUAL:
            self.generation = generation
        if role == of.OFPCR_ROLE_MASTER:
            self._master = channel
        elif role != of.OFPCR_ROLE_NOCHANGE and self._master is channel:
            self._master = None
        return (of.OFPCR_ROLE_MASTER if self._master is channel else of.OFPCR_ROLE_SLAVE, self.generation)

    def echo(self, channel: socket.socket) -> None:
        """Ask a controller for an echo."""
        self.write(channel, of.OFPT_ECHO_REQUEST, 7, struct.pack("!d", time.monotonic()))

    # -- what an honest one says ----------------------------------------------------------------------------------------

    def send(self, kind: str, values: Any, xid: int, write: Callable[[bytes], None]) -> None:
        """Answer as asked."""
        write(packed(kind, values) if kind in FORMATS else multipart(kind, values))

    def values(self, kind: str) -> Values:
        """Return what an honest switch says in a message."""
        port = self.port(self.ports[0])
        return {
            "features": (self.dpid, 0, 254, 0, 0x4F, 0),
            "packet-in": (of.OFP_NO_BUFFER, 14, of.OFPR_ACTION, 0, 0, 1, 12, 0x80000004, self.ports[0], bytes(12), 0x88CC),
            "flow-removed": (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0),
            "error": (of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE),
            "port-status": (of.OFPPR_MODIFY, *port),
            "role": (of.OFPCR_ROLE_SLAVE, self.generation),
        }.get(kind, ())

    def rows(self, kind: str) -> list[Values]:
        """Return the rows of what an honest switch without entries says."""
        if kind == "ports":
            return [self.port(number) for number in self.ports]
        if kind == "port-statistics":
            return [(number, *[0] * 14) for number in self.ports]
        return [self.row(kind)] if kind == "description" else []

    def row(self, kind: str) -> Values:
        """Return a row of what it says."""
        return {
            "description": (b"", b"", b"", b"", b""),
            "flows": (56, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 4, 0, 0, 0, 0),
            "groups": (8, 0, 1),
            "port-statistics": (self.ports[0], *[0] * 14),
            "ports": self.port(self.ports[0]),
        }[kind]

    def port(self, number: int, state: int = LIVE) -> tuple[int | bytes, ...]:
        """Return a port's description."""
        return (number, bytes([2, 0, 0, 0, 0, number & 255]), b"p%d" % number, 0, state, 0, 0, 0, 0, SPEED, SPEED)


def multipart(kind: str, rows: Sequence[Values], more: bool = False) -> bytes:
    """Return the body of a multipart answer, or of the first of several."""
    body = b"".join(packed(kind, row) for row in rows)
    return (MULTIPART.pack(ROWS[kind][0], of.OFPMPF_REPLY_MORE * more) + body)[: MAX_BYTES - HEADER.size]


def _read(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = channel.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
