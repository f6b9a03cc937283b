"""A switch's channel as SOPA serves it: what is written arrives whole and in order, whenever the switch takes it."""

import socket as sockets
import struct
from collections.abc import Iterator
from typing import Any

import eventlet
import pytest
from eventlet.green import socket as green
from ryu.ofproto import ofproto_v1_3

from sopa_ryu.manager import make_ryu_importable
from sopa_ryu.southbound import openflow, parsing
from sopa_ryu.southbound.listener import SwitchSocket
from tests.helpers.waiting import eventually

make_ryu_importable()

from ryu.base import app_manager  # noqa: E402
from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER  # noqa: E402

from sopa_ryu.southbound.datapath import ROOM, Datapath  # noqa: E402

PIECE = 1 << 16


class Events:
    """Stands in for Ryu's application that hands events on: here nobody listens."""

    def send_event_to_observers(self, _event: object, _state: object) -> None:
        """Nobody listens."""

    def get_handlers(self, _event: object) -> list[Any]:
        return []


class Pair:
    """A datapath and the switch's end of its connection."""

    def __init__(self) -> None:
        listener: Any = green.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        self.switch: Any = green.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        listener.close()
        for end in (accepted, self.switch):
            end.setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, PIECE)
            end.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, PIECE)
        self.datapath: Any = Datapath(SwitchSocket(accepted), address)
        self.received = bytearray()

    def read(self) -> None:
        while data := self.switch.recv(PIECE):
            self.received += data


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setitem(app_manager.SERVICE_BRICKS, "ofp_event", Events())
    its = Pair()
    yield its
    its.switch.close()
    its.datapath.socket.close()


def numbered(number: int, size: int) -> bytes:
    return struct.pack("!I", number) * (size // 4)


def test_what_a_slow_switch_takes_late_arrives_whole_and_in_order(pair: Pair) -> None:
    pieces = [numbered(number, 4 + number % 7 * PIECE // 4) for number in range(120)]
    done: list[int] = []

    def write(first: int) -> None:
        for number in range(first, 120, 2):
            # two writers in turn: what one has begun to write is never cut by the other
            assert pair.datapath.send(pieces[number])
            done.append(number)
            eventlet.sleep(0)

    writers = [eventlet.spawn(write, first) for first in (0, 1)]
    eventually(lambda: len(done), lambda number: number > 0, sleep=eventlet.sleep)
    eventually(lambda: pair.datapath._sender is not None, sleep=eventlet.sleep)
    assert len(done) < 120  # they wait for room, since nobody reads
    reader = eventlet.spawn(pair.read)
    for writer in writers:
        writer.wait()
    whole = sum(map(len, pieces))
    eventually(lambda: len(pair.received), whole, sleep=eventlet.sleep)
    eventually(lambda: pair.datapath._sender, None, sleep=eventlet.sleep)
    found, at = [], 0
    while at < whole:
        [number] = struct.unpack_from("!I", pair.received, at)
        assert pair.received[at : at + len(pieces[number])] == pieces[number]
        found.append(number)
        at += len(pieces[number])
    assert [number for number in found if number % 2 == 0] == list(range(0, 120, 2))
    assert [number for number in found if number % 2] == list(range(1, 120, 2))
    reader.kill()


def test_who_waits_for_room_hears_that_the_connection_is_gone(pair: Pair) -> None:
    outcomes: list[bool] = []

    def write() -> None:
        outcome = True
        while outcome:
            outcome = pair.datapath.send(bytes(PIECE * 4))
        outcomes.append(outcome)

    writers = [eventlet.spawn(write) for _ in range(5)]
    eventually(lambda: len(pair.datapath._unsent), lambda number: number >= ROOM - 1, sleep=eventlet.sleep)
    assert not outcomes
    pair.switch.setsockopt(sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0))
    pair.switch.close()  # resets the connection
    for writer in writers:
        writer.wait()
    assert outcomes == [False] * 5
    assert not pair.datapath.send(b"more")


def message(kind: int, xid: int, body: bytes = b"") -> bytes:
    return struct.pack("!BBHI", 4, kind, 8 + len(body), xid) + body


def test_an_answer_to_an_echo_request_is_taken_and_any_answer_counts(pair: Pair) -> None:
    datapath = pair.datapath
    datapath.set_version(ofproto_v1_3.OFP_VERSION)
    datapath.ask()
    datapath.ask()
    assert datapath.unanswered == 0  # what it may have answered has not been read
    pair.switch.recv(100)
    datapath.take(ofproto_v1_3.OFPT_BARRIER_REPLY, 7, message(ofproto_v1_3.OFPT_BARRIER_REPLY, 7))
    datapath.socket.waits_for_us = False
    datapath.ask()
    datapath.ask()
    assert datapath.unanswered == 2
    xid = datapath.xid
    asked = pair.switch.recv(100)
    assert asked == message(ofproto_v1_3.OFPT_ECHO_REQUEST, xid - 1) + message(ofproto_v1_3.OFPT_ECHO_REQUEST, xid)
    status = message(ofproto_v1_3.OFPT_PORT_STATUS, 0, bytes(72))
    assert not datapath.take(ofproto_v1_3.OFPT_PORT_STATUS, 0, status)
    assert datapath.unanswered == 2  # that it says something does not mean that it hears
    assert datapath.take(ofproto_v1_3.OFPT_ECHO_REPLY, xid, message(ofproto_v1_3.OFPT_ECHO_REPLY, xid))
    assert datapath.unanswered == 0
    datapath.ask()
    barrier = message(ofproto_v1_3.OFPT_BARRIER_REPLY, 7)
    assert not datapath.take(ofproto_v1_3.OFPT_BARRIER_REPLY, 7, barrier)
    assert datapath.unanswered == 0
    others = message(ofproto_v1_3.OFPT_ECHO_REPLY, 5)
    assert not datapath.take(ofproto_v1_3.OFPT_ECHO_REPLY, 5, others)  # the core's own question
    assert datapath.is_open
    datapath.set_state(DEAD_DISPATCHER)
    assert not datapath.is_open


def test_port_statistics_go_to_who_takes_them_and_wrong_ones_are_malformed(pair: Pair) -> None:
    datapath, taken = pair.datapath, []
    header = struct.pack("!HH4x", ofproto_v1_3.OFPMP_PORT_STATS, 0)
    right = message(ofproto_v1_3.OFPT_MULTIPART_REPLY, 3, header)
    kind = ofproto_v1_3.OFPT_MULTIPART_REPLY
    assert type(parsing.parse(datapath, 4, kind, len(right), 3, bytearray(right))).__name__ == "OFPPortStatsReply"
    datapath.take_statistics = taken.append
    assert parsing.parse(datapath, 4, kind, len(right), 3, bytearray(right)) is None
    assert taken == [openflow.PortStatistics(3, 0, [])]
    wrong = message(ofproto_v1_3.OFPT_MULTIPART_REPLY, 3, header + bytes(50))
    with pytest.raises(parsing.MalformedError):
        parsing.parse(datapath, 4, kind, len(wrong), 3, bytearray(wrong))


def test_ports_that_are_alike_are_one_object(pair: Pair) -> None:
    described = [
        openflow.PARSER.OFPPort(number, "02:00:00:00:00:01", b"p", 0, state, 0, 0, 0, 0, 10_000_000, 10_000_000)
        for number, state in ((1, 4), (2, 1), (1, 4))
    ]
    pair.datapath.ports = {}
    for number, port in enumerate(described):
        pair.datapath.ports[number] = port
    ports = pair.datapath.ports
    assert ports[0] is ports[2]
    assert [openflow.port_trouble(port) for port in ports.values()] == [None, "down", None]
    assert openflow.port_speed(ports[0]) == 1e10
    pair.datapath.set_state(MAIN_DISPATCHER)
    assert pair.datapath.socket.is_known
