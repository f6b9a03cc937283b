"""An agent that sends garbled messages, and clients that send garbled WebSocket frames."""

import contextlib
import json
import random
import socket
from collections.abc import Iterator

from sopa_ryu.channel import protocol
from sopa_ryu.channel.messages import Outcome, encode, trace_answers
from tests.fuzz.garble import garbled, text
from tests.fuzz.target import Kind, Target

SECONDS = 2.0
OPCODES = (0, 1, 1, 1, 2, 8, 9, 10, 3, 15)
MAX_FRAMES = 40


class Agents(Kind):
    """Sessions of the agent of one host: WebSocket frames with wrong headers, wrong texts, and half messages."""

    def __init__(self, target: Target, draw: random.Random) -> None:
        super().__init__(target, draw)
        self.host = next(iter(target.tree.hosts()))
        self.address = target.tree.ip(self.host)

    def step(self) -> bytes:
        draw, last = self.draw, b""
        path = f"/sopa/v1/agents/{self.address}" if draw.random() < 0.9 else "/sopa/v1/live"
        token = f"Authorization: {self.target.token}\r\n" if draw.random() < 0.95 else ""
        request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.target.rest_port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"{token}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ).encode()
        if draw.random() < 0.1:
            request = garbled(draw, request)
        # the server may close at any time, and a client that leaves without a close is one of the cases
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.target.rest_port), SECONDS) as client:
            client.settimeout(SECONDS)
            client.sendall(request)
            client.recv(65536)
            for last in self._frames():
                client.sendall(last)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
        return last

    def _frames(self) -> Iterator[bytes]:
        draw = self.draw
        for _ in range(draw.randint(1, MAX_FRAMES)):
            data = self._text()
            if draw.random() < 0.3:
                data = garbled(draw, data)
            made = frame(draw.choice(OPCODES) if draw.random() < 0.3 else 1, data, draw.random() < 0.9)
            yield garbled(draw, made) if draw.random() < 0.1 else made

    def _text(self) -> bytes:
        """Return an agent's message, right or with wrong values."""
        draw = self.draw
        if draw.random() < 0.2:
            outcome = Outcome(draw.randrange(8), draw.randrange(4), draw.randrange(1 << 32))
            [its] = trace_answers(draw.randrange(3), (outcome,) * draw.randrange(9), draw.random() < 0.5)
            body = json.loads(encode(its))
        else:
            body = json.loads(protocol.ack(None, draw.randrange(3)))
            version = draw.randrange(1 << draw.randrange(1, 70))
            body |= {"type": "ack", "epoch": self.target.fabric.version, "version": version}
        for name in list(body):
            if draw.random() < 0.2:
                body[name] = draw.choice((None, True, -1, 1.5, 10**400, [], {}, text(draw), [[]] * 50))
        if draw.random() < 0.2:
            body[text(draw)] = text(draw)
        return json.dumps(body).encode()


def frame(opcode: int, data: bytes, final: bool) -> bytes:
    """Return one masked WebSocket frame of a client (RFC 6455, section 5.2)."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 1 << 16:
        length = bytes([0xFE]) + size.to_bytes(2, "big")
    else:
        length = bytes([0xFF]) + size.to_bytes(8, "big")
    return bytes([0x80 * final | opcode]) + length + bytes(4) + data
