"""All streams of a host: whom an answer belongs to, and what is decided. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address

from sopa_ryu.agent.probing.delays import MS, smallest
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.stream_state import FORGOTTEN_NS, Record, RecordRefusal, StreamState, Tally
from sopa_ryu.channel.messages import Stream

__all__ = ["FORGOTTEN_NS", "PAUSE_NS", "Record", "RecordRefusal", "StreamState", "Streams", "Tally"]

SSIDS = 1 << 16
PAUSE_NS = 1_000 * MS
"""A process that looks so long after a deadline was stopped, or its machine: it does not know what has become of its probes."""


class Streams:
    """All streams of a host.

    Args:
        first_ssid: New at each start of the agent.
        own: The host's address: streams to it are self-probes.

    Attributes:
        sent, came_back, lost: Probes so far.
        answers: Number of accepted answers.
        refused: Answers that were not.
    """

    def __init__(self, first_ssid: int, own: IPv4Address | None = None) -> None:
        self._smallest, self._own = smallest(), own
        self._next_ssid = first_ssid % SSIDS
        self._by_stream: dict[Stream, StreamState] = {}
        self._by_ssid: dict[int, StreamState] = {}
        self.sent = self.came_back = self.lost = self.answers = 0
        self.refused: Counter[RecordRefusal] = Counter()
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

        Raises:
            RuntimeError: If all numbers are in use.
        """
        if len(self._by_ssid) >= SSIDS // 2:
            raise RuntimeError(f"{len(self._by_ssid)} streams are too many")
        while self._next_ssid in self._by_ssid:
            self._next_ssid = (self._next_ssid + 1) % SSIDS
        to_itself = stream.destination == self._own
        state = self._by_ssid[self._next_ssid] = StreamState(stream, self._next_ssid, self._smallest, to_itself)
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

    def take(self, record: Record) -> list[Fate]:
        """Take an answer; return what is decided with it. One that nobody asked for is counted, and decides nothing."""
        state = self._by_ssid.get(record.ssid)
        if state is None:
            self.refused[RecordRefusal.UNKNOWN] += 1
            return []
        if state.stream != (record.source, record.up1, record.up2):
            self.refused[RecordRefusal.FOREIGN] += 1
            return []
        decided = state.answered(record)
        if isinstance(decided, RecordRefusal):
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

    @property
    def is_undecided(self) -> bool:
        """Whether there are probes that are not decided about."""
        return any(state.deadline_ns() is not None for state in self._undecided.values())

    def settle(self, now_ns: int) -> None:
        """Count lost probes whose way will not be told, before a report."""
        for state in self:
            state.settle(now_ns)

    def _counted(self, fates: list[Fate]) -> list[Fate]:
        back = sum(fate.came_back for fate in fates)
        self.came_back += back
        self.lost += len(fates) - back
        return fates
