"""Figures of the SOPA paper with 3,456 hosts: 4, 6, 11, 12, example 2, section 4.4; and that of the PLTS paper with 54. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from experiments.paper.figure import Figure, Part
from experiments.paper.shared_parts import (
    BOTH,
    LEGACY,
    THRESHOLDS,
    WRITTEN,
    K,
    pairs_part,
    production_part,
    threshold_rows,
    with_threshold,
)


def thresholds() -> Figure:
    """Return example 1, figures 4 and 6."""
    schemes = tuple(with_threshold(base, threshold) for base in ("rps", "sopa") for threshold in THRESHOLDS)
    part = pairs_part(K, schemes)
    retransmits = {3: 28_708, 6: 6_753, 10: 516, 15: 62, 20: 3}
    sopa = (
        threshold_rows(part, "sopa", "fast retransmits", "fast_retransmits", {3: 2_728}),
        threshold_rows(part, "sopa", "mean Mbit/s", "mean"),
        threshold_rows(part, "sopa", "slowest", "minimum"),
    )
    rows = (
        *threshold_rows(part, "rps", "fast retransmits", "fast_retransmits", retransmits),
        *threshold_rows(part, "rps", "mean Mbit/s", "mean", {10: 896.24, 15: 919.82, 20: 921.16}),
        *threshold_rows(part, "rps", "slowest", "minimum"),
        part.row("rps, 3, reordered %", "rps", "reordered_percent", 10.96),
        part.row("sopa, 3, reordered %", "sopa+fr=3", "reordered_percent", 2.83),
        *chain.from_iterable(zip(*sopa, strict=True)),
    )
    return Figure(
        "thresholds",
        "SOPA paper, section 3.2.2, example 1, figures 4 and 6: the fast-retransmit threshold, a permutation, k=24",
        (part,),
        rows,
        BOTH,
        (
            "In example 1 each server is a sender or a receiver: 1,728 flows. It does not specify their size: here 10 MB, as in "
            "section 4.3.",
        ),
    )


def short_flow() -> Figure:
    """Return example 2."""
    schemes = tuple(with_threshold("rps", threshold) for threshold in THRESHOLDS)
    part = Part("short-flow", "short-flow-beside-incast", K, schemes, 0.64, 10)
    mbit = {3: 53.16, 6: 61.14, 10: 57.84, 15: 2.41, 20: 2.42}
    rows = (
        *threshold_rows(part, "rps", "the short flow, Mbit/s", "short_mean", mbit),
        *threshold_rows(part, "rps", "timeouts of the short flow", "short_timeouts"),
    )
    return Figure(
        "short-flow",
        "SOPA paper, section 3.2.2, example 2: 64 KB to a client that fetches 64 MB from three servers, k=24",
        (part,),
        rows,
        BOTH,
        ("The paper has one run, and does not specify hosts and times: here hosts are drawn from each seed.",),
    )


def permutations() -> Figure:
    """Return figure 11."""
    part = pairs_part(K, ("sopa", "rps", "hedera", "ecmp", "drb"))
    rows = [
        part.row("sopa, mean Mbit/s", "sopa", "mean", 925.13),
        part.row("sopa, slowest", "sopa", "minimum", 910.0),
        part.row("sopa, fast retransmits", "sopa", "fast_retransmits"),
        part.row("sopa, reordered %", "sopa", "reordered_percent"),
        *(
            part.row(f"{scheme}, mean Mbit/s ({where})", scheme, "mean", round(paper, 1))
            for scheme, abstract, less in (
                ("rps", 29.87, 47.47),
                ("hedera", 50.41, 75.21),
                ("ecmp", 77.74, 76.48),
            )
            for where, paper in (
                (f"the abstract: SOPA has {abstract}% more", 925.13 / (1 + abstract / 100)),
                (f"section 4.3: {less}% below SOPA", 925.13 * (1 - less / 100)),
            )
        ),
        *(part.row(f"{scheme}, slowest", scheme, "minimum") for scheme in ("rps", "hedera", "ecmp")),
        part.row("drb, mean Mbit/s", "drb", "mean"),
        part.row("drb, slowest", "drb", "minimum"),
    ]
    return Figure(
        "permutation",
        "SOPA paper, section 4.3, figure 11: each of 3,456 hosts sends or receives 10 MB, k=24",
        (part,),
        tuple(rows),
        BOTH,
        (
            "Senders and receivers are drawn at random, half of the hosts each, as in example 1. The figure sizes has the "
            "permutation in which every host does both.",
            "925.13 is 970.07 in units of 2^20 bit/s, and a link carries 970.7 Mbit/s of payload with the option.",
            "The paper contradicts itself: the abstract's gains and section 4.3's losses are of different means.",
            "A mean is that of the throughputs of flows, each from its start to its last byte.",
            "Hedera polls every 10 ms. With the 5 s of its paper every flow here would end before: that is ECMP.",
        ),
    )


HOST_MEASURES = (("slowest host", "host_minimum"), ("timeouts", "timeouts"), ("packets dropped", "dropped"))


def production() -> Figure:
    """Return section 4.4."""
    part = production_part("production", ("sopa", "rps", "hedera", "ecmp"))
    paper = {"sopa": 465.5, "rps": 302.96, "hedera": 105.005, "ecmp": 103.849}
    rows = [part.row(f"{scheme}, a host's mean, Mbit/s", scheme, "host_mean", found) for scheme, found in paper.items()]
    rows += [part.row(f"{scheme}, {what}", scheme, measure) for what, measure in HOST_MEASURES for scheme in paper]
    return Figure(
        "production",
        "SOPA paper, section 4.4: every host sends flow after flow to random hosts, 95% below 1 MB, k=24",
        (part,),
        tuple(rows),
        BOTH,
        (
            "The paper gives two points of the distribution of sizes, and not how much hosts send: sizes are those of the workload "
            "production, and each host sends at least 3.75 MB, up to the end of a flow. The throughput of a host is that of all "
            "its flows together, from the first byte to the last.",
        ),
    )


def failed_switch() -> Figure:
    """Return figure 12."""
    healthy, broken = (production_part(workload, ("sopa", "rps")) for workload in ("production", "failure"))
    rows = []
    for part, state, values in (
        (healthy, "no failure", {"sopa": (244.0, None, None, None), "rps": (214.54, 865.41, None, 0.0)}),
        (broken, "failure", {"sopa": (188.17, None, 0.0, 0.0), "rps": (26.17, 672.25, 67.0, 12_000.0)}),
    ):
        for scheme, (slowest, fastest, timeouts, dropped) in values.items():
            rows += [
                part.row(f"{scheme}, {state}, slowest host, Mbit/s", scheme, "host_minimum", slowest),
                part.row(f"{scheme}, {state}, fastest host", scheme, "host_maximum", fastest),
                part.row(f"{scheme}, {state}, mean", scheme, "host_mean"),
                part.row(f"{scheme}, {state}, timeouts", scheme, "timeouts", timeouts),
                part.row(f"{scheme}, {state}, packets dropped", scheme, "dropped", dropped),
            ]
    return Figure(
        "failed-switch",
        "SOPA paper, section 4.5, figure 12: the same, and the first pod's leftmost aggregation switch fails, k=24",
        (healthy, broken),
        tuple(rows),
        (LEGACY,),
        (
            "The paper does not specify when the switch fails and when the failure is in force: here after 10 ms, immediately.",
        ),
    )


def ftp() -> Figure:
    """Return figure 1 of the PLTS paper."""
    part = Part("ftp", "ftp", 6, ("plts-rr", "plts-cnt", "plts-rnd", "ecmp", "sopa"), 0.5, 5)
    paper: Mapping[str, float] = {"plts-rr": 92.0, "plts-cnt": 81.0}
    rows = [
        part.row(f"{scheme}, % of a link's payload", scheme, "link_percent", paper.get(scheme))
        for scheme in part.schemes
    ]
    rows += [part.row(f"{scheme}, slowest flow, Mbit/s", scheme, "minimum") for scheme in ("plts-rr", "ecmp", "sopa")]
    rows += [part.row(f"{scheme}, fastest flow", scheme, "maximum") for scheme in ("plts-rr", "ecmp", "sopa")]
    rows += [part.row(f"{scheme}, delay, 99th percentile, us", scheme, "delay_p99") for scheme in part.schemes]
    return Figure(
        "ftp",
        "PLTS paper, section 3, figure 1: 27 FTPs between 54 hosts drawn at random, k=6",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            "The paper used QualNet, with unspecified links, queues and TCP. ECMP is without RED and ECN here.",
            "The other numbers of the figure are drawn only. Delays are those of one flow between pods.",
        ),
    )
