"""What applications have told of the data that they are going to write, and what of it is still to come. Pure.

A hint is about one connection of the user who gives it. It counts from the next look at the sockets on: then it is known whose the
connection is. What the application writes is taken off; when nothing comes for `Hint.within_ms`, the rest is void.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NamedTuple

from sopa_ryu.agent.cfr_demand import Unsent
from sopa_ryu.agent.hint_protocol import Accepted, Hint, HintError, Refusal

MAX_HINTS = 512
"""Of a host, at a time; no more than there is room in cfr_hinted of bpf/cfr.h."""
MAX_OF_USER = 256
_SEQUENCES = 1 << 32
_ROOT = 0

Answer = Callable[[Accepted | HintError], None]


class Asked(NamedTuple):
    """A hint that waits for the next look at the sockets."""

    hint: Hint
    user: int
    answer: Answer


class _Connection(NamedTuple):
    destination: int
    port: int
    own_port: int


@dataclass(slots=True)
class _Kept:
    user: int
    owner: int
    left: int
    written: int
    within_ns: int
    until: int


class Hints:
    """The hints of one host.

    Attributes
    ----------
    limit : int or None
        The bytes that a link carries in the arbiter's window; None while that is not known.
    counted : Counter
        Hints that were ``accepted``, ``cut`` to the limit, ``used`` up, ``expired``, and of connections that are ``gone``.
    refused : Counter of Refusal
    """

    def __init__(self) -> None:
        self.limit: int | None = None
        self.counted: Counter[str] = Counter(accepted=0, cut=0, used=0, expired=0, gone=0)
        self.refused: Counter[Refusal] = Counter()
        self._asked: list[Asked] = []
        self._kept: dict[_Connection, _Kept] = {}

    @property
    def destinations(self) -> set[IPv4Address]:
        """Those whose connections `note` has to know, besides the ones with unsent data."""
        asked = {each.hint.destination for each in self._asked}
        return asked | {IPv4Address(each.destination) for each in self._kept}

    @property
    def left(self) -> int:
        """Bytes that were told of, and are not written yet."""
        return sum(its.left for its in self._kept.values())

    def ask(self, hint: Hint, user: int, answer: Answer) -> None:
        """Take a hint of a user, for the next look at the sockets; `answer` is called with the outcome then.

        Raises
        ------
        HintError
            If there are too many.
        """
        users = [its.user for its in self._kept.values()] + [each.user for each in self._asked]
        if users.count(user) >= MAX_OF_USER or len(users) >= MAX_HINTS:
            raise HintError(Refusal.FULL, f"there are {users.count(user)} hints of user {user}, {len(users)} in all")
        self._asked.append(Asked(hint, user, answer))

    def note(self, found: Sequence[Unsent], now: int) -> Mapping[IPv4Address, int]:
        """Return what is to be sent, in bytes of frames by destination: by the sockets, or by a hint if that is more.

        Parameters
        ----------
        found : sequence of Unsent
            All connections that have unsent data or are to one of `destinations`.
        now : int
            Monotonic nanoseconds.
        """
        total = Counter[int]()
        for its in found:
            if its.bytes:
                total[its.destination] += its.bytes
        if self._asked or self._kept:
            seen = {_Connection(its.destination, its.port, its.own_port): its for its in found}
            self._follow(seen, now)
            asked, self._asked = self._asked, []
            for each in asked:
                each.answer(self._decide(each, seen, now))
            for connection, kept in self._kept.items():
                total[connection.destination] += seen[connection].frames(kept.left)
        return {IPv4Address(destination): count for destination, count in total.items()}

    def _follow(self, seen: Mapping[_Connection, Unsent], now: int) -> None:
        """Take off what was written since, and drop what has ended."""
        for connection, kept in list(self._kept.items()):
            its = seen.get(connection)
            if its is None or its.user != kept.owner:
                self._drop(connection, "gone")
                continue
            written = (its.written - kept.written) % _SEQUENCES
            kept.left, kept.written = max(0, kept.left - written), its.written
            if written:
                kept.until = now + kept.within_ns
            if self.limit is not None:
                kept.left = min(kept.left, self.limit)
            if not kept.left:
                self._drop(connection, "used")
            elif now >= kept.until:
                self._drop(connection, "expired")

    def _drop(self, connection: _Connection, outcome: str) -> None:
        del self._kept[connection]
        self.counted[outcome] += 1

    def _decide(self, asked: Asked, seen: Mapping[_Connection, Unsent], now: int) -> Accepted | HintError:
        try:
            connection = _chosen(asked, seen.values())
        except HintError as error:
            self.refused[error.reason] += 1
            return error
        its, hint = seen[connection], asked.hint
        size = hint.size if self.limit is None else min(hint.size, self.limit)
        self.counted["accepted"] += 1
        self.counted["cut"] += size < hint.size
        self._kept.pop(connection, None)
        if size > its.payload:
            within_ns = hint.within_ms * 1_000_000
            left = size - its.payload
            self._kept[connection] = _Kept(asked.user, its.user, left, its.written, within_ns, now + within_ns)
        else:
            self.counted["used"] += 1
        return Accepted(connection.own_port, size)


def _chosen(asked: Asked, found: Iterable[Unsent]) -> _Connection:
    """Return the connection that a hint is about."""
    hint = asked.hint
    where = f"{hint.destination}:{hint.port}"
    there = [
        its
        for its in found
        if its.destination == int(hint.destination) and its.port == hint.port and hint.own_port in (0, its.own_port)
    ]
    own = [its for its in there if asked.user in (_ROOT, its.user)]
    if len(own) > 1:
        ports = ", ".join(str(its.own_port) for its in own[:5])
        raise HintError(
            Refusal.AMBIGUOUS,
            f"there are {len(own)} connections to {where}: name the own port ({ports}{', ...' if len(own) > 5 else ''})",
        )
    if own:
        return _Connection(own[0].destination, own[0].port, own[0].own_port)
    own_port = f" from port {hint.own_port}" if hint.own_port else ""
    if there:
        raise HintError(Refusal.USER, f"the connection to {where}{own_port} is another user's")
    raise HintError(
        Refusal.CONNECTION,
        f"this host has no connection to {where}{own_port}, or it is none to a host of the fabric: connect first",
    )
