"""The cost of the ``option`` carrier: nanoseconds per golden packet to write, parse and strip, with empty programs as baseline."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from experiments.bench.golden import FABRIC_MTU, TABLE, Golden, golden_packets
from experiments.bench.measuring import allowed
from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.label.edge_parser import Parser
from sopa_ryu.agent.labeller import Labeller

ROUNDS = 15
REPEAT = 200_000
# A program that changes the length of a packet can be repeated on it only until the header is full or empty of options.
FRESH_PACKETS = 1_000
LIMITS = {"write": allowed(2.2), "strip": allowed(1.3), "parse": 30}
MAX_HEADER_WORDS = 15

Run = Callable[[int, bytes, int], int]


def measure() -> dict[str, Any]:
    """Time every golden packet.

    Returns:
        For each of ``write``, ``strip`` and ``parse``: ``*_ns``, the median of the time added to that of an empty program over
        the packets that it changes, ``*_worst_ns`` with the sentence of that packet, and ``*_left_ns`` for unchanged packets.

    Raises:
        sopa_ryu.agent.kernel.libbpf.BpfError: If BPF cannot be used here.
    """
    build()
    with (
        libbpf.Object(EMPTY) as empty,
        Labeller("lo", carrier=Carrier.OPTION, fabric_mtu=FABRIC_MTU) as labeller,
        Parser() as parser,
    ):
        labeller.swap(TABLE)
        assert labeller.strip_fd is not None
        programs = {
            "write": (labeller.program_fd, empty.program_fd("empty")),
            "strip": (labeller.strip_fd, empty.program_fd("empty")),
            "parse": (parser.program_fd, empty.program_fd("empty_xdp")),
        }
        figures: dict[str, Any] = {}
        for name, (program, nothing) in programs.items():
            changed: dict[str, float] = {}
            left: dict[str, float] = {}
            for golden in golden_packets():
                if golden.program != name:
                    continue
                frame, repeat = _prepared(golden, labeller)
                added = _added(program, nothing, frame, repeat)
                (left if golden.frame == golden.result else changed)[golden.sentence] = added
            figures |= {
                f"{name}_ns": round(median(changed.values()), 1),
                f"{name}_worst_ns": round(max(changed.values()), 1),
                f"{name}_worst": max(changed, key=lambda sentence: changed[sentence]),
                f"{name}_left_ns": round(median(left.values()), 1),
                f"limit_{name}_ns": LIMITS[name],
                f"{name}_packets": len(changed) + len(left),
            }
    return figures


def _prepared(golden: Golden, labeller: Labeller) -> tuple[bytes, int]:
    """Return the frame to time and the number of repetitions, which the changing length of the packet limits."""
    if golden.counted not in ("labelled", "stripped"):
        return golden.frame, REPEAT
    short = golden.frame if golden.program == "write" else golden.result
    at = 18 if short[12:14] == b"\x81\x00" else 14
    room = MAX_HEADER_WORDS - (short[at] & 15)
    if at == 18:
        room = 1  # the VLAN tag is in the frame only once
    fits = (FABRIC_MTU - int.from_bytes(short[at + 2 : at + 4])) // 4
    room = min(room, fits)
    return (short if golden.program == "write" else labeller.run(short, repeat=room).data), room


def _added(program: int, nothing: int, frame: bytes, repeat: int) -> float:
    """Return the additional nanoseconds of a program over an empty one: the median of alternating rounds."""
    runs = 1 if repeat == REPEAT else FRESH_PACKETS // ROUNDS

    def once(which: int) -> float:
        return sum(libbpf.run_program(which, frame, repeat=repeat).nanoseconds for _ in range(runs)) / runs

    for which in (program, nothing):
        once(which)
    return median(once(program) - once(nothing) for _ in range(ROUNDS))
