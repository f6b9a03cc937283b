"""The demo's second half: a link is cut under the same traffic, and everything that follows is timed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.iperf import FlowResult, TrafficError
from topologies import FatTree, Host
from topologies.lab.faults import set_silent

MIN_SECONDS = 18
CUT_AT, RESTORED_AT = 4 / 18, 9 / 18  # of the time that the flows send
PATIENCE_SECONDS = 15.0
SETTLING_SECONDS = 0.5  # after a link is used again

Pairs = Sequence[tuple[Host, Host]]
RunFlows = Callable[[int, Callable[[float], None]], list[FlowResult]]


class Told(NamedTuple):
    """When a change was told, in milliseconds after what caused it, and when it took effect, in seconds since 1970."""

    version: int
    detected_ms: float
    told_ms: float
    installed_ms: float
    at: float


class Cause:
    """Something that was just done to a link, until the controller has told it to everybody."""

    def __init__(self, lab: SopaLab, link: str, kind: str) -> None:
        self._lab = lab
        self._link = link
        self._kind = kind
        self._since = lab.controller.fabric()["version"]
        self._started = time.time()
        self.told: Told | None = None

    def look(self) -> Told | None:
        """What came of it, once it is in force everywhere."""
        if self.told is None:
            for change in self._lab.controller.get("/changes").json()["changes"]:
                done = change["acknowledged_ms"] is not None and change["installed_ms"] is not None
                if change["version"] > self._since and self._link in change[self._kind] and done:
                    detected = 1000 * (change["at"] - self._started)
                    self.told = Told(
                        change["version"],
                        round(detected, 1),
                        round(detected + change["acknowledged_ms"], 1),
                        round(detected + change["installed_ms"], 1),
                        change["at"],
                    )
        return self.told

    def wait(self) -> Told:
        """`look` until there is an answer; `TrafficError` if none comes."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (told := self.look()) is None:
            if time.monotonic() > deadline:
                raise TrafficError(f"the controller has not told everybody that {self._link} has {self._kind}")
            time.sleep(0.02)
        return told


def play(
    tree: FatTree,
    settings: dict[str, Any],
    pairs: Pairs,
    lab: SopaLab,
    flows: RunFlows,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Cut one aggregation-core link under traffic, restore it, and let another lose packets silently.

    Parameters
    ----------
    tree : FatTree
    settings : dict
        The demo's.
    pairs : sequence of (Host, Host)
        Who sends to whom.
    lab : SopaLab
    flows : callable
        Runs the traffic for so many seconds and calls back with the seconds since its start.
    say, progress : callable
        Told the results, and what is going on.

    Returns
    -------
    dict
        Every figure, for ``--json``.
    """
    choose = random.Random(f"{settings['seed']} failure")
    pod, j, i = choose.randrange(tree.k), choose.randrange(tree.half), choose.randrange(tree.half)
    link = f"a{pod}_{j}-c{j}_{i}"
    src, dst = next(pair for pair in pairs if pair[0].pod == pod)
    seconds = max(MIN_SECONDS, settings["duration"])
    seen: dict[str, Any] = {"link": link, "src": tree.name(src), "dst": tree.name(dst), "seconds": seconds}
    causes: dict[str, Cause] = {}
    began = [0.0]

    def paths() -> dict[str, Any]:
        found: dict[str, Any] = lab.controller.get("/paths", src=str(tree.ip(src)), dst=str(tree.ip(dst))).json()
        return found

    def cut() -> None:
        seen["candidates_before"] = len(paths()["candidates"])
        causes["cut"] = Cause(lab, link, "failed")
        lab.lab.set_link(link, up=False)
        causes["cut"].wait()
        left = paths()
        seen["candidates_down"] = len(left["candidates"])
        seen["excluded"] = left["excluded"]
        progress(f"{link} is down: {seen['candidates_down']} of {seen['candidates_before']} paths left")

    def restore() -> None:
        causes["restored"] = Cause(lab, link, "healed")
        lab.lab.set_link(link, up=True)
        progress(f"{link} is plugged in again")

    pending = [(seconds * CUT_AT, cut), (seconds * RESTORED_AT, restore)]

    def tick(elapsed: float) -> None:
        began[0] = time.time() - elapsed
        while pending and elapsed >= pending[0][0]:
            pending.pop(0)[1]()
        if "restored" in causes and causes["restored"].told is None and causes["restored"].look() is not None:
            progress(f"{link} is used again: {len(paths()['candidates'])} paths")

    say(f"\nThe same flows for {seconds} s, while the link {link} is cut and restored:")
    results = flows(seconds, tick)
    down, up = causes["cut"].wait(), causes["restored"].wait()
    seen["candidates_after"] = len(paths()["candidates"])
    again = up.at - began[0]
    for name, first, last in (
        ("before", 1.0, seconds * CUT_AT),
        ("during", seconds * CUT_AT, again),
        ("after", again + SETTLING_SECONDS, float(seconds)),
    ):
        seen[f"mbit_{name}"] = _mean(results, first, last)
    seen |= {"detected_ms": down.detected_ms, "told_ms": down.told_ms, "installed_ms": down.installed_ms}
    seen |= {"used_again_ms": up.told_ms}
    reason = next(iter(seen["excluded"]), {"reason": "nothing"})["reason"]
    say(
        f"  detected   {down.detected_ms:6.1f} ms after the cut (PORT_STATUS, version {down.version})\n"
        f"  told       {down.told_ms:6.1f} ms: in force at the last of {tree.host_count} agents; "
        f"at the last switch {down.installed_ms:.1f} ms\n"
        f"  excluded   {seen['candidates_down']} of {seen['candidates_before']} candidate paths left from {seen['src']} to "
        f"{seen['dst']}: {reason}\n"
        f"  healed     {up.told_ms / 1000:6.1f} s after it was plugged in: BFD up, held down, {seen['candidates_after']} paths\n"
        f"  mean per flow: {seen['mbit_before']:.2f} Mbit/s before, {seen['mbit_during']:.2f} during, "
        f"{seen['mbit_after']:.2f} after"
    )
    seen["silent"] = _silence(tree, lab, f"a{pod}_{j}-c{j}_{(i + 1) % tree.half}", say)
    return seen


def _silence(tree: FatTree, lab: SopaLab, link: str, say: Callable[[str], None]) -> dict[str, Any]:
    """One direction of a link loses everything, and no port tells."""
    cause = Cause(lab, link, "failed")
    towards = link.partition("-")[2]
    set_silent(lab.lab, link, towards, True)
    told = cause.wait()
    set_silent(lab.lab, link, towards, False)
    say(
        f"Then {link} silently loses what goes to {towards}: found by BFD after {told.detected_ms:.0f} ms, "
        f"told to all {tree.host_count} agents after {told.told_ms:.0f} ms"
    )
    return {"link": link, "towards": towards, "detected_ms": told.detected_ms, "told_ms": told.told_ms}


def _mean(results: Sequence[FlowResult], first: float, last: float) -> float:
    """Mbit/s per flow over the whole seconds between two moments; 0 if there are none."""
    whole = range(int(first + 0.999), int(last))
    values = [result.series[second] for result in results for second in whole if second < len(result.series)]
    return round(statistics.mean(values), 3) if values else 0.0
