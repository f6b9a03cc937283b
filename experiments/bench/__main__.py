"""``make bench``: all measurements, and a description of the machine."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from experiments.bench.frame import Results
from experiments.core.machine import CpuIdle, describe

BENCHES = {
    "bpf": "the tc egress program, ns per packet (BPF_PROG_TEST_RUN), with an empty program as baseline",
    "option": "the programs of the option carrier, ns per golden packet, with empty programs as baseline",
    "host": "throughput, processor time, datagrams and requests of a host with an agent, and without one as baseline",
    "probes": "a probe turned round, other packets, the agent's processor time, and TCP beside either hook; nothing as baseline",
    "mcs": "throughput and processor time of hosts with MCS, and without it as baseline; the time of its programs",
    "mcs_silent": "a TCP flow of which a path dies silently, the controller stopped: time to 90% of its rate; SOPA as baseline",
    "arbiter": "slots and paths by the arbiter's library, ns per MTU, and its share of the best matching, beside Fastpass",
    "cfr": "incast and permutation in the lab with slots from an arbiter, and TCP without slots as baseline",
    "cfr_faults": "permutation with slots while the arbiter is killed and started again, and with 5% of grants lost, beside SOPA",
    "paths": "all candidate paths of one pair at k=48, with a graph search as baseline",
    "rules": "every rule of a k=48 fabric",
    "megaflows": "what Open vSwitch caches at a switch for 100 labelled flows, at k=8 and 48 (dummy datapath)",
    "cold_start": "cold start of 320 switches (k=16, dummy datapath), with encoding alone as baseline",
    "leaf_spine": "rules, cold start and candidate paths of 32 leaves, 4 spines and 1,536 hosts, with a k=16 fat-tree as baseline",
    "failures": "a failure in the k=4 lab: time until it is in force at all agents, and losses of a stream",
    "grey": "permutation in the lab beside a grey link, by that with a healthy one; the cost of probes in pairs of runs",
    "grey_ns3": "permutation in ns-3 beside a grey link, by that with a healthy one, at k=4 and 8",
    "reaction": "how soon a host leaves the paths over a silent link, with and without a controller and probes, in the k=4 lab",
    "standstill": "16 flows in the k=4 lab without a processor for 3 s, 100 times: paths that hosts leave; and dead paths beside",
    "weights": "permutations on two uneven fabrics in the lab with and without weights, by the best possible rates; figure 7",
    "push": "a version sent to 3,456 simulated agents (k=24), with a bare WebSocket server as baseline",
    "relays": "27,648 agents on 4 relays and 3 nodes of etcd: a failure until the last acknowledgement, memory, a relay killed",
    "mcs_relays": "27,648 agents with MCS on 4 relays: until all know all, until one that ends is known, a leader killed",
    "pings": "what the pings of 3,456 agents with several URLs cost a controller (k=24)",
    "rest": "requests for candidate paths at k=24, and handling of failures with stuck and bad clients",
    "trace": "the controller's time for the longest trace at k=48, and lossy links named by differences between paths",
    "health_lab": "links of the k=4 lab that lose packets in one direction, named from the reports of real agents",
    "health": "who probes what, and links that lose packets named from counts drawn at random: k=4, 24 and 48; the time of it",
    "scale": "720 and 2,880 switches that connect within a second, and a link's failure there (false switches)",
    "bridges": "720 bridges of real Open vSwitch (k=24, dummy datapath) that connect at once, and a link's failure there",
    "collectives": "an all-reduce, all-gather and all-to-all of a real Open MPI in the k=4 lab, with ECMP as baseline",
    "cluster": "a leader killed, stopped and cut off in the k=4 lab with three controllers: time to the next, and what is lost",
    "lab": "the k=8 lab with 128 agents",
    "simulator": "the simulator, packet-hops per second, with the event list of ns-3 as baseline (make install-ns3)",
}
MODULES = {
    "programs": ("bpf", "option"),
    "hosts": ("host", "mcs"),
    "probes": ("probes",),
    "silence": ("reaction", "standstill", "mcs_silent"),
    "slots": ("arbiter", "cfr", "cfr_faults"),
    "rules": ("paths", "rules"),
    "installing": ("megaflows", "cold_start", "leaf_spine"),
    "collectives": ("collectives",),
    "changes": ("failures", "cluster"),
    "grey": ("grey", "grey_ns3"),
    "weights": ("weights",),
    "channels": ("push", "pings", "relays", "mcs_relays"),
    "rest": ("rest",),
    "health": ("health", "health_lab", "trace"),
    "switches": ("scale", "bridges", "lab"),
    "simulator": ("simulator",),
}
"""Each has a function for each of its benches, with the bench's name."""


def run(name: str) -> Results:
    """Run a bench, and return the rows of its table. Its module is imported only now: some change what others import."""
    module = next(module for module, names in MODULES.items() if name in names)
    bench: Callable[[], Results] = getattr(importlib.import_module(f"experiments.bench.{module}"), name)
    return bench()


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHES)))
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write results to FILE."
)
def main(names: tuple[str, ...], json_file: Path | None) -> None:
    """Run the measurements NAMES (default: all). Use an idle machine, as root."""
    out, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    report: dict[str, object] = {"machine": describe()}
    out.print("  ".join(f"{name} {value}" for name, value in describe().items()), soft_wrap=True)
    for name in names or BENCHES:
        progress.print(f"measuring {BENCHES[name]} ...")
        idle = CpuIdle()
        results = run(name)
        table = Table(title=f"{name}: {BENCHES[name]}", title_justify="left", show_header=False)
        for key, value in results.items():
            table.add_row(key, str(value))
        out.print(table)
        report[name] = {**results, "cpu_idle_percent": round(idle.percent(), 1)}
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="make bench")
