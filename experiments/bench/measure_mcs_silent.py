"""How soon a TCP flow is back after one of its paths has died silently while the controller stands still: MCS, and SOPA beside it.

The link is one from a core switch down: BFD of the switch in front of it sees that it is dead, but there is no other way down, and
nobody tells the hosts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from experiments.bench.measure_reaction import DST, SRC, Fault, TcpFlow, settled
from experiments.bench.measuring import measured_in_lab, say
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.schemes import named
from topologies import FatTree
from topologies.lab.network import default_rate
from topologies.lab.standstill import standing_still

K = 4
SEED = 1
SCHEMES = ("mcs", "sopa", "sopa+probes=off")
SILENT_SECONDS, WARM_SECONDS, INTERVAL_SECONDS = 6.0, 5.0, 0.02
WIDTH_SECONDS = 1.0
"""A flow is back when what arrives in the next second is 90% of what arrived in a second before."""
BACK_SHARE, LIMIT_TIMEOUTS = 0.9, 3.0
DOWN_FROM_CORE = 2

Sample = tuple[float, int]
"""A time in seconds, and the bytes that had arrived."""


def arrived(samples: Sequence[Sample], begin: float, end: float) -> int:
    """Return the bytes that arrived between two times."""

    def until(at: float) -> int:
        return max((count for time, count in samples if time <= at), default=0)

    return until(end) - until(begin)


def back_after(samples: Sequence[Sample], fault: float, width: float = WIDTH_SECONDS) -> float | None:
    """Return the seconds from a fault until a flow has `BACK_SHARE` of its rate again; 0 if it never had less, None if it has not.

    Args:
        samples: In order, from before ``fault - width`` on.
        width: Seconds over which rates are means.
    """
    wanted = BACK_SHARE * arrived(samples, fault - width, fault)
    begins = [fault, *(at for at, _ in samples if fault < at <= samples[-1][0] - width)]
    enough = (at for at in begins if arrived(samples, at, at + width) >= wanted)
    return next((at - fault for at in enough), None)


def longest_silence(samples: Sequence[Sample], since: float) -> float:
    """Return the longest time in which nothing arrived, from `since` on."""
    changes = [since]
    last = arrived(samples, 0.0, since)
    for at, count in samples:
        if at > since and count > last:
            changes.append(at)
            last = count
    return max(
        (later - earlier for earlier, later in zip(changes, [*changes[1:], samples[-1][0]], strict=True)), default=0.0
    )


def measure() -> dict[str, Any]:
    """Silence a link of each of the four paths of one flow, one after the other, with each scheme.

    Returns:
        By scheme: the seconds from each fault until the flow had 90% of its rate again (None: not within the silence), the
        longest silence after each, TCP's retransmission timeout before each, and ``within``, the trials that were back within
        `LIMIT_TIMEOUTS` of those.
    """
    found: dict[str, Any] = {"k": K, "limit_timeouts": LIMIT_TIMEOUTS, "silent_s": SILENT_SECONDS}
    for scheme in SCHEMES:
        found[scheme] = measured_in_lab(partial(_scheme, scheme))
        say(f"{scheme}: {found[scheme]}")
    return found


def _scheme(scheme: str) -> dict[str, Any]:
    tree = FatTree(K)
    src, dst = tree.host(SRC), tree.host(DST)
    backs: list[float | None] = []
    silences: list[float] = []
    timeouts: list[float] = []
    rates: list[float] = []
    with EmulatedFabric(tree, named(scheme), default_rate(tree)) as fabric:
        fabric.prepare(SEED)
        its = fabric.sopa
        assert its is not None
        for way in tree.choices_between(src, dst):
            settled(its)
            fault = Fault(its, (way[0], way[1]), DOWN_FROM_CORE)
            with TcpFlow(its, src, dst, pace=None) as flow, standing_still(its.controller.pid):
                samples = _watched(flow, WARM_SECONDS)
                timeouts.append(flow.timeout_ms() / 1000)
                began = time.monotonic()
                fault.set(True)
                samples += _watched(flow, SILENT_SECONDS)
                fault.set(False)
            backs.append(back_after(samples, began))
            silences.append(longest_silence(samples, began))
            rates.append(8e-6 * arrived(samples, began - WIDTH_SECONDS, began) / WIDTH_SECONDS)
        fabric.finish()
    pairs = list(zip(backs, timeouts, strict=True))
    within = sum(back is not None and back <= LIMIT_TIMEOUTS * timeout for back, timeout in pairs)
    return {
        "before_mbit": round(statistics.mean(rates), 2),
        "back_s": [None if back is None else round(back, 2) for back in backs],
        "longest_silence_s": [round(one, 2) for one in silences],
        "timeout_s": [round(one, 2) for one in timeouts],
        "within": f"{within} of {len(backs)}",
    }


def _watched(flow: TcpFlow, seconds: float) -> list[Sample]:
    samples = []
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        samples.append((now, flow.received))
        time.sleep(INTERVAL_SECONDS)
    return samples
