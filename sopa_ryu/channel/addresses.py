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
FIRST_OPEN_SECONDS = 3.0
"""How long, in the first round over several URLs: one that is stopped or cut off from the network does not answer at all."""
SERVED_SECONDS = 5.0
"""With several URLs: a channel that was lost sooner is an attempt that failed: nobody goes round and round without a pause."""
PINGS_A_SECOND = 2000
"""With several URLs: pings that all agents of a fabric send together, at the most; measured in docs/cluster.md, section Agents."""
MIN_PING_SECONDS, MAX_PING_SECONDS = 1.0, 5.0
MIN_PATIENCE_SECONDS = 2.0


def ordered(urls: Sequence[str], client: str) -> list[str]:
    """Return URLs in the order in which a client asks them: by the hash of client and URL, whatever their order is.

    Examples
    --------
    >>> ordered(["http://r1", "http://r2", "http://r3"], "10.0.0.2") == ordered(["http://r3", "http://r1", "http://r2"], "10.0.0.2")
    True
    """
    return sorted(dict.fromkeys(urls), key=lambda url: (sha256(f"{client} {url}".encode()).digest(), url))


def ping_seconds(hosts: int) -> float:
    """Return how often the agents of a fabric of so many hosts ping: once a second, or as seldom as `PINGS_A_SECOND` demands.

    Examples
    --------
    >>> ping_seconds(16), ping_seconds(3456), ping_seconds(27648)
    (1.0, 1.728, 5.0)
    """
    return min(MAX_PING_SECONDS, max(MIN_PING_SECONDS, hosts / PINGS_A_SECOND))


def patience_seconds(hosts: int) -> float:
    """Return for how long an answer to a ping is awaited."""
    return max(MIN_PATIENCE_SECONDS, ping_seconds(hosts))


class Addresses:
    """The URLs of one client, and its way through them.

    Parameters
    ----------
    urls : sequence of str
        At least one; their order is of no importance.
    client : str
        What decides the order: an agent's address in the fabric.
    jitter : random.Random
        For the pauses.

    Attributes
    ----------
    urls : list of str
        In the order in which they are asked.
    """

    def __init__(self, urls: Sequence[str], client: str, jitter: random.Random) -> None:
        if not urls:
            raise ValueError("a client needs the URL of a controller")
        self.urls = ordered(urls, client)
        self._jitter = jitter
        self._at = 0
        self._asked = 0
        self._rounds = 0
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
    def open_seconds(self) -> float:
        """How long the channel may take to open now; longer if all are slow, as when thousands of clients come at once."""
        return min(OPEN_SECONDS, FIRST_OPEN_SECONDS * 2**self._rounds) if self.several else OPEN_SECONDS

    def has_served(self, seconds: float) -> bool:
        """Return True if a channel that was open for so long has been one, and not an attempt."""
        return seconds >= SERVED_SECONDS or not self.several

    def next(self, served: bool) -> float:
        """Go on to the next URL; return the seconds until it is asked.

        Parameters
        ----------
        served : bool
            Whether a channel was lost (`has_served`); if not, one could not be opened.
        """
        if served:
            self._asked = self._rounds = 0
            self._retry_seconds = MIN_RETRY_SECONDS
        self._at = (self._at + 1) % len(self.urls)
        self._asked += 1
        if self._asked < len(self.urls):
            return 0.0
        self._asked = 0
        self._rounds = min(self._rounds + 1, 2)
        delay = self._retry_seconds
        self._retry_seconds = min(2 * delay, MAX_RETRY_SECONDS)
        return delay * self._jitter.uniform(0.5, 1.0)
