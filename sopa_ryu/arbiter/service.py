"""The arbiter at work: demands and grants over UDP, a turn for each batch, and the controller's channel."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sopa_ryu.arbiter.arbiter_options import ArbiterError
from sopa_ryu.arbiter.budgets import MIN_CELL_BYTES, Budgets, min_slot_ms
from sopa_ryu.arbiter.door import DemandDoor
from sopa_ryu.arbiter.schedule import HostLoad, RejectedError, Schedule, Timing
from sopa_ryu.channel.messages import HostLink
from sopa_ryu.channel.slots import write_grant
from sopa_ryu.fabric.view import View

LOG = logging.getLogger("sopa.arbiter")

MAX_DATAGRAM = 2048
READ_AT_ONCE = 64
"""So many datagrams are read before the batches have their turn again."""
BUFFER_BYTES = 4 << 20
LATE_LOG_SECONDS = 10.0
NEGLIGIBLE = 0.001
"""A load below this share of a link is what protocols send by themselves."""
_MEGA = 1e6


class Listen(NamedTuple):
    """Where demands arrive."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def bind(listen: Listen) -> socket.socket:
    """Return the socket of the arbiter. `ArbiterError` if the address is in use, or not this machine's."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            listen.address, listen.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICHOST
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setblocking(False)
        bound.bind(where)
    except OSError as error:
        raise ArbiterError(f"datagrams cannot be received at {listen}: {error.strerror or error}") from error
    _make_room(bound)
    return bound


def _make_room(bound: socket.socket) -> None:
    """Have the kernel keep what arrives during a turn; beyond its limit only if the process may."""
    for option in (socket.SO_RCVBUF, getattr(socket, "SO_RCVBUFFORCE", 33)):
        with contextlib.suppress(PermissionError):
            bound.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
    got = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    if got < BUFFER_BYTES:
        LOG.info(
            "the receive buffer has %d bytes of %d. Bursts of many hosts may be lost. Raise net.core.rmem_max", got, BUFFER_BYTES
        )


def loads(links: Sequence[HostLink], mbit: float | None = None) -> dict[int, HostLoad]:
    """Return the loads of hosts' links that are not negligible, by the host's number.

    Args:
        links: Of all hosts, in the order of addresses.
        mbit: The capacity to reckon with, if it is not that of the ports.

    >>> loads([HostLink(1e6, 0.0, 4e6), HostLink(None, None, 4e6)])
    {0: HostLoad(sending=0.25, receiving=0.0)}
    """
    shares: dict[int, HostLoad] = {}
    for number, link in enumerate(links):
        capacity = link.capacity if mbit is None else mbit * _MEGA
        if capacity:
            load = HostLoad((link.up or 0.0) / capacity, (link.down or 0.0) / capacity)
            if max(load) > NEGLIGIBLE:
                shares[number] = load
    return shares


class Service:
    """The arbiter's sockets and clock.

    Args:
        bound: Of UDP, non-blocking.
        schedule: Decides what is granted.
        door: Decides which datagrams are demands.
        host_mbit: The rate of hosts' links, if it is not that of the fabric file or of their ports.

    Attributes:
        counted: ``received`` and ``sent`` datagrams, ``unsent`` ones, which the kernel has refused.
        observe: Called with the seconds that each turn took.
    """

    def __init__(
        self, bound: socket.socket, schedule: Schedule, door: DemandDoor, timing: Timing, host_mbit: float | None = None
    ) -> None:
        self.schedule, self.door, self.timing = schedule, door, timing
        self.counted: Counter[str] = Counter(received=0, sent=0, unsent=0)
        self.observe: Callable[[float], None] = lambda seconds: None
        self._socket = bound
        self._host_mbit = host_mbit
        self._ports_mbit: float | None = None
        self._measured = False
        self._view: View | None = None
        self._term = 0
        self._said = ""
        self._late_said_at = float("-inf")
        self._late_said = 0
        self._unsent_said = False

    # -- from the controller --------------------------------------------------------------------------------------------

    def follow(self, view: View, term: int) -> None:
        """Grant by this version of the fabric, under this term."""
        if term != self._term:
            LOG.info("term %d: version %d of the fabric, %d hosts", term, view.version, view.failures.tree.host_count)
        self._view, self._term = view, term
        self._put_in_force()

    def superseded(self) -> None:
        """Stop granting: another arbiter does."""
        self._term = 0
        self.schedule.stop()

    def measured(self, links: Sequence[HostLink]) -> None:
        """Follow what the controller has measured at the hosts' ports: the load of hosts that do not take part, and a rate."""
        self.schedule.load(loads(links, self._host_mbit))
        slowest = min((link.capacity for link in links if link.capacity), default=None)
        mbit = None if slowest is None else slowest / _MEGA
        if mbit != self._ports_mbit or not self._measured:
            self._ports_mbit, self._measured = mbit, True
            self._put_in_force()

    @property
    def mbit(self) -> float | None:
        """The rate of a host's link in Mbit/s; None if it is not known."""
        if self._host_mbit is not None:
            return self._host_mbit
        if self._view is not None and self._view.failures.tree.in_mbit:
            return self._view.failures.tree.level_rate("host")
        return self._ports_mbit

    def _put_in_force(self) -> None:
        if self._view is None:
            return
        mbit = self.mbit
        if mbit is None and not self._measured:
            return  # the controller has not been asked yet
        if mbit is None:
            self._say("the rate of hosts' links is not known: no slot is granted. Give --rate, or the controller --sopa-link-mbit")
            return
        budgets = Budgets(self._view.failures, mbit, self.timing.slot_ns)
        if budgets.cell_bytes < MIN_CELL_BYTES:
            self._say(
                f"slots of {self.timing.slot_ns / 1e6:g} ms carry {budgets.cell_bytes} bytes at {mbit:g} Mbit/s, less than a "
                f"packet: no slot is granted. Give --slot {min_slot_ms(mbit):g} or more"
            )
            self.schedule.stop()
            return
        self._said = ""
        self.schedule.follow(budgets)
        if self._term:
            self.schedule.accept(self._term)

    def _say(self, problem: str) -> None:
        if problem != self._said:
            self._said = problem
            LOG.error("%s", problem)

    # -- from the hosts -------------------------------------------------------------------------------------------------

    def readable(self) -> None:
        """Read datagrams that have arrived, up to a number: the event loop calls this again for the rest."""
        for _ in range(READ_AT_ONCE):
            try:
                datagram, peer = self._socket.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error about what was sent
                continue
            self.counted["received"] += 1
            if not self.schedule.knows_fabric:
                self.door.rejected["early"] += 1
                continue
            now = time.monotonic_ns()
            try:
                demand = self.door.read(datagram, peer[0])
                if off := self.schedule.receive(demand, peer, now):
                    self.door.note_clock(demand.host, off * self.timing.slot_ns // 1_000_000, now)
            except RejectedError as error:
                self.door.reject(error, peer[0], now)

    # -- the batches ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self.readable)
        try:
            while True:
                now = time.monotonic_ns()
                await asyncio.sleep((self.schedule.next_turn(now) - now) / 1e9)
                self.turn()
        finally:
            loop.remove_reader(self._socket)

    def turn(self) -> None:
        """Make the batches that are due, and send the grants."""
        began = time.monotonic_ns()
        for host, grant in self.schedule.turn(began):
            datagram = write_grant(grant._replace(sent_at=time.monotonic_ns()), self.door.token(grant.host))
            try:
                self._socket.sendto(datagram, host.peer)
                self.counted["sent"] += 1
            except OSError as error:
                self._note_unsent(host.peer, error)
        seconds = (time.monotonic_ns() - began) / 1e9
        self.observe(seconds)
        self._look_at_pace(seconds)

    def _note_unsent(self, peer: Any, error: OSError) -> None:
        self.counted["unsent"] += 1
        if not self._unsent_said:
            self._unsent_said = True
            LOG.warning(
                "grants cannot be sent to %s: %s. Hosts without grants go back to round-robin after a lease. Later failures are "
                "only counted (sopa_arbiter_unsent_datagrams_total)",
                peer[0],
                error.strerror or error,
            )

    def _look_at_pace(self, seconds: float) -> None:
        """Log batches that were left out, at a bounded rate."""
        late, now = self.schedule.counted["late"], time.monotonic()
        if late > self._late_said and now - self._late_said_at > LATE_LOG_SECONDS:
            LOG.warning(
                "%d batches left out, too late for their slots. Hosts wait for the next ones. The last turn took %.1f ms of %.1f. "
                "Use fewer hosts, longer slots (--slot), or a faster processor",
                late - self._late_said,
                seconds * 1e3,
                self.timing.batch_ns / 1e6,
            )
            self._late_said, self._late_said_at = late, now
