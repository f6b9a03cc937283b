"""A small arbiter for tests: grants each slot to the hosts in turn that have something to send, one of them to each destination."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.channel.slots import Demand, Grant, Granted, read_demand, write_grant

SLOT_NS = 3_200_000
BUDGET = 1514
BATCH = 4
AHEAD = 2  # batches


class Slot(NamedTuple):
    """A granted slot, as the arbiter knows it."""

    host: IPv4Address
    destination: IPv4Address
    label: tuple[int, int] | None


class _Host:
    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.demand: Demand | None = None
        self.arrived = 0
        self.asked: dict[IPv4Address, int] = {}
        self.outstanding: dict[int, IPv4Address] = {}
        self.run = 0


class SlotArbiter:
    """An arbiter on loopback, while the context lasts.

    Parameters
    ----------
    port : int
        0 for a free one.
    term : int
    slot_ns, budget : int
    skew_ns : int
        Its clock is ahead by so much.
    loses : int
        Every so many-th datagram of grants is lost; 0 for none.
    """

    def __init__(
        self,
        port: int = 0,
        term: int = 1,
        *,
        slot_ns: int = SLOT_NS,
        budget: int = BUDGET,
        skew_ns: int = 0,
        lease_ms: int = 100,
        loses: int = 0,
        token: str = "",
    ) -> None:
        self.term, self.slot_ns, self.budget, self.skew_ns, self.lease_ms = term, slot_ns, budget, skew_ns, lease_ms
        self.token, self.loses = token, loses
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.port = self.socket.getsockname()[1]
        self.granted: dict[tuple[int, IPv4Address], Slot] = {}
        self.hosts: dict[IPv4Address, _Host] = {}
        self._turn = itertools.count()
        self._sequence = itertools.count(1)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> SlotArbiter:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, as if it had been killed."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
            self.socket.close()

    def clock(self) -> int:
        """Return its clock."""
        return time.monotonic_ns() + self.skew_ns

    def demanded(self) -> int:
        """Return the bytes that are wanted and not sent, of all hosts."""
        demands = [host.demand for host in list(self.hosts.values()) if host.demand]
        return sum(entry.wanted - entry.sent for demand in demands for entry in demand.entries)

    def _run(self) -> None:
        batch_ns = BATCH * self.slot_ns
        following = self.clock() // batch_ns + AHEAD
        while not self._done.is_set():
            while (left := (following - AHEAD) * batch_ns - self.clock()) > 0:
                if select.select([self.socket], [], [], left / 1e9)[0]:
                    self._receive()
            following = max(following, self.clock() // batch_ns + AHEAD)
            self._grant(following * BATCH)
            following += 1

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, address = self.socket.recvfrom(2048)
                arrived = self.clock()
                demand = read_demand(data, self.token)
                host = self.hosts.get(demand.host)
                if host is None or host.run != demand.run:
                    host = self.hosts[demand.host] = _Host(address)
                    host.run = demand.run
                host.address, host.demand, host.arrived = address, demand, arrived
                for entry in demand.entries:
                    host.asked[entry.destination] = entry.wanted - entry.sent
                for slot in [slot for slot in host.outstanding if slot <= demand.through]:
                    del host.outstanding[slot]

    def _grant(self, first: int) -> None:
        entries: dict[IPv4Address, list[Granted]] = {address: [] for address in self.hosts}
        for slot in range(first, first + BATCH):
            for address, its in self._chosen():
                up1, up2 = slot % 2, slot // 2 % 2
                entries[address].append(Granted(slot, up1, up2, its, self.budget))
                self.hosts[address].outstanding[slot] = its
                self.granted[slot, address] = Slot(address, its, (up1, up2))
        for address, host in self.hosts.items():
            sequence = next(self._sequence)
            if self.loses and sequence % self.loses == 0:
                continue
            asked = host.demand.sent_at if host.demand else 0
            grant = Grant(address, sequence, self.term, self.slot_ns, self.lease_ms, first, BATCH, asked, host.arrived,
                          self.clock(), entries[address])  # fmt: skip
            with contextlib.suppress(OSError):
                self.socket.sendto(write_grant(grant, self.token), host.address)

    def _chosen(self) -> Iterator[tuple[IPv4Address, IPv4Address]]:
        """Yield who sends in a slot, and to whom."""
        receiving: set[IPv4Address] = set()
        hosts = list(self.hosts)
        turn = next(self._turn)
        for address in hosts[turn % len(hosts) :] + hosts[: turn % len(hosts)] if hosts else ():
            host = self.hosts[address]
            for destination, left in host.asked.items():
                counted_on = self.budget * list(host.outstanding.values()).count(destination)
                if destination not in receiving and left > counted_on:
                    receiving.add(destination)
                    yield address, destination
                    break
