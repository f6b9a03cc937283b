"""``make bench``: every measurement, with the machine that it was made on."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from experiments.core.machine import CpuIdle, describe

MEASUREMENTS = {
    "bpf": "the tc egress program, ns per packet (BPF_PROG_TEST_RUN), beside an empty one",
    "option": "the option carrier's programs, ns per golden packet, beside empty ones",
    "paths": "all candidate paths of one pair at k=48, beside a search",
    "rules": "every rule of a k=48 fabric",
    "cold_start": "cold start of 320 switches (k=16, dummy datapath), beside encoding alone",
    "failures": "a failure in the k=4 lab: until every agent knows, and what a stream loses",
    "push": "a failure told to 3,456 simulated agents (k=24), beside a bare WebSocket server",
    "rest": "candidate paths asked over REST at k=24, and a failure's way beside stuck and bad clients",
    "lab": "the k=8 lab with 128 agents",
    "simulator": "the simulator, packet-hops a second, beside ns-3's own event list (make install-ns3)",
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(MEASUREMENTS)))
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write it to FILE, too.",
)
def main(names: tuple[str, ...], json_file: Path | None) -> None:
    """Measure NAMES (all of them by default): run it on an idle machine, as root."""
    out, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    report: dict[str, object] = {"machine": describe()}
    out.print("  ".join(f"{name} {value}" for name, value in describe().items()), soft_wrap=True)
    for name in names or MEASUREMENTS:
        progress.print(f"measuring {MEASUREMENTS[name]} ...")
        idle = CpuIdle()
        found = importlib.import_module(f"experiments.bench.measure_{name}").measure()
        table = Table(title=f"{name}: {MEASUREMENTS[name]}", title_justify="left", show_header=False)
        for key, value in found.items():
            table.add_row(key, str(value))
        out.print(table)
        report[name] = {**found, "cpu_idle_percent": round(idle.percent(), 1)}
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(prog_name="make bench")
