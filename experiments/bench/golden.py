"""The golden packets of the ``option`` carrier, which tests compare and the benchmark times."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.agent.paths.path_table import PathTable

FILE = Path(__file__).with_name("golden.txt")
FABRIC_MTU = 1500
TABLE = PathTable(
    IPv4Network("10.0.0.0/8"), 2, (((0xFF, 0xFF),), ((1, 0xFF),), ((1, 0),)), (0, 1, 2, 2, 2, 2, -1, -1), seed=1
)
"""The path table of the host of the golden packets, 10.0.0.2 at k=4: one path per destination, none to pod 3."""


class Golden(NamedTuple):
    """One packet: the effect of a program on it, as a sentence and as bytes.

    Attributes:
        program: ``write``, ``strip`` or ``parse``.
        counted: The counter that it increments; empty for none.
        frame, result: Input and output frame.
    """

    sentence: str
    program: str
    counted: str
    frame: bytes
    result: bytes


def golden_packets() -> Iterator[Golden]:
    """Yield all golden packets in the order of the file."""
    for block in FILE.read_text().split("\n\n")[1:]:
        sentence, what, entering, leaving = block.strip().splitlines()
        program, counted = what.split()
        frame = _bytes(entering.removeprefix("in "))
        result = frame if leaving == "out same" else _bytes(leaving.removeprefix("out "))
        yield Golden(sentence, program, counted.replace("-", ""), frame, result)


def _bytes(text: str) -> bytes:
    """Parse hexadecimal bytes. ``78x100`` is a byte repeated 100 times."""
    return b"".join(
        bytes.fromhex(part) if "x" not in part else bytes.fromhex(part[:2]) * int(part[3:]) for part in text.split()
    )
