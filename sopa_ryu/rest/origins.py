"""The pages that may open the feed: by the exact origin (RFC 6454), and by the name under which the controller was asked.

A foreign page in an operator's browser has another origin; one whose name was rebound to the controller's address (DNS rebinding)
has a ``Host`` that is not the controller's. An address cannot be rebound, so that every address is accepted as ``Host``; of names
only ``localhost``, this machine's, and those of origins that the operator lists.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from sopa_ryu.runtime.clients import is_address, normal_origin


class Origins:
    """The origins whose pages may open the feed.

    Args:
        listed: Origins besides the controller's own, such as a proxy's.
    """

    def __init__(self, listed: Iterable[str] = ()) -> None:
        self._listed = frozenset(normal_origin(origin) for origin in listed)
        self._names = {"localhost", socket.gethostname().lower()}
        self._names |= {str(urlsplit(origin).hostname) for origin in self._listed}

    def objection(self, scheme: str, host: str | None, origin: str | None) -> str | None:
        """Return why a request for the feed is rejected, or None.

        Args:
            scheme: ``http`` or ``https``, as the request came.
            host, origin: The headers. Without ``Origin`` it is no browser's.
        """
        try:
            own = normal_origin(f"{scheme}://{host or ''}")
        except ValueError:
            return "the header Host is missing or malformed"
        name = str(urlsplit(own).hostname)
        if not is_address(name) and name not in self._names:
            return f"{name:.60} is not a name of this controller: add its origin by --sopa-origin {own:.80}"
        if origin is None:
            return None
        try:
            asked = normal_origin(origin)
        except ValueError:
            asked = ""
        if asked and (asked == own or asked in self._listed):
            return None
        foreign = urlsplit(asked).netloc or origin
        return f"a page from {foreign:.60} may not read this controller's feed"
