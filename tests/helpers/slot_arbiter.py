"""The arbiter's decisions in a thread of the tests, for agents: by the clock, the term and the losses that a test wants."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from functools import partial
from ipaddress import IPv4Address

from sopa_ryu.arbiter.allocation import Allocation
from sopa_ryu.arbiter.budgets import Budgets
from sopa_ryu.arbiter.build import build
from sopa_ryu.arbiter.schedule import SLOTS, RejectedError, Schedule, Timing
from sopa_ryu.channel.slots import Granted, read_demand, write_grant
from topologies import Failures, FatTree

SLOT_NS = 3_200_000
"""Of one packet, at 4 Mbit/s."""


class SlotArbiter:
    """An arbiter of a k=4 fat-tree on loopback, while the context lasts; by slot and source, what it has granted."""

    def __init__(
        self, port: int = 0, term: int = 1, *, slot_ns: int = SLOT_NS, mbit: float = 4.0, skew_ns: int = 0, lease_ms: int = 100,
        loses: int = 0,
    ) -> None:  # fmt: skip
        self.term, self.slot_ns, self.skew_ns, self.loses = term, slot_ns, skew_ns, loses
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        self.granted: dict[tuple[int, IPv4Address], Granted] = {}
        build()
        self._schedule = Schedule(Timing(slot_ns, lease_ms), partial(Allocation, batch=SLOTS))
        self._schedule.follow(Budgets(Failures(FatTree(4)), mbit, slot_ns))
        self._schedule.accept(term)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> SlotArbiter:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        """End it, as if it had been killed."""
        self._done.set()
        self._thread.join()
        self.socket.close()

    def _clock(self) -> int:
        return time.monotonic_ns() + self.skew_ns

    def _run(self) -> None:
        while not self._done.is_set():
            following = self._schedule.next_turn(self._clock())
            while (left := following - self._clock()) > 0:
                if select.select([self.socket], [], [], left / 1e9)[0]:
                    self._receive()
            self._grant()

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError, RejectedError):  # a demand that another one has overtaken
            data, peer = self.socket.recvfrom(2048)
            self._schedule.receive(read_demand(data, ""), peer, self._clock())

    def _grant(self) -> None:
        for host, grant in self._schedule.turn(self._clock()):
            self.granted |= {(each.slot, grant.host): each for each in grant.entries}
            if not self.loses or grant.sequence % self.loses:
                datagram = write_grant(grant._replace(term=self.term, sent_at=self._clock()), "")
                with contextlib.suppress(OSError):
                    self.socket.sendto(datagram, host.peer)
