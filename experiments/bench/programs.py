"""The cost of labels: nanoseconds per packet of the programs of each carrier, with empty programs as baseline.

Run as root: ``make bench ARGS='bpf option'``. Tests compare the golden packets that `option` times.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

from experiments.bench.frame import Results, added_ns, allowed
from flowrules.label import Carrier, carrier_mac
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.label.edge_parser import Parser
from sopa_ryu.agent.label.edge_spreader import Spreader
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PARAMETERS, PathTable, Policy

FILE = Path(__file__).with_name("golden.txt")
FABRIC_MTU = 1500
TABLE = PathTable(IPv4Network("10.0.0.0/8"), 2, (((0xFF, 0xFF),), ((1, 0xFF),), ((1, 0),)), (0, 1, 2, 2, 2, 2, -1, -1), seed=1)
"""The path table of the host of the golden packets, 10.0.0.2 at k=4: one path per destination, none to pod 3."""


class Golden(NamedTuple):
    """The effect of ``write``, ``strip`` or ``parse`` on a packet, as a sentence and bytes, and the counter that it increments."""

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
    return b"".join(bytes.fromhex(part) if "x" not in part else bytes.fromhex(part[:2]) * int(part[3:]) for part in text.split())


K = 48
BETWEEN = "10.0.0.2", f"10.{K - 1}.{K // 2 - 1}.2"
HEADERS = 54
OBJECT = Path(__file__).with_name("advancing.o")
ROUNDS = 15
REPEAT = 500_000
MOST_PACKETS = 65_535
"""Of a burst, in a field of 16 bits."""
MAX_ADDED, MAX_POLICY_ADDED = 1.6, 2.5
"""Times that of an empty program: of round-robin, and of any policy."""

OPTION_REPEAT = 200_000
# A program that changes the length of a packet can be repeated on it only until the header is full or empty of options.
FRESH_PACKETS = 1_000
OPTION_LIMITS = {"write": allowed(2.2), "strip": allowed(1.3), "parse": 30}
MAX_HEADER_WORDS = 15


# -- the egress program ---------------------------------------------------------------------------------------------------


def bpf() -> Results:
    """Measure the egress program on an inter-pod packet of a known flow, with the 576 candidate paths of a healthy k=48 fabric.

    The frame is a new TCP segment each time (advancing.c), as what is sent again is looked for among the segments sent before:
    ``again_added_ns`` is that of a segment that is sent again all the time, ``in_burst_added_ns`` that of a packet of a burst that
    was cut (bpf/burst.h). ``added_ns`` is the median of the differences, not the
    difference of the medians. Raises `libbpf.BpfError` if BPF cannot be used here.
    """
    build([OBJECT])
    with libbpf.Object(OBJECT) as empty_object, Labeller("lo", object_file=OBJECT) as labeller:  # never attached
        empty, frames = empty_object.program_fd("advancing_empty"), _following()
        rounds = {}
        for policy in Policy:
            labeller.swap(fabric_table(K, policy))
            pairs = [(_ns(labeller.program_fd, frame), _ns(empty, frame)) for frame in islice(frames, ROUNDS + 1)]
            rounds[policy] = pairs[1:]
        labelled = labeller.counters()["labelled"]
    build()
    with libbpf.Object(EMPTY) as empty_object, Labeller("lo") as labeller:
        labeller.swap(fabric_table(K))
        nothing_again = empty_object.program_fd("empty")
        again = added_ns(labeller.program_fd, nothing_again, tcp_frame(*BETWEEN), ROUNDS, REPEAT)
        with Spreader(()) as spreader:  # to candidates that ask to be spread again, by the next run on the same packet
            asks = (0xFF, 7)
            spreader.swap(fabric_table(K)._replace(sets=((asks,), (asks,) * (K // 2), (asks,) * (K // 2) ** 2)))
            frame = tcp_frame(*BETWEEN)
            frame = frame[:6] + bytes.fromhex(carrier_mac(()).replace(":", ""))[:4] + bytes(asks) + frame[12:]
            spread = added_ns(spreader.program_fd, empty_object.program_fd("empty_xdp"), frame, ROUNDS, REPEAT)
        in_burst = _in_burst(nothing_again)
    added = {policy: [egress - nothing for egress, nothing in pairs] for policy, pairs in rounds.items()}
    ours = Policy.ROUND_ROBIN
    nothing = median(nothing for _, nothing in rounds[ours])
    return {
        "egress_ns": median(egress for egress, _ in rounds[ours]),
        "empty_ns": nothing,
        "added_ns": median(added[ours]),
        "added_ns_min": min(added[ours]),
        "added_ns_max": max(added[ours]),
        **{f"{policy.name.lower()}_added_ns": median(ns) for policy, ns in added.items() if policy is not ours},
        "again_added_ns": round(again),
        "in_burst_added_ns": in_burst,
        "spread_added_ns": round(spread),
        "limit_added_ns": allowed(MAX_ADDED, nothing),
        "limit_policy_added_ns": allowed(MAX_POLICY_ADDED, nothing),
        "rounds": ROUNDS,
        "repeat": REPEAT,
        "labelled": labelled,
        "k": K,
        "candidates": (K // 2) ** 2,
        "policy": "round-robin",
        "frame_bytes": len(tcp_frame(*BETWEEN)),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }


def _in_burst(empty: int) -> float:
    processors = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(processors)})  # the program keeps what it found with a burst for the same processor
    try:
        with Labeller("lo", cut_by=socket.if_nametoindex("lo")) as labeller:
            labeller.swap(fabric_table(K))
            added = []
            for frame in islice(_following(), ROUNDS + 1):
                libbpf.run_program(labeller.program_fd, frame, gso_segments=MOST_PACKETS)
                ours, nothing = (
                    libbpf.run_program(fd, frame, repeat=MOST_PACKETS).nanoseconds for fd in (labeller.program_fd, empty)
                )
                added.append(ours - nothing)
    finally:
        os.sched_setaffinity(0, processors)
    return median(added[1:])


def fabric_table(k: int, policy: Policy = Policy.ROUND_ROBIN) -> PathTable:
    """Return the path table of host 10.0.0.2 in a healthy k-ary fat-tree: path sets for its rack, its pod and other pods."""
    half = k // 2
    rack, pod = ((0xFF, 0xFF),), tuple((up1, 0xFF) for up1 in range(half))
    beyond = tuple((up1, up2) for up2 in range(half) for up1 in range(half))
    destinations = (0, *[1] * (half - 1), *[2] * (half * (k - 1)))
    parameter = PARAMETERS.get(policy, 0)
    return PathTable(IPv4Network("10.0.0.0/8"), half, (rack, pod, beyond), destinations, 1, policy, parameter)


def tcp_frame(src: str, dst: str, size: int = 1514, seq: int = 0) -> bytes:
    """Return a TCP segment in an Ethernet frame of ``size`` bytes."""
    ethernet = bytes.fromhex("020000000001" + "02000a000002") + struct.pack("!H", 0x0800)
    addresses = IPv4Address(src).packed + IPv4Address(dst).packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, size - 14, 1, 0x4000, 64, 6, 0) + addresses
    return (ethernet + ip + struct.pack("!HHIIBB", 40000, 5001, seq % (1 << 32), 0, 0x50, 0x10)).ljust(size, b"\0")


def _following() -> Iterator[bytes]:
    """Yield frames whose segment follows the last one that a run has made of the frame before."""
    seq = 0
    while True:
        frame = tcp_frame(*BETWEEN, seq=seq)
        yield frame
        seq += REPEAT * (len(frame) - HEADERS)


def _ns(program: int, frame: bytes) -> int:
    return libbpf.run_program(program, frame, repeat=REPEAT).nanoseconds


# -- the option carrier ---------------------------------------------------------------------------------------------------


def option() -> Results:
    """Time every golden packet: medians of what a program takes above an empty one, over the packets that it changes.

    ``*_worst_ns`` stands with the sentence of that packet; ``*_left_ns`` is that of unchanged packets. Raises `libbpf.BpfError` if
    BPF cannot be used here.
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
        figures: Results = {}
        for name, (program, nothing) in programs.items():
            changed: dict[str, float] = {}
            left: dict[str, float] = {}
            for golden in golden_packets():
                if golden.program != name:
                    continue
                frame, repeat = _prepared(golden, labeller)
                runs = 1 if repeat == OPTION_REPEAT else FRESH_PACKETS // ROUNDS
                added = added_ns(program, nothing, frame, ROUNDS, repeat, runs)
                (left if golden.frame == golden.result else changed)[golden.sentence] = added
            figures |= {
                f"{name}_ns": round(median(changed.values()), 1),
                f"{name}_worst_ns": round(max(changed.values()), 1),
                f"{name}_worst": max(changed, key=lambda sentence: changed[sentence]),
                f"{name}_left_ns": round(median(left.values()), 1),
                f"limit_{name}_ns": OPTION_LIMITS[name],
                f"{name}_packets": len(changed) + len(left),
            }
    return figures


def _prepared(golden: Golden, labeller: Labeller) -> tuple[bytes, int]:
    """Return the frame to time and the number of repetitions, which the changing length of the packet limits."""
    if golden.counted not in ("labelled", "stripped"):
        return golden.frame, OPTION_REPEAT
    short = golden.frame if golden.program == "write" else golden.result
    at = 18 if short[12:14] == b"\x81\x00" else 14
    room = MAX_HEADER_WORDS - (short[at] & 15)
    if at == 18:
        room = 1  # the VLAN tag is in the frame only once
    fits = (FABRIC_MTU - int.from_bytes(short[at + 2 : at + 4])) // 4
    room = min(room, fits)
    return (short if golden.program == "write" else labeller.run(short, repeat=room).data), room
