"""The end of a JSON object in a stream of bytes, found in one pass. Pure."""

from __future__ import annotations

import re

MAX_DEPTH = 64
MAX_TOKENS = 1_000_000
"""Brackets, braces and quotes: each string, list and object takes much more memory than its text."""

_TOKEN = re.compile(rb'[{}\[\]"]')
_IN_STRING = re.compile(rb'\\.|"', re.DOTALL)
_SPACE = b" \t\r\n"


class JsonObjects:
    """The objects of a stream, cut apart; what is in them is not checked.

    Args:
        max_bytes: The maximum of all objects and of the space between them.

    >>> stream = JsonObjects(100)
    >>> stream.feed(b'{"a": "}"} {"b'), stream.feed(b'": 1}')
    ([b'{"a": "}"}'], [b'{"b": 1}'])
    """

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._tokens = MAX_TOKENS
        self._pending = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the objects that are complete with these bytes.

        Raises:
            ValueError: If there are too many bytes, or they are no JSON objects.
        """
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the answer is too long")
        self._pending += data
        found = []
        while (end := self._end()) is not None:
            found.append(bytes(self._pending[:end]))
            del self._pending[:end]
            self._scanned = 0
        return found

    def _end(self) -> int | None:
        """Return the end of the first object, or None; bytes that were scanned are not scanned again."""
        if not self._depth:
            self._pending = self._pending.lstrip(_SPACE)
            if self._pending and self._pending[0] != ord("{"):
                raise ValueError(f"it is no JSON object: {bytes(self._pending[:20])!r}")
        while True:
            token = (_IN_STRING if self._in_string else _TOKEN).search(self._pending, self._scanned)
            if token is None:
                # a backslash at the end belongs to what comes next, unless it is the second of two
                unread = self._scanned < len(self._pending)
                self._scanned = len(self._pending) - (self._in_string and unread and self._pending.endswith(b"\\"))
                return None
            self._scanned = token.end()
            self._tokens -= 1
            if self._tokens < 0:
                raise ValueError("the answer has too many parts")
            match token[0]:
                case b'"':
                    self._in_string = not self._in_string
                case b"{" | b"[":
                    self._depth += 1
                    if self._depth > MAX_DEPTH:
                        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
                case b"}" | b"]":
                    self._depth -= 1
                    if not self._depth:
                        return self._scanned
