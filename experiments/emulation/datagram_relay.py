"""A relay of datagrams that loses a share of the answers: what stands between agents and arbiter where grants are to be lost."""

from __future__ import annotations

import random
import select
import socket
import threading
from types import TracebackType

MAX_BYTES = 65535
POLL_SECONDS = 0.2


class DatagramRelay:
    """Passes clients' datagrams to a server and its answers back, from a thread of its own, while the context lasts.

    Args:
        server: Address and UDP port.
        loss: Share of the answers that are lost, 0 to 1.
        seed: Decides which.

    Attributes:
        address: Where clients send to.
        answers, lost: Answers of the server so far, and those of them that were lost.

    >>> with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    ...     server.bind(("127.0.0.1", 0))
    ...     with DatagramRelay(server.getsockname(), 0.0, 1) as relay, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
    ...         _ = client.sendto(b"demand", relay.address)
    ...         request, sender = server.recvfrom(100)
    ...         _ = server.sendto(b"grant", sender)
    ...         request, client.recv(100), relay.lost
    (b'demand', b'grant', 0)
    """

    def __init__(self, server: tuple[str, int], loss: float, seed: int) -> None:
        self.answers = self.lost = 0
        self._server, self._loss = server, loss
        self._random = random.Random(f"{seed} relay")
        self._outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._outside.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._outside.getsockname()
        self._by_client: dict[tuple[str, int], socket.socket] = {}
        self._by_socket: dict[socket.socket, tuple[str, int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="datagram relay", daemon=True)

    def __enter__(self) -> DatagramRelay:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        for one in (self._outside, *self._by_socket):
            one.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            readable, _, _ = select.select([self._outside, *self._by_socket], [], [], POLL_SECONDS)
            for one in readable:
                try:
                    self._pass(one)
                except ConnectionRefusedError:
                    continue  # the server is away: what was sent to it is lost

    def _pass(self, one: socket.socket) -> None:
        if one is self._outside:
            datagram, client = one.recvfrom(MAX_BYTES)
            self._towards_server(client).send(datagram)
            return
        datagram = one.recv(MAX_BYTES)
        self.answers += 1
        if self._random.random() < self._loss:
            self.lost += 1
        else:
            self._outside.sendto(datagram, self._by_socket[one])

    def _towards_server(self, client: tuple[str, int]) -> socket.socket:
        if client not in self._by_client:
            its = self._by_client[client] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            its.connect(self._server)
            self._by_socket[its] = client
        return self._by_client[client]
