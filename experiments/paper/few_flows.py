"""The SOPA paper's figures of a few flows in a small fabric: 3, 5, 7 to 10, and the sweep of section 3.1. Pure."""

from __future__ import annotations

from experiments.paper.common import BOTH, WRITTEN
from experiments.paper.figure import Figure, Part, Row

NO_SACK = "rps+sack=off"


def oversubscription() -> Figure:
    """Section 3.1 and figure 3."""
    papers = {"1:1": 986.06, "4:3": 966.31, "2:1": 578.42, "4:1": 296.03}
    workloads = {ratio: "single-flow" if ratio == "1:1" else f"single-flow-{ratio}" for ratio in papers}
    names = {ratio: workload.replace(":", "-") for ratio, workload in workloads.items()}
    schemes = ("rps", "sopa", NO_SACK)
    parts = tuple(Part(names[ratio], workload, 4, schemes, 1.6, 5) for ratio, workload in workloads.items())
    rows = [Row(f"rps, {ratio}, Mbit/s", names[ratio], "rps", "mean", paper) for ratio, paper in papers.items()]
    rows += [Row(f"sopa, {ratio}, Mbit/s", name, "sopa", "mean") for ratio, name in names.items()]
    rows += [
        Row("rps, 4:1, fast retransmits", "single-flow-4-1", "rps", "fast_retransmits", 347),
        Row("rps, 4:1, sent again", "single-flow-4-1", "rps", "retransmits", 2406),
        *(
            Row(f"rps without SACK, {ratio}, Mbit/s", names[ratio], NO_SACK, "mean", paper)
            for ratio, paper in papers.items()
        ),
        Row("rps without SACK, 4:1, fast retransmits", "single-flow-4-1", NO_SACK, "fast_retransmits", 347),
        Row("rps without SACK, 4:1, sent again", "single-flow-4-1", NO_SACK, "retransmits", 2406),
    ]
    return Figure(
        "oversubscription",
        "SOPA paper, section 3.1 and figure 3: 100 MB from server 0 to 5 alone, k=4",
        parts,
        tuple(rows),
        BOTH,
        (
            "The paper's rate at 1:1 is above what 1460 of 1500 bytes allow (973.3 Mbit/s): it seems to count TCP's header.",
            "ns-3 had no selective acknowledgements until 3.26; what it does without them has changed since. The TCP of "
            "then never has them.",
            "2,406 are 3.35% of 71,820 packets of 1460 bytes: the paper's 100 MB are 104,857,600 bytes, here 100,000,000.",
        ),
    )


def paths() -> Figure:
    """Figure 5."""
    part = Part("single-flow", "single-flow", 4, ("rps", "sopa"), 1.6, 5)
    whole = {"0.0": 24.89, "0.1": 25.10, "1.0": 25.01, "1.1": 25.00}
    rows = [
        Row("rps, most from the average in 500 of the first 2000 packets, %", part.name, "rps", "deviation", 13.6),
        Row("sopa, the same", part.name, "sopa", "deviation"),
        *(
            Row(f"rps, packets of the whole flow on path {path}, %", part.name, "rps", f"path {path}", found)
            for path, found in whole.items()
        ),
    ]
    return Figure(
        "paths", "SOPA paper, section 3.3.1, figure 5: packets by path, k=4", (part,), tuple(rows), (WRITTEN,)
    )


def failed_link() -> Figure:
    """Figures 7 and 8."""
    part = Part("asymmetric", "asymmetric", 4, ("sopa", "rps"), 0.16, 5)
    rows = [
        Row("sopa, flow 0 to 4, Mbit/s", part.name, "sopa", "flow 0"),
        Row("sopa, flow 8 to 5, Mbit/s", part.name, "sopa", "flow 1"),
        Row("sopa, delay on paths that overlap, us", part.name, "sopa", "overlapping_delay"),
        Row("sopa, delay on the others, us", part.name, "sopa", "other_delay"),
        Row("sopa, flow 8 to 5, reordered %", part.name, "sopa", "flow 1 reordered_percent"),
        Row("sopa, fast retransmits", part.name, "sopa", "fast_retransmits"),
        Row("rps, flow 0 to 4, Mbit/s", part.name, "rps", "flow 0"),
        Row("rps, flow 8 to 5, Mbit/s", part.name, "rps", "flow 1"),
    ]
    return Figure(
        "failed-link",
        "SOPA paper, section 3.4, figures 7 and 8: flows 0 to 4 and 8 to 5 without the link e0_0-a0_0, k=4",
        (part,),
        tuple(rows),
        BOTH,
        ("The paper does not say how much the flows send: 10 MB each. Delays are of the time when both send.",),
    )


def four_flows() -> Figure:
    """Figures 9 and 10."""
    part = Part("four-flows", "four-flows", 4, ("sopa", "rps", NO_SACK), 0.2, 5)
    rows = [
        Row("sopa, mean Mbit/s", part.name, "sopa", "mean", 475.0),
        Row("rps, mean Mbit/s", part.name, "rps", "mean", 378.30),
        Row("rps without SACK, mean Mbit/s", part.name, NO_SACK, "mean", 378.30),
        Row("rps, slowest", part.name, "rps", "minimum", 360.55),
        Row("rps, fastest", part.name, "rps", "maximum", 404.27),
        Row("rps, fast retransmits of a flow", part.name, "rps", "fast_retransmits_of_a_flow", 25.25),
        Row("sopa, fast retransmits of a flow", part.name, "sopa", "fast_retransmits_of_a_flow", 0.0),
        Row("rps, reordered %", part.name, "rps", "reordered_percent", 14.92),
        Row("sopa, reordered %", part.name, "sopa", "reordered_percent", 0.4),
        Row("rps, longest delay, us", part.name, "rps", "delay_most", 687.4),
        Row("sopa, longest delay, us", part.name, "sopa", "delay_most", 366.27),
        Row("rps, shortest delay, us", part.name, "rps", "delay_least", 211.0),
        Row("sopa, shortest delay, us", part.name, "sopa", "delay_least", 187.0),
        Row("rps, longest queue, packets", part.name, "rps", "queue_most"),
        Row("sopa, longest queue, packets", part.name, "sopa", "queue_most"),
    ]
    return Figure(
        "four-flows",
        "SOPA paper, section 4.2, figures 9 and 10: servers 0 and 1 each send 10 MB to 4 and 5, k=4",
        (part,),
        tuple(rows),
        BOTH,
        (
            "Over six links of 1 Gbit/s and 25 ns each, a packet of 1500 bytes takes 72 us, and 187 us over links of 19 us. "
            "The last packet is a smaller one.",
        ),
    )
