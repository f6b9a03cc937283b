"""What clients without a token send does not slow down a real controller, and takes no switch and no agent from it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import ClientConnection, connect

from tests.helpers.fabrics import Fabric, running
from tests.helpers.floods import OPENFLOW, REST, idle
from tests.helpers.waiting import Containing, eventually

SECONDS = 6.0
MAX_ANSWER_SECONDS = 0.5
MAX_GROWTH_MIB = 50.0
ECHO_REQUEST, ECHO_REPLY = 2, 3
KINDS = [f"rest {name}" for name in REST] + [f"openflow {name}" for name in OPENFLOW]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A k=4 fabric, which no flood changes."""
    with running(4, tmp_path_factory.mktemp("fabric")) as its:
        yield its


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def memory_mib(pid: int) -> float:
    [kib] = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


@contextlib.contextmanager
def agent(fabric: Fabric) -> Iterator[ClientConnection]:
    """An agent that has its first version."""
    headers = {"Authorization": f"Bearer {fabric.controller.agent_token_file.read_text().strip()}"}
    url = f"{fabric.controller.url.replace('http', 'ws')}/sopa/v1/agents/10.0.0.2"
    with connect(url, additional_headers=headers, proxy=None, compression=None, ping_interval=None) as opened:
        opened.recv(10)
        yield opened


@pytest.mark.parametrize("kind", KINDS)
def test_a_flood_delays_no_answer_and_takes_no_memory(fabric: Fabric, kind: str) -> None:
    controller = fabric.controller
    port = port_of(controller.url if kind.startswith("rest") else controller.openflow)
    start = len(controller.log.read_text())
    with agent(fabric) as its, httpx.Client(base_url=f"{controller.url}/sopa/v1", timeout=20) as client:
        version = client.get("/fabric").json()["version"]
        before = memory_mib(controller.pid)
        command = [sys.executable, "-m", "tests.helpers.floods", kind, str(port), str(SECONDS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
            assert flood.stdout is not None
            assert flood.stdout.readline()
            took, most = [], before
            while flood.poll() is None:
                asked = time.monotonic()
                assert client.get("/fabric").json()["connected"] == 20
                took.append(time.monotonic() - asked)
                most = max(most, memory_mib(controller.pid))
                time.sleep(0.02)  # the rate of the requests that are measured
        body = client.get("/fabric").json()
        assert (body["connected"], body["version"]) == (20, version)
        assert client.get("/agents").json()["total"] == 1
        its.ping().wait(10)
    said = controller.log.read_text()[start:]
    assert re.findall(r"switch .* disconnected", said) == []
    assert "Traceback" not in said
    assert most - before < MAX_GROWTH_MIB
    assert max(took) < MAX_ANSWER_SECONDS, f"of {len(took)} answers: {sorted(took)[-3:]}"


@pytest.mark.parametrize("side", ["rest", "openflow"])
def test_without_files_connections_wait_and_nothing_ends(fabric: Fabric, side: str) -> None:
    controller = fabric.controller
    port = port_of(controller.url if side == "rest" else controller.openflow)
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
                its.ping().wait(10)
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
    with idle(port_of(fabric.controller.openflow), 2) as (silent, lively):
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
