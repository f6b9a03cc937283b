"""What a flood does to the controller, as another client, an agent and the switches see it."""

import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

import httpx

from sopa_ryu.channel.host_tokens import host_token
from tests.helpers.fabrics import Fabric
from tests.helpers.memory import children, resident_mib
from tests.helpers.waiting import eventually

MAX_ANSWER_SECONDS = 0.5
MAX_GROWTH_MIB = 50.0
REQUEST_INTERVAL_SECONDS = 0.02
MIN_ANSWERS = 20
SPARE_SECONDS = 60.0
"""So much longer a flood goes on by itself: for the last answers, or after a test that was killed."""


def port_of(fabric: Fabric, side: str) -> int:
    url = fabric.controller.url if side == "rest" else fabric.controller.openflow
    return int(url.rpartition(":")[2])


class Measured(NamedTuple):
    """What another client saw: answers, the seconds of the slowest, and the controller's memory before and at most in MiB."""

    kind: str
    answers: int
    slowest: float
    before_mib: float
    most_mib: float

    def __str__(self) -> str:
        memory = f"memory {self.before_mib:.0f} MiB, then {self.most_mib:.0f} MiB"
        return f"{self.kind}: {self.answers} answers, the slowest after {self.slowest:.3f} s; {memory}"


def withstand(fabric: Fabric, kind: str, seconds: float) -> Measured:
    """Flood the controller as `measure`, and judge."""
    measured = measure(fabric, kind, seconds)
    assert measured.most_mib - measured.before_mib < MAX_GROWTH_MIB, str(measured)
    assert measured.slowest < MAX_ANSWER_SECONDS, str(measured)
    return measured


@contextlib.contextmanager
def unharmed(fabric: Fabric) -> Iterator[httpx.Client]:
    """Yield another client of a controller that keeps its switches, its version and its agent meanwhile."""
    controller = fabric.controller
    log_start = len(controller.log.read_text())
    with fabric.agent() as its, httpx.Client(base_url=f"{controller.url}/sopa/v1", timeout=60) as client:
        its.follow()
        version = client.get("/fabric").json()["version"]
        yield client
        body = client.get("/fabric").json()
        assert (body["connected"], body["version"]) == (fabric.tree.switch_count, version)
        eventually(lambda: client.get("/agents").json()["total"], 1)  # the flood may have been one, too
        assert its.channel.ping().wait(60)
    said = controller.log.read_text()[log_start:]
    assert re.findall(r"switch .* (?:disconnected|lost its OpenFlow channel)", said) == []
    assert "Traceback" not in said


def measure(fabric: Fabric, kind: str, seconds: float) -> Measured:
    """Flood the controller, and ask it as another client all the time.

    An answer's time is counted without that in which the controller or this client waited for a processor (Linux, sched-stats.rst):
    what else this machine does, the flood included, is no delay by the controller. The flood lasts for enough answers.
    """
    pid = fabric.controller.pid
    processes = [pid, *children(pid), "thread-self"]  # its front is one
    token = host_token(fabric.controller.agent_token_file.with_name("agent-secret").read_text().strip(), IPv4Address("10.0.0.3"))
    with unharmed(fabric) as client:
        before = most = resident_mib(pid)
        port = port_of(fabric, kind.partition(" ")[0])
        with _flooding(kind, port, seconds + SPARE_SECONDS, token):
            took, until = [], time.monotonic() + seconds
            while time.monotonic() < until or (len(took) < MIN_ANSWERS and max(took, default=0.0) < MAX_ANSWER_SECONDS):
                asked, before_it = time.monotonic(), [waited(which) for which in processes]
                assert client.get("/fabric").json()["connected"] == fabric.tree.switch_count
                now, waits = time.monotonic(), [waited(which) for which in processes]
                # several may wait at the same time: the longest is certain
                took.append(now - asked - max(end - start for start, end in zip(before_it, waits, strict=True)))
                most = max(most, resident_mib(pid))
                time.sleep(REQUEST_INTERVAL_SECONDS)  # the other client's rate: nothing is waited for
    return Measured(kind, len(took), max(took), before, most)


@contextlib.contextmanager
def _flooding(kind: str, port: int, seconds: float, token: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.floods.clients", kind, str(port), str(seconds), token]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        try:
            assert flood.stdout is not None
            assert flood.stdout.readline()
            yield
            assert flood.poll() is None, "the flood has ended by itself"
        finally:
            flood.kill()


def waited(which: int | str) -> float:
    """Return the seconds for which a process, or this thread, has waited for a processor."""
    return int(Path(f"/proc/{which}/schedstat").read_text().split()[1]) / 1e9
