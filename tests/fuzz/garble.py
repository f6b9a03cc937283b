"""Mutations of messages. Pure: one generator of random numbers decides everything."""

import random

NUMBERS = (0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
MAX_GROWTH = 4096
TEXTS = (
    "", "0", "-1", "null", "NaN", "1e999", "9" * 400, "\x00", "\ud7ff", "%00", "%", "..", "../../etc/passwd", "{", "[" * 2000, '"',
    "10.0.0.2", "h0_0_2", "e0_0", "a0_0-c0_0", "é", "\U0001f600",
)  # fmt: skip


def garbled(draw: random.Random, data: bytes) -> bytes:
    """Return a message, which may be empty, with one to four mutations."""
    for _ in range(draw.randint(1, 4)):
        data = draw.choice((_flipped, _numbered, _cut, _grown, _repeated, _random))(draw, data)
    return data


def text(draw: random.Random) -> str:
    """Return a text that is seldom what a parameter expects."""
    if draw.random() < 0.7:
        return draw.choice(TEXTS)
    ranges = ((32, 127), (1, 0xD800))
    return "".join(chr(draw.randrange(*draw.choice(ranges))) for _ in range(draw.randrange(40)))


def _flipped(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, 8) if data else 0):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _numbered(draw: random.Random, data: bytes) -> bytes:
    size = draw.choice((1, 2, 4))
    if len(data) < size:
        return data
    at = draw.randrange(len(data) - size + 1)
    number = draw.choice(NUMBERS) & (1 << 8 * size) - 1
    return data[:at] + number.to_bytes(size, "big") + data[at + size :]


def _cut(draw: random.Random, data: bytes) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _grown(draw: random.Random, data: bytes) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.choice((1, 3, 8, 64, draw.randrange(MAX_GROWTH)))) + data[at:]


def _repeated(draw: random.Random, data: bytes) -> bytes:
    begin, end = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
    return data[:end] + data[begin:end] * draw.randint(1, 3) + data[end:]


def _random(draw: random.Random, data: bytes) -> bytes:
    return draw.randbytes(len(data)) if draw.random() < 0.2 else data
