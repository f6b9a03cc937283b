"""Figures 5 to 8 of the CFR paper (Li et al., 2015, section 5), and what it leaves out. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.paper.figure import Bars, Figure, Part, Row
from experiments.paper.shared_parts import WRITTEN
from topologies import Clos

CFR, TCP, SOPA = "cfr", "tcp", "sopa"
DCTCP_20, DCTCP_30, DCTCP_60 = (f"dctcp+ecn-bytes={1000 * kilobytes}" for kilobytes in (20, 30, 60))
RATES = {"1": (1_000.0, 0.2), "10": (10_000.0, 0.05)}
"""Of hosts' links, in Mbit/s, and the seconds of a run."""
SENDERS = (2, 3, 4, 5, 6, 7, 8)
LOADS = (10, 20, 40, 60, 80)
HALF = "uniform-load+50"
DELAYS = ("0us", "100us", "1ms")
DEMANDS = ("flow", "socket", "packet")
SLOTS = (1, 4, 16, 64)
PERCENTILES = {"p50": "median", "p95": "95th", "p99": "99th", "p999": "99.9th"}
QUEUE_PACKETS = 250
WINDOWS = (
    "send-buffer=1048576",
    "receive-buffer=1048576",
    "host-queue=10000",
    "least-timeout=10ms",
    "first-path=random",
)
LONG_LINKS = ("delay=20us",)
TO_THE_END = ("patience=20",)

FABRIC_NOTE = (
    "The paper: 16 ToR switches with 4 hosts at 1 Gbit/s, 8 aggregation switches, two uplinks of 2 Gbit/s per ToR switch, four of "
    "4 Gbit/s from each aggregation switch to 4 core switches. In a Clos fabric a core switch has one link to each pod, so here an "
    "aggregation switch has two of 4 Gbit/s, and together they carry what its ToR switches bring. Neither fabric is oversubscribed "
    "2:1, as the paper says of its own: 4 x 1 Gbit/s stand against 2 x 2."
)
CHOSEN = (
    "The paper gives neither buffers nor latencies: here 250 packets a queue, windows of at most 1 MiB, a minimum timeout of 10 "
    "ms. Slots are of one packet, with a guard of 4%, and a message takes 10 us to the arbiter and from it."
)


def papers_fabric() -> Clos:
    """Return the Clos fabric that is nearest to the one of section 5.1."""
    return Clos(4, 4, 2, 4, 4, mbit={"host": 1_000.0, "edge": 2_000.0, "aggregation": 4_000.0})


def _part(name: str, workload: str, schemes: tuple[str, ...], seconds: float, options: tuple[str, ...] = (), rate: float = 1_000.0,
          seeds: int = 3) -> Part:  # fmt: skip
    return Part(name, workload, 0, schemes, seconds, seeds, (*WINDOWS, *options), papers_fabric(), rate, QUEUE_PACKETS)


COMPLETION = (
    ("flows of 2 to 198 KB, median, ms", "completion_median"),
    ("the same, 99th percentile", "completion_p99"),
)
"""Titles and measures of the workload `HALF`."""
LONGEST_QUEUE = "longest queue, packets", "queue_longest"


def _rows(schemes: Iterable[str], *shown: tuple[Part, Iterable[tuple[str, str]]]) -> tuple[Row, ...]:
    """Return a row for each scheme and measure of each part, by the measure's title."""
    return tuple(
        part.row(f"{scheme}, {title}", scheme, measure)
        for scheme in schemes
        for part, measures in shown
        for title, measure in measures
    )


def throughput() -> Figure:
    """Return figure 5."""
    schemes = (TCP, DCTCP_30, DCTCP_60, CFR)
    parts, rows = [], []
    for gigabits, (rate, seconds) in RATES.items():
        for senders in SENDERS:
            part = _part(f"incast-{gigabits}g-{senders}", f"incast+{senders}", schemes, seconds, LONG_LINKS, rate)
            parts.append(part)
            for scheme in schemes:
                paper = 945.0 if gigabits == "1" and scheme != CFR else None
                title = f"{gigabits} Gbit/s, {senders} flows, {scheme}, Mbit/s together"
                rows.append(part.row(title, scheme, "receiver_mbit", paper))
            rows.append(part.row(f"{gigabits} Gbit/s, {senders} flows, cfr over tcp", CFR, "receiver_mbit", None, TCP))
    groups = {f"{gigabits} G\n{senders}": f"incast-{gigabits}g-{senders}" for gigabits in RATES for senders in SENDERS}
    return Figure(
        "cfr-throughput",
        "CFR paper, section 5.2, figure 5: 2 to 8 long flows from different servers to one receiver at 1 and 10 Gbit/s",
        tuple(parts),
        tuple(rows),
        (WRITTEN,),
        (
            'The prose: "The congestion-free strategy showed only slightly less throughput than TCP and DCTCP with 1 Gbps '
            'link, while both TCP and DCTCP achieved the maximum throughput of 0.945 Gbps. ... the DCTCP performance was '
            'sensitive to value of K. At 30 KB, the DCTCP performed worse than the congestion-free strategy."',
            "Links have 20 us: at 10 Gbit/s a seventh of what is on its way is then more than 30 KB and less than 60 KB, which "
            "DCTCP's paper asks for K. With links of 25 ns K makes no difference.",
            "0.945 of a link is payload with Ethernet's framing, which the simulator does not have: at most 0.973, with the "
            "label 0.971.",
            FABRIC_NOTE,
            CHOSEN,
        ),
        Bars("rate and flows", groups, schemes, "receiver_percent", None, "received (% of a link's payload)", ""),
    )  # fmt: skip


def queues() -> Figure:
    """Return figures 6 and 7."""
    part = _part("incast-queue", "incast", (TCP, DCTCP_20, CFR, SOPA), 0.4)
    papers = {(CFR, "p50"): 2.0, (DCTCP_20, "p50"): 20.0, (TCP, "p50"): 200.0}
    rows = [
        part.row(
            f"{scheme}, {title} of samples, packets",
            scheme,
            f"receiver_queue_{name}",
            papers.get((scheme, name)),
        )
        for scheme in part.schemes
        for name, title in {"p50": "median", "p99": "99th percentile"}.items()
    ]
    for scheme in part.schemes:
        rows += [
            part.row(f"{scheme}, samples with at most two packets, %", scheme, "receiver_queue_short"),
            part.row(f"{scheme}, longest queue of any switch at any time", scheme, "queue_longest"),
            part.row(f"{scheme}, Mbit/s together", scheme, "receiver_mbit"),
        ]
    return Figure(
        "cfr-queues",
        "CFR paper, section 5.3, figures 6 and 7: the queue in front of one receiver of 15 flows, over time and its distribution",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            'The prose: "congestion-free strategy queue length is stable around two packets while the DCTCP (K = 20 KB) queue '
            'length was around 20 packets and TCP queue length is 10 times larger than DCTCP."',
            "The paper does not give the number of servers; theirs sends two requests a second of unknown size, here all send "
            "for the whole run. Its samples are 200 ms apart, here 1 ms. A queue's length includes the packet on the wire.",
            "Plots over time and of the distribution are in the report of the part: queues, queue-cdf.",
            FABRIC_NOTE,
            CHOSEN,
        ),
    )


def round_trips() -> Figure:
    """Return figure 8."""
    part = _part("incast-pings", "incast", (TCP, DCTCP_20, CFR, SOPA), 0.4, ("ping=2ms",))
    rows = [
        part.row(
            f"{scheme}, {title} percentile, us" if name != "p50" else f"{scheme}, median, us", scheme, f"rtt_{name}"
        )
        for scheme in part.schemes
        for name, title in PERCENTILES.items()
    ]
    rows += [
        part.row(f"{DCTCP_20} over cfr, {title}", DCTCP_20, f"rtt_{name}", None, CFR)
        for name, title in PERCENTILES.items()
    ]
    rows += [part.row(f"{scheme}, pings lost, %", scheme, "pings_lost") for scheme in part.schemes]
    return Figure(
        "cfr-rtt",
        "CFR paper, section 5.4, figure 8: round trips of small requests to a receiver of 15 flows",
        (part,),
        tuple(rows),
        (WRITTEN,),
        (
            'The prose: "with TCP, the RTT of interactive requests is substantially worse at the tail of the distribution than '
            'at other points while congestion-free performance was unchanged and maintained significant reductions."',
            "Requests are pings of 64 bytes, as in the paper, from each of the 15 senders with gaps of 2 ms on average. With "
            "cfr they pass in the guard, as ICMP does in the agent: what waits for a slot is data of TCP. cfr-load has times "
            "of flows that wait for slots.",
            FABRIC_NOTE,
            CHOSEN,
        ),
    )


def permutation() -> Figure:
    """Return the permutation that the paper does not have."""
    schemes = (CFR, "cfr+paths=next-fit-ga", SOPA, TCP, "dctcp")
    part = Part("slots-permutation", "permutation", 8, schemes, 0.03, 3, ("least-timeout=10ms",))
    rows = _rows(schemes, (part, (("mean Mbit/s", "mean"), ("slowest", "minimum"), LONGEST_QUEUE)))
    return Figure(
        "cfr-permutation",
        "not in the CFR paper: every host sends to one of another pod and receives from one, k=8",
        (part,),
        rows,
        (WRITTEN,),
        (
            "next-fit-ga is the paper's algorithm 3 with section 4.2; packets without a path wait for a later slot.",
            CHOSEN,
        ),
    )


def load() -> Figure:
    """Return completion times by load."""
    schemes = (CFR, SOPA, "dctcp", TCP)
    parts = tuple(
        _part(f"uniform-load-{percent}", f"uniform-load+{percent}", schemes, 0.05, TO_THE_END) for percent in LOADS
    )
    rows = [
        part.row(f"{percent}%, {scheme}, {title}, ms", scheme, f"completion_{measure}")
        for percent, part in zip(LOADS, parts, strict=True)
        for scheme in schemes
        for title, measure in (("median", "median"), ("99th percentile", "p99"))
    ]
    groups = {f"{percent}%": part.name for percent, part in zip(LOADS, parts, strict=True)}
    return Figure(
        "cfr-load",
        "not in the CFR paper: completion times of its flows of 2 to 198 KB between random hosts, by load",
        parts,
        tuple(rows),
        (WRITTEN,),
        (
            "Sizes and the Poisson process are those of section 5.1, the gap of 10 ms is not: it is a load of 0.1%, or of 8% if it "
            "is that of each host.",
            FABRIC_NOTE,
            CHOSEN,
        ),
        Bars("load", groups, schemes, "completion_median", "completion_p99",
             caption="Hatched: median; whole height: 99th percentile."),
    )  # fmt: skip


def delay() -> Figure:
    """Return the influence of the way to the arbiter, and of what it knows."""
    schemes = tuple(f"cfr+delay={delay}+demand={demand}" for demand in DEMANDS for delay in DELAYS)
    short = _part("slots-delay", HALF, (*schemes, SOPA), 0.05, TO_THE_END)
    long = _part("slots-delay-incast", "incast+8", (*schemes, SOPA), 0.05)
    long_flows = "8 long flows into one host, Mbit/s together", "receiver_mbit"
    queue = "the same, longest queue, packets", "queue_longest"
    rows = _rows((*schemes, SOPA), (short, COMPLETION), (long, (long_flows, queue)))
    return Figure(
        "cfr-delay",
        "not in the CFR paper: 0 to 1 ms to the arbiter and from it, and demand known early or late, at half load",
        (short, long),
        rows,
        (WRITTEN,),
        (
            "demand=flow: the arbiter learns a flow's size when it begins, as in the paper; socket: what the application has "
            "passed to its socket, after the connection is open; packet: only what TCP would send now.",
            CHOSEN,
        ),
    )


def slots() -> Figure:
    """Return the influence of the length of slots."""
    schemes = tuple(f"cfr+slot={packets}" for packets in SLOTS)
    short = _part("slots-length", HALF, (*schemes, SOPA), 0.05, TO_THE_END)
    long = _part("slots-length-permutation", "permutation", (*schemes, SOPA), 0.05)
    queue = "the same, longest queue, packets", "queue_longest"
    alone = ("permutation, mean Mbit/s", "mean"), ("permutation, longest queue, packets", "queue_longest")
    rows = _rows((*schemes, SOPA), (short, (*COMPLETION, queue)), (long, alone))
    return Figure(
        "cfr-slots",
        "not in the CFR paper: slots of 1 to 64 packets, at half load and under a permutation",
        (short, long),
        rows,
        (WRITTEN,),
        (
            "A slot has one destination: the last cell of a flow is as long as the others, however little it carries.",
            FABRIC_NOTE,
            CHOSEN,
        ),
    )  # fmt: skip


def figures() -> tuple[Figure, ...]:
    """Return all of them."""
    return throughput(), queues(), round_trips(), permutation(), load(), delay(), slots()
