"""MCS at one host: what the eBPF programs have to do with every segment, and nothing of how they do it.

Written from Li, Bi, Wang: Multi-Channel Scatter (IFIP Networking 2017), sections III to V, with the paper's names, and from
docs/mcs.md where that differs. A segment is plain data here; mcs_frames.py finds it in a frame.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

MAX_CHANNELS = 16
DEFAULT_CHANNELS = 8
FRESH = 3  # N of algorithm 5
MAX_WEIGHT = 3
ONE = 1024  # ALPHA's unit
GAIN = 16  # 1/g of algorithm 4
MIN_MSS = 536  # RFC 9293, until a packet shows it
INITIAL_WINDOW = 14_600  # bytes: 10 segments (RFC 6928)
MIN_WINDOW = 2  # segments
MAX_WINDOW = 1 << 30  # bytes: no TCP has a larger one (RFC 7323)
MAX_RECEIVED = 255
MAX_SCALE = 14
PATIENCE_US = 20_000

Block = tuple[int, int]


def before(a: int, b: int) -> bool:
    """Whether a sequence number is before another one: their difference is a signed number of 32 bits."""
    return (a - b) & 0xFFFFFFFF >= 1 << 31


def plus(a: int, b: int) -> int:
    return (a + b) & 0xFFFFFFFF


class Key(NamedTuple):
    """A connection at one of its hosts; addresses and ports as numbers."""

    local: int
    remote: int
    local_port: int
    remote_port: int
    proto: int = 6
    """TCP, and flags of a flow's key."""


class Mco(NamedTuple):
    """The option's six fields (figure 2)."""

    rcb: int
    rb: int
    rp: int
    channel: int
    gsn: int
    lsn: int


class Room(Enum):
    """The place that a header has for an MCO."""

    NONE = 0
    PLACEHOLDER = 1
    IN_SACK = 2
    """SACK has left no room for a placeholder; its last two blocks are the header's last 16 bytes."""


@dataclass
class Segment:
    """A TCP segment, or a super-packet. `Host.send` and `Host.receive` change what they change of it."""

    seq: int = 0
    ack: int | None = None
    payload: int = 0
    syn: bool = False
    fin: bool = False
    rst: bool = False
    sack: tuple[Block, ...] = ()
    window: int = 65535
    scale: int = -1  # window scale option of a SYN
    ect: bool = False  # anything but Not-ECT
    ce: bool = False
    mco: Mco | None = None
    room: Room = Room.PLACEHOLDER
    gso_size: int = 0
    segments: int = 1

    @property
    def pure_ack(self) -> bool:
        return self.ack is not None and not (self.payload or self.syn or self.fin or self.rst)

    @property
    def reports_loss_or_reordering(self) -> bool:
        """SACK blocks, none of which is a D-SACK (RFC 2883)."""
        return self.ack is not None and bool(self.sack) and not before(self.sack[0][0], self.ack)


class Scale(NamedTuple):
    """The window scale options of both SYNs as far as they were seen; -1 is a SYN without one."""

    remote: int | None = None
    local: int | None = None

    @property
    def of_remote_window(self) -> int | None:
        """RFC 7323, section 2.2: windows are scaled only if both SYNs have the option."""
        if self.remote is None or self.local is None:
            return None
        return 0 if self.remote < 0 or self.local < 0 else min(MAX_SCALE, self.remote)


class Verdict(Enum):
    PASS = "pass"
    DROP = "drop"


class NoSuchConnection(LookupError):
    """A segment neither belongs to a connection nor begins one."""


class NoRoom(NoSuchConnection):
    """There is no room for another connection."""


def every(value: int) -> list[int]:
    return [value] * MAX_CHANNELS


@dataclass
class Connection:
    """The state of a connection at one host (figure 3): of the flow that it sends, and of the reverse flow."""

    channels: int = DEFAULT_CHANNELS
    # as a sender
    nlsn: list[int] = field(default_factory=lambda: every(0))
    nsn: int = 0
    msn: int = 0
    ws: int = INITIAL_WINDOW
    fv: list[int] = field(default_factory=lambda: every(FRESH))
    skv: list[int] = field(default_factory=lambda: every(0))
    wv: list[int] = field(default_factory=lambda: every(0))
    cb: int = 0
    ab: int = -1
    cc: int = -1
    alpha: int = ONE
    slow_start: bool = True
    resent: bool = False
    mss: int = MIN_MSS
    scale: int | None = None
    # as a receiver
    expected: list[int | None] = field(default_factory=lambda: [None] * MAX_CHANNELS)  # None: IB is not set
    lan: int | None = None
    rsn: int = 0
    rb: int = 0
    rcb: int = 0
    rp: int = 0
    loss: bool = False
    gap_since: int | None = None  # us: when what is behind the next expected packet began to come
    # both
    closed_out: bool = False
    closed_in: bool = False

    def __post_init__(self) -> None:
        if self.ab < 0:
            self.ab = self.every_channel
        if self.cc < 0:
            self.cc = self.channels - 1

    @property
    def every_channel(self) -> int:
        return (1 << self.channels) - 1

    def active(self, channel: int) -> bool:
        return bool(self.ab >> channel & 1)

    def on_receive_data(self, its: Segment, mco: Mco) -> None:
        size = its.payload + its.fin
        local = plus(mco.lsn, its.seq - mco.gsn)  # of this segment of the super-packet
        next_of_channel = self.expected[mco.channel]
        if next_of_channel is not None and before(next_of_channel, local):
            self.loss, self.rsn = True, its.seq
        self.expected[mco.channel] = plus(local, size)
        if self.lan is not None and before(its.seq, self.lan):
            self.lan = its.seq  # an acknowledgement was lost
        self.rb |= 1 << mco.channel
        if its.ce:
            self.rcb |= 1 << mco.channel
        else:
            self.rp = min(MAX_RECEIVED, self.rp + its.segments)

    def watch_gap(self, its: Segment, now_us: int, patience_us: int) -> None:
        """Take what is missing for long for lost: a channel that has died shows no gap."""
        if its.ack is None:
            return
        advances = self.lan is None or before(self.lan, its.ack)
        if not advances and its.ack != self.lan:
            return
        gap = its.reports_loss_or_reordering
        if gap and not self.loss and self.gap_since is not None and plus(now_us, -self.gap_since) >= patience_us:
            self.loss, self.rsn = True, its.sack[0][1]
        if advances or self.gap_since is None:
            self.gap_since = now_us if gap else None

    def on_send_ack(self, its: Segment, filtering: bool = True) -> Verdict:
        if its.ack is None:
            return Verdict.PASS
        if its.ack == self.lan:
            if filtering and not self.loss and its.pure_ack and its.reports_loss_or_reordering:
                return Verdict.DROP
        elif self.lan is None or before(self.lan, its.ack):
            self.lan = its.ack
            if before(self.rsn, self.lan):
                self.loss = False
        return Verdict.PASS

    def choose_channel(self) -> int:
        if not self.ab:
            self.ab, self.fv = self.every_channel, every(FRESH)
        for step in range(1, self.channels + 2):
            channel = (self.cc + step) % self.channels
            if not self.active(channel):
                continue
            if not self.skv[channel]:
                self.skv[channel] = (1 << self.wv[channel]) - 1
                break
            self.skv[channel] -= 1
        else:
            following = ((self.cc + step) % self.channels for step in range(1, self.channels + 1))
            channel = next(each for each in following if self.active(each))
        self.cc = channel
        return channel

    def on_send_data(self, its: Segment) -> Mco:
        size = its.payload + its.fin
        if size and before(its.seq, self.nsn):
            self.on_resend(its)
        channel = self.choose_channel()
        local = self.nlsn[channel]
        self.nlsn[channel] = plus(local, size)
        if before(self.nsn, plus(its.seq, size)):
            self.nsn = plus(its.seq, size)
        if size and self.fv[channel] == FRESH:
            self.fv[channel] = FRESH - 1
        self.mss = max(self.mss, its.gso_size or its.payload)
        filled = Mco(self.rcb, self.rb, self.rp, channel, its.seq, local)
        self.rcb = self.rb = self.rp = 0
        return filled

    def on_resend(self, its: Segment) -> None:
        """End a round in which nothing has come back, and begin one that ends with this segment's acknowledgement."""
        if self.resent and before(self.msn, its.seq):
            return
        self.update_freshness()
        self.resent = True
        if before(its.seq, self.msn):
            self.msn = its.seq

    def on_receive(self, its: Segment, mco: Mco) -> None:
        self.cb |= mco.rcb & self.every_channel
        for channel in range(self.channels):
            if mco.rb >> channel & 1:
                self.fv[channel] = FRESH
                self.ab |= 1 << channel
        if its.seq == mco.gsn:  # footnote 3: once a super-packet
            self.enlarge_window(mco.rp)
        if its.ack is not None and before(self.msn, its.ack):
            self.on_new_rtt()

    def enlarge_window(self, received: int) -> None:
        per_packet = (self.mss, 2) if self.slow_start else (self.mss * self.mss, self.ws)
        self.ws = min(MAX_WINDOW, self.ws + per_packet[0] * received // per_packet[1])

    def on_new_rtt(self) -> None:
        self.update_weights()
        self.update_window()
        self.update_freshness()
        self.cb = 0
        self.resent = False
        self.msn = plus(self.nsn, 1)

    def update_weights(self) -> None:
        for channel in range(self.channels):
            if self.cb >> channel & 1 and self.wv[channel] < MAX_WEIGHT:
                self.wv[channel] += 1
                break
        if all(self.wv[channel] for channel in range(self.channels) if self.active(channel)):
            self.wv = [max(0, weight - 1) for weight in self.wv]

    def update_window(self) -> None:
        if self.cb:
            self.alpha += (ONE - self.alpha) // GAIN
            self.slow_start = False
            self.ws = max(MIN_WINDOW * self.mss, self.ws - self.ws * self.alpha // (2 * ONE))
        else:
            self.alpha -= self.alpha // GAIN

    def update_freshness(self) -> None:
        for channel in range(self.channels):
            if 0 < self.fv[channel] < FRESH:
                self.fv[channel] -= 1
            elif not self.fv[channel]:
                self.ab &= ~(1 << channel)

    def clamped(self, window: int) -> int:
        """Return the window that the sender's TCP is to see in a header."""
        if self.slow_start or self.scale is None:
            return window
        return min(window, max(1, self.ws >> self.scale))


class Host:
    """All connections of one host."""

    def __init__(
        self, channels: int = DEFAULT_CHANNELS, capacity: int = 1 << 16, *, filtering: bool = True, regulating: bool = True,
        patience_us: int = PATIENCE_US, clock_us: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        self.channels, self.capacity = channels, capacity
        self.patience_us, self.clock_us = patience_us, clock_us
        self.filtering, self.regulating = filtering, regulating
        self.connections: dict[Key, Connection] = {}
        self.scales: dict[Key, Scale] = {}

    def send(self, key: Key, its: Segment) -> Verdict:
        if its.syn:
            self.scales[key] = self.scales.get(key, Scale())._replace(local=its.scale)
            return Verdict.PASS
        if its.rst:
            self.connections.pop(key, None)
            return Verdict.PASS
        if its.room is Room.NONE or (its.room is Room.IN_SACK and key not in self.connections):
            return Verdict.PASS
        connection = self._connection(key, its, its.seq)
        connection.watch_gap(its, self.clock_us(), self.patience_us)
        if connection.on_send_ack(its, self.filtering) is Verdict.DROP:
            return Verdict.DROP
        hidden = self.filtering and its.reports_loss_or_reordering and not connection.loss
        # of two blocks none would be left
        if its.room is Room.PLACEHOLDER or hidden or len(its.sack) > 2:
            if its.room is Room.IN_SACK:
                its.sack = its.sack[:-2]
            if hidden:
                its.sack = ()
            its.mco = connection.on_send_data(its)
            its.ect |= bool(its.payload or its.fin)
        connection.closed_out |= its.fin
        self._forget_closed(key, its)
        return Verdict.PASS

    def receive(self, key: Key, its: Segment) -> None:
        if its.syn:
            self.scales[key] = self.scales.get(key, Scale())._replace(remote=its.scale)
            return
        if its.rst:
            self.connections.pop(key, None)
            return
        if its.mco is None:
            return
        connection = self._connection(key, its, its.ack or 0)  # what is acknowledged is what this host sends next
        if its.payload or its.fin:
            connection.on_receive_data(its, its.mco)
        connection.on_receive(its, its.mco)
        if its.ack is not None and self.regulating:
            its.window = connection.clamped(its.window)
        connection.closed_in |= its.fin
        self._forget_closed(key, its)

    def _connection(self, key: Key, its: Segment, next_seq: int) -> Connection:
        if key not in self.connections:
            if its.fin:
                raise NoSuchConnection(key)
            if len(self.connections) >= self.capacity:
                raise NoRoom(key)
            scale = self.scales.get(key, Scale()).of_remote_window
            start = {"nlsn": every(next_seq), "nsn": next_seq, "msn": next_seq}
            self.connections[key] = Connection(self.channels, scale=scale, **start)
        return self.connections[key]

    def _forget_closed(self, key: Key, its: Segment) -> None:
        connection = self.connections[key]
        if connection.closed_in and connection.closed_out and its.ack is not None and not its.fin:
            del self.connections[key]
