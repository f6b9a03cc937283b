"""Named tokens of operators, each with a role: whoever changes something is known by name, and can be taken out alone.

The file ``operators`` in the state directory has a line for each, ``NAME ROLE DIGEST``: no token, but the SHA-256 of one. It is
read again when it has changed. `sopa token --operator` makes tokens and lines.
"""

from __future__ import annotations

import hashlib
import logging
import re
import stat
from enum import IntEnum
from pathlib import Path

LOG = logging.getLogger("sopa.rest")

FILE = "operators"
MAX_BYTES = 1 << 16
NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_LINE = re.compile(rf"({NAME}) (read|operate|admin) ([0-9a-f]{{64}})")


class Role(IntEnum):
    """What a token allows, and with it all that those below allow."""

    READ = 1
    """Reads without the bounds of clients without a token."""
    OPERATE = 2
    """Drains and traces."""
    ADMIN = 3
    """The leadership of a cluster."""


def digest(token: str) -> str:
    """Return what the file has of a token. As tokens are random, it tells nothing about one, and needs no salt."""
    return hashlib.sha256(token.encode("latin-1", "replace")).hexdigest()


class Operators:
    """Who has a named token, by the file of a state directory; nobody if there is none, or others than its owner can write it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE
        self._read_at: tuple[int, int, int] | None = None
        self._known: dict[str, tuple[str, Role]] = {}

    def find(self, token: str) -> tuple[str, Role] | None:
        """Return whose a token is, and its role; None if it is nobody's."""
        self._look()
        return self._known.get(digest(token))

    def _look(self) -> None:
        try:
            found = self._file.stat()
        except OSError:
            self._read_at, self._known = None, {}
            return
        state = found.st_mtime_ns, found.st_size, found.st_mode
        if state == self._read_at:
            return
        self._read_at, self._known = state, {}
        if stat.S_IMODE(found.st_mode) & 0o022:
            LOG.error("%s can be written by others than its owner. Its tokens open nothing. Run chmod 644 on it", self._file)
            return
        try:
            with self._file.open(encoding="ascii", errors="replace") as file:
                text = file.read(MAX_BYTES)
        except OSError as error:
            LOG.error("%s cannot be read: %s. Its tokens open nothing", self._file, error.strerror)
            return
        for number, line in enumerate(text.splitlines(), 1):
            its = _LINE.fullmatch(line.strip())
            if its is not None:
                self._known[its[3]] = its[1], Role[its[2].upper()]
            elif line.strip() and not line.startswith("#"):
                LOG.error("%s: line %d is not as sopa token --operator writes it. It opens nothing", self._file, number)
