"""The thread that has TCP send at the begin of each granted slot, one for all interfaces of a process.

It sleeps until the slot begins, or with departure times until data may go to the qdisc for it, and runs the iterator over the
sockets of the interface's network namespace. What can be done before that is: entering the namespace, and opening the iterator.
It asks for a real-time priority, and runs all iterators that are due without giving up the interpreter's lock in between.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from ctypes import Structure, byref, c_long
from typing import NamedTuple, Protocol

from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.netns import NetnsError, Traveller
from sopa_ryu.agent.slots.cfr_grants import Gate

LOG = logging.getLogger("sopa.agent")

PRIORITY, PRIORITY_OF_LOOP = 50, 10
"""Of SCHED_FIFO (sched(7)), of the thread and of the one that talks with the arbiter: above everything that is not real-time."""
PREPARE_NS, PREPARE_EACH_NS = 500_000, 150_000
"""So long before slots begin their iterators are opened, and longer by the latter for each interface."""
SWITCH_SECONDS = 0.0001
"""The thread gets the interpreter's lock after so long, instead of Python's 5 ms: as long as a slot."""
MAX_BUSY, BUSY_BURST_NS = 0.25, 100_000_000
"""The share of a processor at most that the iterators of one interface take, and how much of it they may have saved up: any user of
a host may open thousands of sockets."""
TOGETHER_NS = 100_000
"""Slots that begin within so long are begun together: hosts' estimates of the arbiter's clock differ by less."""
_PR_SET_TIMERSLACK, _ABSOLUTE, _SECOND = 29, 1, 1_000_000_000
_libc = ctypes.CDLL(None, use_errno=True)


class Sockets(Protocol):
    """The iterator that has the sockets of the slot's destination send: `SocketIterator`."""

    def prepare(self) -> int:
        """Return a descriptor for one run."""

    def run(self, prepared: int) -> bytes:
        """Run through the sockets."""


class Programs(Protocol):
    """The programs of an interface: `CfrPrograms`."""

    netns: str | None

    @property
    def sender(self) -> Sockets:
        """Its iterator."""


class _Host:
    """The slots of an interface, and its share of a processor.

    >>> host = _Host()
    >>> may = host.may_run()
    >>> host.ran(10 * BUSY_BURST_NS)
    >>> may, host.may_run()
    (True, False)
    """

    def __init__(self) -> None:
        self.slots: deque[int] = deque()
        self.gate: Gate | None = None
        self.problem = ""
        self._left_ns, self._at_ns = float(BUSY_BURST_NS), time.monotonic_ns()

    def may_run(self) -> bool:
        """Tell whether the iterators have not taken more than their share of a processor."""
        now = time.monotonic_ns()
        self._left_ns = min(BUSY_BURST_NS, self._left_ns + MAX_BUSY * (now - self._at_ns))
        self._at_ns = now
        return self._left_ns > 0

    def ran(self, nanoseconds: int) -> None:
        self._left_ns -= nanoseconds

    def due(self) -> int | None:
        return self.gate.due(self.slots[0]) if self.gate is not None and self.slots else None


class _Prepared(NamedTuple):
    """An opened iterator of an interface, for one of its slots."""

    due: int
    programs: Programs
    host: _Host
    slot: int
    iterator: int


class _Timespec(Structure):
    _fields_ = [("seconds", c_long), ("nanoseconds", c_long)]


class SlotSender:
    """The thread, which starts with the first slots and ends with `close`.

    Attributes:
        begun: Slots that were begun.
        late_ns: By how much the last one was begun after its time, when the thread woke for it.
    """

    def __init__(self) -> None:
        self.begun = self.late_ns = 0
        self._hosts: dict[Programs, _Host] = {}
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._waits_for: int | None = None
        self._traveller: Traveller | None = None

    def follow(self, programs: Programs, gate: Gate, slots: Iterable[int], *, forget: bool = False) -> None:
        """Begin further slots of an interface, by the clock of `gate`, and those known before unless they are to be forgotten."""
        with self._lock:
            if forget:
                self._hosts.pop(programs, None)
            host = self._hosts.setdefault(programs, _Host())
            host.gate = gate
            host.slots = deque(sorted({*host.slots, *slots}))
            if self._thread is None and host.slots and not self._ended:
                self._thread = threading.Thread(target=self._run, name="slots", daemon=True)
                self._thread.start()
            due = host.due()
            if due is not None and (self._waits_for is None or due < self._waits_for):
                self._lock.notify()

    def leave(self, programs: Programs) -> None:
        """Begin no further slots of an interface; its iterator is not in use any more when this returns."""
        with self._lock:
            self._hosts.pop(programs, None)
            if self._traveller is not None:
                self._traveller.forget(programs.netns)

    def close(self) -> None:
        """End the thread. May be repeated."""
        with self._lock:
            self._ended = True
            self._hosts.clear()
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
        ask_for_priority(PRIORITY)
        with self._lock:
            self._traveller = Traveller()
        while True:
            with self._lock:
                due = self._wait()
                if due is None:
                    self._traveller.close()
                    self._traveller = None
                    return
                prepared = sorted(self._prepare(self._traveller, due + TOGETHER_NS), key=lambda each: each.due)
            _sleep_until(due)
            with self._lock:
                self.late_ns = time.monotonic_ns() - due
                for each in prepared:
                    _sleep_until(each.due)  # its programs would take what comes before for the slot before
                    self._begin(each)

    def _wait(self) -> int | None:
        """Wait, with the lock, until shortly before the next slot; return when it is due, or None at the end."""
        while not self._ended:
            times = [due for host in self._hosts.values() if (due := host.due()) is not None]
            self._waits_for = min(times, default=None)
            if not times:
                self._lock.wait()
                continue
            left = min(times) - time.monotonic_ns() - PREPARE_NS - PREPARE_EACH_NS * len(times)
            if left <= 0:
                return min(times)
            self._lock.wait(left / _SECOND)
        return None

    def _prepare(self, traveller: Traveller, until: int) -> Iterator[_Prepared]:
        for programs, host in self._hosts.items():
            due = host.due()
            if due is None or due > until:
                continue
            slot = host.slots.popleft()
            if not host.may_run():
                _report(host, TOO_MANY)
                continue
            try:
                traveller.enter(programs.netns)
                yield _Prepared(due, programs, host, slot, programs.sender.prepare())
            except (BpfError, NetnsError, OSError) as error:
                _report(host, error)

    def _begin(self, prepared: _Prepared) -> None:
        _, programs, host, slot, iterator = prepared
        is_known = self._hosts.get(programs) is host
        is_early = host.gate is not None and host.gate.due(slot) > time.monotonic_ns() + TOGETHER_NS
        if not is_known or is_early:  # it has left meanwhile, or has no departure times any more
            if is_known:
                host.slots.appendleft(slot)
            with contextlib.suppress(OSError):
                os.close(iterator)
            return
        begin = time.thread_time_ns()  # what it takes, not how long others keep it waiting
        try:
            programs.sender.run(iterator)
            host.ran(time.thread_time_ns() - begin)
            self.begun += 1
            if host.may_run():
                host.problem = ""
        except (BpfError, OSError) as error:
            _report(host, error)


TOO_MANY = BpfError(f"to look for waiting sockets takes more than {MAX_BUSY:.0%} of a processor: look who opens so many (ss -s)")


def _report(host: _Host, error: Exception) -> None:
    if host.problem != str(error):
        host.problem = str(error)
        LOG.error(
            "cannot begin a granted slot: %s. TCP sends in this slot only what acknowledgements release. Check "
            "dmesg and free memory",
            error,
        )


def _sleep_until(due: int) -> None:
    timespec = _Timespec(*divmod(due, _SECOND))
    while _libc.clock_nanosleep(time.CLOCK_MONOTONIC, _ABSOLUTE, byref(timespec), None):
        pass  # interrupted by a signal


def ask_for_priority(priority: int) -> bool:
    """Have the calling thread run before all that is not real-time; return False if that is not allowed, which is logged."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        LOG.warning(
            "no real-time priority: %s. On a busy host granted slots begin late and are lost. Allow "
            "RLIMIT_RTPRIO %d, as the unit of the agent does, and real-time scheduling in its control group",
            error.strerror,
            PRIORITY,
        )
        return False
    return True
