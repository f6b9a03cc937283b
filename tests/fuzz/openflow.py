"""A switch that sends garbled OpenFlow messages."""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Iterator

from tests.fuzz.garble import garbled
from tests.fuzz.target import BAD_SWITCH, Kind, Target
from tests.helpers.waiting import eventually

HEADER = struct.Struct("!BBHI")  # version, type, length, transaction id
FEATURES_REPLY, PORT_STATUS, ANSWERS = 6, 12, {0: 0, 2: 3, 5: 6, 7: 8, 18: 19, 20: 21, 24: 25}
"""Type of a request by the controller -> type of a switch's answer."""
MAX_MESSAGES = 60
UNKNOWN_DPID = 0x7777
SECONDS = 0.3
"""Time without a message by the controller, after which a session ends."""


def recorded(target: Target) -> dict[int, tuple[bytes, ...]]:
    """Return what a switch sends the controller while it connects, by type."""
    messages: dict[int, list[bytes]] = {}

    def pass_on() -> None:
        with contextlib.suppress(OSError):
            switch, _ = listener.accept()
            with switch, socket.create_connection(("127.0.0.1", target.openflow_port)) as controller:
                answers = threading.Thread(target=_forward, args=(controller, switch), daemon=True)
                answers.start()
                for message in _messages(switch):
                    messages.setdefault(message[1], []).append(message)
                    controller.sendall(message)
                controller.shutdown(socket.SHUT_RDWR)  # no thread reads a socket that is closed
                answers.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=pass_on, daemon=True).start()
        target.fabric.ovs.vsctl("set-controller", BAD_SWITCH, f"tcp:127.0.0.1:{listener.getsockname()[1]}")
        eventually(lambda: set(messages) >= {0, FEATURES_REPLY, 19, 21})
        target.fabric.controller.wait_connected(target.tree.switch_count)
        target.fabric.ovs.vsctl("del-controller", BAD_SWITCH)
    return {kind: tuple(sent) for kind, sent in sorted(messages.items())}


def _forward(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)


def _messages(source: socket.socket) -> Iterator[bytes]:
    """Yield whole messages until the connection ends."""
    data = b""
    while True:
        while len(data) >= HEADER.size and len(data) >= (length := max(HEADER.size, HEADER.unpack_from(data)[2])):
            yield data[:length]
            data = data[length:]
        received = source.recv(65536)
        if not received:
            return
        data += received


class OpenFlow(Kind):
    """Sessions of a false switch that answers with recorded messages, some of them garbled."""

    def __init__(self, target: Target, draw: random.Random) -> None:
        super().__init__(target, draw)
        self.recorded = recorded(target)
        others = [target.tree.dpid(switch) for switch in target.tree.switches()]
        self._dpids = (target.tree.dpid(target.tree.switch(BAD_SWITCH)), UNKNOWN_DPID, others[-1])

    def step(self) -> bytes:
        draw, last = self.draw, b""
        dpid = draw.choices(self._dpids, (8, 1, 1))[0]
        share = draw.choice((0.0, 0.02, 0.2, 1.0))
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.target.openflow_port), SECONDS) as connection,
        ):
            connection.settimeout(SECONDS)
            connection.sendall(self.recorded[0][0])
            for count, request in enumerate(_messages(connection)):
                for answer in self._answers(request, dpid):
                    last = garbled(draw, answer) if draw.random() < share else answer
                    connection.sendall(last)
                if count >= MAX_MESSAGES:
                    break
        return last

    def _answers(self, request: bytes, dpid: int) -> Iterator[bytes]:
        draw = self.draw
        _, kind, _, xid = HEADER.unpack_from(request)
        wanted = ANSWERS.get(kind)
        if wanted in self.recorded:
            found = draw.choice(self.recorded[wanted])
            if wanted == 19:  # a multipart answer to a question of the same kind
                found = next((one for one in self.recorded[19] if one[8:10] == request[8:10]), found)
            found = found[:4] + xid.to_bytes(4, "big") + found[8:]
            yield found[:8] + dpid.to_bytes(8, "big") + found[16:] if wanted == FEATURES_REPLY else found
        if draw.random() < 0.3:  # unasked
            yield garbled(draw, draw.choice(self.recorded[draw.choice(tuple(self.recorded))]))

    def close(self) -> None:
        self.target.fabric.connect_to_controller(BAD_SWITCH)
