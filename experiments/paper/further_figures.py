"""Figures that the papers lack: fabrics of all sizes, and the factors that the slowest flow depends on. Pure."""

from __future__ import annotations

from dataclasses import replace

from experiments.paper.figure import Figure, Variant
from experiments.paper.shared_parts import (
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


def sizes() -> Figure:
    """Return the permutation in fabrics of all sizes with every scheme."""
    parts = tuple(
        permutation_part(k, tuple(one for one in ALL if k <= SEVERAL_SEEDS_UP_TO or one != "plts-rnd"), _seeds_of(k))
        for k in SIZES
    )
    rows = tuple(
        part.row(f"k={part.k}, {scheme}, {what}", scheme, measure)
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
        (f"plts-rnd is identical to rps in the simulator and omitted above k={SEVERAL_SEEDS_UP_TO}.",),
    )


def _seeds_of(k: int) -> int:
    return 3 if k <= SEVERAL_SEEDS_UP_TO else 1


def starts() -> Figure:
    """Return the factors that the slowest flow of SOPA depends on."""
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
    rows = part.rows(
        ("mean Mbit/s", "sopa", "mean", 925.13),
        ("slowest", "sopa", "minimum", 910.0),
        ("fast retransmits", "sopa", "fast_retransmits", None),
        ("reordered %", "sopa", "reordered_percent", None),
    )
    return Figure(
        "starts",
        "factors of the slowest flow of SOPA if every host sends and receives, k=24",
        (part,),
        rows,
        variants,
    )


def hedera_period() -> Figure:
    """Return the influence of the polling interval of Hedera."""
    part = pairs_part(K, ("hedera",))
    variants = (
        replace(WRITTEN, title="every 10 ms"),
        *(Variant(f"hedera-{ms}ms", f"every {ms} ms", (f"hedera-period={ms}ms",)) for ms in (20, 50, 80)),
    )
    rows = (
        part.row("mean Mbit/s (the abstract)", "hedera", "mean", 615.1),
        part.row("slowest", "hedera", "minimum"),
    )
    return Figure(
        "hedera-period",
        "polling interval of the Hedera controller, in the runs of figure 11, k=24",
        (part,),
        rows,
        variants,
        (
            "A flow that has a link for itself takes 83 ms here: with a longer interval the controller finds only flows that "
            "others have slowed down.",
        ),
    )


def hashing() -> Figure:
    """Return the influence of hash functions on ECMP, and on Hedera with flows that are too short for it."""
    pairs, production = pairs_part(K, ("ecmp", "hedera")), production_part("production", ("ecmp", "hedera"))
    rows = (
        pairs.row("section 4.3, ecmp, mean Mbit/s", "ecmp", "mean", 217.6),
        pairs.row("ecmp, mean Mbit/s (the abstract)", "ecmp", "mean", 520.5),
        pairs.row("section 4.3, hedera, mean Mbit/s", "hedera", "mean", 229.3),
        pairs.row("hedera, mean Mbit/s (the abstract)", "hedera", "mean", 615.1),
        production.row("section 4.4, ecmp, a host's mean, Mbit/s", "ecmp", "host_mean", 103.849),
        production.row("section 4.4, hedera, a host's mean, Mbit/s", "hedera", "host_mean", 105.005),
    )
    alike = Variant(f"{LEGACY.name}-alike", "the same in all", (*LEGACY.options, "hash=same"))
    return Figure(
        "hashing",
        "hash functions of switches, in the runs of figure 11 and section 4.4, 20 us per link, legacy TCP, k=24",
        (pairs, production),
        rows,
        (replace(LEGACY, title="one per switch"), alike),
        (
            "If all switches use the same hash, the flows of an aggregation switch already have equal hashes: 12 of the 144 "
            "paths between two pods are used.",
        ),
    )


def first_path() -> Figure:
    """Return the influence of the first path of each flow."""
    part = pairs_part(K, ("sopa+fr=3", "sopa"))
    variants = (
        replace(LEGACY, title="by sender"),
        Variant(f"{LEGACY.name}-random", "at random", (*LEGACY.options, "first-path=random")),
        Variant(f"{LEGACY.name}-zero", "all on the first", (*LEGACY.options, "first-path=zero")),
    )
    rows = part.rows(
        ("threshold 3, fast retransmits", "sopa+fr=3", "fast_retransmits", 2_728),
        ("threshold 3, reordered %", "sopa+fr=3", "reordered_percent", 2.83),
        ("threshold 3, mean Mbit/s", "sopa+fr=3", "mean", None),
        ("threshold 10, mean Mbit/s", "sopa", "mean", 925.13),
        ("threshold 10, slowest", "sopa", "minimum", 910.0),
        ("threshold 10, fast retransmits", "sopa", "fast_retransmits", None),
        ("threshold 10, reordered %", "sopa", "reordered_percent", None),
    )
    return Figure(
        "first-path",
        "first candidate path of each flow of figure 6, 20 us per link, legacy TCP, k=24",
        (part,),
        rows,
        variants,
        ("The paper does not specify the first path of a flow.",),
    )
