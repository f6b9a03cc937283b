"""What clients without a token send does not slow down a real controller, and takes no switch and no agent from it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.floods.clients import KINDS, idle
from tests.floods.measure import agent, port_of, withstand
from tests.helpers.fabrics import Fabric, running
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch

SECONDS = 2.0
GROWTH_MIB = 20.0
"""Less than in a long flood: what grows without a bound shows early."""
ECHO_REQUEST, ECHO_REPLY = 2, 3


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A k=4 fabric, which no flood changes."""
    with running(4, tmp_path_factory.mktemp("fabric")) as its:
        yield its


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_delays_no_answer_and_takes_no_memory(fabric: Fabric, kind: str) -> None:
    """For a short time; ``make flood`` takes longer."""
    print(withstand(fabric, kind, SECONDS, GROWTH_MIB))


@pytest.mark.parametrize("side", ["rest", "openflow"])
def test_without_files_connections_wait_and_nothing_ends(fabric: Fabric, side: str) -> None:
    controller = fabric.controller
    port = port_of(fabric, side)
    limits = resource.prlimit(controller.pid, resource.RLIMIT_NOFILE)
    with agent(fabric) as its, httpx.Client(base_url=f"{controller.url}/sopa/v1", timeout=20) as client:
        client.get("/fabric")  # its connection stays open
        used = len(os.listdir(f"/proc/{controller.pid}/fd"))
        resource.prlimit(controller.pid, resource.RLIMIT_NOFILE, (used + 5, limits[1]))
        start = len(controller.log.read_text())
        try:
            with idle(port, 20) as waiting:
                eventually(
                    lambda: controller.log.read_text()[start:], Containing("no file is left for new connections")
                )
                assert client.get("/fabric").json()["connected"] == 20
                assert its.ping().wait(20)
                assert len(waiting) == 20
            eventually(lambda: controller.log.read_text()[start:], Containing("new connections are accepted"))
            said = controller.log.read_text()[start:]
            assert said.count(f"{side}: no file is left") == 1
            assert "LimitNOFILE" in said
        finally:
            resource.prlimit(controller.pid, resource.RLIMIT_NOFILE, limits)
        with socket.create_connection(("127.0.0.1", port), 10) as other:
            if side == "rest":
                other.sendall(b"GET /sopa/v1/fabric HTTP/1.1\r\nHost: x\r\n\r\n")
            other.settimeout(10)
            assert other.recv(8)
        assert client.get("/fabric").json()["connected"] == 20


def test_a_client_that_is_no_switch_is_disconnected(fabric: Fabric) -> None:
    with idle(port_of(fabric, "openflow"), 2) as (silent, lively):
        began = time.monotonic()
        for each in (lively, silent):
            each.settimeout(30)
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                while header := each.recv(8):
                    if each is lively and header[1:2] == bytes([ECHO_REQUEST]):
                        each.sendall(bytes([4, ECHO_REPLY]) + header[2:])
        assert time.monotonic() - began < 20
    metrics = httpx.get(f"{fabric.controller.url}/metrics").text
    assert re.search(r'sopa_rejected_connections_total{listener="openflow",reason="timeout"} [1-9]', metrics)
