"""The golden packets of the ``option`` carrier, for the tests to compare and for the benchmark to time."""

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
"""What the golden packets' host, 10.0.0.2 at k=4, labels by: one path to each destination, and none to pod 3."""


class Golden(NamedTuple):
    """One packet: what a program makes of it, in a sentence and in bytes.

    Attributes
    ----------
    sentence : str
    program : str
        ``write``, ``strip`` or ``parse``.
    counted : str
        The counter that it adds to; empty if it adds to none.
    frame, result : bytes
        The frame that goes in, and the one that comes out.
    """

    sentence: str
    program: str
    counted: str
    frame: bytes
    result: bytes


def golden_packets() -> Iterator[Golden]:
    """All of them, in the file's order."""
    for block in FILE.read_text().split("\n\n")[1:]:
        sentence, what, entering, leaving = block.strip().splitlines()
        program, counted = what.split()
        frame = _bytes(entering.removeprefix("in "))
        result = frame if leaving == "out same" else _bytes(leaving.removeprefix("out "))
        yield Golden(sentence, program, counted.replace("-", ""), frame, result)


def _bytes(text: str) -> bytes:
    """Bytes in hexadecimal; ``78x100`` is 100 times the same."""
    return b"".join(
        bytes.fromhex(part) if "x" not in part else bytes.fromhex(part[:2]) * int(part[3:]) for part in text.split()
    )
