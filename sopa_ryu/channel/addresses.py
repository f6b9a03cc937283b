"""The URLs at which one client may reach the controller of its fabric, and which of them it asks when. Pure.

With one URL a client waits 0.5 to 5 s between attempts. With several, of relays or of a cluster's controllers, it asks the next
one at once until all have been asked, and waits only then. Each client has an order of its own, by rendezvous hashing: so clients
spread evenly, those of an end that dies spread evenly over the others, and a URL that is added or removed moves no others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from hashlib import sha256

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
MIN_PATIENCE_SECONDS = 1.5
"""With the shortest interval less than the lease of a leader by default: its agents look for another when that begins to lead."""


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

    def has_served(self, seconds: float) -> bool:
        """Return True if a channel that was open for so long has been one, and not an attempt."""
        return seconds >= SERVED_SECONDS or not self.several

    def next(self, served: bool, hosts: int = 0, *, silent: bool = False, over: bool = False) -> float:
        """Go on to the next URL; return the seconds until it is asked.

        Args:
            served: Whether a channel was lost (`has_served`); if not, one could not be opened.
            hosts: How many hosts the fabric has; 0 if that is not known.
            silent: Whether the present one has not answered in time, instead of ending or rejecting the channel.
            over: Whether the client is sent to the first of all.
        """
        self._sent_on = over or (self._sent_on and not (served and self._at == 0))
        if served:
            self._asked = self._slow = 0
            self._retry_seconds = MIN_RETRY_SECONDS
        (self._silent.add if silent else self._silent.discard)(self.url)
        self._at = 0 if over else (self._at + 1) % len(self.urls)
        self._asked += 1
        if self._asked < len(self.urls):
            return 0.0
        self._asked = 0
        self._slow = min(self._slow + 1, MAX_SLOW) if len(self._silent) == len(self.urls) else 0
        longest = longest_pause(hosts) if self.several else MAX_RETRY_SECONDS
        delay = min(self._retry_seconds, longest)
        self._retry_seconds = min(2 * delay, longest)
        return delay * self._jitter.uniform(0.5, 1.0)
