"""Figures 5 to 10 of the MCS paper (Li, Bi, Wang, IFIP Networking 2017, section VI), which have no numbers. Pure."""

from __future__ import annotations

from dataclasses import replace

from experiments.paper.figure import Bars, Figure, Part, Row
from experiments.paper.shared_parts import WRITTEN
from topologies import Clos

RATE_MBIT = 10_000.0
QUEUE_PACKETS = 250
OPTIONS = (
    "delay=2us",
    "host-queue=10000",
    "send-buffer=262144",
    "receive-buffer=262144",
    "least-timeout=10ms",
    "first-path=random",
    "resequencing=2ms",
)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8)
"""Hosts of a rack, the paper's m."""
CHANNELS = ("mcs-ports+channels=2", "mcs-ports+channels=4", "mcs-ports", "mcs-ports+channels=16")
BASELINE, MCS, PATHS, MPTCP, PER_PACKET = "ecmp-vcc", "mcs-ports", "mcs", "mptcp", "per-packet"
COMPARED = (BASELINE, MCS, PATHS, MPTCP, PER_PACKET)
BURST = f"{MCS}+segments=44"
"""44 segments are 64 KB, the most that Linux' GSO gathers."""
UNEVEN = {"e0_0-a0_0": RATE_MBIT / 2}
SEEDS = 3
FAILURE_SEEDS = 10
CHOSEN = (
    "The paper gives neither the latency of links, nor queues, thresholds of marks and buffers: here 2 us per link, 250 packets at "
    "switches and 10,000 at hosts, marks above 65 packets (DCTCP's paper) at the ports of switches, windows of at most 256 KiB, a "
    "minimum timeout of 10 ms. TCP of MCS and ecmp-vcc is NewReno with selective acknowledgements and without ECN."
)
MODEL = (
    "mptcp is a model above TCP: eight connections with DCTCP share the data of a transfer, each segment to the one with the "
    "largest available window. It has no bytes of options, no common receive window, opens all subflows together, and sends "
    "nothing again on another subflow."
)


def two_racks(hosts: int, uneven: bool = False) -> Clos:
    """Return the fabric of figure 4: two edge switches with so many hosts each, and four aggregation switches."""
    mbit = {"host": RATE_MBIT, "edge": RATE_MBIT}
    return Clos(1, 2, 4, 0, hosts, mbit=mbit, links=UNEVEN if uneven else {})


def _part(hosts: int, schemes: tuple[str, ...], uneven: bool = False) -> Part:
    name = f"two-racks-{'uneven-' if uneven else ''}m{hosts}"
    return Part(
        name, "rack-pairs", 0, schemes, 0.05, SEEDS, (*OPTIONS, "burst-wait=20us", "patience=10"), two_racks(hosts, uneven),
        RATE_MBIT, QUEUE_PACKETS,
    )  # fmt: skip


def _benchmark(name: str, source: str, schemes: tuple[str, ...], notes: tuple[str, ...], uneven: bool = False,
               over: tuple[tuple[str, str], ...] = ()) -> Figure:  # fmt: skip
    """Return a figure with a bar of each scheme for each m. ``over`` has pairs whose mean completion times are divided."""
    parts = tuple(_part(hosts, schemes, uneven) for hosts in SIZES)
    rows: list[Row] = []
    for hosts, part in zip(SIZES, parts, strict=True):
        for scheme in schemes:
            rows += [
                part.row(f"m={hosts}, {scheme}, mean completion, ms", scheme, "completion_mean"),
                part.row(f"m={hosts}, {scheme}, longest completion, ms", scheme, "completion_most"),
            ]
        rows += [
            part.row(f"m={hosts}, {scheme} over {other}, mean completion", scheme, "completion_mean", None, other)
            for scheme, other in over
        ]
    bars = Bars("m", {str(hosts): part.name for hosts, part in zip(SIZES, parts, strict=True)}, schemes)
    return Figure(name, source, parts, tuple(rows), (WRITTEN,), (*notes, CHOSEN), bars)


def channels() -> Figure:
    """Return figure 5."""
    return _benchmark(
        "mcs-channels",
        "MCS paper, section VI.B, figure 5: m hosts send 50 MB each to as many in another rack, by the number of channels",
        (BASELINE, *CHANNELS),
        (
            'The prose: MCS "is better than Baseline even when there are only 2 channels. More channels can introduce better '
            'performance. However, the benefit of increasing channels is limited."',
        ),
        over=tuple((scheme, BASELINE) for scheme in CHANNELS),
    )


def schemes() -> Figure:
    """Return figure 6a."""
    return _benchmark(
        "mcs-schemes",
        "MCS paper, section VI.C, figure 6a: the same with other solutions",
        COMPARED,
        (
            'The prose: "PerPacket is the best solution ... MPTCP is very close to PerPacket. Baseline has the worst performance. '
            'MCS is much better than Baseline and close to MPTCP."',
            "mcs is the variant of this project: channels are candidate paths, not random ones.",
            MODEL,
        ),
        over=((MCS, MPTCP), (PATHS, MPTCP), (MCS, BASELINE)),
    )


def asymmetric() -> Figure:
    """Return figure 6b."""
    return _benchmark(
        "mcs-asymmetric",
        "MCS paper, section VI.C, figure 6b: the same with 5 Gbit/s on one link, e0_0-a0_0",
        COMPARED,
        (
            'The prose: "Baseline is still not good. However, PerPacket is almost as poor as Baseline when m is large. ... MPTCP '
            'still has a very good performance, and MCS is close to it."',
            "The text does not say where in figure 4 link L is: here between the senders' switch and the first aggregation switch. "
            "Channels of mcs have the path set's weights.",
            MODEL,
        ),
        uneven=True,
        over=((MCS, MPTCP), (PATHS, MPTCP), (MCS, BASELINE)),
    )


def bursts() -> Figure:
    """Return figure 7."""
    return _benchmark(
        "mcs-gso",
        "MCS paper, section VI.D, figure 7: the same with segmentation offload",
        (BASELINE, MCS, BURST),
        (
            'The prose: "MCS with GSO is still much better than Baseline. However, it is a little worse than MCS without GSO."',
            "The paper does not give the size of a packet before segmentation: here 44 segments, gathered for 20 us at most and "
            "until they are a third of the window.",
        ),
        over=((BURST, MCS), (BURST, BASELINE)),
    )


def fairness() -> Figure:
    """Return figure 8."""
    whole = _part(4, (MCS, PATHS))
    part = replace(whole, name="two-racks-series", options=(*whole.options, "series=1ms"))
    rows = [
        part.row(f"{scheme}, {what}", scheme, measure)
        for scheme in part.schemes
        for what, measure in (
            ("slowest of four flows, Mbit/s", "steady_minimum"),
            ("fastest", "steady_maximum"),
            ("their difference, % of the mean", "steady_spread"),
        )
    ]
    return Figure(
        "mcs-fairness",
        "MCS paper, section VI.E, figure 8: throughput of four flows at their receivers in each millisecond, m=4",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            'The prose: throughputs "fluctuate around approximate values (about 8Gbps) after the slow start stage".',
            "Rates are payload that arrives, from a tenth of the time in which all four send to the end of the first.",
            CHOSEN,
        ),
    )


def failure() -> Figure:
    """Return figure 9."""
    part = Part(
        "two-racks-failure", "rack-pair-failure", 0, (MCS, PATHS, BASELINE), 0.1, FAILURE_SEEDS,
        (*OPTIONS, "failure-notice=0", "series=1ms"), two_racks(1), RATE_MBIT, QUEUE_PACKETS,
    )  # fmt: skip
    rows = [
        part.row(f"{scheme}, {what}", scheme, measure, paper)
        for scheme in part.schemes
        for what, measure, paper in (
            ("from the failure until 90% of the later rate, ms", "back_ms", 32.0 if scheme == MCS else None),
            ("rate before, Mbit/s", "before", None),
            ("rate after", "after", None),
            ("timeouts", "timeouts", None),
        )
    ]
    return Figure(
        "mcs-failure",
        "MCS paper, section VI.F, figure 9: one flow, and a link of its rack fails after 10 ms without notice",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            "The paper's flow has channels on the failed link; here those seeds count as well whose flow and acknowledgements have "
            "none: they need no time. With ecmp-vcc a flow on the failed link does not come back: the rest of the run counts.",
            "A timeout counts as a round trip of algorithm 5, and what TCP sends again begins another one. With rounds that end "
            "only when everything is acknowledged that was sent before, no flow was back after 90 ms.",
            CHOSEN,
        ),
    )


def fat_tree() -> Figure:
    """Return figure 10."""
    part = Part(
        "half-load",
        "half-load",
        8,
        (BASELINE, MCS, PATHS, MPTCP),
        0.02,
        1,
        (*OPTIONS, "patience=20"),
        None,
        RATE_MBIT,
        QUEUE_PACKETS,
    )
    rows: list[Row] = []
    for kind in ("large", "small"):
        for scheme in part.schemes:
            rows += [
                part.row(f"{kind} flows, {scheme}, median completion, ms", scheme, f"{kind}_completion_median"),
                part.row(f"{kind} flows, {scheme}, 99th percentile, ms", scheme, f"{kind}_completion_p99"),
            ]
        rows += [
            part.row(
                f"{kind} flows, {scheme} over {BASELINE}, median", scheme, f"{kind}_completion_median",
                0.7 if kind == "large" and scheme in (MCS, MPTCP) else None, BASELINE,
            )
            for scheme in part.schemes[1:]
        ]  # fmt: skip
    return Figure(
        "mcs-fat-tree",
        "MCS paper, section VI.G, figure 10: large and small flows between random hosts at half load, k=8",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            'The prose: "For large flows, the performances of MCS and MPTCP are close to each other and both better than Baseline '
            "(reduce the flow completion time by about 30% at 50th percentile). For small flows, MCS still outperforms Baseline "
            'and is approximate to MPTCP."',
            "The paper gives neither the shape of the Pareto distributions, nor the share of small flows, nor the duration: here "
            "shape 2, 25 small flows for each large one, and starts within 0.02 s. Large flows have a tenth of the paper's size.",
            MODEL,
            CHOSEN,
        ),
    )
