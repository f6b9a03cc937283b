"""A process that is stopped stands still with all its threads before anything else happens."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.waiting import eventually
from topologies.lab import standstill
from topologies.lab.standstill import StandstillError, pause, standing_still

WRITERS = """
import sys, threading
def write(path):
    with open(path, "ab", buffering=0) as file:
        while True:
            file.write(b".")
for path in sys.argv[1:]:
    threading.Thread(target=write, args=[path], daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [tmp_path / f"{number}" for number in range(4)]


@pytest.fixture
def process(files: list[Path]) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose main thread sleeps while four others write."""
    with subprocess.Popen([sys.executable, "-c", WRITERS, *map(str, files)], stdin=subprocess.PIPE) as its:
        eventually(lambda: all(file.exists() and file.stat().st_size for file in files))
        yield its
        its.kill()


def written(files: list[Path]) -> list[int]:
    return [file.stat().st_size for file in files]


def goes_on(files: list[Path]) -> None:
    before = written(files)
    eventually(lambda: written(files) != before)


def test_no_thread_works_once_the_process_was_stopped(process: subprocess.Popen[bytes], files: list[Path]) -> None:
    for _ in range(20):
        with standing_still(process.pid):
            before = written(files)
            time.sleep(0.005)  # what is left undone meanwhile is what is tested
            assert written(files) == before
        goes_on(files)


def test_one_that_cannot_be_stopped_is_said_and_goes_on(
    process: subprocess.Popen[bytes], files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standstill, "STOP_SECONDS", 0.05)
    monkeypatch.setattr(standstill, "_STOPPED", frozenset())
    with pytest.raises(StandstillError, match=f"process {process.pid} was stopped 0.05 s ago, and its threads"):
        pause(process.pid)
    goes_on(files)
