"""What the papers do not have: fabrics of all sizes, and what the slowest flow depends on. Pure."""

from __future__ import annotations

from dataclasses import replace

from experiments.paper.common import (
    ALL,
    LEGACY,
    LEGACY_TCP,
    PACED,
    SEVERAL_SEEDS_UP_TO,
    SIZES,
    SMALL_WINDOWS,
    WRITTEN,
    K,
    pairs_part,
    permutation_part,
    production_part,
)
from experiments.paper.figure import Figure, Row, Variant


def sizes() -> Figure:
    """The permutation with every scheme."""
    parts = tuple(
        permutation_part(k, tuple(one for one in ALL if k <= SEVERAL_SEEDS_UP_TO or one != "plts-rnd"), _seeds_of(k))
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
        "every host sends 10 MB to one of another pod and receives from one, in fabrics of all sizes, with every scheme",
        parts,
        rows,
        (WRITTEN,),
        (f"plts-rnd is rps in the simulator, packet for packet, and is left out above k={SEVERAL_SEEDS_UP_TO}.",),
    )


def _seeds_of(k: int) -> int:
    return 3 if k <= SEVERAL_SEEDS_UP_TO else 1


def starts() -> Figure:
    """What the slowest flow depends on."""
    variants = (
        WRITTEN,
        PACED,
        Variant("spread", "starts over 1 ms", ("spread=1ms",)),
        Variant("receiver", "first path by receiver", ("first-path=receiver",)),
        Variant("random", "at random", ("first-path=random",)),
        replace(LEGACY_TCP, title="first window 1, slow start to 64 KiB"),
        SMALL_WINDOWS,
    )
    part = permutation_part(K, ("sopa",))
    rows = tuple(
        Row(what, part.name, "sopa", measure, paper)
        for what, measure, paper in (
            ("mean Mbit/s", "mean", 925.13),
            ("slowest", "minimum", 910.0),
            ("fast retransmits", "fast_retransmits", None),
            ("reordered %", "reordered_percent", None),
        )
    )
    return Figure(
        "starts",
        "what SOPA's slowest flow depends on if every host sends and receives, k=24",
        (part,),
        rows,
        variants,
    )


def hedera_period() -> Figure:
    """What Hedera depends on."""
    part = pairs_part(K, ("hedera",))
    variants = (
        replace(WRITTEN, title="every 10 ms"),
        *(Variant(f"hedera-{ms}ms", f"every {ms} ms", (f"hedera-period={ms}ms",)) for ms in (20, 50, 80)),
    )
    rows = (
        Row("mean Mbit/s (the abstract)", part.name, "hedera", "mean", 615.1),
        Row("slowest", part.name, "hedera", "minimum"),
    )
    return Figure(
        "hedera-period",
        "how often Hedera's controller looks, in the runs of figure 11, k=24",
        (part,),
        rows,
        variants,
        (
            "A flow that has a link for itself takes 83 ms here: a controller that looks less often finds only those that others "
            "have slowed down.",
        ),
    )


def hashing() -> Figure:
    """What ECMP depends on, and Hedera where its flows are too short for it."""
    pairs, production = pairs_part(K, ("ecmp", "hedera")), production_part("production", ("ecmp", "hedera"))
    rows = (
        Row("section 4.3, ecmp, mean Mbit/s", pairs.name, "ecmp", "mean", 217.6),
        Row("ecmp, mean Mbit/s (the abstract)", pairs.name, "ecmp", "mean", 520.5),
        Row("section 4.3, hedera, mean Mbit/s", pairs.name, "hedera", "mean", 229.3),
        Row("hedera, mean Mbit/s (the abstract)", pairs.name, "hedera", "mean", 615.1),
        Row("section 4.4, ecmp, a host's mean, Mbit/s", production.name, "ecmp", "host_mean", 103.849),
        Row("section 4.4, hedera, a host's mean, Mbit/s", production.name, "hedera", "host_mean", 105.005),
    )
    alike = Variant(f"{LEGACY.name}-alike", "all alike", (*LEGACY.options, "hash=same"))
    return Figure(
        "hashing",
        "how switches hash flows, in the runs of figure 11 and section 4.4, 20 us a link, TCP of then, k=24",
        (pairs, production),
        rows,
        (replace(LEGACY, title="each in its own way"), alike),
        (
            "Where all switches hash alike, flows that an aggregation switch gets have the same hash already: 12 of the 144 paths "
            "between two pods are used.",
        ),
    )


def first_path() -> Figure:
    """Where the paper's hosts began."""
    part = pairs_part(K, ("sopa+fr=3", "sopa"))
    variants = tuple(
        Variant(name, title, (*LEGACY.options, *options))
        for name, title, options in (
            (LEGACY.name, "by sender", ()),
            (f"{LEGACY.name}-random", "at random", ("first-path=random",)),
            (f"{LEGACY.name}-zero", "all on the first", ("first-path=zero",)),
        )
    )
    rows = tuple(
        Row(what, part.name, scheme, measure, paper)
        for what, scheme, measure, paper in (
            ("threshold 3, fast retransmits", "sopa+fr=3", "fast_retransmits", 2_728),
            ("threshold 3, reordered %", "sopa+fr=3", "reordered_percent", 2.83),
            ("threshold 3, mean Mbit/s", "sopa+fr=3", "mean", None),
            ("threshold 10, mean Mbit/s", "sopa", "mean", 925.13),
            ("threshold 10, slowest", "sopa", "minimum", 910.0),
            ("threshold 10, fast retransmits", "sopa", "fast_retransmits", None),
            ("threshold 10, reordered %", "sopa", "reordered_percent", None),
        )
    )
    return Figure(
        "first-path",
        "on which of its candidate paths each flow of figure 6 begins, 20 us a link, TCP of then, k=24",
        (part,),
        rows,
        variants,
        ("The paper does not say where flows begin.",),
    )
