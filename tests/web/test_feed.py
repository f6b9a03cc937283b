"""The feed: who receives it, and that a slow page delays no other; over real sockets where there are any."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import eventlet
import eventlet.green.socket
import httpx
import pytest
from ryu.lib import hub
from websocket import WebSocket as BlockingWebSocket
from websocket import WebSocketBadStatusException, create_connection
from websockets.client import ClientProtocol
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from sopa_ryu.channel.websocket import WebSocket
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.clock import SteadyClock
from sopa_ryu.web import live_feed
from sopa_ryu.web.picture import Picture
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from tests.web.conftest import Shown
from tests.web.loaded_fabric import LoadedFabric
from tests.web.stub import Stub, Stubbed
from topologies import Reason

Connect = Callable[..., BlockingWebSocket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections to the feed, which are closed however the test ends."""
    with ExitStack() as stack:

        def opened(its: Stubbed, **options: Any) -> BlockingWebSocket:
            made = create_connection(f"ws://{its.where}{live_feed.PATH}", timeout=PATIENCE_SECONDS, **options)
            stack.callback(made.shutdown)
            return made

        yield opened


def message(opened: BlockingWebSocket) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(opened.recv())
    return body


def test_after_a_pause_of_the_controller_nothing_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller stands still for an hour: agents, hold-downs and pages have missed nothing, and time then goes on for them."""
    real = [1000.0]
    monkeypatch.setattr(clock, "now", SteadyClock(lambda: real[0]).now)
    fabric = LoadedFabric(4)
    fabric.state.damping = HoldDown(30.0, 60.0)
    for trouble in (Reason.DOWN, None):
        fabric.state.port_changed(fabric.state.tree.switch("c0_0"), 1, trouble, clock.now())
    session, _ = fabric.notifier.connected(next(fabric.state.tree.hosts()), "10.0.0.2", None, None, clock.now())
    assert fabric.notifier.due(session, clock.now())
    feed = live_feed.Live(Picture(fabric))
    here, there = socket.socketpair()
    with here, there:
        page = live_feed.Client(WebSocket(there, ServerProtocol(state=OPEN), live_feed.PACE), "test")
        page.writing_since = clock.now()
        feed._clients.add(page)
        here.setblocking(False)

        def told() -> tuple[list[float], list[float], bool]:
            message = Picture(fabric).message()
            feed._cut_stuck()
            lags = [agent["lag_seconds"] for agent in message["agents"]["lagging"]]
            try:
                is_cut = here.recv(1) == b""
            except BlockingIOError:
                is_cut = False
            return lags, [each["held_seconds"] for each in message["failures"]], is_cut

        real[0] += 3600
        assert told() == ([], [30.0], False)
        for _ in range(39):
            real[0] += 1
            told()
        real[0] += 1
        assert told() == ([40.0], [0.0], True)


def test_a_page_is_told_at_once_at_each_change_and_again_without_one(connect: Connect, stubbed: Stubbed) -> None:
    opened = connect(stubbed)
    first = message(opened)
    for number, (method, drains) in enumerate((("PUT", ["a0_0-c0_0"]), ("DELETE", [])), first["version"] + 1):
        url = f"{stubbed.url}/sopa/v1/drains/a0_0-c0_0"
        httpx.request(method, url, headers={"Authorization": f"Bearer {stubbed.token}"}).raise_for_status()
        while (told := message(opened))["drains"] != drains:
            assert told["version"] < number
        assert told["version"] == number
    again = message(opened)
    assert again.pop("at") > told.pop("at")
    assert again == told


def test_one_page_too_many_is_told_so(connect: Connect, stub: Stub, tmp_path: Path) -> None:
    its = stub.serve(4, tmp_path, most=3)
    pages = [connect(its) for _ in range(3)]
    assert [page.recv_data()[0] for page in pages] == [1] * 3
    refused = connect(its)
    code, data = refused.recv_data()
    assert code == 8
    assert int.from_bytes(data[:2], "big") == live_feed.TRY_AGAIN_LATER
    assert data[2:].decode() == "3 pages are open already: close one"
    pages[0].close()  # that makes room
    eventually(lambda: connect(its).recv_data()[0], 1)


def test_who_is_no_page_is_cut_off(connect: Connect, stubbed: Stubbed) -> None:
    talker = connect(stubbed)
    message(talker)
    talker.send("hello")
    while (received := talker.recv_data())[0] != 8:
        pass
    assert int.from_bytes(received[1][:2], "big") == live_feed.POLICY_VIOLATION
    with pytest.raises(WebSocketBadStatusException) as refused:  # others: tests/unit/rest/scripts/rest/pages.txt
        connect(stubbed, origin="http://evil.example")
    assert refused.value.status_code == 403
    assert httpx.get(f"{stubbed.url}{live_feed.PATH}").status_code == 426


class Counter:
    """Messages that fill a socket immediately, and their number."""

    def __init__(self) -> None:
        self.made = 0

    def message(self) -> dict[str, Any]:
        self.made += 1
        return {"number": self.made, "padding": "x" * 1_000_000}


@contextmanager
def attended(feed: live_feed.Live) -> Iterator[Any]:
    """The other end of a real connection to a feed in this process."""
    here, there = eventlet.green.socket.socketpair()
    with here, there:
        protocol = ServerProtocol(state=OPEN)
        worker = hub.spawn(feed._attend, WebSocket(there, protocol, live_feed.PACE), "test")
        yield PageEnd(here)
        hub.kill(worker)


class PageEnd:
    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._protocol = ClientProtocol(parse_uri("ws://test/"), state=OPEN)
        self._frames: list[Any] = []

    def wait(self) -> str:
        while not self._frames:
            self._protocol.receive_data(self._socket.recv(1 << 16))
            self._frames = self._protocol.events_received()
        return bytes(self._frames.pop(0).data).decode()


Counted = tuple[live_feed.Live, Counter]


@pytest.fixture
def counted() -> Iterator[Counted]:
    counter = Counter()
    feed = live_feed.Live(counter)  # type: ignore[arg-type]
    worker = hub.spawn(feed.rounds)
    yield feed, counter
    hub.kill(worker)


def test_many_changes_are_one_message_and_none_are_one_from_time_to_time(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, counter = counted
    for _ in range(3):
        feed.changed()
        hub.sleep(0.02)  # time for a round, in which nothing may be made: there is no page
    assert counter.made == 0
    with attended(feed) as page:
        for number in (1, 2, 3):
            for _ in range(40):
                feed.changed()
            assert json.loads(page.wait())["number"] == number
        monkeypatch.setattr(live_feed, "ROUND_SECONDS", 0.01)
        feed.changed()  # ends the present round
        for number in (4, 5, 6):
            assert json.loads(page.wait())["number"] == number
    assert (len(feed), counter.made >= 6) == (0, True)


def test_a_page_that_reads_nothing_delays_no_other_and_gets_the_latest(counted: Counted) -> None:
    feed, counter = counted
    with attended(feed) as awake, attended(feed) as asleep:
        while json.loads(awake.wait())["number"] < 6:
            feed.changed()
        assert [json.loads(asleep.wait())["number"] for _ in range(2)] == [1, counter.made]


def test_a_page_that_is_stuck_is_cut_off(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    feed, _ = counted
    with attended(feed), attended(feed) as awake:
        for later, left in ((live_feed.STUCK_SECONDS - 1, 2), (2, 1)):
            number = json.loads(awake.wait())["number"]
            now[0] += later
            feed.changed()
            while json.loads(awake.wait())["number"] <= number:
                pass
            eventually(lambda: len(feed), left, sleep=hub.sleep)


def test_load_shows_in_the_drawing_and_in_words(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        step = "return document.querySelector(`[data-link='${arguments[0]}']`).dataset.step"
        assert [page.run(step, name) for name in ("h0_0_2-e0_0", "e0_0-a0_0", "e0_0-a0_1")] == ["-1", "2", "4"]
        width = "return getComputedStyle(document.querySelector(arguments[0])).strokeWidth"
        assert [page.run(width, f'.links [data-step="{each}"]') for each in (2, 4)] == ["3px", "5.2px"]
        assert page.look_up("e0_0-a0_1") == "In use; 9.5 Mbit/s up, 1.0 kbit/s down: 95 % of 10 Mbit/s"
