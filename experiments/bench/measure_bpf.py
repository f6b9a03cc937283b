"""The cost of labelling: nanoseconds per packet of the egress program, with an empty program as baseline.

Run as root: ``make bench ARGS=bpf``. BPF_PROG_TEST_RUN repeats a program on one frame. Rounds of the two programs
alternate, so that changes of clock rate or load affect both.
"""

from __future__ import annotations

import platform
import struct
from ipaddress import IPv4Address, IPv4Network
from statistics import median
from typing import Any

from experiments.bench.measuring import allowed
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import EMPTY, build
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PARAMETERS, PathTable, Policy

K = 48
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


def tcp_frame(src: str, dst: str, size: int = 1514) -> bytes:
    """Return a TCP segment in an Ethernet frame of ``size`` bytes."""
    ethernet = bytes.fromhex("020000000001" + "02000a000002") + struct.pack("!H", 0x0800)
    addresses = IPv4Address(src).packed + IPv4Address(dst).packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, size - 14, 1, 0x4000, 64, 6, 0) + addresses
    return (ethernet + ip + struct.pack("!HH", 40000, 5001)).ljust(size, b"\0")


def measure() -> dict[str, Any]:
    """Measure both programs on an inter-pod packet of a known flow, with the 576 candidate paths of a healthy k=48 fabric.

    Returns
    -------
    dict
        ``egress_ns`` and ``empty_ns``, medians over ``rounds`` rounds of ``repeat`` packets; ``added_ns``, the median of
        the differences, with minimum and maximum; likewise of the other policies; and the conditions.

    Raises
    ------
    sopa_ryu.agent.kernel.libbpf.BpfError
        If BPF cannot be used here.
    """
    build()
    frame = tcp_frame("10.0.0.2", f"10.{K - 1}.{K // 2 - 1}.2")
    with libbpf.Object(EMPTY) as empty_object, Labeller("lo") as labeller:  # never attached
        empty = empty_object.program_fd("empty")
        rounds = {}
        for policy in Policy:
            labeller.swap(fabric_table(K, policy))
            for program in (labeller.program_fd, empty):
                libbpf.run_program(program, frame, repeat=REPEAT)
            rounds[policy] = [
                (
                    libbpf.run_program(labeller.program_fd, frame, repeat=REPEAT).nanoseconds,
                    libbpf.run_program(empty, frame, repeat=REPEAT).nanoseconds,
                )
                for _ in range(ROUNDS)
            ]
        labelled = labeller.counters()["labelled"]
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
        "limit_added_ns": allowed(MAX_ADDED, nothing),
        "limit_policy_added_ns": allowed(MAX_POLICY_ADDED, nothing),
        "rounds": ROUNDS,
        "repeat": REPEAT,
        "labelled": labelled,
        "k": K,
        "candidates": (K // 2) ** 2,
        "policy": "round-robin",
        "frame_bytes": len(frame),
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
