"""Figures of the SOPA paper with few flows in a small fabric: 3, 5, 7 to 10, and the ratios of section 3.1. Pure."""

from __future__ import annotations

from experiments.paper.figure import Figure, Part, Row
from experiments.paper.shared_parts import BOTH, WRITTEN

NO_SACK = "rps+sack=off"


def oversubscription() -> Figure:
    """Return section 3.1 and figure 3."""
    papers = {"1:1": 986.06, "4:3": 966.31, "2:1": 578.42, "4:1": 296.03}
    workloads = {ratio: "single-flow" if ratio == "1:1" else f"single-flow-{ratio}" for ratio in papers}
    names = {ratio: workload.replace(":", "-") for ratio, workload in workloads.items()}
    schemes = ("rps", "sopa", NO_SACK)
    parts = tuple(Part(names[ratio], workload, 4, schemes, 1.6, 5) for ratio, workload in workloads.items())
    rows = [Row(f"rps, {ratio}, Mbit/s", names[ratio], "rps", "mean", paper) for ratio, paper in papers.items()]
    rows += [Row(f"sopa, {ratio}, Mbit/s", name, "sopa", "mean") for ratio, name in names.items()]
    rows += [
        Row("rps, 4:1, fast retransmits", "single-flow-4-1", "rps", "fast_retransmits", 347),
        Row("rps, 4:1, retransmitted packets", "single-flow-4-1", "rps", "retransmits", 2406),
        *(
            Row(f"rps without SACK, {ratio}, Mbit/s", names[ratio], NO_SACK, "mean", paper)
            for ratio, paper in papers.items()
        ),
        Row("rps without SACK, 4:1, fast retransmits", "single-flow-4-1", NO_SACK, "fast_retransmits", 347),
        Row("rps without SACK, 4:1, retransmitted packets", "single-flow-4-1", NO_SACK, "retransmits", 2406),
    ]
    return Figure(
        "oversubscription",
        "SOPA paper, section 3.1 and figure 3: 100 MB from server 0 to 5 alone, k=4",
        parts,
        tuple(rows),
        BOTH,
        (
            "The paper's rate at 1:1 is above what 1460 of 1500 bytes allow (973.3 Mbit/s): it seems to count TCP's header.",
            "ns-3 has selective acknowledgements since 3.26; its behaviour without them has changed since. Legacy TCP never "
            "uses them.",
            "2,406 are 3.35% of 71,820 packets of 1460 bytes: the paper's 100 MB are 104,857,600 bytes, here 100,000,000.",
        ),
    )


def paths() -> Figure:
    """Return figure 5."""
    part = Part("single-flow", "single-flow", 4, ("rps", "sopa"), 1.6, 5)
    whole = {"0.0": 24.89, "0.1": 25.10, "1.0": 25.01, "1.1": 25.00}
    rows = [
        part.row(
            "rps, largest deviation from the average per 500 of the first 2000 packets, %", "rps", "deviation", 13.6
        ),
        part.row("sopa, the same", "sopa", "deviation"),
        *(
            part.row(f"rps, packets of the whole flow on path {path}, %", "rps", f"path {path}", found)
            for path, found in whole.items()
        ),
    ]
    return Figure(
        "paths", "SOPA paper, section 3.3.1, figure 5: packets by path, k=4", (part,), tuple(rows), (WRITTEN,)
    )


def failed_link() -> Figure:
    """Return figures 7 and 8."""
    part = Part("asymmetric", "asymmetric", 4, ("sopa", "rps"), 0.16, 5)
    rows = [
        part.row("sopa, flow 0 to 4, Mbit/s", "sopa", "flow 0"),
        part.row("sopa, flow 8 to 5, Mbit/s", "sopa", "flow 1"),
        part.row("sopa, delay on shared paths, us", "sopa", "overlapping_delay"),
        part.row("sopa, delay on other paths, us", "sopa", "other_delay"),
        part.row("sopa, flow 8 to 5, reordered %", "sopa", "flow 1 reordered_percent"),
        part.row("sopa, fast retransmits", "sopa", "fast_retransmits"),
        part.row("rps, flow 0 to 4, Mbit/s", "rps", "flow 0"),
        part.row("rps, flow 8 to 5, Mbit/s", "rps", "flow 1"),
    ]
    return Figure(
        "failed-link",
        "SOPA paper, section 3.4, figures 7 and 8: flows 0 to 4 and 8 to 5 without the link e0_0-a0_0, k=4",
        (part,),
        tuple(rows),
        BOTH,
        ("The paper does not specify the size of the flows: here 10 MB each. Delays are those while both send.",),
    )


def four_flows() -> Figure:
    """Return figures 9 and 10."""
    part = Part("four-flows", "four-flows", 4, ("sopa", "rps", NO_SACK), 0.2, 5)
    rows = [
        part.row("sopa, mean Mbit/s", "sopa", "mean", 475.0),
        part.row("rps, mean Mbit/s", "rps", "mean", 378.30),
        part.row("rps without SACK, mean Mbit/s", NO_SACK, "mean", 378.30),
        part.row("rps, slowest", "rps", "minimum", 360.55),
        part.row("rps, fastest", "rps", "maximum", 404.27),
        part.row("rps, fast retransmits of a flow", "rps", "fast_retransmits_of_a_flow", 25.25),
        part.row("sopa, fast retransmits of a flow", "sopa", "fast_retransmits_of_a_flow", 0.0),
        part.row("rps, reordered %", "rps", "reordered_percent", 14.92),
        part.row("sopa, reordered %", "sopa", "reordered_percent", 0.4),
        part.row("rps, longest delay, us", "rps", "delay_most", 687.4),
        part.row("sopa, longest delay, us", "sopa", "delay_most", 366.27),
        part.row("rps, shortest delay, us", "rps", "delay_least", 211.0),
        part.row("sopa, shortest delay, us", "sopa", "delay_least", 187.0),
        part.row("rps, longest queue, packets", "rps", "queue_most"),
        part.row("sopa, longest queue, packets", "sopa", "queue_most"),
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
