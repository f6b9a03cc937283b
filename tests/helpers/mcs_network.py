"""Two hosts that run MCS and one TCP connection between them, over a network that reorders, loses and marks. Time has no unit."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bpf.mcs_reference import MAX_CHANNELS, Block, Connection, Host, Key, Segment, Verdict, plus

MSS, SCALE, WINDOW = 1000, 7, 65535
MIN_RTO, MAX_RTO = 500, 8000
PATIENCE = 300  # longer than a round trip
FAST_RETRANSMIT = 3
DATA, ACKS = 0, 1
CLIENT, SERVER = Key(1, 2, 40000, 80), Key(2, 1, 80, 40000)


@dataclass
class Network:
    """What happens to packets under way; they never overtake each other on one channel.

    By channel, data's and acknowledgements' delays, from when until when no data is carried, and whether data is marked; by their
    numbers in the order of departure, which data and acknowledgements are lost.
    """

    delays: tuple[list[int], list[int]] = field(default_factory=lambda: ([20] * MAX_CHANNELS, [20] * MAX_CHANNELS))
    lost: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    dead: dict[int, tuple[int, int]] = field(default_factory=dict)
    marking: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sent = Counter[int]()
        self._last: Counter[tuple[int, int]] = Counter()

    def arrival(self, direction: int, channel: int, now: int) -> int | None:
        number = self.sent[direction]
        self.sent[direction] += 1
        first, last = self.dead.get(channel, (0, 0))
        if number in self.lost[direction] or (direction == DATA and first <= now < last):
            return None
        at = max(now + self.delays[direction][channel], self._last[direction, channel] + 1)
        self._last[direction, channel] = at
        return at


class Transfer:
    """The connection: a TCP that sends ``count`` segments, and one that acknowledges each segment that comes."""

    def __init__(
        self, network: Network, count: int = 200, *, channels: int = 8, isn: int = 0, cwnd: int = 40, dsack: bool = True
    ) -> None:
        self.network, self.count, self.isn, self.full_cwnd, self.dsack = network, count, isn, cwnd, dsack
        self.now, self._order = 0, 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self.client, self.server = (Host(channels, patience_us=PATIENCE, clock_us=lambda: self.now) for _ in "12")
        for host, key in ((self.client, CLIENT), (self.server, SERVER)):
            host.send(key, Segment(syn=True, scale=SCALE))
            host.receive(key, Segment(syn=True, scale=SCALE))
        self.trace: list[Callable[[], None]] = []
        # sender, in segments
        self.una = self.next = self.recover = 0
        self.cwnd = cwnd
        self.window = WINDOW << SCALE
        self.duplicates = self.seen_blocks = self.retransmitted = self.timeouts = self.server_passed = 0
        self._in_a_row = self._highest = 0
        self._rto, self._deadline = MIN_RTO, MIN_RTO
        # receiver, in segments
        self.received: set[int] = set()
        self.rcv_next = 0

    @property
    def sending(self) -> Connection:
        return self.client.connections[CLIENT]

    @property
    def receiving(self) -> Connection:
        return self.server.connections[SERVER]

    def run(self, until: int = 1_000_000) -> Transfer:
        """Run until everything is acknowledged; `AssertionError` if that takes longer than ``until``."""
        self._fill()
        while self.una < self.count:
            if not self._events or self._events[0][0] > self._deadline:
                self.now = self._deadline
                self._time_out()
            else:
                self.now, _, happen = heapq.heappop(self._events)
                happen()
            for look in self.trace:
                look()
            assert self.now < until, f"{self.una} of {self.count} segments at {self.now}"
        return self

    def _put(self, direction: int, host: Host, key: Key, its: Segment, arrive: Callable[[Segment], None]) -> None:
        is_known = direction == ACKS and its.ack == host.connections[key].lan
        reports = is_known and its.reports_loss_or_reordering
        if host.send(key, its) is Verdict.DROP:
            return
        self.server_passed += reports
        assert its.mco is not None
        at = self.network.arrival(direction, its.mco.channel, self.now)
        if at is None:
            return
        if direction == DATA and its.mco.channel in self.network.marking:
            its.ce = its.ect
        self._order += 1
        heapq.heappush(self._events, (at, self._order, lambda: arrive(its)))

    def _transmit(self, number: int) -> None:
        self.retransmitted += number < self._highest
        self._highest = max(self._highest, number + 1)
        its = Segment(seq=plus(self.isn, number * MSS), ack=1, payload=MSS)
        self._put(DATA, self.client, CLIENT, its, self._data_arrives)

    def _fill(self) -> None:
        window = max(1, min(self.cwnd, self.window // MSS))
        while self.next < min(self.count, self.una + window):
            self._transmit(self.next)
            self.next += 1

    def _time_out(self) -> None:
        self.timeouts += 1
        self._rto = min(MAX_RTO, 2 * self._rto)
        self._deadline = self.now + self._rto
        self.next, self.recover, self.cwnd, self._in_a_row = self.una, 0, 1, 0
        self._fill()

    def _ack_arrives(self, its: Segment) -> None:
        self.client.receive(CLIENT, its)
        assert its.ack is not None
        number = ((its.ack - self.isn) & 0xFFFFFFFF) // MSS
        self.window = its.window << SCALE
        self.seen_blocks += sum((left - self.isn) & 0xFFFFFFFF >= number * MSS for left, _ in its.sack)
        if number > self.una:
            self.una, self._in_a_row = number, 0
            self.next = max(self.next, number)
            self._rto, self._deadline = MIN_RTO, self.now + MIN_RTO
            self.cwnd = min(self.full_cwnd, self.cwnd + 1)
            if self.una < self.recover:
                self._transmit(self.una)
        elif number == self.una and self.next > self.una:
            self.duplicates += 1
            self._in_a_row += 1
            if self._in_a_row == FAST_RETRANSMIT and self.una >= self.recover:
                self.recover = self.next
                self._transmit(self.una)
        self._fill()

    def _data_arrives(self, its: Segment) -> None:
        self.server.receive(SERVER, its)
        number = ((its.seq - self.isn) & 0xFFFFFFFF) // MSS
        known = number in self.received
        self.received.add(number)
        while self.rcv_next in self.received:
            self.rcv_next += 1
        blocks = self._out_of_order(number)
        if known and self.dsack:
            blocks = [self._block(number, number + 1), *blocks]
        ack = Segment(seq=1, ack=plus(self.isn, self.rcv_next * MSS), window=WINDOW, sack=tuple(blocks[:3]))
        self._put(ACKS, self.server, SERVER, ack, self._ack_arrives)

    def _out_of_order(self, latest: int) -> list[Block]:
        """Return the SACK blocks; the first is the one with the segment that came last."""
        blocks, numbers = [], sorted(each for each in self.received if each > self.rcv_next)
        for number in numbers:
            if blocks and blocks[-1][1] == number:
                blocks[-1] = (blocks[-1][0], number + 1)
            else:
                blocks.append((number, number + 1))
        blocks.sort(key=lambda block: not block[0] <= latest < block[1])
        return [self._block(*block) for block in blocks]

    def _block(self, first: int, end: int) -> Block:
        return plus(self.isn, first * MSS), plus(self.isn, end * MSS)
