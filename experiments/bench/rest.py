"""Latency of REST during normal work, and the delay of failure handling by slow, stuck and bad clients."""

from __future__ import annotations

import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from experiments.bench.crowd import Crowd
from experiments.bench.frame import Results, bind, median_and_worst, times
from experiments.emulation.processes import ControllerProcess
from experiments.emulation.threads import Threads
from sopa_ryu.runtime.process import allow_files
from topologies import Clos, FatTree, Level
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

LARGE_K, SMALL_K = 24, 4
REQUESTS_A_SECOND, SECONDS = 200, times(15)
WARM_REQUESTS = 100
CHANGES = 5 * times(4)
STUCK_CLIENTS = 100
BAD_A_SECOND, BAD_CONNECTIONS = 1000, 4
SEED = 1
# Requests that are rejected for different reasons.
BAD = (
    ("GET", "/sopa/v1/paths?src=nowhere&dst=10.0.0.2"),
    ("PUT", "/sopa/v1/drains/c0_0"),
    ("GET", "/nothing"),
    ("PATCH", "/sopa/v1/fabric", "{}"),
)


def rest() -> Results:
    """Request candidate paths of a k=24 fabric, and cut ports of a k=4 fabric with and without a crowd of bad clients.

    ``paths_*_ms``: from the due time of a request to its answer, with the controller on one processor. ``told_*_ms``: from cutting
    a port to the acknowledgement of the last of 16 agents, alone and (``crowded_*``) with stuck clients and bad requests.
    """
    allow_files()
    with tempfile.TemporaryDirectory() as name:
        return {**_paths(Path(name) / "paths"), **_crowd(Path(name) / "crowd")}


# -- paths ----------------------------------------------------------------------------------------------------------------


def _paths(directory: Path) -> Results:
    directory.mkdir()
    tree = FatTree(LARGE_K)
    # without switches and before settling nothing counts as failed: every answer has all 144 paths
    options = ["--sopa-settle=3600"]
    with ControllerProcess(LARGE_K, directory / "log", options=options) as controller, ExitStack() as stack:
        ours = os.sched_getaffinity(0)
        if len(ours) > 1:
            stack.callback(os.sched_setaffinity, 0, ours)
            one = min(ours)
            bind(controller.pid, one)
            os.sched_setaffinity(0, ours - {one})
        stack.enter_context(Crowd.at(controller, tree)).wait_connected()
        taken = _latencies(tree, controller.rest_port)
    return {
        "k": LARGE_K,
        "switches_known": tree.switch_count,
        "agents": tree.host_count,
        "requests": len(taken),
        "requests_a_second": REQUESTS_A_SECOND,
        "paths_median_ms": round(statistics.median(taken), 2),
        "paths_p99_ms": round(statistics.quantiles(taken, n=100)[98], 2),
        "paths_worst_ms": round(max(taken), 2),
        "limit_p99_ms": 5,
    }


def _latencies(tree: Clos, port: int) -> list[float]:
    """Return the milliseconds from the due time of each request to its answer: a slow answer also delays those behind it."""
    draw, hosts = random.Random(f"{SEED} bench rest"), list(tree.hosts())
    taken = []
    with closing(HTTPConnection("127.0.0.1", port)) as client:
        begin = time.monotonic() + 0.1
        for turn in range(REQUESTS_A_SECOND * SECONDS):
            src, dst = draw.choice(hosts), draw.choice(hosts)
            if src.pod == dst.pod:
                dst = hosts[-1] if src.pod else hosts[-1 - tree.hosts_per_edge]
            due = begin + turn / REQUESTS_A_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
            _status(client, "GET", f"/sopa/v1/paths?src={tree.ip(src)}&dst={tree.ip(dst)}")
            if turn >= WARM_REQUESTS:
                taken.append(1000 * (time.monotonic() - due))
    return taken


def _status(client: HTTPConnection, method: str, path: str, body: str | None = None) -> int:
    """Return the status of an answer, once all of it has come; httpx takes as long as the controller."""
    client.request(method, path, body)
    answer = client.getresponse()
    answer.read()
    return answer.status


# -- a crowd of bad clients -----------------------------------------------------------------------------------------------


def _crowd(directory: Path) -> Results:
    directory.mkdir()
    tree = FatTree(SMALL_K)
    options = ["--sopa-hold-down=0", "--sopa-hold-down-max=0"]
    with (
        ControllerProcess(SMALL_K, directory / "log", options=options) as controller,
        PrivateOvs(directory / "ovs", dummy=True) as ovs,
    ):
        dummy = DummyFabric(tree, ovs, controller.openflow)
        controller.wait_connected(tree.switch_count)
        with Crowd.at(controller, tree):
            controller.wait_agents(tree.host_count)
            alone = _cuts(controller, dummy)
            with _stuck(controller.rest_port), _bad(controller.rest_port) as answered:
                started, before = time.monotonic(), sum(answered)
                crowded = _cuts(controller, dummy)
                rate = (sum(answered) - before) / (time.monotonic() - started)
    return {
        "stuck_clients": STUCK_CLIENTS,
        "bad_a_second": round(rate),
        **median_and_worst("told", alone),
        **median_and_worst("crowded", crowded),
        "limit_more_ms": 50,
    }


def _cuts(controller: ControllerProcess, dummy: DummyFabric) -> list[float]:
    draw = random.Random(f"{SEED} bench crowd")
    switches = [switch for switch in dummy.tree.switches() if switch.level is not Level.CORE]
    delays = []
    for _ in range(CHANGES):
        switch = draw.choice(switches)
        port = draw.randint(dummy.tree.uplink_port(switch.level, 0), dummy.tree.port_count(switch.level))
        for up in (False, True):
            version = controller.fabric()["version"]
            started = time.time()
            dummy.set_port(switch, port, up)
            change = controller.wait_acknowledged(version)
            delays.append(1000 * (change["at"] - started) + change["acknowledged_ms"])
    return delays


@contextmanager
def _stuck(port: int) -> Iterator[None]:
    """Run clients that never complete a request, and clients that do not read a long answer."""
    with ExitStack() as stack:
        for number in range(STUCK_CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(("127.0.0.1", port))
            if number % 2:
                client.sendall(b"GET /sopa/v1/fabric HTTP/1.1\r\nHost: ")
            else:
                client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        yield


@contextmanager
def _bad(port: int) -> Iterator[list[int]]:
    """Run clients that send bad requests in sequence. Yields the number of answers per client."""
    answered = [0] * BAD_CONNECTIONS

    def ask(number: int) -> None:
        pause = BAD_CONNECTIONS / BAD_A_SECOND
        with closing(HTTPConnection("127.0.0.1", port)) as client:
            due = time.monotonic()
            while not threads.ended.is_set():
                if _status(client, *BAD[answered[number] % len(BAD)]) < 400:
                    raise RuntimeError("a bad request was accepted")
                answered[number] += 1
                due += pause
                time.sleep(max(0.0, due - time.monotonic()))

    threads = Threads(*(partial(ask, number) for number in range(BAD_CONNECTIONS)))
    with threads:
        time.sleep(1)
        yield answered
