"""What the controller and its estimator's process say to each other over a socket. Pure.

Each message is a header, kind and length, and a payload: JSON, or bytes where there are many. The controller sends `CONFIG` once,
`STATE` when failures or answering hosts have changed, `REPORTS` every quarter of a second. The estimator sends `LISTS` of hosts
whose streams have changed, `HEALTH` after each evaluation, and `NAMED` meanwhile if it suspects links.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

HEADER = struct.Struct("<BI")
CONFIG, STATE, REPORTS, LISTS, HEALTH, NAMED = range(1, 7)
MAX_BYTES = 64 << 20
_LIST = struct.Struct("<III")
_SIZES = struct.Struct("<II")
_STAMP = struct.Struct("<Q")


class WireError(ValueError):
    """What has come is no message."""


def message(kind: int, payload: bytes) -> bytes:
    """Return a message's bytes."""
    return HEADER.pack(kind, len(payload)) + payload


def plain(kind: int, its: Any) -> bytes:
    """Return a message with a payload in JSON."""
    return message(kind, json.dumps(its).encode())


class Messages:
    """The messages of a stream of bytes.

    >>> its, text = Messages(), plain(STATE, {"a": 1})
    >>> list(its.take(text[:7])), list(its.take(text[7:]))
    ([], [(2, b'{"a": 1}')])
    """

    def __init__(self) -> None:
        self._data = bytearray()

    def take(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that are complete with these bytes; `WireError` if they are none."""
        self._data += data
        while len(self._data) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._data)
            if size > MAX_BYTES or not CONFIG <= kind <= NAMED:
                raise WireError(f"no message has kind {kind} and {size} bytes")
            if len(self._data) < HEADER.size + size:
                return
            payload = bytes(self._data[HEADER.size : HEADER.size + size])
            del self._data[: HEADER.size + size]
            yield kind, payload


def reports(told_ms: int, waiting: bytes) -> bytes:
    """Return the message of reports until a millisecond; ``waiting`` is `ProbeLists.take_waiting`'s."""
    return message(REPORTS, _STAMP.pack(told_ms) + waiting)


def read_reports(payload: bytes, header: struct.Struct) -> tuple[int, list[tuple[int, int, bytes]]]:
    """Return the millisecond, and host's number, dropped packets and records of each report."""
    (told_ms,) = _STAMP.unpack_from(payload)
    at, found = _STAMP.size, []
    while at < len(payload):
        host, dropped, size = header.unpack_from(payload, at)
        at += header.size
        found.append((host, dropped, payload[at : at + size]))
        at += size
    return told_ms, found


def lists(its: list[tuple[int, int, str]]) -> bytes:
    """Return the message of lists: host's number, the list's number, the text of its message."""
    parts = []
    for host, number, text in its:
        data = text.encode()
        parts += [_LIST.pack(host, number, len(data)), data]
    return message(LISTS, b"".join(parts))


def read_lists(payload: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield host's number, list's number and text of each list."""
    at = 0
    while at < len(payload):
        host, number, size = _LIST.unpack_from(payload, at)
        at += _LIST.size
        yield host, number, payload[at : at + size].decode()
        at += size


class Verdict(NamedTuple):
    """What the estimator says at one moment."""

    about: dict[str, Any]
    """Suspects, forged records by host, and figures of the estimator itself."""
    loss: array[float]
    """By link, first upwards and then downwards; not a number where nothing is known."""
    delay_us: array[float]
    """By link."""


def health(about: dict[str, Any], loss: bytes, delay_us: bytes) -> bytes:
    """Return the message of a verdict; loss and delay are float32."""
    text = json.dumps(about).encode()
    return message(HEALTH, _SIZES.pack(len(text), len(loss)) + text + loss + delay_us)


def read_health(payload: bytes) -> Verdict:
    """Return a verdict."""
    size, lossy = _SIZES.unpack_from(payload)
    at = _SIZES.size
    loss, delay = array("f"), array("f")
    loss.frombytes(payload[at + size : at + size + lossy])
    delay.frombytes(payload[at + size + lossy :])
    return Verdict(json.loads(payload[at : at + size]), loss, delay)
