"""What a scheme is in the simulator: its shim, subflows, congestion control and marks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from experiments.schemes import Scheme
from experiments.schemes.scheme import Slots

MARKED = ("mcs", "mcs-ports", "sopa-feedback", "ecmp-vcc", "per-packet", "mptcp", "plb", "reps", "dctcp")
"""Schemes that answer marks of ECN: the queues of all switches mark with them."""
DCTCP = ("per-packet", "mptcp", "plb", "reps", "dctcp")
OTHER_NAMES = {"tcp": "ecmp", "dctcp": "ecmp"}
"""Schemes whose paths are those of another one."""
PROBED = ("sopa",)
"""Schemes with ``+probes=on``."""
BURSTS = ("sopa", "mcs", "mcs-ports")
"""Schemes with ``+segments=N``."""
FAST_MBIT = 10_000.0
MARK_ABOVE, MARK_ABOVE_FAST = 20, 65
"""Packets in a queue above which it marks, at 1 and from 10 Gbit/s on (DCTCP, SIGCOMM 2010, section 3.4)."""
_OPTION_BYTES = {"sopa": 4, "flowcell": 4, "mcs": 4, "sopa-feedback": 4, "cfr": 4, "drb": 20}
"""Bytes that the path takes in each packet: the SOPA option, or IP in IP."""


def base_of(scheme: Scheme) -> str:
    """Return the name of a scheme without its settings."""
    return scheme.name.partition("+")[0]


def overhead(scheme: Scheme) -> int:
    """Return the bytes that a scheme adds to the headers of each packet, as ``src/`` does."""
    shim = 0 if not scheme.channels else 12 if scheme.channels <= 8 else 16
    return shim + _OPTION_BYTES.get(base_of(scheme), 0)


def scheme_lines(scheme: Scheme, rate_mbit: float, options: Mapping[str, int | str]) -> Iterator[str]:
    """Yield the lines of a scheme that ``src/settings.cc`` reads, without those that the options of a run have."""
    base = base_of(scheme)
    yield f"scheme {OTHER_NAMES.get(base, base)}"
    if scheme.probes:
        yield "probes 1"
    if scheme.slots:
        yield from _slot_lines(scheme.slots)
    if scheme.channels:
        yield f"channels {scheme.channels}"
    if scheme.subflows:
        yield f"subflows {scheme.subflows}"
    if base in DCTCP and "congestion" not in options:
        yield "congestion Dctcp"
    if scheme.ecn_bytes and "ecn" not in options:
        yield f"ecn-bytes {scheme.ecn_bytes}"
    elif base in MARKED and "ecn" not in options and (scheme.ecn or not scheme.channels):
        yield f"ecn {scheme.ecn_threshold or (MARK_ABOVE_FAST if rate_mbit >= FAST_MBIT else MARK_ABOVE)}"


def _slot_lines(slots: Slots) -> Iterator[str]:
    yield f"slot-packets {slots.packets or 1}"
    yield f"slot-guard {slots.guard_percent}"
    yield f"arbiter-delay {slots.delay_ns}"
    yield f"arbiter-order {slots.order}"
    yield f"arbiter-paths {slots.paths}"
    yield f"demand {slots.demand}"
