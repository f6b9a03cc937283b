"""Variants, sizes and runs that several figures share. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from experiments.paper.figure import Part, Row, Variant

K = 24
WRITTEN = Variant("", "here")
LEGACY_TCP = Variant("tcp-of-then", "legacy TCP", ("initial-window=1", "slow-start-threshold=65535"))
SMALL_WINDOWS = Variant("buffers", "windows of 64 KiB", ("send-buffer=65535", "receive-buffer=65535"))
LEGACY = Variant(
    "then",
    "20 us per link, legacy TCP",
    ("delay=20us", *LEGACY_TCP.options, *SMALL_WINDOWS.options, "loss-recovery=ns-3.20"),
)
"""Settings that the numbers of the paper suggest. Its shortest delays (187 us, figure 10) are those of six links of 19 us
each, not of 25 ns. Its windows leave slow start without a loss (figure 10e), as in ns-3 up to 3.24, where slow start
ended at 65,535 bytes; the initial window was one segment up to 3.31, and windows were limited to 65,535 bytes up to
3.21 (CHANGES and RELEASE_NOTES of ns-3). Its senders recovered from losses with the legacy NewReno: a flow over 4:1
then has 326 fast retransmits and 2,234 retransmitted packets (347 and 2,406 in the paper), but 2,351 and 39,962 with
ns-3 3.37 and no selective acknowledgements. Its minimum timeout was 200 ms, as here: 64 KB at 2.41 Mbit/s in example 2
took 218 ms."""
PACED = Variant("paced", "paced at 930", ("pacing=930",))
"""Limits connections to 930 of the 970.7 Mbit/s of payload that a link carries: a full fabric then has some slack."""
BOTH = (WRITTEN, LEGACY)
THRESHOLDS = (3, 6, 10, 15, 20)
ALL = ("sopa", "rps", "plts-rr", "plts-cnt", "plts-rnd", "ecmp", "hedera", "drb")
SIZES = (4, 8, 12, 16, 20, 24)
SEVERAL_SEEDS_UP_TO = 16
PERMUTATION, PAIRS = "permutation-transfers", "ftp-transfers"
"""Every host sends and receives; every host either sends or receives."""
TEN_MEGABYTES = 0.1
"""Seconds with which `permutation-transfers` has 10 MB."""
TO_THE_END = ("patience=50",)
"""Lets every flow of a permutation end: flows that share a link first have it alone at last."""


def with_threshold(scheme: str, threshold: int) -> str:
    """Return the name of a scheme with a fast-retransmit threshold."""
    usual = {"sopa": 10, "rps": 3}[scheme]
    return scheme if threshold == usual else f"{scheme}+fr={threshold}"


def threshold_rows(
    part: Part, base: str, what: str, measure: str, paper: Mapping[int, float] = MappingProxyType({})
) -> tuple[Row, ...]:
    """Return a row with a measure of a scheme for each threshold. ``paper`` has the numbers of the paper by threshold."""
    return part.rows(
        *((f"{base}, {each}, {what}", with_threshold(base, each), measure, paper.get(each)) for each in THRESHOLDS)
    )


def permutation_part(k: int, schemes: tuple[str, ...], seeds: int = 1) -> Part:
    """Return runs of the permutation with 10 MB per flow."""
    name = "permutation" if k == K else f"permutation-k{k}"
    return Part(name, PERMUTATION, k, schemes, TEN_MEGABYTES, seeds, TO_THE_END)


def pairs_part(k: int, schemes: tuple[str, ...], seeds: int = 1) -> Part:
    """Return runs in which "each server is a sender or receiver for just one flow" (example 1), with 10 MB per flow."""
    name = "pairs" if k == K else f"pairs-k{k}"
    return Part(name, PAIRS, k, schemes, TEN_MEGABYTES, seeds, TO_THE_END)


def production_part(workload: str, schemes: tuple[str, ...]) -> Part:
    """Return runs of `production` or `failure`: each host sends at least 3.75 MB, up to the end of a flow."""
    return Part(workload, workload, K, schemes, 0.03, 1, ("all-transfers=1", "patience=10000", "hedera-period=10ms"))
