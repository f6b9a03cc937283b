"""A relay in front of each node of etcd that keeps writes back, as a node does whose disk is slow: reads and renewals pass."""

import contextlib
import re
import socket
import time
from collections.abc import Sequence
from threading import Thread
from typing import Self

from topologies.lab.etcd import EtcdPlace

WRITES = (b"/v3/kv/txn", b"/v3/lease/grant", b"/v3/lease/revoke")


class SlowWrites:
    """A TCP relay for each node, as a context manager.

    A write reaches its node `seconds` after the client has sent it, also if the client has given it up meanwhile.
    """

    def __init__(self, places: Sequence[EtcdPlace]) -> None:
        self.seconds = 0.0
        self._places = places
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in places]

    def __enter__(self) -> Self:
        for listener, place in zip(self._listeners, self._places, strict=True):
            Thread(target=self._serve, args=(listener, place), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.shutdown(socket.SHUT_RDWR)  # ends `accept`
            listener.close()

    def address(self, name: str = "sopa", first: int = 0) -> str:
        """Return the address for ``--sopa-cluster``; ``first`` is the node that a client begins with."""
        nodes = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in self._listeners]
        return f"etcd://{','.join(nodes[first:] + nodes[:first])}/{name}"

    def _serve(self, listener: socket.socket, place: EtcdPlace) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                Thread(target=self._relay, args=(client, place), daemon=True).start()

    def _relay(self, client: socket.socket, place: EtcdPlace) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection((place.host, place.client_port)) as node:
            answers = Thread(target=_answer, args=(node, client), daemon=True)
            answers.start()
            try:
                self._write(client, node)
            finally:
                # A read under way keeps the number of a closed socket: after a standstill it is begun anew, on whatever
                # socket has that number then, and takes what is meant for that one.
                with contextlib.suppress(OSError):
                    node.shutdown(socket.SHUT_RDWR)
                answers.join()

    def _write(self, client: socket.socket, node: socket.socket) -> None:
        stream, head = client.makefile("rb"), b""
        for line in stream:
            head += line
            if line != b"\r\n":
                continue
            found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = stream.read(length := int(found[1]) if found else 0)
            if len(body) < length:
                break  # the client was killed in the midst of it
            if head.split()[1] in WRITES:
                time.sleep(self.seconds)  # how slow the disk is
            node.sendall(head + body)
            head = b""


def _answer(node: socket.socket, client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := node.recv(1 << 16):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
