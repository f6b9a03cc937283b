"""The conversation of one host with the arbiter: demands out, grants in, over UDP."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address
from typing import NoReturn, Protocol

from sopa_ryu.agent.kernel.datagrams import TimedSocket
from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.netns import NetnsError
from sopa_ryu.agent.label.bursts import segments_in
from sopa_ryu.agent.paths.path_table import Label
from sopa_ryu.agent.slots.cfr_demand import Demands, Unsent
from sopa_ryu.agent.slots.cfr_grants import KEPT, Gate, Grants, Orders, Rejected, Rejection, used_through
from sopa_ryu.agent.slots.cfr_sender import MAX_BUSY, Programs, SlotSender
from sopa_ryu.channel.client import ClientOptionError
from sopa_ryu.channel.slots import DatagramError, Demand, Granted, TokenError, read_grant, write_demand

LOG = logging.getLogger("sopa.agent")

FIRST_SECONDS = 0.1
"""The interval of demands until the arbiter says how long its batches are."""
MIN_SECONDS, MAX_SECONDS = 0.005, 1.0
READ_TOGETHER = 16
"""Datagrams that are read before other interfaces have their turn."""
MIN_READS, READS_A_BATCH, READ_SECONDS = 1000, 4, 0.01
"""The limit of datagrams read per second, or per batch of the arbiter where that allows more. The thread has a real-time priority,
and anybody can forge the arbiter's address: each forged datagram costs an HMAC. Beyond the limit reading pauses for
`READ_SECONDS`, and the kernel drops what does not fit into the socket's buffer."""
IDLE_PARTS = 4
"""A host that has nothing to send says so so often in a lease, so that the arbiter goes on to count on it."""
PASS_PARTS = 5
"""An iteration over all sockets may take up to one part in so many of the time between two."""
SLOW_PASS_NS = 500_000
"""An iteration that takes longer is reported: slots of a few milliseconds are not used well then."""
PASSES = 8
"""The shortest of so many iterations counts: what else the processor does makes single ones longer."""


class GatePrograms(Programs, Protocol):
    """The programs of an interface: `CfrPrograms`."""

    def set_gate(self, host: IPv4Address, gate: Gate) -> None:
        """Put a clock, a lease and the first slot of the grants in force."""

    def grant(self, slots: Iterable[Granted]) -> None:
        """Write granted slots."""

    def forget(self) -> None:
        """Remove all granted slots."""

    def used(self, slot: int) -> int:
        """Return the bytes that were sent in a granted slot."""

    def sent(self, destinations: Iterable[IPv4Address]) -> dict[IPv4Address, int]:
        """Return the bytes that have been sent in all, by destination."""

    def unsent(self) -> Sequence[Unsent]:
        """Return the connections that have something to send."""


class CfrAgent:
    """The agent's part in CFR, for one host.

    Args:
        arbiter: Its address and port.
        token: Returns the host's token; called once a connection.
        limit_bursts: Called with the packets that a burst of TCP may have, when that changes.
        instead: Maps a destination, the label of a granted path and a number to the label to use. If the host avoids the
            granted path, the number selects another one.

    Attributes:
        slots_used: Granted slots in which anything was sent.
        slots_rerouted: Granted slots whose path the host avoids: they have another one.
        pass_ns: The time that the last iteration over all sockets took.
        too_many: Iterations take too long for slots, so data leaves without them.
    """

    def __init__(
        self,
        host: IPv4Address,
        arbiter: tuple[str, int],
        token: Callable[[], str],
        programs: GatePrograms,
        sender: SlotSender,
        *,
        limit_bursts: Callable[[int], Awaitable[None]] | None = None,
        instead: Callable[[IPv4Address, Label, int], Label] = lambda _destination, label, _turn: label,
    ) -> None:
        self.host, self.arbiter = host, arbiter
        self.grants = Grants(host)
        self.slots_used = self.slots_rerouted = self.pass_ns = 0
        self.too_many = False
        self._looked_at = 0
        self._passes: deque[int] = deque(maxlen=PASSES)
        self._token, self._key = token, ""
        self.programs, self._sender = programs, sender
        self._limit_bursts, self._instead = limit_bursts, instead
        self._demands = Demands()
        self._run = time.time_ns()
        self._sequence = itertools.count(1)
        self._socket: TimedSocket | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._reads_left, self._reads_at = float(MIN_READS), 0
        self._told_at = 0
        self._pending: deque[Granted] = deque(maxlen=KEPT)
        self._closed = False
        self._problems: set[str] = set()
        self._slow = False
        self._segments = 0
        self._limiting: asyncio.Task[None] | None = None

    @property
    def arbiter_name(self) -> str:
        """The arbiter, for log lines."""
        return f"{self.arbiter[0]}:{self.arbiter[1]}"

    async def run(self) -> NoReturn:
        """Send demands, and follow grants, until cancelled."""
        try:
            while True:
                try:
                    await self._open()
                except (ClientOptionError, OSError) as error:
                    self._report(f"no demands to arbiter {self.arbiter_name}: {error}")
                    await asyncio.sleep(MAX_SECONDS)
                    continue
                while True:
                    self._tick(time.monotonic_ns())
                    await asyncio.sleep(self._interval())
        finally:
            self._sender.leave(self.programs)
            if self._reading is not None:
                self._reading.cancel()
            if self._socket is not None:
                asyncio.get_running_loop().remove_reader(self._socket)
                self._socket.close()
            if self._limiting is not None:
                await asyncio.gather(self._limiting, return_exceptions=True)

    async def _open(self) -> None:
        self._key = self._token()
        loop = asyncio.get_running_loop()
        family, _, _, _, address = (await loop.getaddrinfo(*self.arbiter, type=socket.SOCK_DGRAM))[0]
        self._socket = TimedSocket(family, address)
        self._go_on_reading()

    def _go_on_reading(self) -> None:
        assert self._socket is not None
        self._reading = None
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def _read(self) -> None:
        """Follow the grants that have come, at a bounded rate."""
        assert self._socket is not None
        now, batch_ns = time.monotonic_ns(), self.grants.batch_ns
        most = max(MIN_READS, READS_A_BATCH * 1e9 / batch_ns) if batch_ns else MIN_READS
        self._reads_left = min(most, self._reads_left + (now - self._reads_at) * most / 1e9)
        self._reads_at = now
        if self._reads_left < READ_TOGETHER:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            self._reading = loop.call_later(READ_SECONDS, self._go_on_reading)
            self._report(f"more than {most:.0f} datagrams a second from arbiter {self.arbiter_name}: look who sends in its name")
            return
        try:
            for _ in range(READ_TOGETHER):
                self._reads_left -= 1.0
                self._follow(*self._socket.receive())
        except BlockingIOError:
            return
        except OSError as error:  # what the network says, such as that no arbiter is at the port
            self._report(f"arbiter {self.arbiter_name} cannot be reached: {error.strerror}")

    def _follow(self, data: bytes, now: int) -> None:
        """Follow a grant that came at that time."""
        try:
            orders = self.grants.receive(read_grant(data, self._key), now)
        except Rejected as rejected:
            if rejected.reason not in (Rejection.REPEATED, Rejection.CLOCK):
                self._report(f"a grant of arbiter {self.arbiter_name} is rejected: {rejected}")
            return
        except DatagramError as error:
            reason = Rejection.TOKEN if isinstance(error, TokenError) else Rejection.MALFORMED
            self.grants.rejected[reason] += 1
            self._report(f"a datagram of arbiter {self.arbiter_name} is rejected: {error}")
            return
        if self.too_many:
            return
        try:
            self._carry_out(orders)
        except BpfError as error:
            self._report(f"granted slots cannot be written: {error}")

    # -- grants ----------------------------------------------------------------------------------------------------------

    def _carry_out(self, orders: Orders) -> None:
        if orders.forget:
            self.programs.forget()
            self._pending.clear()
        self.programs.grant([self._routed(grant) for grant in orders.slots])
        self.programs.set_gate(self.host, orders.gate)
        self._sender.follow(self.programs, orders.gate, [grant.slot for grant in orders.slots], forget=orders.forget)
        self._pending.extend(orders.slots)
        if orders.slots:
            self._fit_bursts(orders.slots[0].budget)
        if orders.closes:
            LOG.info(
                "%s: arbiter %s grants slots of %g ms (term %d): data waits for them",
                self.host,
                self.arbiter_name,
                orders.gate.slot_ns / 1e6,
                self.grants.term,
            )
            self._closed = True
            self._problems.clear()

    def _routed(self, grant: Granted) -> Granted:
        """Return a granted slot with another path if the host avoids its own. The arbiter does not know: two may meet there."""
        label = grant.up1, grant.up2
        up1, up2 = self._instead(grant.destination, label, grant.slot + int(self.host))
        self.slots_rerouted += label != (up1, up2)
        return grant._replace(up1=up1, up2=up2)

    def _fit_bursts(self, budget: int) -> None:
        segments = segments_in(budget)
        busy = self._limiting is not None and not self._limiting.done()
        if self._limit_bursts is None or segments == self._segments or busy:
            return
        self._segments = segments
        self._limiting = asyncio.ensure_future(self._limit_bursts(segments))

    # -- demands ---------------------------------------------------------------------------------------------------------

    def _interval(self) -> float:
        """Return the seconds until the next look at what is to be sent."""
        grants = self.grants
        wanted = grants.batch_ns / 1e9 if grants.batch_ns and grants.is_closed(time.monotonic_ns()) else FIRST_SECONDS
        passes = 0 if self.too_many else PASS_PARTS * self.pass_ns / 1e9
        return min(MAX_SECONDS, max(MIN_SECONDS, wanted, passes))

    def _tick(self, now: int) -> None:
        """Look at what is to be sent, and tell the arbiter if it has to know."""
        self._look_at_lease(now)
        if self.grants.forget_silent(now):
            LOG.warning("%s: arbiter %s is silent. Its term is forgotten, and any arbiter's holds", self.host, self.arbiter_name)
        through = self._settle(now)
        try:
            if not self.too_many or now - self._looked_at >= MAX_SECONDS * 1e9:
                self._looked_at = now
                self._look_at_sockets(now)
        except (BpfError, NetnsError, OSError) as error:
            self._report(f"what TCP has to send cannot be read: {error}")
            return
        idle_ns = self.grants.lease_ns // IDLE_PARTS if self.grants.is_closed(now) else int(FIRST_SECONDS * 1e9)
        if self._demands.outstanding or now - self._told_at >= min(idle_ns, int(MAX_SECONDS * 1e9)):
            self._tell(through)

    def _look_at_sockets(self, now: int) -> None:
        begin, used = time.monotonic_ns(), time.thread_time_ns()
        found = self.programs.unsent()
        self.pass_ns = time.monotonic_ns() - begin
        self._passes.append(time.thread_time_ns() - used)
        self._judge_passes(now)
        unsent = Counter[IPv4Address]()
        for demand in [] if self.too_many else found:
            unsent[IPv4Address(demand.destination)] += demand.bytes
        self._demands.note(unsent, self.programs.sent(unsent.keys() | self._demands.active))

    def _judge_passes(self, now: int) -> None:
        """Let the lease end while iterations are too long for slots: any user of a host may open thousands of sockets."""
        gate = self.grants.gate
        if gate is None or len(self._passes) < PASSES:
            return
        shortest, longest = min(self._passes), gate.slot_ns * MAX_BUSY
        if shortest > SLOW_PASS_NS and not self._slow:
            self._slow = True
            LOG.warning(
                "%s: an iteration over TCP's sockets takes %.1f ms, so that slots begin late. Boot with thash_entries=1024, or "
                "set net.ipv4.tcp_child_ehash_entries=1024 before the network namespace is made",
                self.host,
                shortest / 1e6,
            )
        if not self.too_many and shortest > longest:
            self.too_many, self._closed = True, False
            self._sender.leave(self.programs)
            self._pending.clear()
            LOG.warning(
                "%s: an iteration over TCP's sockets takes %.1f ms, too long for slots of %g ms. Data leaves without slots, "
                "round-robin, until it takes less than %.1f ms. Look who opens so many sockets (ss -s)",
                self.host,
                shortest / 1e6,
                gate.slot_ns / 1e6,
                longest / 2e6,
            )
        elif self.too_many and shortest < longest / 2:
            self.too_many, self._closed = False, self.grants.is_closed(now)
            self.programs.forget()  # the grants that said so, of another arbiter's slots, may have passed unread
            LOG.info("%s: an iteration over TCP's sockets takes %.1f ms: data waits for slots again", self.host, shortest / 1e6)
        else:
            return
        self._passes.clear()

    def _settle(self, now: int) -> int:
        """Count the granted slots that are over; return the last slot whose grants are used or over."""
        gate = self.grants.gate
        if gate is None:
            return 0
        current = gate.slot_at(now)
        while self._pending and self._pending[0].slot < current:
            self.slots_used += self.programs.used(self._pending.popleft().slot) > 0
        return used_through(gate, now, self._pending, self.programs.used)

    def _tell(self, through: int) -> None:
        for entries in self._demands.datagrams():
            if self._socket is None:
                return
            now = time.monotonic_ns()
            sequence = next(self._sequence) & 0xFFFFFFFF
            demand = Demand(self.host, sequence, self.grants.term, self._run, now, through, entries)
            self._told_at = now
            try:
                self._socket.send(write_demand(demand, self._key))
            except OSError as error:
                self._report(f"arbiter {self.arbiter_name} cannot be reached: {error.strerror}")

    def _look_at_lease(self, now: int) -> None:
        if not self._closed or self.grants.is_closed(now):
            return
        self._closed = False
        LOG.warning(
            "%s: no grants of arbiter %s for %g ms. Data leaves without slots, round-robin, until it answers. Check the arbiter "
            "and the network to it",
            self.host,
            self.arbiter_name,
            self.grants.lease_ns / 1e6,
        )

    def _report(self, problem: str) -> None:
        """Log a problem once, until slots are granted anew."""
        if problem not in self._problems and len(self._problems) < 10:
            self._problems.add(problem)
            LOG.warning("%s: %s", self.host, problem)
