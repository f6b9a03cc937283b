"""A switch on plain sockets that answers by values in the formats that Ryu declares, each of which a test may replace."""

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sopa_ryu.runtime.library import ofproto_v1_3 as of

HEADER, MULTIPART = struct.Struct(of.OFP_HEADER_PACK_STR), struct.Struct(of.OFP_MULTIPART_REPLY_PACK_STR)
FORMATS: dict[str, tuple[int, str]] = {
    "hello": (of.OFPT_HELLO, "!"),
    "error": (of.OFPT_ERROR, of.OFP_ERROR_MSG_PACK_STR),
    "echo": (of.OFPT_ECHO_REPLY, "!"),
    "features": (of.OFPT_FEATURES_REPLY, of.OFP_SWITCH_FEATURES_PACK_STR),
    "packet-in": (of.OFPT_PACKET_IN, of.OFP_PACKET_IN_PACK_STR + "HHII4x2x12sH"),  # its match has in_port
    "flow-removed": (of.OFPT_FLOW_REMOVED, of.OFP_FLOW_REMOVED_PACK_STR),
    "port-status": (of.OFPT_PORT_STATUS, of.OFP_PORT_STATUS_PACK_STR),
    "barrier": (of.OFPT_BARRIER_REPLY, "!"),
    "role": (of.OFPT_ROLE_REPLY, of.OFP_ROLE_REQUEST_PACK_STR),
}
"""Type and format of each message but multipart answers."""
ROWS: dict[str, tuple[int, str]] = {
    "flows": (of.OFPMP_FLOW, of.OFP_FLOW_STATS_PACK_STR),
    "port-statistics": (of.OFPMP_PORT_STATS, of.OFP_PORT_STATS_PACK_STR),
    "groups": (of.OFPMP_GROUP_DESC, of.OFP_GROUP_DESC_PACK_STR),
    "ports": (of.OFPMP_PORT_DESC, of.OFP_PORT_PACK_STR),
}
"""Type and format of the rows of each multipart answer."""
ANSWERS = {of.OFPT_ECHO_REQUEST: "echo", of.OFPT_FEATURES_REQUEST: "features", of.OFPT_BARRIER_REQUEST: "barrier",
           of.OFPT_ROLE_REQUEST: "role"}  # fmt: skip
MAX_BYTES = 65535
Values = Sequence[int | bytes]


def codes(kind: str) -> list[str]:
    """Return the format of each field of a message or row."""
    return re.findall(r"(?:\d+s|[BHIQ])", re.sub(r"\d*x", "", (FORMATS.get(kind) or ROWS[kind])[1]).replace("2I", "II"))


def packed(kind: str, values: Values) -> bytes:
    """Return a message's body, or a row, of values that are cut to their fields."""
    sizes = [8 * struct.calcsize(f"!{code}") for code in codes(kind)]
    cut = [value % (1 << size) if isinstance(value, int) else value for value, size in zip(values, sizes, strict=True)]
    return struct.pack((FORMATS.get(kind) or ROWS[kind])[1], *cut)


def multipart(kind: str, rows: Sequence[Values], more: bool = False) -> bytes:
    """Return the body of a multipart answer, or of the first of several."""
    body = b"".join(packed(kind, row) for row in rows)
    return (MULTIPART.pack(ROWS[kind][0], of.OFPMPF_REPLY_MORE * more) + body)[: MAX_BYTES - HEADER.size]


def messages(channel: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, number and body of each message until the end."""
    with channel.makefile("rb") as stream:
        while header := stream.read(HEADER.size):
            _, kind, length, xid = HEADER.unpack(header)
            yield kind, xid, stream.read(length - HEADER.size)


class PlainSwitch:
    """A switch without entries, with a channel to each of some controllers, all of which it answers alike.

    Attributes:
        answer: Called with the kind of each answer, its values (of a multipart answer those of each row), the transaction and
            what writes a message on the channel.
        alive: The channels that are open, each with the lock for writing.
        echoed: The channels whose controller has answered an echo.
    """

    def __init__(self, dpid: int, ports: Iterable[int], targets: Sequence[str]) -> None:
        self.dpid, self.ports, self._targets = dpid, list(ports), targets
        self.restarted()
        self.answer: Callable[[str, Any, int, Callable[[bytes], None]], None] = self._answer
        self.alive: dict[socket.socket, threading.Lock] = {}
        self.echoed: set[socket.socket] = set()
        self._master: socket.socket | None = None
        self._ended = threading.Event()

    def restarted(self) -> None:
        """Know no generation id any more."""
        self.generation = (1 << 64) - 1

    # -- channels -------------------------------------------------------------------------------------------------------

    def open(self, dpid: int | None = None) -> None:
        """Open all channels anew, maybe in another's name."""
        self.cut()
        self._ended, self.dpid = threading.Event(), self.dpid if dpid is None else dpid
        for target in self._targets:
            _, host, port = target.split(":")
            threading.Thread(target=self._keep, args=((host, int(port)), self._ended), daemon=True).start()

    def cut(self) -> None:
        self._ended.set()
        while self.alive:
            for channel in list(self.alive):
                with contextlib.suppress(OSError):
                    channel.shutdown(socket.SHUT_RDWR)
            time.sleep(0.001)  # until their threads have noticed

    def _keep(self, at: tuple[str, int], ended: threading.Event) -> None:
        """Keep a channel, as a switch does: a second after it was closed it is opened anew."""
        while not ended.is_set():
            with contextlib.suppress(OSError, struct.error), socket.create_connection(at, 5) as channel:
                channel.settimeout(None)
                self.alive[channel] = threading.Lock()
                try:
                    self.write(channel, of.OFPT_HELLO, 1, b"")
                    for message in messages(channel):
                        self._take(channel, *message)
                finally:
                    del self.alive[channel]
            ended.wait(1.0)

    def write(self, channel: socket.socket, kind: int, xid: int, body: bytes, count: int = 1) -> None:
        """Write a message, or one many times; `OSError` if the channel is closed."""
        with self.alive.get(channel) or threading.Lock():
            channel.sendall((HEADER.pack(of.OFP_VERSION, kind, HEADER.size + len(body), xid) + body) * count)

    def echo(self, channel: socket.socket) -> None:
        self.echoed.discard(channel)
        self.write(channel, of.OFPT_ECHO_REQUEST, 7, b"")

    def _take(self, channel: socket.socket, kind: int, xid: int, body: bytes) -> None:
        if kind == of.OFPT_ECHO_REPLY:
            self.echoed.add(channel)
        elif kind == of.OFPT_MULTIPART_REQUEST:
            wanted = MULTIPART.unpack_from(body)[0]
            for name in (name for name, (number, _) in ROWS.items() if number == wanted):
                rows = [self.port(number) for number in self.ports] if name == "ports" else []
                self.answer(name, rows, xid, lambda data: self.write(channel, of.OFPT_MULTIPART_REPLY, xid, data))
        elif name := ANSWERS.get(kind, ""):
            said, end = self._take_role(channel, body) if name == "role" else self.values(name), body * (name == "echo")
            self.answer(name, said, xid, lambda data: self.write(channel, FORMATS[name][0], xid, data + end))

    def _take_role(self, channel: socket.socket, request: bytes) -> Values:
        """Follow a request (OpenFlow 1.3, section 6.3.4), and return what is true then."""
        role, generation = struct.unpack(of.OFP_ROLE_REQUEST_PACK_STR, request)
        if role > of.OFPCR_ROLE_EQUAL:
            self.generation = generation
        if role == of.OFPCR_ROLE_MASTER:
            self._master = channel
        elif role != of.OFPCR_ROLE_NOCHANGE and self._master is channel:
            self._master = None
        return (of.OFPCR_ROLE_MASTER if self._master is channel else of.OFPCR_ROLE_SLAVE, self.generation)

    # -- what an honest one says ----------------------------------------------------------------------------------------

    def _answer(self, kind: str, values: Any, _xid: int, write: Callable[[bytes], None]) -> None:
        write(packed(kind, values) if kind in FORMATS else multipart(kind, values))

    def values(self, kind: str) -> Values:
        """Return what an honest switch says in a message, or in a row."""
        its = self.ports[0]
        return {
            "features": (self.dpid, 0, 254, 0, 0x4F, 0),
            "packet-in": (of.OFP_NO_BUFFER, 14, of.OFPR_ACTION, 0, 0, 1, 12, 0x80000004, its, bytes(12), 0x88CC),
            "flow-removed": (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0),
            "error": (of.OFPET_BAD_REQUEST, of.OFPBRC_IS_SLAVE),
            "port-status": (of.OFPPR_MODIFY, *self.port(its)),
            "role": (of.OFPCR_ROLE_SLAVE, self.generation),
            "flows": (56, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 4, 0, 0, 0, 0),
            "groups": (8, 0, 1),
            "port-statistics": (its, *[0] * 14),
            "ports": self.port(its),
        }.get(kind, ())

    @staticmethod
    def port(number: int) -> Values:
        mac, name = bytes([2, 0, 0, 0, 0, number & 255]), b"p%d" % number
        return (number, mac, name, 0, of.OFPPS_LIVE, 0, 0, 0, 0, 10_000_000, 10_000_000)
