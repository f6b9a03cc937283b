"""One stream of probes: their numbers, who has come back, and where the others were lost. Pure.

Probes of a stream take one path, on which none overtakes another. So an answer decides about all probes before it: what the
other host has not counted was lost on the way out, the rest on the way back. A probe that no answer follows is lost when its
deadline is over. A later answer may tell whether it was lost on the way out or back. A self-probe returns to the host that sent it,
so that nothing tells that.

Times are nanoseconds of the host's monotonic clock.
"""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.agent.probing.delays import MS, Delays, Extreme
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.channel.messages import Counts, Stream, moment

NUMBERS = 1 << 32
UNKNOWN_NS, FORGOTTEN_NS = 1_000 * MS, 10_000 * MS
"""A lost probe's way counts as unknown after so long, if the next one is lost, too, or in any case."""
SELF_NS = 250 * MS
"""A lost self-probe counts after so long, the longest deadline: no answer will tell its way."""


class Record(NamedTuple):
    """An answer as the program at tc ingress has written it.

    Attributes:
        answer_number: The answer's, by the count of the host that has sent it.
        number: The probe's.
        received_ns, sent_ns: By that host's clock.
        answers: How many probes of all hosts that host has answered in its last second (2^30 ns); 0 if it does not say.
    """

    arrived_ns: int
    source: IPv4Address
    answer_number: int
    number: int
    received_ns: int
    sent_ns: int
    ssid: int
    up1: int
    up2: int
    answers: int = 0


class RecordRefusal(StrEnum):
    """Why an answer is none to a probe of this host; the value is a metric's label."""

    UNKNOWN = "unknown_stream"
    FOREIGN = "other_host_or_path"
    NUMBER = "number_not_open"
    TIMES = "impossible_times"


class _Lost(NamedTuple):
    """A probe that is lost on a way that is not known yet."""

    sent_ns: int
    crowded: bool


class Tally:
    """What was decided about a stream's probes since the last report. Losses while crowded are left out."""

    __slots__ = ("came_back", "delays_us", "losses_ns", "lost", "lost_back", "lost_out", "smallest_us")

    def __init__(self) -> None:
        self.came_back = self.lost_out = self.lost_back = self.lost = self.delays_us = self.smallest_us = 0
        self.losses_ns: list[int] = []  # when lost ones were sent

    def note_back(self, delay_ns: int) -> None:
        """Count a probe that came back."""
        delay = max(1, delay_ns // 1000)
        self.smallest_us = min(self.smallest_us, delay) if self.came_back else delay
        self.came_back += 1
        self.delays_us += delay

    def note_lost(self, lost_out: bool | None, sent_ns: int) -> None:
        """Count a lost one."""
        self.losses_ns.append(sent_ns)
        if lost_out is None:
            self.lost += 1
        elif lost_out:
            self.lost_out += 1
        else:
            self.lost_back += 1

    @property
    def probes(self) -> int:
        """How many were decided about."""
        return self.came_back + self.lost_out + self.lost_back + self.lost

    def counts(self, stream: Stream, now_ns: int) -> Counts:
        """Return what a report says of it."""
        mean = self.delays_us // self.came_back if self.came_back else 0
        moments = 0
        for sent in self.losses_ns:
            moments |= moment((now_ns - sent) // MS)
        return Counts(stream, self.probes, self.lost_out, self.lost_back, self.lost, self.smallest_us, mean, moments)


class StreamState:
    """One stream.

    Attributes:
        tally: Since the last report.
        used_ns: When a probe was sent last.
        told: When it was reported last.
        restarts: How often the other host's count has begun anew.
        decisions: The decision about each probe of a trace, by its number; judges do not receive these.
        to_itself: Whether its probes are self-probes.
    """

    __slots__ = (
        "_answered",
        "_last_answer",
        "_lost",
        "_open",
        "decisions",
        "delays",
        "next_number",
        "restarts",
        "ssid",
        "stream",
        "tally",
        "to_itself",
        "told",
        "used_ns",
    )

    def __init__(self, stream: Stream, ssid: int, of_host: Extreme | None = None, to_itself: bool = False) -> None:
        self.stream, self.ssid, self.to_itself = stream, ssid, to_itself
        self.delays, self.tally = Delays(of_host), Tally()
        self.next_number = self.used_ns = self.told = self.restarts = 0
        self.decisions: dict[int, Fate] | None = None
        self._open: dict[int, int] = {}  # when each was sent that is not decided about
        self._lost: dict[int, _Lost] = {}  # all of them were sent before those
        self._answered = -1
        self._last_answer = 0

    @property
    def idle(self) -> bool:
        """Whether nothing of it is undecided, or to be reported."""
        return not self._open and not self._lost and not self.tally.probes

    def send(self, now_ns: int) -> int:
        """Note that the next probe is sent now; return its number."""
        number, self.next_number = self.next_number, self.next_number + 1
        self._open[number] = now_ns
        self.used_ns = now_ns
        return number

    def withdraw(self, number: int) -> None:
        """Note that the last one could not be sent."""
        del self._open[number]
        self.next_number = number

    def deadline_ns(self) -> int | None:
        """Return when the first probe is decided about at the latest; None if all are."""
        sent = next(iter(self._open.values()), None)
        return None if sent is None else sent + self.delays.deadline_ns

    def answered(self, record: Record) -> RecordRefusal | list[Fate]:
        """Take an answer; return what is decided with it, or why it is refused."""
        number = record.number  # of 32 bits: at 50 a second they last for two years
        sent = self._open.get(number)
        if sent is None:
            if number not in self._lost:
                return RecordRefusal.NUMBER
            sent = self._lost[number].sent_ns
        held = record.sent_ns - record.received_ns
        delay = record.arrived_ns - sent - held
        if held < 0 or delay <= 0:
            return RecordRefusal.TIMES
        fates = self._decide_before(number, record.answer_number)
        self._open.pop(number, None)
        self._lost.pop(number, None)
        self.delays.note(delay, record.arrived_ns)
        self.tally.note_back(delay)
        self._answered, self._last_answer = number, record.answer_number
        self._decide(number, Fate(self.stream, True, None, delay, self.delays.crowded), fates)
        return fates

    def _decide_before(self, number: int, answer: int) -> list[Fate]:
        """Decide about all probes before one that was answered; return the fates of those that were not decided about."""
        missing = number - self._answered - 1
        arrived = (answer - self._last_answer) % NUMBERS
        is_next = self._answered >= 0 and 1 <= arrived <= missing + 1
        if self.to_itself:
            is_next = False
        elif self._answered >= 0 and not is_next:
            self.restarts += 1
        if not missing:
            return []
        before = [one for one in (*self._lost, *self._open) if one < number]
        ways: list[bool | None]
        if is_next:
            out = missing + 1 - arrived
            back = missing - out
            ways = [*[True] * out, *[False] * back]
            if len(before) < missing:  # some are forgotten already
                ways = [None if out and back else bool(out)] * len(before)
        else:  # what the other host had counted before is not known
            ways = [None] * len(before)
        fates: list[Fate] = []
        crowded = self.delays.crowded
        for one, way in zip(before, ways, strict=True):
            lost = self._lost.pop(one, None)
            loss = lost or _Lost(self._open.pop(one), crowded)
            if lost is None or self.decisions is not None:
                self._decide(one, Fate(self.stream, False, way, 0, loss.crowded), fates)
            self._count(loss, way)
        return fates

    def expire(self, now_ns: int) -> list[Fate]:
        """Return the fates of probes whose deadline is over."""
        fates: list[Fate] = []
        limit, crowded = self.delays.deadline_ns, self.delays.crowded
        for number, sent in list(self._open.items()):
            if now_ns - sent < limit:
                break
            del self._open[number]
            self._lost[number] = _Lost(sent, crowded)
            self._decide(number, Fate(self.stream, False, None, 0, crowded), fates)
        return fates

    @property
    def has_losses(self) -> bool:
        """Whether there are losses that are, or may be, still to be reported."""
        return bool(self._lost or self.tally.losses_ns)

    def has_lost(self, now_ns: int) -> bool:
        """Tell whether there are losses to be reported."""
        first = next(iter(self._lost.values()), None)
        ripe = first is not None and not first.crowded and self._is_ripe(first, len(self._lost) - 1, now_ns)
        return bool(self.tally.losses_ns) or ripe

    def settle(self, now_ns: int) -> None:
        """Count the lost probes of which no later answer has told the way for long."""
        followed = len(self._lost)
        for number, one in list(self._lost.items()):
            followed -= 1
            if not self._is_ripe(one, followed, now_ns):
                return
            self._count(one, None)
            del self._lost[number]

    def _is_ripe(self, one: _Lost, followed: int, now_ns: int) -> bool:
        """Tell whether nobody waits any longer for an answer that tells the way of a lost probe, if so many after it are lost."""
        age = now_ns - one.sent_ns
        return age >= FORGOTTEN_NS or (age >= UNKNOWN_NS and followed > 0) or (self.to_itself and age >= SELF_NS)

    def forget(self) -> None:
        """Leave what is undecided so: this host itself did not look."""
        self._open.clear()

    def _decide(self, number: int, fate: Fate, fates: list[Fate]) -> None:
        if self.decisions is None:
            fates.append(fate)
        else:
            self.decisions[number] = fate

    def _count(self, one: _Lost, lost_out: bool | None) -> None:
        if not one.crowded:
            self.tally.note_lost(lost_out, one.sent_ns)
