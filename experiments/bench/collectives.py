"""Collective operations of a real Open MPI between the hosts of the lab: what an application gets of each scheme."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click

from experiments.bench.frame import SHORT, Results, in_lab, say, times
from experiments.core.machine import CpuIdle
from experiments.emulation.emulated_fabric import EmulatedFabric
from experiments.schemes import named
from topologies import FatTree, Host, Level
from topologies.lab.network import default_rate

TREE = FatTree(4)
SCHEMES = ("ecmp", "rps", "sopa", "mcs")[: times(4)]
SEEDS = tuple(range(1, times(3) + 1))
"""Each draws the hosts' ranks, and which paths come first."""
VECTOR_BYTES = 50_000 if SHORT else 1_000_000
"""Of each rank, for any operation: in blocks of 1/16 where each rank gets another one."""
TIMEOUT_SECONDS = 300
LIMIT_RATIO_SOPA, LIMIT_RATIO_MCS = 1.5, 1.0
"""Issue 38: rate by that of ECMP."""
RANK = ("nice", "-n", "19", "/usr/bin/python3", str(Path(__file__).with_name("collective_rank.py")))
"""Debian's Python, which has mpi4py. A rank that waits looks for packets all the time, and would take the switches' processor."""


def collectives() -> Results:
    """Time an all-reduce, an all-gather and an all-to-all over all hosts, with each scheme and seed.

    By scheme: the median of seconds by operation over the seeds, and how many times as fast as ECMP with the same seed.
    """
    if shutil.which("mpirun") is None:
        raise click.ClickException("Open MPI is missing: sudo apt-get install --no-install-recommends openmpi-bin python3-mpi4py")
    return _measured()


@in_lab
def _measured() -> Results:
    rate = default_rate(TREE)
    idle = CpuIdle()
    seconds: dict[str, list[dict[str, float]]] = {}
    for name in SCHEMES:
        with EmulatedFabric(TREE, named(name), rate) as fabric:
            for seed in SEEDS:
                fabric.prepare(seed)
                seconds.setdefault(name, []).append(_perform(fabric, seed))
                fabric.finish()
                say(f"{name}, seed {seed}: {seconds[name][-1]}")
    results: Results = {"mbit": rate, "ranks": TREE.host_count, "bytes": VECTOR_BYTES, "idle_percent": round(idle.percent(), 1)}
    for name, rounds in seconds.items():
        for operation in rounds[0]:
            ratios = [base[operation] / one[operation] for one, base in zip(rounds, seconds[SCHEMES[0]], strict=True)]
            results[f"{name}, {operation}"] = {
                "median_s": round(median(one[operation] for one in rounds), 2),
                "worst_s": round(max(one[operation] for one in rounds), 2),
                "times_as_fast_as_ecmp": round(median(ratios), 2),
            }
    return {**results, "limit_times_sopa": LIMIT_RATIO_SOPA, "limit_times_mcs": LIMIT_RATIO_MCS}


def _perform(fabric: EmulatedFabric, seed: int) -> dict[str, float]:
    hosts = random.Random(f"{seed} ranks").sample(list(TREE.hosts()), TREE.host_count)
    with tempfile.TemporaryDirectory() as directory:
        launcher = _launcher(Path(directory), {str(TREE.ip(host)): fabric.lab.netns(host) for host in hosts})
        done = subprocess.run(
            ["nsenter", f"--net={fabric.lab.netns(hosts[0])}", *_mpirun(launcher, hosts), *RANK, str(VECTOR_BYTES)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"mpirun failed with status {done.returncode}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _mpirun(launcher: Path, hosts: Sequence[Host]) -> list[str]:
    """Return a command that starts one rank a host, which speak TCP over the fabric only."""
    racks = ",".join(str(TREE.prefix(edge)) for edge in TREE.switches(Level.EDGE))  # hosts have a management network, too
    settings = {
        "plm_rsh_agent": str(launcher),
        "plm_rsh_no_tree_spawn": "1",
        "btl": "tcp,self",
        "pml": "ob1",
        "btl_tcp_if_include": racks,
        "oob_tcp_if_include": racks,
        "orte_keep_fqdn_hostnames": "1",
        "mpi_yield_when_idle": "1",
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    addresses = ",".join(f"{TREE.ip(host)}:1" for host in hosts)
    return ["mpirun", "--allow-run-as-root", "--bind-to", "none", *options, "--host", addresses]


def _launcher(directory: Path, networks: dict[str, str]) -> Path:
    """Write the program that mpirun takes for ssh: a host is a network namespace, with a name and temporary files of its own."""
    cases = "\n".join(f"{address}) net={netns} ;;" for address, netns in networks.items())
    launcher = directory / "launcher"
    launcher.write_text(
        f"""#!/bin/sh
address=$1
shift
case $address in
{cases}
*) exit 1 ;;
esac
mkdir -p {directory}/$address
export TMPDIR={directory}/$address
exec nsenter --net=$net unshare --uts sh -c 'hostname "$0" && eval "$@"' $address "$@"
"""
    )
    launcher.chmod(0o700)
    return launcher
