"""The URLs at which one client may reach the controller of its fabric, and which of them it asks when. Pure.

With one URL a client waits 0.5 to 5 s between attempts. With several, of relays or of a cluster's controllers, it asks the next
one at once until all have been asked, and waits only then. Each client has an order of its own, by rendezvous hashing: so clients
spread evenly, those of an end that dies spread evenly over the others, and a URL that is added or removed moves no others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from websockets.exceptions import ConnectionClosed

from sopa_ryu.channel.protocol import SURPLUS

MIN_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 5.0
OPEN_SECONDS = 10.0
"""How long a channel may take to open."""
MIN_OPEN_SECONDS, MAX_OPEN_SECONDS = 1.0, 3.0
"""How long with several URLs, unless all are slow: one that is stopped or cut off from the network does not answer at all."""
OPENED_A_SECOND = 1000
"""Channels that an end surely opens in a second, if all agents of a fabric come at once."""
MAX_SLOW = 4
SERVED_SECONDS = 5.0
"""With several URLs: a channel that was lost sooner is an attempt that failed: nobody goes round and round without a pause."""
ROUNDS_A_SECOND = 500
"""With several URLs: rounds over all of them that all agents of a fabric make together, at the most, as while nobody leads."""
PINGS_A_SECOND = 2000
"""With several URLs: pings that all agents of a fabric send together, at the most; measured in docs/cluster.md, section Agents."""
MIN_PING_SECONDS, MAX_PING_SECONDS = 0.5, 5.0
MAX_REPORTED = 5
"""Problems of each URL that are logged of one absence of the controller."""
MIN_PATIENCE_SECONDS = 1.5
"""With the shortest interval less than the lease of a leader by default: its agents look for another when that begins to lead."""


class Loss(NamedTuple):
    """A channel that has ended, or could not be opened."""

    problem: str
    """Why, for the log."""
    seconds: float | None = None
    """How long it was open; None if it was not opened."""
    error: Exception | None = None
    """What has ended it; None if the controller or the client has closed it."""

    @property
    def silent(self) -> bool:
        """Whether the controller has not answered in time."""
        return isinstance(self.error, TimeoutError)

    @property
    def sent_on(self) -> bool:
        """Whether a relay has sent the client to the URL that comes first for it."""
        closed = self.error.rcvd if isinstance(self.error, ConnectionClosed) else None
        return closed is not None and closed.code == SURPLUS


def ordered(urls: Sequence[str], client: str) -> list[str]:
    """Return URLs in the order in which a client asks them: by the hash of client and URL, whatever their order is.

    >>> ordered(["http://r1", "http://r2", "http://r3"], "10.0.0.2") == ordered(["http://r3", "http://r1", "http://r2"], "10.0.0.2")
    True
    """
    return sorted(dict.fromkeys(urls), key=lambda url: (sha256(f"{client} {url}".encode()).digest(), url))


def ping_seconds(hosts: int) -> float:
    """Return how often the agents of a fabric of so many hosts ping: twice a second, or as seldom as `PINGS_A_SECOND` demands.

    >>> ping_seconds(16), ping_seconds(3456), ping_seconds(27648)
    (0.5, 1.728, 5.0)
    """
    return min(MAX_PING_SECONDS, max(MIN_PING_SECONDS, hosts / PINGS_A_SECOND))


def patience_seconds(hosts: int) -> float:
    """Return for how long an answer to a ping is awaited."""
    return max(MIN_PATIENCE_SECONDS, ping_seconds(hosts))


def longest_pause(hosts: int) -> float:
    """Return to how many seconds the pauses of agents with several URLs grow: with few agents they find the next leader soon.

    >>> longest_pause(16), longest_pause(1024), longest_pause(27648), longest_pause(0)
    (0.5, 2.048, 5.0, 5.0)
    """
    return min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, hosts / ROUNDS_A_SECOND)) if hosts else MAX_RETRY_SECONDS


class Addresses:
    """The URLs of one client, and its way through them.

    Args:
        urls: At least one; their order is of no importance.
        client: What decides the order: an agent's address in the fabric.
        jitter: For the pauses.

    Attributes:
        urls: In the order in which they are asked.
    """

    def __init__(self, urls: Sequence[str], client: str, jitter: random.Random) -> None:
        if not urls:
            raise ValueError("a client needs the URL of a controller")
        self.urls = ordered(urls, client)
        self._jitter = jitter
        self._at = 0
        self._asked = 0
        self._sent_on = False
        self._silent: set[str] = set()
        self._reported: set[tuple[str, str]] = set()
        self._slow = 0
        self._retry_seconds = MIN_RETRY_SECONDS

    @property
    def url(self) -> str:
        """The one in use, or the one that is asked next."""
        return self.urls[self._at]

    @property
    def several(self) -> bool:
        """Whether there is another to go to."""
        return len(self.urls) > 1

    @property
    def first(self) -> str:
        """The one that comes before all others; empty if it is in use, or asked next.

        Empty, too, if the client has been sent there and has not got there: it is sent once, and not again and again.
        """
        return self.urls[0] if self._at and not self._sent_on else ""

    def open_seconds(self, hosts: int = 0) -> float:
        """Return how long the channel may take to open now, in a fabric of so many hosts.

        Half as long for one that has not answered when it was asked last; longer if none has, as when thousands come at once.
        """
        if not self.several:
            return OPEN_SECONDS
        usual = min(MAX_OPEN_SECONDS, max(MIN_OPEN_SECONDS, hosts / OPENED_A_SECOND)) if hosts else MAX_OPEN_SECONDS
        return min(OPEN_SECONDS, (usual / 2 if self.url in self._silent else usual) * 2**self._slow)

    @property
    def prospect(self) -> str:
        """What is done now, for the log."""
        return f"{self.url} is asked next" if self.several else f"The next attempt comes in {MAX_RETRY_SECONDS:g} s or sooner"

    def lost(self, loss: Loss, hosts: int = 0, *, valid: bool = True) -> tuple[float, bool]:
        """Go on to the next URL.

        Args:
            hosts: How many hosts the fabric has; 0 if that is not known.
            valid: Whether a channel that was open for long enough has been one, and not an attempt.

        Returns:
            The seconds until the next URL is asked, and whether the problem is to be logged: each once, until there has been a
            channel again. Then it may be another one that keeps the client away, such as a token that is not accepted any more.
        """
        served = valid and loss.seconds is not None and (loss.seconds >= SERVED_SECONDS or not self.several)
        self._sent_on = loss.sent_on or (self._sent_on and not (served and self._at == 0))
        if served:
            self._asked = self._slow = 0
            self._retry_seconds = MIN_RETRY_SECONDS
            self._reported.clear()
        report = self.url, loss.problem
        is_new = not loss.sent_on and report not in self._reported and len(self._reported) < MAX_REPORTED * len(self.urls)
        self._reported |= {report} if is_new else set()
        (self._silent.add if loss.silent else self._silent.discard)(self.url)
        self._at = 0 if loss.sent_on else (self._at + 1) % len(self.urls)
        self._asked += 1
        return 0.0 if self._asked < len(self.urls) else self._pause(hosts), is_new

    def _pause(self, hosts: int) -> float:
        self._asked = 0
        self._slow = min(self._slow + 1, MAX_SLOW) if len(self._silent) == len(self.urls) else 0
        longest = longest_pause(hosts) if self.several else MAX_RETRY_SECONDS
        delay = min(self._retry_seconds, longest)
        self._retry_seconds = min(2 * delay, longest)
        return delay * self._jitter.uniform(0.5, 1.0)
