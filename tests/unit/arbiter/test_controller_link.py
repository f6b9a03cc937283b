"""What the arbiter does with the controller's messages, and what systemd is told."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import serve

from sopa_ryu.arbiter.controller_link import ControllerLink
from sopa_ryu.channel import protocol
from sopa_ryu.channel.addresses import Loss
from sopa_ryu.channel.client import ControllerAddress
from sopa_ryu.channel.messages import ArbiterReport, HostLink, HostLinks, LowerTermError, encode
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.fabric.view import View
from sopa_ryu.runtime.service import notify
from topologies import Failures, FatTree

TREE = FatTree(4)
HEALTHY, FAILED = View(9, 1, Failures(TREE)), View(9, 2, Failures(TREE, {"c0_0": "down"}))


class Followed:
    def __init__(self, *urls: str) -> None:
        self.seen, self.ended, self.links = list[tuple[View, int]](), list[bool](), list[Sequence[HostLink]]()
        addresses = [ControllerAddress(url, lambda: None) for url in urls or ("http://192.0.2.1:8080",)]
        note, end = (lambda *its: self.seen.append(its)), (lambda: self.ended.append(True))
        self.link = ControllerLink(addresses, note, end, self.links.append, lambda: ArbiterReport(batches=3))

    def hear(self, text: str) -> dict[str, Any]:
        return json.loads(self.link._receive(text))


def test_a_snapshot_brings_a_term_and_deltas_keep_it() -> None:
    its = Followed()
    assert its.hear(protocol.PING)["version"] == 0
    answer = its.hear(protocol.snapshot(HEALTHY, None, None, 77))
    assert (answer["type"], answer["version"], answer["report"]) == ("ack", 1, {"batches": 3})
    assert its.hear(protocol.delta(HEALTHY, FAILED))["version"] == 2
    its.hear(protocol.PING)
    assert its.seen == [(HEALTHY, 77), (FAILED, 77)]
    its.hear(protocol.snapshot(FAILED, None, None, 78))  # after another connection
    assert its.seen[-1] == (FAILED, 78)


def test_a_gap_makes_it_ask_for_a_snapshot_and_nonsense_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    its = Followed()
    assert its.hear(protocol.delta(HEALTHY, FAILED))["type"] == "resync"
    its.hear(protocol.snapshot(HEALTHY, None, None, 77))
    others = [protocol.snapshot(FAILED, None), protocol.snapshot(FAILED, TREE.ip(next(TREE.hosts())), None, 78)]
    terms = [protocol.snapshot(FAILED, None, None, 0), protocol.snapshot(FAILED, None, None, 1 << 63)]
    for text in ("", "[]", *others, *terms, protocol.snapshot(FAILED, None, None, 78).replace("c0_0", "c9_9")):
        assert its.hear(text)["version"] == 1
    assert its.link.refused == 7
    assert its.seen == [(HEALTHY, 77)]
    assert "The fabric stays as it was" in caplog.text


def test_it_asks_for_the_links_of_all_hosts_part_by_part() -> None:
    its, links = Followed(), [HostLink(float(number), None, 1e7) for number in range(16)]

    def part(first: int, count: int = 6) -> Any:
        return its.hear(encode(HostLinks(first, tuple(links[first : first + count])))).get("links")

    assert its.hear(protocol.snapshot(HEALTHY, None, None, 77))["links"] == 0
    assert [part(0), part(0), part(6), part(12)] == [6, None, 12, None]  # one that comes twice asks for nothing
    assert its.links == [links]
    its.link._ask_links()
    assert part(0) == 6
    assert part(6, 0) is None  # the controller has no more
    assert its.links == [links, links[:6]]
    assert its.hear('{"type": "links", "first": 0, "links": [[-1, 0, 0]]}')["refused"] == 1


def test_a_controller_that_tells_no_links_leaves_rates_and_loads_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sopa_ryu.arbiter.controller_link.REPORT_SECONDS", 0.0)
    its, channel = Followed(), AsyncMock(send=AsyncMock(side_effect=ConnectionResetError))
    its.hear(protocol.snapshot(HEALTHY, None, None, 77))
    with pytest.raises(ConnectionResetError):
        asyncio.run(its.link._report_often(channel))
    assert its.links == [()]


def test_each_problem_of_an_absence_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    its = Followed()
    delays = [its.link._note(Loss(problem)) for problem in (*["refused"] * 20, "timed out")]
    assert all(0 < delay <= 5 for delay in delays)
    assert [record.getMessage().count("No slot is granted until it answers") for record in caplog.records] == [1, 1]


def test_a_lower_term_of_the_cluster_is_refused_and_another_controller_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    its = Followed("http://192.0.2.1:8080", "http://192.0.2.2:8080")
    leads, led = (View(epoch, 4, Failures(TREE), "sopa") for epoch in (9, 8))
    its.hear(protocol.snapshot(leads, None, None, 77))
    with pytest.raises(LowerTermError):
        its.link._receive(protocol.snapshot(led, None, None, 78))
    assert its.link.refused == 1
    assert its.seen == [(leads, 77)]
    monkeypatch.setattr(protocol, "FORGET_SECONDS", 0.0)  # has passed
    its.hear(protocol.snapshot(led, None, None, 78))
    assert its.seen[-1] == (led, 78)
    alone = led._replace(cluster="")  # of one controller, whose clock may have gone back
    its.hear(protocol.snapshot(alone, None, None, 79))
    assert its.seen[-1] == (alone, 79)
    first = its.link.urls.url
    assert its.link._note(Loss("lower term")) == 0.0
    assert its.link.urls.url != first


@pytest.mark.parametrize("stands_by", [True, False])
def test_a_standby_says_nothing_of_another_arbiter(stands_by: bool) -> None:
    """Rejected by a member that does not lead, an arbiter goes on granting; rejected for another arbiter, it ends that."""
    headers = {LEADER_HEADER: "http://192.0.2.2:8080"} if stands_by else {}

    def reject(_channel: object, request: Request) -> Response:
        return Response(409, "Conflict", Headers(headers), b'{"detail": "because"}')

    with serve(lambda channel: None, "127.0.0.1", 0, process_request=reject) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        its = Followed(f"http://127.0.0.1:{server.socket.getsockname()[1]}")
        its.link.term = 77
        assert asyncio.run(its.link._follow_once()).problem == "because"
        server.shutdown()
    assert (its.ended, its.link.term) == (([], 77) if stands_by else ([True], 0))


def test_systemd_is_told_where_it_is_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    assert not notify("READY=1")  # nobody listens
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        assert notify("READY=1")
        assert manager.recv(100) == b"READY=1"
