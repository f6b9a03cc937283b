"""The frames of nearly every WebSocket message: whole, short, masked, neither fragmented nor extended. Pure.

A relay has thousands of agents that answer at the same moment, each with one such frame. They are read here, in a fraction of the
time that the library takes and without its state for each connection; every other frame is left to the library (`websocket`), which
knows what is allowed and how a violation is answered.
"""

from __future__ import annotations

from typing import NamedTuple

from websockets.frames import Opcode

_FIN, _MASKED, _LENGTH = 0x80, 0x80, 0x7F
_PLAIN = {_FIN | opcode: opcode for opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.PING, Opcode.PONG)}
_CONTROL = {Opcode.PING, Opcode.PONG}
_SHORT, _TWO_BYTES = 125, 126
MASK_BYTES = 4


class PlainFrame(NamedTuple):
    """A frame, and the position behind it."""

    opcode: Opcode
    payload: bytes
    end: int


class Incomplete(NamedTuple):
    """What is there may become a plain frame; the position before it."""

    begin: int


class Unusual(NamedTuple):
    """What is there is for the library; the position before it."""

    begin: int


def read(data: bytes, begin: int, max_bytes: int) -> PlainFrame | Incomplete | Unusual:
    """Return the frame that begins at a position.

    Args:
        max_bytes: The longest message; a longer one is the library's to reject.

    >>> read(bytes([0x81, 0x82, 1, 2, 3, 4, 1 ^ ord("h"), 2 ^ ord("i")]), 0, 100)
    PlainFrame(opcode=<Opcode.TEXT: 1>, payload=b'hi', end=8)
    """
    left = len(data) - begin
    if left < 1:
        return Incomplete(begin)
    opcode = _PLAIN.get(data[begin])
    if opcode is None:
        return Unusual(begin)
    if left < 2:
        return Incomplete(begin)
    second = data[begin + 1]
    length = second & _LENGTH
    if not second & _MASKED:
        return Unusual(begin)
    at = begin + 2
    if length > _SHORT:
        if length != _TWO_BYTES or opcode in _CONTROL:
            return Unusual(begin)
        if left < 4:
            return Incomplete(begin)
        length = data[at] << 8 | data[at + 1]
        at += 2
    if length > max_bytes:
        return Unusual(begin)
    end = at + MASK_BYTES + length
    if len(data) < end:
        return Incomplete(begin)
    return PlainFrame(opcode, unmasked(data[at + MASK_BYTES : end], data[at : at + MASK_BYTES]), end)


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """Return a payload without its mask (RFC 6455, section 5.3)."""
    size = len(payload)
    whole = (mask * (size // MASK_BYTES + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(whole, "little")).to_bytes(size, "little")
