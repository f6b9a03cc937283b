"""The live page's feed: the whole state at each change, and every two seconds for the traffic, while any page is open."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from sopa_ryu.runtime.library import hub
from sopa_ryu.web.picture import Picture

ROUND_SECONDS = 2.0
SPACING_SECONDS = 0.05
SPACING_TIMES = 10
"""Pause after a round in multiples of its duration: the feed uses at most a tenth of the controller's time."""
MAX_CLIENTS = 256


class Live:
    """The author of the feed. The front sends each page the latest message when it has read the one before."""

    def __init__(self, picture: Picture, show: Callable[[str], None]) -> None:
        self._picture = picture
        self._show = show
        self._is_watched = False
        self._wanted = hub.Event()

    def watched(self, is_watched: bool) -> None:
        """Note that a page is open, or none any more."""
        self._is_watched = is_watched
        if is_watched:
            self._wanted.set()

    def changed(self) -> None:
        """Schedule a round soon, because the state may have changed."""
        self._wanted.set()

    def rounds(self) -> None:
        """Run until killed: make a message at each change, and every two seconds."""
        while True:
            # without a page, the first one ends the wait
            self._wanted.wait(ROUND_SECONDS if self._is_watched else None)
            self._wanted.clear()
            if not self._is_watched:
                continue
            began = time.monotonic()
            self._show(json.dumps(self._picture.message(), separators=(",", ":")))
            hub.sleep(max(SPACING_SECONDS, SPACING_TIMES * (time.monotonic() - began)))
