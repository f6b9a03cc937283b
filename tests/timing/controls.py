"""What the bare machine does while the product is measured: ``python tests/timing/controls.py ping`` until its input ends.

Each prints an empty line when it runs, and at its end by how many seconds it was late at the worst. They are processes
of their own, so that neither the interpreter's lock nor the measured process delays them.
"""

import os
import select
import socket
import subprocess
import sys
import time
from typing import Self

INTERVAL_SECONDS = 0.001
PING_SECONDS = 0.005
ANSWER_SECONDS = 5.0
HERE, THERE = "169.254.77.1", "169.254.77.2"


WORK = 200_000
WORK_SECONDS = 0.015
"""What `work_seconds` returns on the machine on which the bounds were set: a Xeon of 2.6 GHz, Python 3.11."""


def work_seconds() -> float:
    """Return how long this processor takes for the kind of work that a reaction is made of: small objects of Python.

    The best of three counts: what else runs is the business of a control.
    """

    def once() -> float:
        begin, made = time.perf_counter(), {}
        for number in range(WORK):
            made[number & 1023] = (number, str(number))
        return time.perf_counter() - begin

    return min(once() for _ in range(3))


class Control:
    """A control: entered and left around each sample. ``late`` is for how many seconds it was late at the worst."""

    name: str
    late: float

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []

    def commands(self) -> list[list[str]]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._running = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in self.commands()
        ]
        for process in self._running:
            assert process.stdout is not None
            assert process.stdout.readline() == "\n", f"the control {self.name} does not start"
        return self

    def __exit__(self, *error: object) -> None:
        # each has to be told to end before one is waited for: what it does until then counts
        for process in self._running:
            assert process.stdin is not None
            process.stdin.close()
            process.stdin = None
        self.late = max(float(process.communicate()[0]) for process in self._running)


class Timer(Control):
    """A timer of 1 ms on each processor: how much longer it sleeps."""

    name = "timer"

    def commands(self) -> list[list[str]]:
        return [_command("timer", str(cpu)) for cpu in sorted(os.sched_getaffinity(0))]


class VethPing(Control):
    """Echo requests that the kernel answers over a veth pair between two namespaces of its own: how long an answer takes."""

    name = "veth ping"

    def commands(self) -> list[list[str]]:
        return [["unshare", "--net", "--", *_command("ping")]]


def _command(*words: str) -> list[str]:
    return [sys.executable, "-E", "-S", __file__, *words]


def _timer(cpu: int) -> float:
    os.sched_setaffinity(0, [cpu])
    print(flush=True)
    worst, before = 0.0, time.monotonic()
    while not select.select([sys.stdin], [], [], INTERVAL_SECONDS)[0]:
        now = time.monotonic()
        worst, before = max(worst, now - before - INTERVAL_SECONDS), now
    return max(worst, time.monotonic() - before - INTERVAL_SECONDS)


def _ping() -> float:
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        for command in (
            f"ip link add here type veth peer name there netns {other.pid}",
            f"ip addr add {HERE}/30 dev here",
            "ip link set here up",
            f"nsenter --net=/proc/{other.pid}/ns/net ip addr add {THERE}/30 dev there",
            f"nsenter --net=/proc/{other.pid}/ns/net ip link set there up",
        ):
            subprocess.run(command.split(), check=True)
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pings:
            pings.connect((THERE, 0))
            _answered(pings, 0)  # neighbours have been resolved
            print(flush=True)
            worst, number = 0.0, 0
            while not select.select([sys.stdin], [], [], PING_SECONDS)[0]:
                number += 1
                worst = max(worst, _answered(pings, number))
        other.stdin.close()
    return worst


def _answered(pings: socket.socket, number: int) -> float:
    """Return the seconds until an echo request is answered, at most `ANSWER_SECONDS`."""
    body = (os.getpid() & 0xFFFF).to_bytes(2, "big") + (number & 0xFFFF).to_bytes(2, "big")
    total = 0x0800 + int.from_bytes(body[:2], "big") + int.from_bytes(body[2:], "big")
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    begin = time.monotonic()
    pings.send(b"\x08\x00" + checksum.to_bytes(2, "big") + body)
    while select.select([pings], [], [], max(0.0, begin + ANSWER_SECONDS - time.monotonic()))[0]:
        said = pings.recv(100)[20:]
        if said[0] == 0 and said[4:8] == body:
            break
    return time.monotonic() - begin


if __name__ == "__main__":
    print(_timer(int(sys.argv[2])) if sys.argv[1] == "timer" else _ping())
