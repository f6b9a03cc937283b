"""What processes stand on: turns of green threads, what arrives together, a clock that stands still, the end by a signal."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import eventlet
import pytest
from prometheus_client import CollectorRegistry

from sopa_ryu.channel.client import authorities
from sopa_ryu.cluster.address import Access, parse
from sopa_ryu.cluster.engine import Engine
from sopa_ryu.runtime import certificates, green_names, green_threads
from sopa_ryu.runtime.clock import SteadyClock
from sopa_ryu.runtime.green_threads import Moment, Turns
from sopa_ryu.runtime.metrics import MOST, SHARE, served
from sopa_ryu.runtime.service import SIGNALS, cancel, first_signal
from tests.helpers.certificates import Authority
from tests.helpers.waiting import eventually


class Worked:
    """Turns of five seconds each, on a clock that goes on by the work that is done; and who has done it, in order."""

    def __init__(self) -> None:
        self.now, self.done = 0.0, list[str]()
        self.turns = Turns(5.0, lambda: self.now)

    def work(self, name: str, seconds: float = 1.0, pieces: int = 1, first: bool = False) -> None:
        for _ in range(pieces):
            self.turns.take(first)
            self.now += seconds
            self.done.append(name)


def test_others_have_their_turn_however_many_work() -> None:
    its, looks = Worked(), list[int]()
    threads = [eventlet.spawn(its.work, str(number), pieces=4) for number in range(60)]

    def other() -> None:
        while len(its.done) < 240:
            looks.append(len(its.done))
            eventlet.sleep(0)

    eventlet.spawn(other).wait()
    for thread in threads:
        thread.wait()
    assert max(after - before for before, after in pairwise(looks)) == 5  # so many pieces fit into one turn
    assert [its.done.count(str(number)) for number in range(60)] == [4] * 60


def test_who_is_first_goes_before_those_that_wait() -> None:
    its = Worked()
    threads = [eventlet.spawn(its.work, "other", 5.0) for _ in range(10)]
    eventlet.sleep(0)
    threads.append(eventlet.spawn(its.work, "first", first=True))
    for thread in threads:
        thread.wait()
    assert its.done.index("first") <= 3


def test_who_is_killed_in_the_line_or_fails_holds_nobody_up(capsys: pytest.CaptureFixture[str]) -> None:
    its = Worked()

    def fail() -> None:
        its.turns.take()
        raise RuntimeError("meant")

    threads = [eventlet.spawn(its.work, str(number), 5.0, 2) for number in range(6)]
    failing = eventlet.spawn(fail)
    eventlet.sleep(0)
    for thread in threads[2:4]:
        thread.kill()
    for number in (0, 1, 4, 5):
        threads[number].wait()
    with pytest.raises(RuntimeError, match="meant"):
        failing.wait()
    assert {name for name in its.done if its.done.count(name) == 2} == {"0", "1", "4", "5"}
    capsys.readouterr()  # eventlet prints the traceback


def test_the_first_thing_is_taken_at_once_and_what_follows_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now, timers = [0.0], list[tuple[float, object]]()

    class Hub:
        """Calls at their time, which the test lets come."""

        def schedule_call_global(self, delay: float, *call: object) -> tuple[float, object]:
            timers.append((now[0] + delay, call))
            return timers[-1]

    monkeypatch.setattr(green_threads, "get_hub", Hub)
    monkeypatch.setattr(green_threads, "time", SimpleNamespace(monotonic=lambda: now[0]))
    taken: list[list[str]] = []
    its = Moment[str](taken.append, spacing=0.2)
    its.add("a", "a1")
    its.add("b", "b1")
    assert [at for at, _ in timers] == [0.0]
    its._over()
    assert taken == [["a1", "b1"]]
    for number in range(2, 5):
        its.add("a", f"a{number}")
    assert [at for at, _ in timers[1:]] == [0.2]
    its._over()
    assert taken[1:] == [["a2", "a3", "a4"]]


def test_what_a_source_has_said_is_taken_before_its_next_answer() -> None:
    taken: list[list[str]] = []
    moment = Moment[str](taken.append, spacing=3600.0)
    moment.end()
    moment.add("a", "a1")
    moment.end("b")
    assert not taken
    moment.end("a")
    moment.end("a")
    assert taken == [["a1"]]
    moment.add("b", "b1")
    moment.add("a", "a2")
    moment.end()
    assert taken == [["a1"], ["b1", "a2"]]


@pytest.mark.parametrize("pause", [2.1, 13.0, 86_400.0])
def test_a_pause_takes_no_time(pause: float) -> None:
    times = iter([100.0, 100.5, 102.4, 102.4 + pause, 103.0 + pause])
    clock = SteadyClock(lambda: next(times))
    assert [clock.now() for _ in range(3)] == [100.0, 100.5, 102.4]
    assert clock.take_pause() == 0.0
    assert clock.now() == pytest.approx(102.4)
    assert clock.take_pause() == pytest.approx(pause)
    assert clock.take_pause() == 0.0
    assert clock.now() == pytest.approx(103.0)


def test_a_busy_process_does_not_pause() -> None:
    times = iter([0.5 * number for number in range(100)])
    clock = SteadyClock(lambda: next(times))
    assert [clock.now() for _ in range(100)][-1] == 49.5
    assert clock.take_pause() == 0.0


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_counts_and_tasks_are_cancelled(number: signal.Signals) -> None:
    async def main() -> tuple[int, bool]:
        task = asyncio.create_task(asyncio.sleep(1000))
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        received = await first_signal([task])
        await cancel([task])
        return received, task.cancelled()

    assert asyncio.run(main()) == (number, True)


def test_the_error_of_a_task_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def main() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(1000)), asyncio.create_task(fail())]
        try:
            await first_signal(tasks)
        finally:
            await cancel(tasks)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(main())


def test_metrics_have_few_threads_and_are_read_by_names_of_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = threading.active_count()
    with served(CollectorRegistry(), "127.0.0.1", port, logging.getLogger(), RuntimeError), contextlib.ExitStack() as stack:

        def status(host: str) -> int:
            asking = HTTPConnection("127.0.0.1", port, timeout=60)
            stack.callback(asking.close)
            asking.request("GET", "/metrics", headers={"Host": host})
            return asking.getresponse().status

        def idle(source: str) -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, (source, 0)))

        held = [idle(f"127.0.0.{last}") for last in range(2, 9) for _ in range(SHARE + 1)]
        assert [status(host) for host in ("127.0.0.1", f"localhost:{port}", "evil.example", "")] == [200, 200, 403, 403]
        assert held[0].recv(1) == b"", "the oldest of its address"
        eventually(lambda: threading.active_count() <= before + 1 + MOST)


def test_every_certificate_that_a_process_uses_has_its_end_in_the_metrics(tmp_path: Path) -> None:
    """A server's, those shown to and trusted of switches' databases and etcd, and an agent's authorities."""
    its = [Authority(tmp_path, name) for name in ("rest", "switches", "etcd", "agents")]
    pairs = [authority.sign(f"{number}") for number, authority in enumerate(its[:3])]
    certificates.server(*pairs[0])
    certificates.switch_client(its[1].certificate, *pairs[1])
    Engine(parse("etcd://127.0.0.1:1"), Access(its[2].certificate, *pairs[2])).close()
    authorities(its[3].certificate)
    used = [*(pair.certificate for pair in pairs), *(authority.certificate for authority in its[1:])]
    ends = certificates.ends()
    assert {file for file in ends if file.startswith(str(tmp_path))} == set(map(str, used))
    assert all(0 < ends[str(file)] - time.time() <= 7 * 86400 for file in used)


def test_names_are_looked_up_by_green_threads_and_addresses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from eventlet.support import greendns

    monkeypatch.setattr(greendns, "getaddrinfo", lambda *where: where)
    assert green_names.getaddrinfo("etcd1.example", 2379) == ("etcd1.example", 2379)
    for address in ("127.0.0.1", b"127.0.0.1", "::1", None):
        assert {info[4][1] for info in green_names.getaddrinfo(address, 2379)} == {2379}
