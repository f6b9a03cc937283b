"""The probes of each stream: their numbers, who has come back, and where the others were lost. Pure.

Probes of a stream take one path, on which none overtakes another. So an answer decides about all probes before it: what the
other host has not counted was lost on the way out, the rest on the way back. A probe that no answer follows is lost when its
deadline is over; on which way is told by a later answer, or never.

Times are nanoseconds of the host's monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.agent.probing.delays import MS, Delays
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.channel.probes import Counts, Stream

NUMBERS = 1 << 32
SSIDS = 1 << 16
UNKNOWN_NS, FORGOTTEN_NS = 2_000 * MS, 10_000 * MS
"""A lost probe's way counts as unknown after so long, if more probes than `FOLLOWED` after it are lost, too, or in any case."""
FOLLOWED = 3
PAUSE_NS = 1_000 * MS
"""A process that looks so long after a deadline was stopped, or its machine: it does not know what has become of its probes."""


class Record(NamedTuple):
    """An answer as the program at tc ingress has written it.

    Attributes
    ----------
    arrived_ns : int
    source : IPv4Address
    answer_number : int
        The answer's, by the count of the host that has sent it.
    number : int
        The probe's.
    received_ns, sent_ns : int
        By that host's clock.
    ssid, up1, up2 : int
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


class Refusal(StrEnum):
    """Why an answer is none to a probe of this host; the value is a metric's label."""

    UNKNOWN = "unknown_stream"
    FOREIGN = "other_host_or_path"
    NUMBER = "number_not_open"
    TIMES = "impossible_times"


class _Open:
    """A probe without an answer."""

    __slots__ = ("crowded", "lost", "sent_ns")

    def __init__(self, sent_ns: int) -> None:
        self.sent_ns = sent_ns
        self.lost = self.crowded = False


class Tally:
    """What was decided about a stream's probes since the last report. Losses while crowded are left out."""

    __slots__ = ("came_back", "delays_us", "lost", "lost_back", "lost_out", "smallest_us")

    def __init__(self) -> None:
        self.came_back = self.lost_out = self.lost_back = self.lost = self.delays_us = self.smallest_us = 0

    def note_back(self, delay_ns: int) -> None:
        """Count a probe that came back."""
        delay = max(1, delay_ns // 1000)
        self.smallest_us = min(self.smallest_us, delay) if self.came_back else delay
        self.came_back += 1
        self.delays_us += delay

    def note_lost(self, lost_out: bool | None) -> None:
        """Count a lost one."""
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

    def counts(self, stream: Stream) -> Counts:
        """Return what a report says of it."""
        mean = self.delays_us // self.came_back if self.came_back else 0
        return Counts(stream, self.probes, self.lost_out, self.lost_back, self.lost, self.smallest_us, mean)


class StreamState:
    """One stream.

    Parameters
    ----------
    stream : Stream
    ssid : int

    Attributes
    ----------
    tally : Tally
        Since the last report.
    used_ns : int
        When a probe was sent last.
    told : int
        When it was reported last.
    restarts : int
        How often the other host's count has begun anew.
    decisions : dict of int to Fate, or None
        If it is one, what was decided about each probe, by its number; nobody else is told then.
    """

    __slots__ = (
        "_answered",
        "_last_answer",
        "_open",
        "decisions",
        "delays",
        "next_number",
        "restarts",
        "ssid",
        "stream",
        "tally",
        "told",
        "used_ns",
    )

    def __init__(self, stream: Stream, ssid: int) -> None:
        self.stream, self.ssid = stream, ssid
        self.delays, self.tally = Delays(), Tally()
        self.next_number = self.used_ns = self.told = self.restarts = 0
        self.decisions: dict[int, Fate] | None = None
        self._open: dict[int, _Open] = {}
        self._answered = -1
        self._last_answer = 0

    @property
    def idle(self) -> bool:
        """Whether nothing of it is undecided, or to be reported."""
        return not self._open and not self.tally.probes

    def send(self, now_ns: int) -> int:
        """Note that the next probe is sent now; return its number."""
        number, self.next_number = self.next_number, self.next_number + 1
        self._open[number] = _Open(now_ns)
        self.used_ns = now_ns
        return number

    def withdraw(self, number: int) -> None:
        """Note that the last one could not be sent."""
        del self._open[number]
        self.next_number = number

    def deadline_ns(self) -> int | None:
        """Return when the first probe is decided about at the latest; None if all are."""
        sent = next((one.sent_ns for one in self._open.values() if not one.lost), None)
        return None if sent is None else sent + self.delays.deadline_ns

    def answered(self, its: Record) -> Refusal | list[Fate]:
        """Take an answer; return what is decided with it, or why it is refused."""
        number = its.number  # of 32 bits: at 50 a second they last for two years
        probe = self._open.get(number)
        held = its.sent_ns - its.received_ns
        if probe is None:
            return Refusal.NUMBER
        delay = its.arrived_ns - probe.sent_ns - held
        if held < 0 or delay <= 0:
            return Refusal.TIMES
        fates = self._decide_before(number, its.answer_number)
        del self._open[number]
        self.delays.note(delay, its.arrived_ns)
        self.tally.note_back(delay)
        self._answered, self._last_answer = number, its.answer_number
        self._decide(number, Fate(self.stream, True, None, delay, self.delays.crowded), fates)
        return fates

    def _decide_before(self, number: int, answer: int) -> list[Fate]:
        """Decide about all probes before one that was answered; return the fates of those that were not decided about."""
        missing = number - self._answered - 1
        before = [(open_number, one) for open_number, one in self._open.items() if open_number < number]
        if not missing or not before:
            if self._answered >= 0 and (answer - self._last_answer) % NUMBERS > number - self._answered:
                self.restarts += 1
            return []
        arrived = (answer - self._last_answer) % NUMBERS
        ways: list[bool | None]
        if self._answered < 0:
            ways = [None] * len(before)  # what the other host had counted before is not known
        elif not 1 <= arrived <= missing + 1:
            self.restarts += 1
            ways = [None] * len(before)
        else:
            back = arrived - 1
            out = missing - back
            ways = [*[True] * out, *[False] * back]
            if len(before) < missing:  # some are forgotten already
                ways = [None if out and back else bool(out)] * len(before)
        fates: list[Fate] = []
        for (open_number, one), way in zip(before, ways, strict=True):
            if not one.lost:
                one.crowded = self.delays.crowded
            if not one.lost or self.decisions is not None:
                self._decide(open_number, Fate(self.stream, False, way, 0, one.crowded), fates)
            self._count(one, way)
            del self._open[open_number]
        return fates

    def expire(self, now_ns: int) -> list[Fate]:
        """Return the fates of probes whose deadline is over."""
        fates: list[Fate] = []
        limit = self.delays.deadline_ns
        for number, one in self._open.items():
            if not one.lost and now_ns - one.sent_ns >= limit:
                one.lost, one.crowded = True, self.delays.crowded
                self._decide(number, Fate(self.stream, False, None, 0, one.crowded), fates)
        return fates

    def settle(self, now_ns: int) -> None:
        """Count the lost probes of which no later answer has told the way for long."""
        followed = sum(one.lost for one in self._open.values())
        for number in list(self._open):
            one, followed = self._open[number], followed - 1
            age = now_ns - one.sent_ns
            if not one.lost or not (age >= FORGOTTEN_NS or (age >= UNKNOWN_NS and followed >= FOLLOWED)):
                return
            self._count(one, None)
            del self._open[number]

    def forget(self) -> None:
        """Leave what is undecided so: this host itself did not look."""
        self._open = {number: one for number, one in self._open.items() if one.lost}

    def _decide(self, number: int, fate: Fate, fates: list[Fate]) -> None:
        if self.decisions is None:
            fates.append(fate)
        else:
            self.decisions[number] = fate

    def _count(self, one: _Open, lost_out: bool | None) -> None:
        if not one.crowded:
            self.tally.note_lost(lost_out)


class Streams:
    """All streams of a host.

    Parameters
    ----------
    first_ssid : int
        New at each start of the agent.

    Attributes
    ----------
    sent, came_back, lost : int
        Probes so far.
    answers : int
        Answers taken in.
    refused : Counter of Refusal
        Answers that were not.
    """

    def __init__(self, first_ssid: int) -> None:
        self._next_ssid = first_ssid % SSIDS
        self._by_stream: dict[Stream, StreamState] = {}
        self._by_ssid: dict[int, StreamState] = {}
        self.sent = self.came_back = self.lost = self.answers = 0
        self.refused: Counter[Refusal] = Counter()
        self._undecided: dict[int, StreamState] = {}

    def __iter__(self) -> Iterator[StreamState]:
        """Return all of them."""
        return iter(self._by_ssid.values())

    def __len__(self) -> int:
        return len(self._by_ssid)

    def of(self, stream: Stream) -> StreamState:
        """Return the state of a stream, which may be new."""
        state = self._by_stream.get(stream)
        if state is None:
            state = self._by_stream[stream] = self.apart(stream)
        return state

    def apart(self, stream: Stream) -> StreamState:
        """Return a new state with a number of its own, of which `of` knows nothing.

        Raises
        ------
        RuntimeError
            If all numbers are in use.
        """
        if len(self._by_ssid) >= SSIDS // 2:
            raise RuntimeError(f"{len(self._by_ssid)} streams are too many")
        while self._next_ssid in self._by_ssid:
            self._next_ssid = (self._next_ssid + 1) % SSIDS
        state = self._by_ssid[self._next_ssid] = StreamState(stream, self._next_ssid)
        self._next_ssid = (self._next_ssid + 1) % SSIDS
        return state

    def reported(self) -> Iterable[StreamState]:
        """Return those that are reported: all but those apart."""
        return self._by_stream.values()

    def remove(self, state: StreamState) -> None:
        """Forget a stream; answers to it are refused from now on."""
        del self._by_ssid[state.ssid]
        self._undecided.pop(state.ssid, None)
        if self._by_stream.get(state.stream) is state:
            del self._by_stream[state.stream]

    def remove_unused(self, before_ns: int) -> list[StreamState]:
        """Forget the streams of which no probe was sent since then, and nothing is left to say; return them."""
        unused = [one for one in self.reported() if one.used_ns < before_ns and one.idle]
        for state in unused:
            self.remove(state)
        return unused

    def send(self, state: StreamState, now_ns: int) -> int:
        """Note that the next probe of a stream is sent now; return its number."""
        self._undecided[state.ssid] = state
        self.sent += 1
        return state.send(now_ns)

    def withdraw(self, state: StreamState, number: int) -> None:
        """Note that it could not be sent."""
        self.sent -= 1
        state.withdraw(number)

    def take(self, its: Record) -> list[Fate]:
        """Take an answer; return what is decided with it. One that nobody asked for is counted, and decides nothing."""
        state = self._by_ssid.get(its.ssid)
        if state is None:
            self.refused[Refusal.UNKNOWN] += 1
            return []
        if state.stream != (its.source, its.up1, its.up2):
            self.refused[Refusal.FOREIGN] += 1
            return []
        decided = state.answered(its)
        if isinstance(decided, Refusal):
            self.refused[decided] += 1
            return []
        self.answers += 1
        return self._counted(decided)

    def expire(self, now_ns: int) -> list[Fate]:
        """Return the fates of probes whose deadline is over; to be called after `take` of all answers that have come in."""
        fates: list[Fate] = []
        for state in list(self._undecided.values()):
            until = state.deadline_ns()
            if until is not None and until <= now_ns:
                if now_ns - until > PAUSE_NS:
                    state.forget()
                else:
                    fates += state.expire(now_ns)
                until = state.deadline_ns()
            if until is None:
                del self._undecided[state.ssid]
        return self._counted(fates)

    def settle(self, now_ns: int) -> None:
        """Count lost probes whose way will not be told, before a report."""
        for state in self:
            state.settle(now_ns)

    def next_deadline_ns(self) -> int | None:
        """Return when the next probe is decided about at the latest; None if all are."""
        return min((at for one in self._undecided.values() if (at := one.deadline_ns()) is not None), default=None)

    def _counted(self, fates: list[Fate]) -> list[Fate]:
        back = sum(fate.came_back for fate in fates)
        self.came_back += back
        self.lost += len(fates) - back
        return fates
