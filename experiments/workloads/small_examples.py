"""The small examples of the SOPA paper, in which a few flows show one effect each. Pure.

The paper numbers the servers of its figure 1 (k=4) from left to right. In a larger fabric they keep their positions,
not their numbers: servers 0 and 1 are in the first rack, 4 and 5 in the first rack of the second pod, 8 in the third
pod. By number, servers 0 and 4 would share a rack at k=12, where there is only one path.
"""

from __future__ import annotations

import math
import random
from functools import partial

from experiments.workloads.checks import need_figure, need_scale
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos, Host, Level, Link, Switch
from topologies.identity import FIRST_HOST

SHORT_BYTES = 64_000
SERVERS = 3
RATIOS = {"single-flow": 1.0, "single-flow-4:3": 0.75, "single-flow-2:1": 0.5, "single-flow-4:1": 0.25}
"""From the name of each variant to the rate of aggregation-core links as a share of that of the others."""


def server(number: int) -> Host:
    """Return the host at the position of a server in figure 1."""
    return Host(number // 4, number % 4 // 2, FIRST_HOST + number % 2)


def four_flows(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with flows 0→4, 0→5, 1→4 and 1→5 of one size: two share the link of each host (section 4.2).

    Each flow gets at most half of a link, so a size of 0.4 of what a link carries in the run takes at least 0.8 of the run.
    """
    need_scale(scale)
    need_figure(tree, "four-flows")
    size = scale.bytes_of(0.4)
    transfers = tuple(Transfer(server(src), server(dst), size) for src in (0, 1) for dst in (4, 5))
    return Plan(transfers, scale.seconds, traced=(0, 1, 2, 3))


def single_flow(core_rate: float, tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with flow 0→5 alone, with aggregation-core links as fast as the others or slower (section 3.1).

    At best it takes half of the run for every ratio, because its paths together have the rate of a link. In the paper,
    random splitting reaches 30% of that at 4:1, which still ends within the time for transfers with a size.
    """
    need_scale(scale)
    need_figure(tree, "single-flow")
    transfer = Transfer(server(0), server(5), scale.bytes_of(0.5))
    return Plan((transfer,), scale.seconds, core_rate=core_rate, traced=(0,))


def asymmetric(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with flows 0→4 and 8→5 of one size, without the link from the first rack to the first switch of its pod.

    The packets of the first flow share some paths of the second flow and not the others (section 3.4, figures 7 and 8).
    At best both take half of the run, so that the second flow has time to continue alone.
    """
    need_scale(scale)
    need_figure(tree, "asymmetric")
    size = scale.bytes_of(0.5)
    out = tree.name(Link(Switch(Level.EDGE, 0, 0), Switch(Level.AGGREGATION, 0, 0)))
    transfers = (Transfer(server(0), server(4), size), Transfer(server(8), server(5), size))
    return Plan(transfers, scale.seconds, failed=(out,), traced=(0, 1))


def short_flow_beside_incast(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which a client fetches from three servers while another sends it a short flow (section 3.2.2, example 2).

    The 64 MB of the paper become what the link of the client carries in 0.8 of a run. The short flow keeps its 64 KB: its few
    packets cause too few duplicate acknowledgements for a high threshold. The client and the servers, which are in other pods, are
    drawn from the seed.
    """
    need_scale(scale)
    need_figure(tree, "short-flow-beside-incast")
    total = scale.bytes_of(0.8)
    # When the short flow starts, at least as much as its size has to remain of each long one.
    needed = 2 * SERVERS * SHORT_BYTES
    if total < needed:
        seconds = math.ceil(8 * needed / (0.8 * scale.rate_mbit * 1e6))
        raise WorkloadError(
            f"{scale.seconds:g} s at {scale.rate_mbit:g} Mbit/s are too short for {SHORT_BYTES // 1000} KB beside longer flows: "
            f"give --seconds {seconds} or more"
        )
    choose = random.Random(f"{seed} short-flow-beside-incast")
    hosts = list(tree.hosts())
    client = choose.choice(hosts)
    *servers, other = choose.sample([host for host in hosts if host.pod != client.pod], SERVERS + 1)
    transfers = [Transfer(host, client, total // SERVERS, kind="long") for host in servers]
    transfers.append(Transfer(other, client, SHORT_BYTES, start=0.4 * scale.seconds, kind="short"))
    return Plan(tuple(transfers), scale.seconds, traced=(SERVERS,))


def _single_flow(name: str, core_rate: float) -> Workload:
    ratio = name.removeprefix("single-flow").removeprefix("-") or "1:1"
    return Workload(
        name,
        f"a flow from server 0 to 5 alone, oversubscription {ratio} (SOPA paper, section 3.1)",
        partial(single_flow, core_rate),
        seconds=20.0,
        parameters={"flow_sizes": "a link's bytes in 0.5 of a run", "core_rate": core_rate},
    )


WORKLOADS = (
    Workload(
        "four-flows",
        "servers 0 and 1 each send to 4 and 5, the same size (SOPA paper, section 4.2)",
        four_flows,
        seconds=20.0,
        parameters={"flow_sizes": "a link's bytes in 0.4 of a run"},
    ),
    *(_single_flow(name, core_rate) for name, core_rate in RATIOS.items()),
    Workload(
        "short-flow-beside-incast",
        "64 KB to a client that fetches from three servers meanwhile (SOPA paper, section 3.2.2, example 2)",
        short_flow_beside_incast,
        seconds=20.0,
        parameters={"long_bytes": "together a link's bytes in 0.8 of a run", "short_bytes": SHORT_BYTES},
    ),
    Workload(
        "asymmetric",
        "flows from server 0 to 4 and 8 to 5 without the link e0_0-a0_0 (SOPA paper, section 3.4, figure 7)",
        asymmetric,
        seconds=20.0,
        parameters={"flow_sizes": "a link's bytes in 0.5 of a run", "failure": "e0_0-a0_0, before the start"},
    ),
)
