"""The cost of labelling: nanoseconds per packet of the egress program, with an empty program as baseline.

Run as root: ``make bench ARGS=bpf``. BPF_PROG_TEST_RUN repeats a program on one frame. Rounds of the two programs
alternate, so that changes of clock rate or load affect both. The frame is a new TCP segment each time (advancing.c), as what is
sent again is looked for among the segments sent before: ``again_added_ns`` is that of a segment that is sent again all the time.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from statistics import median
from typing import Any

from experiments.bench.measuring import allowed
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PARAMETERS, PathTable, Policy

K = 48
BETWEEN = "10.0.0.2", f"10.{K - 1}.{K // 2 - 1}.2"
HEADERS = 54
OBJECT = Path(__file__).with_name("advancing.o")
ROUNDS = 15
REPEAT = 500_000
MAX_ADDED, MAX_POLICY_ADDED = 1.6, 2.5
"""Times that of an empty program: of round-robin, and of any policy."""


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


def _round(labeller: Labeller, empty: int, frame: bytes) -> tuple[int, int]:
    """Return the nanoseconds of a packet with the labelling program, and with the empty one."""
    programs = labeller.program_fd, empty
    egress, nothing = (libbpf.run_program(program, frame, repeat=REPEAT).nanoseconds for program in programs)
    return egress, nothing


def _again() -> int:
    """Return what labelling a segment that is sent again takes, while nobody reads of it, in nanoseconds more than nothing."""
    with libbpf.Object(EMPTY) as empty, Labeller("lo") as labeller:
        labeller.swap(fabric_table(K))
        its = [_round(labeller, empty.program_fd("empty"), tcp_frame(*BETWEEN)) for _ in range(ROUNDS)]
    return round(median(egress - nothing for egress, nothing in its))


def measure() -> dict[str, Any]:
    """Measure both programs on an inter-pod packet of a known flow, with the 576 candidate paths of a healthy k=48 fabric.

    Returns:
        ``egress_ns`` and ``empty_ns``, medians over ``rounds`` rounds of ``repeat`` packets; ``added_ns``, the median of the
        differences, with minimum and maximum; likewise of the other policies; and the conditions.

    Raises:
        sopa_ryu.agent.kernel.libbpf.BpfError: If BPF cannot be used here.
    """
    build([OBJECT])
    with libbpf.Object(OBJECT) as empty_object, Labeller("lo", object_file=OBJECT) as labeller:  # never attached
        empty, frames = empty_object.program_fd("advancing_empty"), _following()
        rounds = {}
        for policy in Policy:
            labeller.swap(fabric_table(K, policy))
            rounds[policy] = [_round(labeller, empty, next(frames)) for _ in range(ROUNDS + 1)][1:]
        labelled = labeller.counters()["labelled"]
    build()
    again = _again()
    added = {policy: [egress - nothing for egress, nothing in its] for policy, its in rounds.items()}
    ours = Policy.ROUND_ROBIN
    nothing = median(nothing for _, nothing in rounds[ours])
    return {
        "egress_ns": median(egress for egress, _ in rounds[ours]),
        "empty_ns": nothing,
        "added_ns": median(added[ours]),
        "added_ns_min": min(added[ours]),
        "added_ns_max": max(added[ours]),
        **{f"{policy.name.lower()}_added_ns": median(its) for policy, its in added.items() if policy is not ours},
        "again_added_ns": again,
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
