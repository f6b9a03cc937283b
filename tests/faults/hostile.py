"""A switch that has turned hostile: it stands between a real one and its controllers, and changes and adds messages."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable

from tests.helpers.openflow_switch import HEADER, PlainSwitch, messages, packed
from topologies.lab.private_ovs import PrivateOvs
from topologies.lab.startable import Startable

ERROR, PACKET_IN, PORT_STATUS, MULTIPART_REPLY, ROLE_REQUEST, ROLE_REPLY = 1, 10, 12, 19, 24, 25
SLAVE = 3
BURST, PAUSE_SECONDS = 50, 0.01
"""So many messages more on each channel, and so long until the next ones: the lab's machine has other work, too."""
_CONNECT_SECONDS = 1.0


class HostileSwitch(Startable):
    """Take the place of a switch's channels to all controllers, as a context manager.

    ``way`` is what it does: ``generation``, it says that it knows a generation id far ahead; ``slave``, it answers each claim so;
    ``errors``, it sends errors that nobody asked for; ``answer``, one of its answers never ends; ``ports``, it has ever new ones;
    ``packets``, its packets come from no port.
    """

    def __init__(self, ovs: PrivateOvs, name: str, way: str) -> None:
        if way not in WAYS:
            raise ValueError(f"no switch is hostile by {way}")
        self._ovs, self._name, self._way = ovs, name, way
        self._targets: dict[str, str] = {}
        self._sockets: list[socket.socket] = []

    def start(self) -> None:
        rows = self._ovs.vsctl("get", "bridge", self._name, "controller").strip(" []\n").split(", ")
        self._targets = {row: self._ovs.vsctl("get", "controller", row, "target").strip('"\n') for row in rows}
        changed = {}
        for row, target in self._targets.items():
            _, host, number = target.split(":")
            listener = socket.create_server(("127.0.0.1", 0))
            self._sockets.append(listener)
            changed[row] = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
            threading.Thread(target=self._accept, args=(listener, (host, int(number))), daemon=True).start()
        self._set(changed)

    def stop(self) -> None:
        self._set(self._targets)
        _close(*self._sockets)

    def _set(self, targets: dict[str, str]) -> None:
        for row, target in targets.items():
            self._ovs.vsctl("set", "controller", row, f'target="{target}"')

    def _accept(self, listener: socket.socket, controller: tuple[str, int]) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                switch, _ = listener.accept()
                self._sockets.append(switch)
                try:
                    above = socket.create_connection(controller, _CONNECT_SECONDS)
                except OSError:  # it is down, or cut off
                    switch.close()
                    continue
                above.settimeout(None)
                self._sockets.append(above)
                channel = _Channel(switch, above, self._way)
                for work in channel.work:
                    threading.Thread(target=self._run, args=(work, channel), daemon=True).start()

    def _run(self, work: Callable[[], None], channel: _Channel) -> None:
        with contextlib.suppress(OSError, struct.error):  # an end is closed, in the middle of a message
            work()
        _close(channel.switch, channel.above)


def _close(*ends: socket.socket) -> None:
    for each in ends:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


class _Channel:
    """A channel of the real switch, and its continuation to a controller."""

    def __init__(self, switch: socket.socket, above: socket.socket, way: str) -> None:
        self.switch, self.above = switch, above
        self.work = [self._down, self._up, *([self._add] if way in ADDED else [])]
        self._way = way
        self._asked: dict[int, int] = {}
        self._known = threading.Event()
        self._answer = 0, b""
        self._lock = threading.Lock()

    def _down(self) -> None:
        for kind, xid, body in messages(self.above):
            if kind == ROLE_REQUEST:
                self._asked[xid] = struct.unpack_from("!I", body)[0]
            self.switch.sendall(_message(kind, xid, body))

    def _up(self) -> None:
        for kind, xid, body in messages(self.switch):
            if kind == ROLE_REPLY and self._way in CHANGED:
                body = struct.pack("!I4xQ", *CHANGED[self._way](self._asked.pop(xid, 0), *struct.unpack("!I4xQ", body)))
            elif kind == MULTIPART_REPLY:
                self._answer = xid, body
                self._known.set()
            if kind != MULTIPART_REPLY or self._way != "answer":
                self._send(_message(kind, xid, body))

    def _add(self) -> None:
        """Send what nobody has asked for, once the controller asks for more than features."""
        self._known.wait()
        for number in itertools.count(0, BURST):
            self._send(b"".join(ADDED[self._way](number + each, *self._answer) for each in range(BURST)))
            time.sleep(PAUSE_SECONDS)  # the rate of what is hostile

    def _send(self, data: bytes) -> None:
        with self._lock:
            self.above.sendall(data)


def _message(kind: int, xid: int, body: bytes) -> bytes:
    return HEADER.pack(4, kind, HEADER.size + len(body), xid) + body


CHANGED: dict[str, Callable[[int, int, int], tuple[int, int]]] = {
    "generation": lambda asked, role, known: (role, known if asked else (known + 2**63 - 1) % 2**64),
    "slave": lambda _asked, _role, known: (SLAVE, known),
}
ADDED: dict[str, Callable[[int, int, bytes], bytes]] = {
    # bad request, is slave; role request failed, stale
    "errors": lambda number, _xid, _body: _message(ERROR, number, struct.pack("!HH8x", *((1, 10), (11, 0))[number % 2])),
    "answer": lambda _number, xid, body: _message(MULTIPART_REPLY, xid, body[:2] + b"\0\1" + body[4:]),  # OFPMPF_REPLY_MORE
    "ports": lambda number, _xid, _body: _message(PORT_STATUS, 0, packed("port-status", (0, *PlainSwitch.port(1000 + number)))),
    "packets": lambda *_: _message(PACKET_IN, 0, struct.pack("!IHBBQHH4x2x60x", 2**32 - 1, 60, 0, 0, 0, 1, 4)),
}
WAYS = (*CHANGED, *ADDED)
