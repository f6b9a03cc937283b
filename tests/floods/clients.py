"""Clients that send what no client should: ``python -m tests.floods.clients KIND PORT SECONDS TOKEN``."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

UPGRADE = b"GET /sopa/v1/live HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
KEY = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
CLAIM = UPGRADE.replace(b"live", b"agents/10.0.0.3") + b"Authorization: Bearer TOKEN\r\n"
MASK = bytes([0x80]) + bytes(4)
CHUNKED = b"PUT /sopa/v1/drains/c0_0 HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
HELLO = bytes([4, 0, 0, 8, 0, 0, 0, 1])
LONG_FRAGMENT = bytes([0, 0xFE]) + (1000).to_bytes(2, "big") + bytes(4) + b"A" * 1000


def get(path: str) -> bytes:
    """A request on a connection that stays open."""
    return f"GET /sopa/v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


# What is sent first, and then again and again.
REST = {
    "hixie-76": (UPGRADE + b"\r\n\0", b"A" * 65536),
    "fragments": (UPGRADE + KEY + b"\x01" + MASK, LONG_FRAGMENT * 60),
    "empty fragments": (UPGRADE + KEY + b"\x01" + MASK, (b"\x00" + MASK) * 10_000),
    "pings": (UPGRADE + KEY, (b"\x89" + MASK) * 10_000),
    "chunk size": (CHUNKED, b"1" * 65536),
    "chunks": (CHUNKED, b"1\r\nx\r\n" * 10_000),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000),
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 10_000),
    "pipelined": (b"", get("links") * 100),
    "process": (b"", get("process")),
    "rules": (b"", get("switches/e0_0/rules")),
    "packets": (b"", get("paths?src=10.0.0.2&dst=10.1.0.2&packets=10000")),
    "handshakes": (UPGRADE + b"\r\n", b""),
    "connections": (b"", b""),
}
MANY = {"closed": (b"", b""), "claims": (CLAIM + KEY, b""), "claims closed": (CLAIM + KEY, b"")}
OPENFLOW = {
    "zeros": (b"", bytes(65536)),
    "hellos": (b"", HELLO * 8192),
    "echoes": (HELLO, bytes([4, 2, 0, 8, 0, 0, 0, 1]) * 8192),
    "long messages": (HELLO, bytes([4, 10, 0xFF, 0xFF, 0, 0, 0, 1]) + bytes(65527)),
    "garbage": (HELLO, bytes(range(256)) * 256),
    "connections": (b"", b""),
}
KINDS = [f"rest {name}" for name in REST] + [f"openflow {name}" for name in OPENFLOW]
ONCE = {"handshakes", "connections", "claims"}  # a connection for each, as many as go
CLOSED = {"closed", "claims closed"}  # the same, each closed at once
ENDLESS = [*KINDS, *(f"rest {name}" for name in MANY)]
"""The kinds of `main`: with those that are connections by the thousand, also with a host's token."""
CONNECTIONS = 16
BURST_ONCE = 100  # connections of a burst
FOREVER = 1 << 60


def messages_of(kind: str) -> tuple[str, bytes, bytes]:
    """Return the name of a kind, what is sent first, and what again and again."""
    side, _, name = kind.partition(" ")
    return name, *((REST | MANY) if side == "rest" else OPENFLOW)[name]


@contextlib.contextmanager
def burst(kind: str, port: int, messages: int = 600, connections: int = 4) -> Iterator[Callable[[], bool]]:
    """Flood each connection by messages, while others read; yield whether something is still being sent, which the end cuts off."""
    name, first, more = messages_of(kind)

    def send(client: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the controller may close it at any time
            client.sendall(first)
            for _ in range(messages if more else 0):
                client.sendall(more)

    def read(client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while client.recv(1 << 16):
                pass

    with contextlib.ExitStack() as stack:
        count = BURST_ONCE if name in ONCE else connections
        clients = [stack.enter_context(_open(port, 60)) for _ in range(count)]
        senders = [threading.Thread(target=send, args=(client,), daemon=True) for client in clients]
        threads = senders + [threading.Thread(target=read, args=(client,), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        try:
            yield lambda: any(sender.is_alive() for sender in senders)
        finally:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _open(port: int, timeout: float = 5) -> socket.socket:
    # not from the others' address, whose share it would take
    return socket.create_connection(("127.0.0.1", port), timeout, source_address=("127.0.0.2", 0))


def open_many(first: bytes, port: int, until: float) -> None:
    """Open connections that stay open, as many as go; each sends something once."""
    with contextlib.ExitStack() as stack:
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                client = stack.enter_context(_open(port))
                client.sendall(first)
            time.sleep(0.001)  # the rate of connections


@contextlib.contextmanager
def idle(port: int, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_open(port, 60)) for _ in range(count)]


def open_and_close(first: bytes, port: int, until: float) -> None:
    """Open connections, each of which sends something and is closed, in several threads."""

    def run() -> None:
        while time.monotonic() < until:
            with contextlib.suppress(OSError), _open(port) as client:
                client.sendall(first)

    threads = [threading.Thread(target=run) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(kind: str, port: int, seconds: float, token: str) -> None:
    """Flood for some seconds, as one who has a host's token; the end of the process cuts off what is still being sent."""
    name, first, _ = messages_of(kind)
    first = first.replace(b"TOKEN", token.encode())
    until = time.monotonic() + seconds
    print("flooding", flush=True)
    if name in ONCE or name in CLOSED:
        (open_and_close if name in CLOSED else open_many)(first, port, until)
        return
    while time.monotonic() < until:
        with contextlib.suppress(OSError), burst(kind, port, FOREVER, CONNECTIONS) as sending:
            while sending() and time.monotonic() < until:
                time.sleep(0.001)  # a rejected flood comes back: the rate of connections is another test


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
