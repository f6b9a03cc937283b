"""What a light agent of a bench reads and writes: WebSocket frames whose messages are not parsed as JSON. Pure."""

from __future__ import annotations

import re

_HELD = re.compile(rb'"epoch": (\d+),.*?"version": (\d+)')


def frame_bounds(data: bytes | bytearray) -> tuple[int, int] | None:
    """Return where the payload of the first frame of a server begins and ends (RFC 6455, section 5.2); None if it is not complete.

    >>> frame_bounds(b"\\x81\\x02ok..."), frame_bounds(b"\\x81\\x7e\\x01")
    ((2, 4), None)
    """
    if len(data) < 2:
        return None
    length, at = data[1], 2
    if length >= 126:
        at = 4 if length == 126 else 10
        length = int.from_bytes(data[2:at], "big")
    return (at, at + length) if len(data) >= at + length else None


def acknowledged(message: bytes) -> tuple[bytes, int]:
    """Return the frame that acknowledges a message, and the version in it; 0 for a message that has none."""
    found = _HELD.search(message)
    epoch, version = found.groups() if found is not None else (b"0", b"0")
    text = b'{"type": "ack", "epoch": %s, "version": %s, "refused": 0}' % (epoch, version)
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text, int(version)
