"""Who has a place at OpenFlow's socket: strangers take each other's, and no switch's."""

import weakref
from collections.abc import Iterator
from typing import Any

import eventlet
import pytest
from eventlet.green import socket as green
from eventlet.green import ssl

from sopa_ryu.runtime.clients import Clients
from sopa_ryu.southbound.listener import SwitchServer, turned_away
from tests.helpers.waiting import eventually

SHARE, TOTAL = 3, 5


class Listener:
    def __init__(self, context: Any = None) -> None:
        self.server = SwitchServer(("127.0.0.1", 0), self._handle, context, Clients(SHARE, TOTAL))
        self.served: list[str] = []
        self.begun, self.held = 0, []
        self.thread = eventlet.spawn(self.server.serve_forever)

    def _handle(self, socket: Any, address: Any) -> None:
        if address[0] == "127.0.0.9":  # as the core says of a switch of the fabric
            socket.proven()
        self.served.append(address[0])
        self.begun += 1
        while socket.recv(100):
            pass
        self.served.remove(address[0])

    def connect(self, source: str) -> Any:
        self.held.append(green.create_connection(self.server.server.getsockname(), source_address=(source, 0)))
        eventually(lambda: self.begun, len(self.held), sleep=eventlet.sleep)
        return self.held[-1]


@pytest.fixture
def listener() -> Iterator[Listener]:
    its = Listener()
    yield its
    its.thread.kill()
    its.server.server.close()


def test_an_address_loses_its_own_oldest_connection(listener: Listener) -> None:
    held = [listener.connect("127.0.0.1") for _ in range(SHARE + 2)]
    eventually(lambda: listener.served, ["127.0.0.1"] * SHARE, sleep=eventlet.sleep)
    assert [end.recv(1) for end in held[:2]] == [b"", b""]


def test_who_has_most_makes_room_and_a_switch_keeps_its_place(listener: Listener) -> None:
    switch = listener.connect("127.0.0.9")
    held = [listener.connect(f"127.0.0.{last}") for last in (1, 2, 2, 2, 3)]
    late = listener.connect("127.0.0.8")
    assert held[1].recv(1) == b"", "the oldest of the address with most"
    listener.connect("127.0.0.7")
    assert held[2].recv(1) == b""
    expected = [f"127.0.0.{last}" for last in (1, 2, 3, 7, 8, 9)]
    eventually(lambda: sorted(listener.served), expected, sleep=eventlet.sleep)
    for end in (switch, late, held[0]):
        end.close()
    eventually(lambda: sorted(listener.served), [f"127.0.0.{last}" for last in (2, 3, 7)], sleep=eventlet.sleep)
    assert listener.server._clients.total == 3


def test_who_sends_what_is_not_openflow_keeps_a_place_for_a_while_and_nothing_else() -> None:
    class Message:
        """What was parsed."""

    kept, reads = list[Any](), list[bytes]()

    def handle(socket: Any, address: Any) -> None:
        message = Message()
        kept.append(weakref.ref(message))
        socket.recv(100)
        reads.append(socket._read)
        raise ValueError("no OpenFlow")

    server = SwitchServer(("127.0.0.1", 0), handle, None, Clients(SHARE, TOTAL))
    thread = eventlet.spawn(server.serve_forever)
    with green.create_connection(server.server.getsockname()) as client:
        client.sendall(bytes(100))
        assert client.recv(1) == b""
    assert ([its() for its in kept], reads, server._clients.total) == ([None], [b""], 1)
    eventually(lambda: server._clients.total, 0, sleep=eventlet.sleep)
    thread.kill()
    server.server.close()


def test_a_handshake_that_is_cut_off_for_a_newer_connection_counts_once() -> None:
    its, before = Listener(lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)), turned_away.copy()
    held = [green.create_connection(its.server.server.getsockname()) for _ in range(SHARE + 2)]
    assert [end.recv(1) for end in held[:2]] == [b"", b""]
    assert turned_away - before == {("openflow", "share"): 2}
    its.thread.kill()
    its.server.server.close()
