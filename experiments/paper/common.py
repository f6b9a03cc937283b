"""What several figures share: variants, sizes, and the runs of the permutation. Pure."""

from __future__ import annotations

from experiments.paper.figure import Part, Variant

K = 24
WRITTEN = Variant("", "here")
LEGACY_TCP = Variant("tcp-of-then", "TCP of then", ("initial-window=1", "slow-start-threshold=65535"))
SMALL_WINDOWS = Variant("buffers", "windows of 64 KiB", ("send-buffer=65535", "receive-buffer=65535"))
LEGACY = Variant(
    "then",
    "20 us a link, TCP of then",
    ("delay=20us", *LEGACY_TCP.options, *SMALL_WINDOWS.options, "loss-recovery=ns-3.20"),
)
"""What the paper's own numbers hint at. Its shortest delays (187 us, figure 10) are those of six links of 19 us each, not of 25 ns.
Its windows leave slow start without a loss (figure 10e), as in ns-3 until 3.24, where slow start ended at 65,535 bytes; the
first window was one segment until 3.31, and none was above 65,535 bytes until 3.21 (ns-3's CHANGES and RELEASE_NOTES). Its
senders recovered from losses as NewReno did then: so a flow over 4:1 has 326 fast retransmits and 2,234 packets sent again (the
paper's has 347 and 2,406), where ns-3 3.37 has 2,351 and 39,962 without selective acknowledgements. Its least timeout was
200 ms, as here: example 2's 64 KB at 2.41 Mbit/s took 218 ms."""
PACED = Variant("paced", "paced at 930", ("pacing=930",))
"""No connection sends more than 930 of the 970.7 Mbit/s of payload that a link carries: a full fabric has some slack then."""
BOTH = (WRITTEN, LEGACY)
THRESHOLDS = (3, 6, 10, 15, 20)
ALL = ("sopa", "rps", "plts-rr", "plts-cnt", "plts-rnd", "ecmp", "hedera", "drb")
SIZES = (4, 8, 12, 16, 20, 24)
SEVERAL_SEEDS_UP_TO = 16
PERMUTATION, PAIRS = "permutation-transfers", "ftp-transfers"
"""Every host sends and receives; every host sends or receives."""
TEN_MEGABYTES = 0.1
"""Seconds, with which `permutation-transfers` has 10 MB."""
TO_THE_END = ("patience=50",)
"""Every flow of a permutation ends: those that share a link at first have it alone at last."""


def with_threshold(scheme: str, threshold: int) -> str:
    """A scheme's name with that fast-retransmit threshold."""
    usual = {"sopa": 10, "rps": 3}[scheme]
    return scheme if threshold == usual else f"{scheme}+fr={threshold}"


def permutation_part(k: int, schemes: tuple[str, ...], seeds: int = 1) -> Part:
    """Runs of the permutation with 10 MB a flow."""
    name = "permutation" if k == K else f"permutation-k{k}"
    return Part(name, PERMUTATION, k, schemes, TEN_MEGABYTES, seeds, TO_THE_END)


def pairs_part(k: int, schemes: tuple[str, ...], seeds: int = 1) -> Part:
    """Runs in which "each server is a sender or receiver for just one flow" (example 1), with 10 MB a flow."""
    name = "pairs" if k == K else f"pairs-k{k}"
    return Part(name, PAIRS, k, schemes, TEN_MEGABYTES, seeds, TO_THE_END)


def production_part(workload: str, schemes: tuple[str, ...]) -> Part:
    """Runs of `production`, or of `failure`: each host sends 3.75 MB, and the rest of the flow with which it gets there."""
    return Part(workload, workload, K, schemes, 0.03, 1, ("all-transfers=1", "patience=10000", "hedera-period=10ms"))
