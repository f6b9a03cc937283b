"""The feed: what it says, to whom, and that a slow page delays nobody; over real sockets where there are any."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from websocket import WebSocket, WebSocketBadStatusException, create_connection

from sopa_ryu import live
from sopa_ryu.process import ChildProcess, free_ports
from sopa_ryu.web.picture import MOST_LISTED, Picture
from tests.web.conftest import Page
from tests.web.stub import CAPACITY, services_of
from topologies import Host


@contextmanager
def serving(k: int, directory: Path, most: int = live.MAX_CLIENTS) -> Iterator[str]:
    """The page over a fabric that is only a state: its address without the scheme."""
    [port] = free_ports(1)
    where = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "tests.web.stub", str(k), str(port), str(directory), str(most)]
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


def connect(where: str, **options: Any) -> WebSocket:
    return create_connection(f"ws://{where}{live.PATH}", timeout=10, **options)


def message(opened: WebSocket) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(opened.recv())
    return body


def set_drain(where: str, directory: Path, method: str, name: str) -> None:
    headers = {"Authorization": f"Bearer {(directory / 'token').read_text().strip()}"}
    httpx.request(method, f"http://{where}/sopa/v1/drains/{name}", headers=headers).raise_for_status()


# -- the message ------------------------------------------------------------------------------------------------------


def test_a_message_has_the_whole_state() -> None:
    services = services_of(4)
    state, tree = services.state, services.state.tree
    state.switch_lost(tree.switch("c1_1"), 1)
    state.drain(["a0_0-c0_0"], 1)
    state.reject(7, "no switch of ours")
    told = json.loads(json.dumps(Picture(services).message()))
    assert (told["k"], told["version"], told["epoch"], told["settled"]) == (4, 3, 1, True)
    assert (told["connected"], told["switches"], told["missing"]) == (19, 20, ["c1_1"])
    assert [(each["name"], each["kind"], each["reason"]) for each in told["failures"]] == [
        ("a0_0-c0_0", "link", "drained"),
        ("c1_1", "switch", "down"),
    ]
    assert told["drains"] == ["a0_0-c0_0"]
    assert told["rejected"] == [{"dpid": "0000000000000007", "reason": "no switch of ours"}]
    assert told["agents"] == {"connected": 0, "behind": 0, "lagging": [], "lagging_total": 0, "hosts": "0" * 16}
    links = list(tree.links())
    assert len(told["links"]) == len(links) == 48
    for link, traffic in zip(links, told["links"], strict=True):
        if isinstance(link.lower, Host):
            assert traffic is None
        else:
            assert traffic == [round((link.upper.index + 0.9) / 2 * CAPACITY), 1000, CAPACITY]


def test_rates_that_are_not_known_cost_nothing() -> None:
    services = services_of(16)
    services.rates = lambda link: None
    picture = Picture(services)
    assert picture.message()["links"] is None
    assert len(json.dumps(picture.message())) < 4000


def test_a_large_fabric_is_told_pod_by_pod_and_bounded() -> None:
    services = services_of(24)
    state, tree = services.state, services.state.tree
    for switch in tree.switches():
        if switch.pod % 2:
            state.switch_lost(switch, 1)
    state.drain([f"a0_0-c0_{index}" for index in range(3)], 1)
    told = Picture(services).message()
    assert "links" not in told
    assert len(told["pods"]) == 24
    assert told["pods"][0]["drained"] == 3
    assert told["pods"][1]["failed"] == 24
    assert told["pods"][2] == {"failed": 0, "drained": 0, "miswired": 0, "peak": round(11.9 / 12, 3)}
    assert len(told["failures"]) == len(told["missing"]) == MOST_LISTED
    assert told["failures_total"] == told["missing_total"] + 3
    assert len(json.dumps(told)) < 64_000


def test_agents_that_lag_are_named_the_latest_first() -> None:
    services = services_of(4)
    now = time.monotonic()

    def session(acknowledged: int, since: float | None) -> Any:
        return SimpleNamespace(acknowledged=acknowledged, behind_since=lambda: since)

    hosts = list(services.state.tree.hosts())
    services.notifier.sessions |= {
        hosts[0]: session(services.state.version, None),
        hosts[1]: session(0, now - 5),
        hosts[2]: session(0, now - 0.1),  # it has only just been told
        hosts[3]: session(0, now - 9),
    }
    services.notifier.tell = lambda session, version: {"since": session.behind_since()}  # type: ignore[method-assign,assignment,return-value]
    agents = Picture(services).message()["agents"]
    assert (agents["connected"], agents["behind"], agents["lagging_total"]) == (4, 3, 2)
    assert agents["lagging"] == [{"since": now - 9}, {"since": now - 5}]
    assert agents["hosts"] == "1111" + "0" * 12


# -- the channel ------------------------------------------------------------------------------------------------------


def test_a_page_is_told_at_once_then_at_each_change_and_every_two_seconds(small: tuple[str, Path]) -> None:
    where, directory = small
    opened = connect(where)
    first = message(opened)
    set_drain(where, directory, "PUT", "a0_0-c0_0")
    second = message(opened)
    assert second["version"] == first["version"] + 1
    assert second["drains"] == ["a0_0-c0_0"]
    set_drain(where, directory, "DELETE", "a0_0-c0_0")
    third = message(opened)
    assert third["drains"] == []
    assert message(opened)["at"] - third["at"] > live.ROUND_SECONDS * 0.9
    opened.close()


def test_many_changes_are_one_message(small: tuple[str, Path]) -> None:
    where, directory = small
    opened = connect(where)
    start = message(opened)["version"]
    for _ in range(20):
        set_drain(where, directory, "PUT", "a0_0-c0_0")
        set_drain(where, directory, "DELETE", "a0_0-c0_0")
    began, count, told = time.monotonic(), 0, message(opened)
    while told["version"] < start + 40:
        told, count = message(opened), count + 1
    assert time.monotonic() - began < live.ROUND_SECONDS
    assert count < 20
    opened.close()


def test_one_page_too_many_is_told_so(small: tuple[str, Path]) -> None:
    where, _ = small
    with ExitStack() as stack:
        for _ in range(3):
            opened = connect(where)
            stack.callback(opened.close)
            assert message(opened)["k"] == 4
        refused = connect(where)
        code, data = refused.recv_data()
        assert code == 8
        assert int.from_bytes(data[:2], "big") == live.TRY_AGAIN_LATER
        assert data[2:].decode() == "3 pages are open already: close one"
    # each that leaves makes room
    until_open(where)


def until_open(where: str) -> None:
    deadline = time.monotonic() + 10
    while True:
        opened = connect(where)
        code, _ = opened.recv_data()
        opened.close()
        if code == 1:
            return
        assert time.monotonic() < deadline


def test_who_is_no_page_is_cut_off(small: tuple[str, Path]) -> None:
    where, _ = small
    talker = connect(where)
    message(talker)
    talker.send("hello")
    deadline = time.monotonic() + 10
    while talker.connected and time.monotonic() < deadline:
        if talker.recv_data(control_frame=True)[0] == 8:
            break
    else:
        pytest.fail("it was not cut off")
    with pytest.raises(WebSocketBadStatusException) as refused:
        connect(where, origin="http://evil.example")
    assert refused.value.status_code == 403
    assert httpx.get(f"http://{where}{live.PATH}").status_code == 426


def test_a_page_that_takes_nothing_delays_nobody(tmp_path: Path) -> None:
    with serving(16, tmp_path) as where:
        sleeper = connect(where, sockopt=((socket.SOL_SOCKET, socket.SO_RCVBUF, 4096),))
        awake = connect(where)
        version = message(awake)["version"]
        size = len(awake.recv())
        for _ in range(30):  # more than fits on the way to the sleeper
            set_drain(where, tmp_path, "PUT", "a0_0-c0_0")
            set_drain(where, tmp_path, "DELETE", "a0_0-c0_0")
            version += 2
            while message(awake)["version"] < version:
                pass
        received = [message(sleeper)["version"]]
        while received[-1] < version:
            received.append(message(sleeper)["version"])
        assert received == sorted(received)
        assert len(received) * size < 8_000_000
        sleeper.close()
        awake.close()


# -- what the page makes of it ----------------------------------------------------------------------------------------


def test_load_shows_in_the_drawing_and_in_words(driver: Chrome, small: tuple[str, Path]) -> None:
    page = Page(driver, f"http://{small[0]}")
    page.size(1280, 1000)
    page.open()
    step = "return document.querySelector(`[data-link='${arguments[0]}']`).dataset.step"
    assert [page.run(step, name) for name in ("h0_0_2-e0_0", "e0_0-a0_0", "e0_0-a0_1")] == ["-1", "2", "4"]
    page.one("#name").send_keys("e0_0-a0_1", Keys.ENTER)
    assert page.text("#chosen p") == "In use; 9.5 Mbit/s up, 1.0 kbit/s down: 95 % of 10 Mbit/s"
    widths = [
        page.run(
            "return getComputedStyle(document.querySelector(arguments[0])).strokeWidth", f'.links [data-step="{each}"]'
        )
        for each in (2, 4)
    ]
    assert widths == ["3px", "5.2px"]
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
        page.until(lambda: f"h0_0_2 to h{k - 1}_0_3" in page.text("#paths-summary"))
        assert len(page.names(".paths-list li", "key")) == k * k / 4
        page.size(375, 800)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert page.errors() == []
        driver.get("about:blank")
