"""Every figure, example and number of the SOPA paper's sections 3 and 4, and the PLTS paper's experiment, as runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .model import Figure, Part, Row, Variant

K = 24
WRITTEN = Variant("", "here")
THEN = Variant(
    "then",
    "20 us a link, TCP of then",
    ("delay=20us", "initial-window=1", "slow-start-threshold=65535"),
)
"""What the paper's own numbers hint at. Its shortest delays (187 us, figure 10) are those of six links of 19 us each, not of 25 ns.
Its windows leave slow start without a loss (figure 10e), as in ns-3 until 3.24, where slow start ended at 65,535 bytes; the
first window was one segment until 3.31 (ns-3's CHANGES and RELEASE_NOTES)."""
TCP_OF_THEN = Variant("tcp-of-then", "TCP of then", THEN.options[1:])
BOTH = (WRITTEN, THEN)
THRESHOLDS = (3, 6, 10, 15, 20)
ALL = ("sopa", "rps", "plts-rr", "plts-cnt", "plts-rnd", "ecmp", "hedera", "drb")
SIZES = (4, 8, 12, 16, 20, 24)
SEVERAL_SEEDS_UP_TO = 16
PERMUTATION = "permutation-transfers"
TEN_MEGABYTES = 0.1
"""Seconds, with which `permutation-transfers` has 10 MB."""
PRODUCTION = 0.1
"""Seconds that hosts send in `production`."""


def _with(scheme: str, threshold: int) -> str:
    usual = {"sopa": 10, "rps": 3}[scheme]
    return scheme if threshold == usual else f"{scheme}+fr={threshold}"


def _permutation(k: int, schemes: tuple[str, ...], seeds: int = 1) -> Part:
    return Part(f"permutation-k{k}", PERMUTATION, k, schemes, TEN_MEGABYTES, seeds)


def _oversubscription() -> Figure:
    ratios = {"1:1": ("single-flow", 986.06), "4:3": ("single-flow-4:3", 966.31), "2:1": ("single-flow-2:1", 578.42),
              "4:1": ("single-flow-4:1", 296.03)}  # fmt: skip
    parts = tuple(Part(name, name, 4, ("rps", "sopa"), 1.6, 5) for name, _ in ratios.values())
    rows = [Row(f"rps, {ratio}, Mbit/s", name, "rps", "mean", paper) for ratio, (name, paper) in ratios.items()]
    rows += [Row(f"sopa, {ratio}, Mbit/s", name, "sopa", "mean") for ratio, (name, _) in ratios.items()]
    rows += [
        Row("rps, 4:1, fast retransmits", "single-flow-4:1", "rps", "fast_retransmits", 347),
        Row("rps, 4:1, sent again", "single-flow-4:1", "rps", "retransmits", 2406),
    ]
    return Figure(
        "oversubscription",
        "SOPA paper, section 3.1 and figure 3: 100 MB from server 0 to 5 alone, k=4",
        parts,
        tuple(rows),
        BOTH,
        (
            "The paper's rate at 1:1 is above what 1460 of 1500 bytes allow (973.3 Mbit/s): it seems to count TCP's header.",
            "3.35% of 100 MB in packets of 1460 bytes are 2,295 packets, not 2,406.",
        ),
    )


def _thresholds() -> Figure:
    schemes = tuple(_with(base, threshold) for base in ("rps", "sopa") for threshold in THRESHOLDS)
    part = replace(_permutation(K, schemes), name="thresholds")
    paper = dict(zip(THRESHOLDS, (28_708, 6_753, 516, 62, 3), strict=True))
    means = {10: 896.24, 15: 919.82, 20: 921.16}
    rows = [
        Row(f"rps, {threshold}, fast retransmits", part.name, _with("rps", threshold), "fast_retransmits", found)
        for threshold, found in paper.items()
    ]
    rows += [
        Row(f"rps, {threshold}, mean Mbit/s", part.name, _with("rps", threshold), "mean", means.get(threshold))
        for threshold in THRESHOLDS
    ]
    rows += [
        Row(f"rps, {threshold}, slowest", part.name, _with("rps", threshold), "minimum") for threshold in THRESHOLDS
    ]
    rows += [
        Row("rps, 3, reordered %", part.name, "rps", "reordered_percent", 10.96),
        Row("sopa, 3, reordered %", part.name, "sopa+fr=3", "reordered_percent", 2.83),
    ]
    known = {3: 2_728}
    for threshold in THRESHOLDS:
        scheme = _with("sopa", threshold)
        rows += [
            Row(
                f"sopa, {threshold}, fast retransmits",
                part.name,
                scheme,
                "fast_retransmits",
                known.get(threshold),
            ),
            Row(f"sopa, {threshold}, mean Mbit/s", part.name, scheme, "mean"),
            Row(f"sopa, {threshold}, slowest", part.name, scheme, "minimum"),
        ]
    return Figure(
        "thresholds",
        "SOPA paper, section 3.2.2, example 1, figures 4 and 6: the fast-retransmit threshold, a permutation, k=24",
        (part,),
        tuple(rows),
        (WRITTEN,),
        ("The paper does not say how much each flow sends in example 1: 10 MB, as in section 4.3.",),
    )


def _short_flow() -> Figure:
    part = Part(
        "short-flow",
        "short-flow-beside-incast",
        K,
        tuple(_with("rps", threshold) for threshold in THRESHOLDS),
        0.64,
        10,
    )
    paper = dict(zip(THRESHOLDS, (53.16, 61.14, 57.84, 2.41, 2.42), strict=True))
    rows = [
        Row(f"rps, {threshold}, the short flow, Mbit/s", part.name, _with("rps", threshold), "short_mean", found)
        for threshold, found in paper.items()
    ]
    rows += [
        Row(f"rps, {threshold}, timeouts of the short flow", part.name, _with("rps", threshold), "short_timeouts")
        for threshold in THRESHOLDS
    ]
    return Figure(
        "short-flow",
        "SOPA paper, section 3.2.2, example 2: 64 KB to a client that fetches 64 MB from three servers, k=24",
        (part,),
        tuple(rows),
        BOTH,
        ("The paper has one run, and does not say who sends to whom nor when: here hosts are drawn from each seed.",),
    )


def _paths() -> Figure:
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


def _failed_link() -> Figure:
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


def _four_flows() -> Figure:
    part = Part("four-flows", "four-flows", 4, ("sopa", "rps"), 0.2, 5)
    rows = [
        Row("sopa, mean Mbit/s", part.name, "sopa", "mean", 475.0),
        Row("rps, mean Mbit/s", part.name, "rps", "mean", 378.30),
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
            "Six links of 1 Gbit/s take 72 us for a packet of 1500 bytes without any queue: the paper's shortest delays must be of "
            "packets that waited, or have time at the hosts in them.",
        ),
    )


def _permutations(name: str, variant: Variant) -> Figure:
    part = replace(_permutation(K, ("sopa", "rps", "hedera", "ecmp", "drb")), name="permutation")
    rows = [
        Row("sopa, mean Mbit/s", part.name, "sopa", "mean", 925.13),
        Row("sopa, slowest", part.name, "sopa", "minimum", 910.0),
        Row("sopa, fast retransmits", part.name, "sopa", "fast_retransmits"),
        Row("sopa, reordered %", part.name, "sopa", "reordered_percent"),
        *(
            Row(f"{scheme}, mean Mbit/s ({where})", part.name, scheme, "mean", round(paper, 1))
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
        *(Row(f"{scheme}, slowest", part.name, scheme, "minimum") for scheme in ("rps", "hedera", "ecmp")),
        Row("drb, mean Mbit/s", part.name, "drb", "mean"),
        Row("drb, slowest", part.name, "drb", "minimum"),
    ]
    return Figure(
        name,
        "SOPA paper, section 4.3, figure 11: 3,456 flows of 10 MB, k=24",
        (part,),
        tuple(rows),
        (variant,),
        (
            "The paper contradicts itself: the abstract's gains and section 4.3's losses are of different means.",
            "A mean is of flows' own throughputs, each from its start to its last byte.",
        ),
    )


def _production() -> Figure:
    part = Part("production", "production", K, ("sopa", "rps", "hedera", "ecmp"), PRODUCTION)
    paper = {"sopa": 465.5, "rps": 302.96, "hedera": 105.005, "ecmp": 103.849}
    rows = [
        Row(f"{scheme}, a host's mean, Mbit/s", part.name, scheme, "host_mean", found)
        for scheme, found in paper.items()
    ]
    rows += [Row(f"{scheme}, slowest host", part.name, scheme, "host_minimum") for scheme in paper]
    return Figure(
        "production",
        "SOPA paper, section 4.4: every host sends flow after flow to random hosts, 95% below 1 MB, k=24",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            "The paper gives two points of the sizes' distribution, and not how long hosts send: sizes are those of the workload "
            "production, and hosts send for 0.1 s. A host's throughput is of all its flows together, from first byte to last.",
        ),
    )


def _failed_switch() -> Figure:
    healthy = Part("production", "production", K, ("sopa", "rps"), PRODUCTION)
    broken = Part("failure", "failure", K, ("sopa", "rps"), PRODUCTION)
    rows = []
    for part, word, values in (
        (healthy, "no failure", {"sopa": (244.0, None, None, None), "rps": (214.54, 865.41, None, 0.0)}),
        (broken, "failure", {"sopa": (188.17, None, 0.0, 0.0), "rps": (26.17, 672.25, 67.0, 12_000.0)}),
    ):
        for scheme, (slowest, fastest, timeouts, dropped) in values.items():
            rows += [
                Row(f"{scheme}, {word}, slowest host, Mbit/s", part.name, scheme, "host_minimum", slowest),
                Row(f"{scheme}, {word}, fastest host", part.name, scheme, "host_maximum", fastest),
                Row(f"{scheme}, {word}, mean", part.name, scheme, "host_mean"),
                Row(f"{scheme}, {word}, timeouts", part.name, scheme, "timeouts", timeouts),
                Row(f"{scheme}, {word}, packets dropped", part.name, scheme, "dropped", dropped),
            ]
    return Figure(
        "failed-switch",
        "SOPA paper, section 4.5, figure 12: the same, and the first pod's leftmost aggregation switch fails, k=24",
        (healthy, broken),
        tuple(rows),
        (WRITTEN,),
        (
            "The paper does not say when the switch fails, nor when others know: here at a third of the time, and at once.",
        ),
    )


def _ftp() -> Figure:
    part = Part("ftp", "ftp", 6, ("plts-rr", "plts-cnt", "plts-rnd", "ecmp", "sopa"), 0.5, 5)
    paper: Mapping[str, float] = {"plts-rr": 92.0, "plts-cnt": 81.0}
    rows = [
        Row(f"{scheme}, % of a link's payload", part.name, scheme, "link_percent", paper.get(scheme))
        for scheme in part.schemes
    ]
    rows += [
        Row(f"{scheme}, slowest flow, Mbit/s", part.name, scheme, "minimum") for scheme in ("plts-rr", "ecmp", "sopa")
    ]
    rows += [Row(f"{scheme}, fastest flow", part.name, scheme, "maximum") for scheme in ("plts-rr", "ecmp", "sopa")]
    rows += [Row(f"{scheme}, delay, 99th percentile, us", part.name, scheme, "delay_p99") for scheme in part.schemes]
    return Figure(
        "ftp",
        "PLTS paper, section 3, figure 1: 27 FTPs between 54 hosts drawn at random, k=6",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            "The paper's are from QualNet, with links, queues and a TCP that it does not tell. ECMP is without RED and ECN here.",
            "The figure's other numbers are only drawn. Delays are of one flow between pods.",
        ),
    )


def _sizes() -> Figure:
    parts = tuple(
        _permutation(k, tuple(one for one in ALL if k <= SEVERAL_SEEDS_UP_TO or one != "plts-rnd"), _seeds(k))
        for k in SIZES
    )
    rows = tuple(
        Row(f"k={part.k}, {scheme}, {what}", part.name, scheme, measure)
        for part in parts
        for scheme in part.schemes
        for what, measure in (("mean Mbit/s", "mean"), ("slowest", "minimum"))
    )
    return Figure(
        "sizes",
        "the permutation of section 4.3 in fabrics of all sizes, with every scheme",
        parts,
        rows,
        (WRITTEN,),
        (f"plts-rnd is rps in the simulator, packet for packet, and is left out above k={SEVERAL_SEEDS_UP_TO}.",),
    )


def _seeds(k: int) -> int:
    return 3 if k <= SEVERAL_SEEDS_UP_TO else 1


def _starts() -> Figure:
    variants = (
        WRITTEN,
        Variant("spread", "starts over 1 ms", ("spread=1ms",)),
        Variant("receiver", "first path by receiver", ("first-path=receiver",)),
        Variant("random", "at random", ("first-path=random",)),
        replace(TCP_OF_THEN, title="first window 1, slow start to 64 KiB"),
        Variant("buffers", "buffers of 64 KiB", ("send-buffer=65535", "receive-buffer=65535")),
    )
    part = replace(_permutation(K, ("sopa",)), name="permutation")
    rows = tuple(
        Row(what, part.name, "sopa", measure, paper)
        for what, measure, paper in (
            ("mean Mbit/s", "mean", 925.13),
            ("slowest", "minimum", 910.0),
            ("fast retransmits", "fast_retransmits", None),
            ("reordered %", "reordered_percent", None),
        )
    )
    return Figure("starts", "what the slowest flow of figure 11 depends on, k=24", (part,), rows, variants)


FIGURES: Mapping[str, Figure] = MappingProxyType(
    {
        figure.name: figure
        for figure in (
            _oversubscription(),
            _paths(),
            _four_flows(),
            _failed_link(),
            _ftp(),
            _short_flow(),
            _permutations("permutation", WRITTEN),
            _thresholds(),
            _production(),
            _failed_switch(),
            _sizes(),
            _starts(),
            _permutations("permutation-then", TCP_OF_THEN),
        )
    }
)
"""By name, those that take longest last."""
