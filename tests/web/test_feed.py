"""The feed: who receives it, and that a slow page delays no other; over real sockets where there are any."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import eventlet
import eventlet.green.socket
import httpx
import pytest
from ryu.lib import hub
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from websocket import (
    WebSocket as BlockingWebSocket,
)
from websocket import (
    WebSocketBadStatusException,
    create_connection,
)
from websockets.client import ClientProtocol
from websockets.protocol import OPEN
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.channel.websocket import WebSocket
from sopa_ryu.fabric.hold_down import HoldDown
from sopa_ryu.runtime import clock
from sopa_ryu.runtime.clock import SteadyClock
from sopa_ryu.web import live_feed
from sopa_ryu.web.picture import Picture
from tests.helpers.browser import Page
from tests.helpers.waiting import Containing, eventually
from tests.web.stub import LoadedFabric
from topologies import Clos, Reason

Connect = Callable[..., BlockingWebSocket]


@contextmanager
def serving(fabric: Clos | int, directory: Path, most: int = live_feed.MAX_CLIENTS, *leader: str) -> Iterator[str]:
    """The page over a fabric, or a fat-tree of k, that is only a state: its address without the scheme."""
    [port] = free_ports(1)
    where = f"127.0.0.1:{port}"
    file = directory / "fabric.json"  # JSON is YAML, too
    if isinstance(fabric, Clos):
        file.write_text(json.dumps(fabric.document()))
    command = [
        sys.executable,
        "-m",
        "tests.web.stub",
        str(file if isinstance(fabric, Clos) else fabric),
        str(port),
        str(directory),
        str(most),
        *leader,
    ]
    with ChildProcess(command, directory / "stub.log") as process:

        def answers() -> bool:
            try:
                return httpx.get(f"http://{where}/").status_code == 200
            except httpx.TransportError:
                return False

        process.wait_until(answers, "the page answered")
        yield where


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A k=4 fabric with traffic, for at most three pages."""
    directory = tmp_path_factory.mktemp("stub")
    with serving(4, directory, most=3) as where:
        yield where, directory


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections to the feed, which are closed however the test ends."""
    with ExitStack() as stack:

        def opened(where: str, **options: Any) -> BlockingWebSocket:
            made = create_connection(f"ws://{where}{live_feed.PATH}", timeout=10, **options)
            stack.callback(made.shutdown)
            return made

        yield opened


def message(opened: BlockingWebSocket) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(opened.recv())
    return body


def drained(opened: BlockingWebSocket, names: list[str]) -> dict[str, Any]:
    """Return the first message with these drains: one of every two seconds may come before."""
    while (body := message(opened))["drains"] != names:
        pass
    return body


def set_drain(where: str, directory: Path, method: str, name: str) -> None:
    url = f"http://{where}/sopa/v1/drains/{name}"
    httpx.request(method, url, headers=authorized(directory)).raise_for_status()


def authorized(directory: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {(directory / 'token').read_text().strip()}"}


# -- time ---------------------------------------------------------------------------------------------------------------


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


# -- the channel ------------------------------------------------------------------------------------------------------


def test_a_page_is_told_at_once_then_at_each_change_and_every_two_seconds(
    connect: Connect, small: tuple[str, Path]
) -> None:
    where, directory = small
    opened = connect(where)
    first = message(opened)
    set_drain(where, directory, "PUT", "a0_0-c0_0")
    second = drained(opened, ["a0_0-c0_0"])
    assert second["version"] == first["version"] + 1
    set_drain(where, directory, "DELETE", "a0_0-c0_0")
    third = drained(opened, [])
    assert message(opened)["at"] - third["at"] > live_feed.ROUND_SECONDS * 0.9


def test_many_changes_are_one_message(connect: Connect, small: tuple[str, Path]) -> None:
    where, directory = small
    opened = connect(where)
    version = message(opened)["version"]

    def messages() -> int:
        """Return how many messages 40 changes are."""
        nonlocal version
        began, count, last = time.monotonic(), 0, version + 40
        for _ in range(20):
            for method in ("PUT", "DELETE"):
                client.request(method, f"http://{where}/sopa/v1/drains/a0_0-c0_0").raise_for_status()
        while version < last:
            version, count = message(opened)["version"], count + 1
        assert count <= 1 + (time.monotonic() - began) / live_feed.SPACING_SECONDS
        return count

    with httpx.Client(headers=authorized(directory)) as client:
        # each is one where 40 requests take longer than 40 messages may: on a machine that is busy
        eventually(messages, lambda count: count < 40)


def test_one_page_too_many_is_told_so(connect: Connect, small: tuple[str, Path]) -> None:
    where, _ = small
    pages: list[BlockingWebSocket] = []

    def three() -> bool:
        """Open one page more; it is one too many while those of the test before have not left."""
        opened = connect(where)
        if opened.recv_data()[0] == 1:
            pages.append(opened)
        return len(pages) == 3

    eventually(three)
    refused = connect(where)
    code, data = refused.recv_data()
    assert code == 8
    assert int.from_bytes(data[:2], "big") == live_feed.TRY_AGAIN_LATER
    assert data[2:].decode() == "3 pages are open already: close one"
    pages[0].close()  # that makes room
    eventually(lambda: connect(where).recv_data()[0], 1)


def test_who_is_no_page_is_cut_off(connect: Connect, small: tuple[str, Path]) -> None:
    where, _ = small
    talker = connect(where)
    message(talker)
    talker.send("hello")
    while (received := talker.recv_data())[0] != 8:
        pass
    assert int.from_bytes(received[1][:2], "big") == live_feed.POLICY_VIOLATION
    port = where.rpartition(":")[2]
    foreign = [
        "http://evil.example",
        "null",
        "file://",
        f"https://{where}",
        "http://127.0.0.1:1",
        f"http://{where}/",
        "",
    ]
    for origin in [*foreign, f"http://{where}.evil.example", f"http://localhost:{port}"]:
        with pytest.raises(WebSocketBadStatusException) as refused:
            connect(where, origin=origin or " ")
        assert refused.value.status_code == 403, origin
    for host in (f"rebound.example:{port}", f"localhost.evil.example:{port}", " "):
        with pytest.raises(WebSocketBadStatusException) as refused:
            connect(where, host=host, origin=f"http://{host.strip()}")
        assert refused.value.status_code == 403, host

    def first(host: str) -> int:
        page = connect(where, host=host, origin=f"http://{host.lower()}")
        try:
            return int(page.recv_data()[0])
        finally:
            page.shutdown()

    for host in (where, f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        eventually(partial(first, host), 1)
    assert httpx.get(f"http://{where}{live_feed.PATH}").status_code == 426


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
    """A page's end of a connection, which only reads."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._protocol = ClientProtocol(parse_uri("ws://test/"), state=OPEN)
        self._frames: list[Any] = []

    def wait(self) -> str:
        """Return the next message."""
        while not self._frames:
            self._protocol.receive_data(self._socket.recv(1 << 16))
            self._frames = self._protocol.events_received()
        return bytes(self._frames.pop(0).data).decode()


@pytest.fixture
def counted() -> Iterator[tuple[live_feed.Live, Counter]]:
    """A feed in this process, working."""
    counter = Counter()
    feed = live_feed.Live(counter)  # type: ignore[arg-type]
    worker = hub.spawn(feed.rounds)
    yield feed, counter
    hub.kill(worker)


def test_without_a_page_nothing_is_made(counted: tuple[live_feed.Live, Counter]) -> None:
    feed, counter = counted
    for _ in range(3):
        feed.changed()
        hub.sleep(0.02)  # time for a round, in which nothing may be made
    assert counter.made == 0
    with attended(feed) as page:
        assert json.loads(page.wait())["number"] == 1
    assert len(feed) == 0


def test_a_page_that_reads_nothing_delays_no_other_and_gets_the_latest(
    counted: tuple[live_feed.Live, Counter],
) -> None:
    feed, counter = counted
    with attended(feed) as awake, attended(feed) as asleep:
        while json.loads(awake.wait())["number"] < 6:
            feed.changed()
        assert [json.loads(asleep.wait())["number"] for _ in range(2)] == [1, counter.made]


def test_a_page_that_is_stuck_is_cut_off(
    counted: tuple[live_feed.Live, Counter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "STUCK_SECONDS", 0.1)
    feed, _ = counted
    with attended(feed), attended(feed) as awake:
        awake.wait()
        assert len(feed) == 2
        hub.sleep(0.2)  # longer than STUCK_SECONDS
        feed.changed()
        awake.wait()
        eventually(lambda: len(feed), 1, sleep=hub.sleep)


# -- what the page makes of it ----------------------------------------------------------------------------------------


def test_load_shows_in_the_drawing_and_in_words(driver: Chrome, small: tuple[str, Path]) -> None:
    page = Page(driver, f"http://{small[0]}")
    page.size(1280, 1000)
    page.open()
    step = "return document.querySelector(`[data-link='${arguments[0]}']`).dataset.step"
    assert [page.run(step, name) for name in ("h0_0_2-e0_0", "e0_0-a0_0", "e0_0-a0_1")] == ["-1", "2", "4"]
    widths = [
        page.run(
            "return getComputedStyle(document.querySelector(arguments[0])).strokeWidth", f'.links [data-step="{each}"]'
        )
        for each in (2, 4)
    ]
    assert widths == ["3px", "5.2px"]
    page.one("#name").send_keys("e0_0-a0_1", Keys.ENTER)
    assert page.text("#chosen p") == "In use; 9.5 Mbit/s up, 1.0 kbit/s down: 95 % of 10 Mbit/s"
    assert page.errors() == []
    driver.get("about:blank")


@pytest.mark.parametrize(("k", "selector", "count"), [(16, ".links line", 3072), (24, ".pod-card", 24)])
def test_large_fabrics_are_shown_too(driver: Chrome, tmp_path: Path, k: int, selector: str, count: int) -> None:
    with serving(k, tmp_path) as where:
        page = Page(driver, f"http://{where}")
        page.open()
        assert len(page.driver.find_elements("css selector", selector)) == count
        page.one("#source").send_keys("h0_0_2")
        page.one("#destination").send_keys(f"10.{k - 1}.0.3", Keys.ENTER)
        eventually(lambda: page.text("#paths-summary"), Containing(f"h0_0_2 to h{k - 1}_0_3"))
        assert len(page.names(".paths-list li", "key")) == k * k / 4
        page.size(375, 800)
        eventually(lambda: page.run("return document.documentElement.scrollWidth <= innerWidth"))
        assert page.errors() == []
        driver.get("about:blank")
