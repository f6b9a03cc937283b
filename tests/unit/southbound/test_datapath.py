"""A switch's channel as SOPA serves it: what is written arrives whole and in order, whenever the switch takes it."""

import socket as sockets
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import eventlet
import pytest
from eventlet.green import socket as green

from sopa_ryu.manager import make_ryu_importable
from sopa_ryu.runtime.library import ofproto_v1_3 as of
from sopa_ryu.southbound import openflow, parsing
from sopa_ryu.southbound.listener import SwitchSocket
from tests.helpers.waiting import eventually

make_ryu_importable()

from sopa_ryu.runtime.library import DEAD_DISPATCHER, MAIN_DISPATCHER, app_manager  # noqa: E402
from sopa_ryu.southbound.datapath import ROOM, Datapath  # noqa: E402

PIECE = 1 << 16


class Pair:
    def __init__(self) -> None:
        listener: Any = green.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        self.switch: Any = green.create_connection(listener.getsockname())
        accepted, address = listener.accept()
        listener.close()
        for end in (accepted, self.switch):
            for option in (sockets.SO_SNDBUF, sockets.SO_RCVBUF):
                end.setsockopt(sockets.SOL_SOCKET, option, PIECE)
        self.datapath: Any = Datapath(SwitchSocket(accepted), address)
        self.received = bytearray()

    def read(self) -> None:
        while data := self.switch.recv(PIECE):
            self.received += data


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    nobody = SimpleNamespace(send_event_to_observers=lambda *_: None, get_handlers=lambda *_: [])
    monkeypatch.setitem(app_manager.SERVICE_BRICKS, "ofp_event", nobody)
    its = Pair()
    yield its
    its.switch.close()
    its.datapath.socket.close()


def test_what_a_slow_switch_takes_late_arrives_whole_and_in_order(pair: Pair) -> None:
    pieces = [struct.pack("!I", number) * (1 + number % 7 * PIECE // 16) for number in range(120)]
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
    assert sorted(found, key=lambda number: number % 2) == [*range(0, 120, 2), *range(1, 120, 2)]
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

    def take(kind: int, xid: int, body: bytes = b"") -> bool:
        return datapath.take(kind, xid, message(kind, xid, body)) is None

    def ask_twice() -> None:
        datapath.ask()
        datapath.ask()

    datapath.set_version(of.OFP_VERSION)
    ask_twice()
    assert datapath.unanswered == 0  # what it may have answered has not been read
    pair.switch.recv(100)
    take(of.OFPT_BARRIER_REPLY, 7)
    datapath.socket.waits_for_us = False
    ask_twice()
    assert datapath.unanswered == 2
    xid = datapath.xid
    assert pair.switch.recv(100) == b"".join(message(of.OFPT_ECHO_REQUEST, number) for number in (xid - 1, xid))
    assert not take(of.OFPT_PORT_STATUS, 0, bytes(72))
    assert datapath.unanswered == 2  # that it says something does not mean that it hears
    assert take(of.OFPT_ECHO_REPLY, xid)
    assert datapath.unanswered == 0
    datapath.ask()
    assert not take(of.OFPT_BARRIER_REPLY, 7)
    assert datapath.unanswered == 0
    assert not take(of.OFPT_ECHO_REPLY, 5)  # the core's own question
    assert datapath.is_open
    datapath.set_state(DEAD_DISPATCHER)
    assert not datapath.is_open


def test_port_statistics_go_to_who_takes_them_and_wrong_ones_are_malformed(pair: Pair) -> None:
    datapath, taken, kind = pair.datapath, [], of.OFPT_MULTIPART_REPLY
    header = struct.pack("!HH4x", of.OFPMP_PORT_STATS, 0)
    right, wrong = message(kind, 3, header), message(kind, 3, header + bytes(50))

    def parsed(data: bytes) -> object:
        return parsing.parse(datapath, 4, kind, len(data), 3, bytearray(data))

    assert type(parsed(right)).__name__ == "OFPPortStatsReply"
    datapath.take_statistics = taken.append
    assert parsed(right) is None
    assert taken == [openflow.PortStatistics(3, 0, [])]
    with pytest.raises(parsing.MalformedError):
        parsed(wrong)


def test_ports_that_are_alike_are_one_object(pair: Pair) -> None:
    pair.datapath.ports = {}
    for number, (port, state) in enumerate(((1, 4), (2, 1), (1, 4))):
        described = (port, "02:00:00:00:00:01", b"p", 0, state, 0, 0, 0, 0, 10_000_000, 10_000_000)
        pair.datapath.ports[number] = openflow.PARSER.OFPPort(*described)
    ports = pair.datapath.ports
    assert ports[0] is ports[2]
    assert openflow.port_speed(ports[0]) == 1e10
    pair.datapath.set_state(MAIN_DISPATCHER)
    assert pair.datapath.socket.is_known


def endless(kind: int, xid: int, flags: int, body: bytes = b"") -> bytes:
    return message(of.OFPT_MULTIPART_REPLY, xid, struct.pack("!HH4x", kind, flags) + body)


def status(port: int) -> bytes:
    return message(of.OFPT_PORT_STATUS, 0, bytes(8) + struct.pack("!I60x", port))


GROWING = {
    "one answer": lambda n: endless(of.OFPMP_FLOW, 7, 1, bytes(1000)),
    "many answers": lambda n: endless(of.OFPMP_FLOW, n, 1),
    "ports' counters": lambda n: endless(of.OFPMP_PORT_STATS, n % 3, 1, bytes(112)),
    "ports": status,
}
HARMLESS = {
    "answers that end": lambda n: endless(of.OFPMP_FLOW, n // 100, n % 100 < 99, bytes(1000)),
    "a port": lambda n: status(n % 1000),
}


@pytest.mark.parametrize("what", [*GROWING, *HARMLESS])
def test_what_a_switch_can_make_grow_has_a_bound(pair: Pair, what: str) -> None:
    pair.datapath.set_version(of.OFP_VERSION)
    pair.datapath.ports = {}
    described = openflow.PARSER.OFPPort(0, "02:00:00:00:00:01", b"p", 0, 4, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="more than") if what in GROWING else nullcontext():
        for number in range(5000):
            data = (GROWING | HARMLESS)[what](number)
            pair.datapath.take(data[1], int.from_bytes(data[4:8], "big"), data)
            pair.datapath.ports[number % 1000 if what in HARMLESS else number] = described


def test_an_answer_of_several_messages_is_parsed_as_one_when_it_is_whole(pair: Pair) -> None:
    pair.datapath.set_version(of.OFP_VERSION)
    group = struct.pack("!HBxI", 8, of.OFPGT_FF, 5)

    def parse(data: bytes) -> Any:
        return parsing.parse(pair.datapath, 4, data[1], len(data), int.from_bytes(data[4:8], "big"), bytearray(data))

    kind = of.OFPMP_GROUP_DESC
    assert [parse(endless(kind, xid, 1, count * group)) for xid, count in ((7, 2), (8, 1), (7, 8000))] == [None] * 3
    whole = parse(endless(kind, 7, 0, group))
    assert (whole.xid, len(whole.body), openflow.is_last(whole)) == (7, 8003, True)
    assert len(parse(endless(kind, 8, 0)).body) == 1
    parse(endless(kind, 9, 1, group))
    with pytest.raises(parsing.MalformedError, match="several kinds"):
        parse(endless(of.OFPMP_FLOW, 9, 0))


def test_a_packet_in_says_where_the_packet_came_in(pair: Pair) -> None:
    pair.datapath.set_version(of.OFP_VERSION)
    match = struct.pack("!HH4x", 1, 4)
    data = message(of.OFPT_PACKET_IN, 0, struct.pack("!IHBBQ", of.OFP_NO_BUFFER, 0, 0, 0, 0) + match + bytes(2))
    with pytest.raises(parsing.MalformedError, match="in_port"):
        parsing.parse(pair.datapath, 4, of.OFPT_PACKET_IN, len(data), 0, bytearray(data))
