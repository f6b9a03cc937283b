"""Fixtures of the lab's tests: every lab runs in a Python process of its own, as a user's command would."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.scripts import Script
from tests.helpers.waiting import eventually

OURS = re.compile(r"-eth\d+$|-mgmt$|^m-|^manage$|^ovs-|^sopatest\d|^same$|^[eac]\d+_\d+$")


@pytest.fixture
def script() -> Iterator[Callable[[str], Script]]:
    """Start Python scripts from the repository's root; whichever still run at the end are killed."""
    started: list[Script] = []

    def start(body: str) -> Script:
        started.append(Script(body))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture(autouse=True)
def machine_is_left_alone() -> Iterator[None]:
    """No test may leave one of a lab's interfaces or mounts behind; other tests may run meanwhile, and have theirs."""

    def state() -> tuple[set[str], list[str]]:
        interfaces = {name for name in os.listdir("/sys/class/net") if OURS.search(name)}
        points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        return interfaces, [point for point in points if point in ("/proc", "/sys", "/run", "/tmp", "/sys/fs/bpf")]

    interfaces, points = state()
    yield

    def left() -> tuple[set[str], list[str]]:
        now = state()
        return now[0] - interfaces, now[1]

    eventually(left, (set(), points))
