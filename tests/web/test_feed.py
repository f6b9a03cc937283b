"""The feed: who receives it, and that a slow page delays no other; over real sockets where there are any."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websocket import WebSocket as BlockingWebSocket
from websocket import WebSocketBadStatusException, create_connection
from websockets.client import ClientProtocol
from websockets.frames import CloseCode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from sopa_ryu.front import live
from sopa_ryu.front.live import PageFeed
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.library import hub
from sopa_ryu.web import live_feed
from tests.helpers.waiting import PATIENCE_SECONDS, eventually
from tests.web.conftest import Shown
from tests.web.stub import Stub, Stubbed

Connect = Callable[..., BlockingWebSocket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections to the feed, which are closed however the test ends."""
    with ExitStack() as stack:

        def opened(its: Stubbed, **options: Any) -> BlockingWebSocket:
            made = create_connection(f"ws://{its.where}{live.PATH}", timeout=PATIENCE_SECONDS, **options)
            stack.callback(made.shutdown)
            return made

        yield opened


def message(opened: BlockingWebSocket) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(opened.recv())
    return body


def long(number: int) -> str:
    """A message that fills a socket immediately."""
    return json.dumps({"number": number, "padding": "x" * 1_000_000})


@asynccontextmanager
async def attended(feed: PageFeed) -> AsyncIterator["PageEnd"]:
    """The other end of a real connection to a feed in this process."""
    here, there = socket.socketpair()
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=there)
    feed.attend(transport, b"", "test", lambda: None)
    looking = asyncio.create_task(feed.look())
    reader, writer = await asyncio.open_connection(sock=here)
    yield PageEnd(reader)
    looking.cancel()
    for each in (transport, writer.transport):
        each.abort()


class PageEnd:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._protocol = ClientProtocol(parse_uri("ws://test/"), state=OPEN)
        self._frames: list[Any] = []

    async def wait(self) -> int:
        """The number of the next message."""
        while not self._frames:
            self._protocol.receive_data(await self._reader.read(1 << 16))
            self._frames = self._protocol.events_received()
        return int(json.loads(self._frames.pop(0).data)["number"])


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
    assert int.from_bytes(data[:2], "big") == CloseCode.TRY_AGAIN_LATER
    assert data[2:].decode() == "3 pages are open already: close one"
    pages[0].close()  # that makes room
    eventually(lambda: connect(its).recv_data()[0], 1)


def test_who_is_no_page_is_cut_off(connect: Connect, stubbed: Stubbed) -> None:
    talker = connect(stubbed)
    message(talker)
    talker.send("hello")
    while (received := talker.recv_data())[0] != 8:
        pass
    assert int.from_bytes(received[1][:2], "big") == CloseCode.POLICY_VIOLATION
    with pytest.raises(WebSocketBadStatusException) as refused:  # others: tests/unit/rest/scripts/rest/pages.txt
        connect(stubbed, origin="http://evil.example")
    assert refused.value.status_code == 403
    assert httpx.get(f"{stubbed.url}{live.PATH}").status_code == 426


def test_many_changes_are_one_message_and_none_are_one_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    numbers = itertools.count(1)
    picture: Any = SimpleNamespace(message=lambda: next(numbers))
    feed = live_feed.Live(picture, made.append)
    worker = hub.spawn(feed.rounds)
    for _ in range(3):
        feed.changed()
        hub.sleep(0.02)  # time for a round, in which nothing may be made: there is no page
    assert made == []
    feed.watched(True)
    for number in (1, 2, 3):
        for _ in range(40):
            feed.changed()
        eventually(lambda: made[-1:], [str(number)], sleep=hub.sleep)
    monkeypatch.setattr(live_feed, "ROUND_SECONDS", 0.01)
    feed.changed()  # ends the present round
    eventually(lambda: len(made) >= 6, sleep=hub.sleep)
    feed.watched(False)
    last = made[-1]
    hub.sleep(0.1)
    assert made[-1] == last
    hub.kill(worker)


def test_a_page_that_reads_nothing_delays_no_other_and_gets_the_latest() -> None:
    async def play() -> None:
        feed = PageFeed(2, lambda watched: None)
        async with attended(feed) as awake, attended(feed) as asleep:
            for number in range(1, 7):
                feed.show(long(number))
                assert await awake.wait() == number
            assert [await asleep.wait() for _ in range(2)] == [1, 6]

    asyncio.run(play())


def test_a_page_that_is_stuck_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    monkeypatch.setattr(live, "ROUND_SECONDS", 0.01)

    async def play() -> None:
        feed = PageFeed(2, lambda watched: None)
        async with attended(feed), attended(feed) as awake:
            for number, (later, left) in enumerate(((live.STUCK_SECONDS - 1, 2), (2, 1)), 1):
                feed.show(long(number))
                assert await awake.wait() == number
                now[0] += later
                for _ in range(2):  # until those that are stuck were looked for
                    await asyncio.sleep(0.05)
                assert len(feed) == left

    asyncio.run(play())


def test_load_shows_in_the_drawing_and_in_words(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        step = "return document.querySelector(`[data-link='${arguments[0]}']`).dataset.step"
        assert [page.run(step, name) for name in ("h0_0_2-e0_0", "e0_0-a0_0", "e0_0-a0_1")] == ["-1", "2", "4"]
        width = "return getComputedStyle(document.querySelector(arguments[0])).strokeWidth"
        assert [page.run(width, f'.links [data-step="{each}"]') for each in (2, 4)] == ["3px", "5.2px"]
        assert page.look_up("e0_0-a0_1") == "In use"
        assert page.text(".links-list td").split("\n")[1:5] == ["in use", "95 %", "", "9.5 Mbit/s"]
