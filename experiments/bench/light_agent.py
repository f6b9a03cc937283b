"""What a light agent of a bench reads and writes: WebSocket frames whose messages are not parsed as JSON. Pure."""

from __future__ import annotations

import json
import re

_LISTED = re.compile(rb'"mcs": \[|^\{"type": "mcs"')
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


def listed(message: bytes) -> tuple[bool, int] | None:
    """Return by how many a message changes the hosts that run MCS, as an agent knows them, behind whether it is the whole number.

    None if it says nothing of them, or only that others are still to come.

    >>> listed(b'{"type": "mcs", "number": 2, "added": ["10.0.0.2"], "removed": [], "known": 1, "complete": true}')
    (False, 1)
    >>> listed(b'{"type": "ping"}')
    """
    if _LISTED.search(message) is None:
        return None
    its = json.loads(message)
    if its["type"] == "mcs":
        return False, len(its["added"]) - len(its["removed"])
    return (True, len(its["mcs"])) if its["mcs_complete"] or its["mcs"] else None
