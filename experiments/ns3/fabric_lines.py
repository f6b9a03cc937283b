"""The fabric as the simulator reads it: its numbers, the rates of its links, absent links, and hosts that may not label. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.core.run import Run
from topologies.cabling import ABSENT, LINK_LEVELS

LABELLED = ("sopa", "flowcell", "mcs", "sopa-feedback", "cfr")
"""Schemes whose senders write labels, if they may."""


def fabric_lines(run: Run) -> Iterator[str]:
    """Yield the lines of a run's fabric that ``src/settings.cc`` reads.

    Links of hosts have the rate of the run, and all others a rate in proportion to it.
    """
    tree = run.tree
    scale = run.scale.rate_mbit * 1e6 / tree.level_rate("host")

    def rate(mbit: float) -> int:
        return max(1, round(scale * mbit))

    yield f"fabric {' '.join(map(str, tree.shape))}"
    yield f"rates {' '.join(str(rate(tree.level_rate(level))) for level in LINK_LEVELS)}"
    yield f"core-share {run.plan.core_rate:g}"
    for name, mbit in tree.document().get("links", {}).items():
        yield f"absent {name}" if mbit == ABSENT else f"link {name} {rate(mbit)}"
    if tree.no_label and run.scheme.name.partition("+")[0] in LABELLED:
        yield from (f"no-label {number}" for number, host in enumerate(tree.hosts()) if host in tree.no_label)
