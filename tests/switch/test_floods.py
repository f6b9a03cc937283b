"""What clients without a token send takes no memory, no switch and no agent from a real controller."""

import os
import re
import resource
import socket

import httpx
import pytest

from tests.floods.clients import KINDS, burst, idle
from tests.floods.measure import port_of, unharmed
from tests.helpers.fabrics import Fabric
from tests.helpers.memory import front_of, resident_mib
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch

GROWTH_MIB = 20.0
MIN_ANSWERS, MAX_ANSWERS = 5, 50
ECHO_REQUEST, ECHO_REPLY = 2, 3


def test_no_flood_takes_memory_or_switches_and_another_client_is_answered(shared: Fabric) -> None:
    """By a bounded number of messages; ``make flood`` takes longer."""
    before = resident_mib(shared.controller.pid)
    with unharmed(shared) as client:
        for kind in KINDS:
            with burst(kind, port_of(shared, kind.partition(" ")[0])) as sending:
                answers = 0
                while answers < MIN_ANSWERS or (sending() and answers < MAX_ANSWERS):
                    assert client.get("/fabric").json()["connected"] == shared.tree.switch_count
                    assert resident_mib(shared.controller.pid) - before < GROWTH_MIB, kind
                    answers += 1


@pytest.mark.parametrize("side", ["rest", "openflow"])
def test_without_files_connections_wait_and_nothing_ends(shared: Fabric, side: str) -> None:
    controller = shared.controller
    port = port_of(shared, side)
    pid = front_of(controller.pid) if side == "rest" else controller.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with shared.agent() as its, httpx.Client(base_url=f"{controller.url}/sopa/v1", timeout=60) as client:
        client.get("/fabric")  # its connection stays open
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 5, limits[1]))
        start = len(controller.log.read_text())
        try:
            with idle(port, 20) as waiting:
                eventually(lambda: controller.log.read_text()[start:], Containing("no file is left for new connections"))
                assert client.get("/fabric").json()["connected"] == 20
                assert its.channel.ping().wait(60)
                assert len(waiting) == 20
            eventually(lambda: controller.log.read_text()[start:], Containing("new connections are accepted"))
            said = controller.log.read_text()[start:]
            told = re.findall("no file is left|are accepted", said)  # once, and again only after it was over
            assert told == (["no file is left", "are accepted"] * len(told))[: len(told)]
            assert "LimitNOFILE" in said
        finally:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        with socket.create_connection(("127.0.0.1", port), 60) as other:
            if side == "rest":
                other.sendall(b"GET /sopa/v1/fabric HTTP/1.1\r\nHost: localhost\r\n\r\n")
            other.settimeout(60)
            assert other.recv(8)
        assert client.get("/fabric").json()["connected"] == 20
