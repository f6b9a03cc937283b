"""The second half of the demo: link failures under traffic, with the time of each reaction."""

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
CUT_AT, RESTORED_AT = 4 / 18, 9 / 18  # share of the sending time
PATIENCE_SECONDS = 15.0
SETTLING_SECONDS = 0.5  # after a restored link is used again

Pairs = Sequence[tuple[Host, Host]]
RunFlows = Callable[[int, Callable[[float], None]], list[FlowResult]]


class Effect(NamedTuple):
    """Times of a change: detection, effect at the last agent and at the last switch (ms after its cause), and detection in
    seconds since 1970.
    """

    version: int
    detected_ms: float
    in_force_ms: float
    installed_ms: float
    at: float


class Change:
    """A change that was just made to a link, and the version that results from it."""

    def __init__(self, lab: SopaLab, link: str, kind: str) -> None:
        self._lab = lab
        self._link = link
        self._kind = kind
        self._since = lab.controller.fabric()["version"]
        self._started = time.time()
        self.effect: Effect | None = None

    def look(self) -> Effect | None:
        """Return the times of the change if it is in force everywhere, else None."""
        if self.effect is None:
            for change in self._lab.controller.get("/changes").json()["changes"]:
                done = change["acknowledged_ms"] is not None and change["installed_ms"] is not None
                if change["version"] > self._since and self._link in change[self._kind] and done:
                    detected = 1000 * (change["at"] - self._started)
                    self.effect = Effect(
                        change["version"],
                        round(detected, 1),
                        round(detected + change["acknowledged_ms"], 1),
                        round(detected + change["installed_ms"], 1),
                        change["at"],
                    )
        return self.effect

    def wait(self) -> Effect:
        """Wait until the change is in force everywhere. Raises `TrafficError` after `PATIENCE_SECONDS`."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (effect := self.look()) is None:
            if time.monotonic() > deadline:
                raise TrafficError(
                    f"{self._link} has {self._kind}, but this is not in force everywhere after {PATIENCE_SECONDS:g} s"
                )
            time.sleep(0.02)
        return effect


def play(
    tree: FatTree,
    settings: dict[str, Any],
    pairs: Pairs,
    lab: SopaLab,
    flows: RunFlows,
    say: Callable[[str], None],
    progress: Callable[[str], None],
) -> dict[str, Any]:
    """Take one aggregation-core link down and up again under traffic, then let another link drop packets silently.

    Parameters
    ----------
    tree : FatTree
    settings : dict
        Settings of the demo.
    pairs : sequence of (Host, Host)
        Senders and receivers.
    lab : SopaLab
    flows : callable
        Runs the traffic for a number of seconds, and calls a function with the elapsed seconds.
    say, progress : callable
        Receive lines of results, and progress messages.

    Returns
    -------
    dict
        All results, for ``--json``.
    """
    choose = random.Random(f"{settings['seed']} failure")
    pod, j, i = choose.randrange(tree.k), choose.randrange(tree.half), choose.randrange(tree.half)
    link = f"a{pod}_{j}-c{j}_{i}"
    src, dst = next(pair for pair in pairs if pair[0].pod == pod)
    seconds = max(MIN_SECONDS, settings["duration"])
    seen: dict[str, Any] = {"link": link, "src": tree.name(src), "dst": tree.name(dst), "seconds": seconds}
    changes: dict[str, Change] = {}
    began = [0.0]

    def paths() -> dict[str, Any]:
        found: dict[str, Any] = lab.controller.get("/paths", src=str(tree.ip(src)), dst=str(tree.ip(dst))).json()
        return found

    def cut() -> None:
        seen["candidates_before"] = len(paths()["candidates"])
        changes["cut"] = Change(lab, link, "failed")
        lab.lab.set_link(link, up=False)
        changes["cut"].wait()
        left = paths()
        seen["candidates_down"] = len(left["candidates"])
        seen["excluded"] = left["excluded"]
        progress(f"{link} is down: {seen['candidates_down']} of {seen['candidates_before']} candidate paths remain")

    def restore() -> None:
        changes["restored"] = Change(lab, link, "healed")
        lab.lab.set_link(link, up=True)
        progress(f"{link} is up again")

    pending = [(seconds * CUT_AT, cut), (seconds * RESTORED_AT, restore)]

    def tick(elapsed: float) -> None:
        began[0] = time.time() - elapsed
        while pending and elapsed >= pending[0][0]:
            pending.pop(0)[1]()
        if "restored" in changes and changes["restored"].effect is None and changes["restored"].look() is not None:
            progress(f"{link} is used again: {len(paths()['candidates'])} candidate paths")

    say(f"\nThe same flows for {seconds} s, while link {link} goes down and up again:")
    results = flows(seconds, tick)
    down, up = changes["cut"].wait(), changes["restored"].wait()
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
        f"{seen['mbit_after']:.2f} after"
    )
    seen["silent"] = _silence(tree, lab, f"a{pod}_{j}-c{j}_{(i + 1) % tree.half}", say)
    return seen


def _silence(tree: FatTree, lab: SopaLab, link: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Let one direction of a link drop all packets while its ports stay up."""
    change = Change(lab, link, "failed")
    towards = link.partition("-")[2]
    set_silent(lab.lab, link, towards, True)
    effect = change.wait()
    set_silent(lab.lab, link, towards, False)
    say(
        f"Then {link} silently drops packets to {towards}: detected by BFD after {effect.detected_ms:.0f} ms, "
        f"in force at all {tree.host_count} agents after {effect.in_force_ms:.0f} ms"
    )
    return {"link": link, "towards": towards, "detected_ms": effect.detected_ms, "told_ms": effect.in_force_ms}


def _mean(results: Sequence[FlowResult], first: float, last: float) -> float:
    """Return the mean rate of a flow in Mbit/s over the whole seconds between two moments, or 0 if there are none."""
    whole = range(int(first + 0.999), int(last))
    values = [result.series[second] for result in results for second in whole if second < len(result.series)]
    return round(statistics.mean(values), 3) if values else 0.0
