"""The second half of the demo: link failures under traffic, with the time of each reaction."""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.transfers import SERIES_SECONDS, TransferResult
from experiments.workloads import Transfer
from topologies import Clos, Host, Level, Link, Switch
from topologies.lab.faults import set_silent

MIN_SECONDS = 18
CUT_AT, RESTORED_AT = 4 / 18, 9 / 18  # share of the sending time
SETTLING_SECONDS = 3.0  # until TCP has grown again, after a restored link is used again

RunFlows = Callable[[int, Callable[[float], None]], list[TransferResult]]


class FailureEffect(NamedTuple):
    """Times of a change: detection, and effect at the last agent and switch (ms after its cause); detection since 1970 (s)."""

    version: int
    detected_ms: float
    in_force_ms: float
    installed_ms: float
    at: float


def _change(lab: SopaLab, link: str, kind: str, action: Callable[[], None]) -> FailureEffect:
    """Change a link, wait until the resulting version is in force everywhere; ``kind`` is ``failed`` or ``healed``."""
    fabric: dict[str, Any] = {}

    def is_as_before() -> bool:
        fabric.update(lab.controller.fabric())
        return any(failure["name"] == link for failure in fabric["failures"]) is (kind == "healed")

    # where the machine stands still, BFD takes links out for a moment: one that has failed already does not fail again
    lab.controller.wait_until(is_as_before, f"link {link} was {'out of use' if kind == 'healed' else 'in use'}")
    since, started = fabric["version"], time.time()
    action()
    change = lab.controller.wait_acknowledged(since, lambda change: link in change[kind] and change["installed_ms"] is not None)
    detected = 1000 * (change["at"] - started)
    in_force, installed = detected + change["acknowledged_ms"], detected + change["installed_ms"]
    return FailureEffect(change["version"], round(detected, 1), round(in_force, 1), round(installed, 1), change["at"])


def play(
    settings: dict[str, Any],
    transfers: Sequence[Transfer],
    lab: SopaLab,
    flows: RunFlows,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Take one link to a core switch, or to a spine, down and up again under traffic; then let another drop packets silently.

    ``flows`` runs the traffic for a number of seconds, and calls a function with the elapsed seconds; ``say`` receives lines of
    results. Returns all results, for ``--json``.
    """
    tree = lab.tree
    cut, silent = _victims(tree, settings["seed"])
    link = tree.name(cut)
    src, dst = next((one.src, one.dst) for one in transfers if _is_below(one.src, cut))
    seconds = max(MIN_SECONDS, settings["duration"])
    seen: dict[str, Any] = {"link": link, "src": tree.name(src), "dst": tree.name(dst), "seconds": seconds}
    began = [0.0]
    sending = threading.Event()

    def paths() -> dict[str, Any]:
        found: dict[str, Any] = lab.controller.get("/paths", src=str(tree.ip(src)), dst=str(tree.ip(dst))).json()
        return found

    def wait_for(share: float) -> None:
        time.sleep(max(0.0, began[0] + share * seconds - time.time()))

    def fail_and_restore() -> tuple[FailureEffect, FailureEffect]:
        sending.wait()
        seen["candidates_before"] = len(paths()["candidates"])
        wait_for(CUT_AT)
        down = _change(lab, link, "failed", lambda: lab.lab.set_link(link, up=False))
        left = paths()
        seen["candidates_down"] = len(left["candidates"])
        seen["excluded"] = left["excluded"]
        progress(f"{link} is down: {seen['candidates_down']} of {seen['candidates_before']} candidate paths remain")
        wait_for(RESTORED_AT)
        progress(f"bringing {link} up again")
        up = _change(lab, link, "healed", lambda: lab.lab.set_link(link, up=True))
        progress(f"{link} is used again: {len(paths()['candidates'])} candidate paths")
        return down, up

    def tick(elapsed: float) -> None:
        began[0] = time.time() - elapsed
        sending.set()

    say(f"\nThe same flows for {seconds} s, while link {link} goes down and up again:")
    # in a thread of its own: requests to the controller must not delay the traffic
    with ThreadPoolExecutor(1) as pool:
        effects = pool.submit(fail_and_restore)
        try:
            results = flows(seconds, tick)
        finally:
            sending.set()
        down, up = effects.result()
    seen["candidates_after"] = len(paths()["candidates"])
    again = up.at - began[0]
    for name, first, last in (
        ("before", 1.0, seconds * CUT_AT),
        ("during", seconds * CUT_AT, again),
        ("after", again + SETTLING_SECONDS, float(seconds)),
    ):
        seen[f"mbit_{name}"] = _mean(results, first, last)
    seen |= {"detected_ms": down.detected_ms, "told_ms": down.in_force_ms, "installed_ms": down.installed_ms}
    seen |= {"used_again_ms": up.in_force_ms}
    reason = next(iter(seen["excluded"]), {"reason": "nothing"})["reason"]
    say(
        f"  detected   {down.detected_ms:6.1f} ms after the failure (PORT_STATUS, version {down.version})\n"
        f"  in force   {down.in_force_ms:6.1f} ms at the last of {tree.host_count} agents, "
        f"{down.installed_ms:.1f} ms at the last switch\n"
        f"  excluded   {seen['candidates_down']} of {seen['candidates_before']} candidate paths remain from {seen['src']} to "
        f"{seen['dst']}: {reason}\n"
        f"  restored   {up.in_force_ms / 1000:6.1f} s after the link came up: BFD up, hold-down over, "
        f"{seen['candidates_after']} candidate paths\n"
        f"  mean per flow: {seen['mbit_before']:.2f} Mbit/s before, {seen['mbit_during']:.2f} during, "
        f"{seen['mbit_after']:.2f} from {SETTLING_SECONDS:g} s after that on"
    )
    seen["silent"] = _silence(lab, tree.name(silent), say)
    return seen


def _victims(tree: Clos, seed: int) -> tuple[Link, Link]:
    """Return a random link to a core switch, or to a spine, and the next uplink of the same switch."""
    choose = random.Random(f"{seed} failure")
    level = Level.AGGREGATION if tree.cores else Level.EDGE
    links: list[Link] = []
    while not links:  # a switch without uplinks, all of them absent, is of no use
        below = Switch(level, choose.randrange(tree.pods), choose.randrange(tree.group_size(level)))
        links = list(tree.links_above(below))
    first = choose.randrange(len(links))
    return links[first], links[(first + 1) % len(links)]


def _is_below(host: Host, link: Link) -> bool:
    return host.pod == link.lower.pod and (link.upper.level is Level.CORE or Clos.edge_of(host) == link.lower)


def _silence(lab: SopaLab, link: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Let one direction of a link drop all packets while its ports stay up."""
    towards = link.partition("-")[2]
    effect = _change(lab, link, "failed", lambda: set_silent(lab.lab, link, towards, True))
    set_silent(lab.lab, link, towards, False)
    say(
        f"Then {link} silently drops packets to {towards}: detected by BFD after {effect.detected_ms:.0f} ms, "
        f"in force at all {lab.tree.host_count} agents after {effect.in_force_ms:.0f} ms"
    )
    return {"link": link, "towards": towards, "detected_ms": effect.detected_ms, "told_ms": effect.in_force_ms}


def _mean(results: Sequence[TransferResult], first: float, last: float) -> float:
    """Return the mean rate of a flow in Mbit/s over the whole intervals between two moments, or 0 if there are none."""
    whole = range(math.ceil(first / SERIES_SECONDS), int(last / SERIES_SECONDS))
    values = [result.series[at] if at < len(result.series) else 0.0 for result in results for at in whole]
    return round(statistics.mean(values), 3) if values else 0.0
