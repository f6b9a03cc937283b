"""One simulated run: from the plan of a workload to the same records as those of the lab."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from experiments.core.draws import DrawKind, stream, threshold
from experiments.core.machine import describe
from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.ns3.cache import Cache, key
from experiments.ns3.program import SimulatorError, build, digest
from experiments.ns3.run_lines import BURSTS, MARKED, PROBED, WEIGHTED, base_of, fabric_lines, order_lines, overhead, scheme_lines
from experiments.ns3.simulation_options import LINK_DELAY_NS, PACKET_BYTES
from experiments.schemes import Scheme, SchemeError
from experiments.schemes.scheme import SLOT_SETTINGS
from experiments.workloads import BadLink
from topologies import Host

SIMULATED = (
    "sopa",
    "flowcell",
    "rps",
    "plts-rnd",
    "plts-rr",
    "plts-cnt",
    "least-used",
    "letflow",
    "drill",
    "adaptive",
    "presto",
    "ecmp",
    "hedera",
    "drb",
    "cfr",
    "tcp",
    *MARKED,
)
DEFAULT_MBIT = 1000.0
SECONDS_SHARE = 0.01
"""Default duration as a share of that in the lab: a permutation at 1 Gbit/s then has about the 10 MB per flow of the paper."""
HEDERA_SHARE = 0.1
"""Polling interval of Hedera as a share of the run: as in the lab, which polls every second for 10 s."""
SERIES = 300
"""Number of intervals of throughput during a run with a bad link."""
SAMPLES = 400
"""Number of samples of queues and windows during a run."""
MAX_SAMPLED_HOSTS = 128  # of a fat-tree with k=8
MAX_WINDOWS = 128
"""Number of flows whose windows are recorded, of a permutation there; those of a collective's thousands fill 30 MB a run."""
_SETTINGS = ("channels", "ecn", "ecn-bytes", "fr", "probes", "sack", "segments", "weights", *SLOT_SETTINGS)
_NS = 1_000_000_000
_log = logging.getLogger(__name__)
# Huge pages and a larger thread cache: with thousands of hosts most time is spent on cache and TLB misses.
ALLOCATOR = "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=20000"
_REPORTS = 50
"""Number of progress reports during a run of full length."""


def check(scheme: Scheme, options: Mapping[str, int | str] = MappingProxyType({})) -> None:
    """Raise `SchemeError` for a scheme or a setting that the simulator does not support, or not with these options."""
    _, *settings = scheme.name.split("+")
    base = base_of(scheme)
    if base not in SIMULATED:
        raise SchemeError(f"the simulator has no scheme {base}: expected one of {', '.join(SIMULATED)}")
    if other := [one for one in settings if one.partition("=")[0] not in _SETTINGS]:
        raise SchemeError(
            f"TCP of ns-3 does not support +{other[0]}: only +channels=N, +ecn=PACKETS, +ecn-bytes=BYTES, +fr=N, +sack=off, "
            "+probes=on, +segments=N, +weights=off and the slots of cfr"
        )
    if not scheme.weights and base not in WEIGHTED:
        raise SchemeError(f"{base} ignores weights in the simulator: +weights=off is for {', '.join(WEIGHTED)}")
    if scheme.probes and base not in PROBED:
        raise SchemeError(f"hosts of the simulator probe with {', '.join(PROBED)} only: leave +probes=on out of {scheme.name}")
    if scheme.segments > 1 and base not in BURSTS:
        raise SchemeError(
            f"the simulator has bursts with {', '.join(BURSTS)} only: {scheme.name} is sopa+segments={scheme.segments}"
        )
    if scheme.channels and scheme.sysctls.get("ipv4/tcp_sack") == "0":
        raise SchemeError(f"{scheme.name}: the shim of MCS requires selective acknowledgements in the simulator")
    if options.get("trim") and (scheme.channels or scheme.subflows or scheme.slots or scheme.probes):
        raise SchemeError(
            f"--set trim is for senders of plain TCP: leave out {scheme.name}, as all schemes of MCS, mptcp, cfr and +probes=on"
        )


def simulate(
    run: Run,
    cache: Cache | None = None,
    tick: Callable[[float], None] = lambda _seconds: None,
    started: Callable[[subprocess.Popen[str]], None] = lambda _process: None,
) -> tuple[RunRecord, list[FlowRecord]]:
    """Simulate a run, whose scheme is one of `SIMULATED`; see `check`.

    ``tick`` is called repeatedly, in another thread, with the simulated seconds; ``started`` with the process, so that the caller
    can kill it. Raises `SchemeError` for an unsupported scheme, `SimulatorError` if the build fails or the program ends with an
    error.
    """
    check(run.scheme, run.options)
    return records(run, compute(program_input(run), cache, tick, started))


def program_input(run: Run) -> str:
    """Return what the program reads of a run, but for how often it reports."""
    return "\n".join(lines(run)) + "\n"


def compute(
    text: str,
    cache: Cache | None = None,
    tick: Callable[[float], None] = lambda _seconds: None,
    started: Callable[[subprocess.Popen[str]], None] = lambda _process: None,
) -> str:
    """Return the program's output for a run's `lines`; all else as of `simulate`."""
    program, name = build(), key(digest(), text)
    output = cache.get(name) if cache else None
    if output is None:
        [nanoseconds] = [int(line.split()[1]) for line in text.splitlines() if line.startswith("seconds ")]
        output, said = _run(program, f"{text}progress {max(1, round(nanoseconds / _REPORTS))}\n", tick, started)
        if '"hops"' not in output[output.rfind("\n", 0, -1) :]:
            raise SimulatorError(f"incomplete output of the simulator: {said.strip()[-500:]}")
        if cache:
            keep(cache, name, output)
    return output


def keep(cache: Cache, name: str, output: str) -> None:
    """Write an output to the cache. The results remain usable without it: that it cannot be written is a warning."""
    try:
        cache.put(name, output)
    except OSError as error:
        _log.warning("cannot write %s (%s): the run is not cached", cache.where, error.strerror or error)


def records(run: Run, output: str, machine: Mapping[str, str | int] | None = None) -> tuple[RunRecord, list[FlowRecord]]:
    """Return the records of a run by the program's output, computed on a machine; None for this one."""
    plan = run.plan
    *reached, whole = [json.loads(line) for line in output.splitlines()]
    segment = _segment(run.scheme, int(run.options.get("packet", PACKET_BYTES)))
    flows = [_flow(run, one) for one in reached]
    record = RunRecord(
        scheme=run.scheme.name,
        seed=run.seed,
        valid=True,
        cpu_idle_percent=100.0,
        machine={**(machine or describe()), "simulator": digest()},
        command=shlex.join(["sopa", *sys.argv[1:]]),
        options={
            "fr_threshold": run.scheme.fr_threshold,
            "queue_packets": run.queue_packets,
            "link_delay_ns": run.options.get("delay", LINK_DELAY_NS),
            "packet_bytes": run.options.get("packet", PACKET_BYTES),
            **run.options,
            "processor_seconds": whole["seconds"],
        },
        counters={name: whole[name] for name in ("hops", "dropped", "dropped_at_hosts", "unroutable")}
        | {"longest_queue": whole["longest"]}
        | {name: whole[name] for name in ("pings", "probes", "probes_lost", "trimmed") if name in whole},
        core_packets={},
        queue_ms=_sample(run) / 1e6,
        queues=whole.get("queues", {}),
        cwnd={
            str(one["transfer"]): [(at / _NS, round(size / segment, 2)) for at, size in one["windows"]]
            for one in reached[:MAX_WINDOWS]
            if "windows" in one
        },
        arrivals={
            str(one["transfer"]): [
                [at / _NS, round(sequence / segment), up1, up2, delay / 1e6] for at, sequence, up1, up2, delay in one["arrivals"]
            ]
            for one in reached
            if "arrivals" in one
        },
        events=[
            *([0.0 if plan.fail_after is None else plan.fail_after, f"{name} fails"] for name in plan.failed),
            *([one.after, str(one)] for one in plan.bad),
            *([at / _NS, _change(*what)] for at, *what in whole.get("left", ())),
        ],
        series_ms=_interval(run) / 1e6,
        series={str(one["transfer"]): _series(one, _interval(run)) for one in reached if "series" in one},
        collective=run.collective(flows),
        bad=[{**one.record(), **_truth(one, did)} for one, did in zip(plan.bad, whole.get("bad", ()), strict=True)],
        round_trips=[time / 1e6 for time in whole.get("round_trips", ())],
    )
    return record, flows


def _series(one: dict[str, Any], interval: int) -> list[float]:
    """Return the rate of a transfer in each interval of so many nanoseconds, up to its end."""
    rates = [round(8 * payload * _NS / interval / 1e6, 3) for payload in one["series"]]
    return rates + [0.0] * (-(-one["ended"] // interval) - len(rates))


def _change(host: str, up1: int, up2: int, pod: int, edge: int, left: bool, cause: str) -> str:
    """Return a section of paths that a host has left or put back as text; -1 stands for any switch."""
    where = f"up {up1}" + (f",{up2}" if up2 >= 0 else "") + (f" to pod {pod}" if pod >= 0 else "")
    return f"{host} {'leaves' if left else 'takes again'} {where}{f' rack {edge}' if edge >= 0 else ''} ({cause})"


def _interval(run: Run) -> int:
    """Return the nanoseconds of an interval of the transfers' throughput; 0 for none: it is recorded where a link becomes bad."""
    least = max(1, round(run.plan.seconds * _NS / SERIES)) if run.plan.bad else 0
    return int(run.options.get("series", least))


def _truth(one: BadLink, did: dict[str, int]) -> dict[str, int | None]:
    return {**did, "packets": did["packets"] if one.loss or one.corruption else None}


def _segment(scheme: Scheme, packet: int) -> int:
    return packet - 40 - overhead(scheme)


def _sample(run: Run) -> int:
    """Return the sampling interval in nanoseconds; 0 to disable sampling in fabrics with too many queues."""
    return max(1, round(run.plan.seconds * _NS / SAMPLES)) if run.tree.host_count <= MAX_SAMPLED_HOSTS else 0


def lines(run: Run) -> Iterator[str]:
    """Yield the lines that ``src/settings.cc`` reads. They do not depend on the order of the options."""
    plan, scheme = run.plan, run.scheme
    yield from fabric_lines(run)
    yield from order_lines(run)
    yield from scheme_lines(scheme, run.scale.rate_mbit, run.options)
    yield f"threshold {scheme.fr_threshold}"
    yield f"segments {scheme.segments}"
    yield f"sack {int(scheme.sysctls.get('ipv4/tcp_sack') != '0')}"
    yield f"seed {run.seed}"
    yield f"queue {run.queue_packets}"
    yield f"delay {LINK_DELAY_NS}"
    yield f"packet {PACKET_BYTES}"
    yield f"seconds {round(plan.seconds * _NS)}"
    yield f"hedera-period {max(1, round(HEDERA_SHARE * plan.seconds * _NS))}"
    yield f"sample {_sample(run)}"
    options = {"all-transfers": 1, **run.options} if plan.collective else dict(run.options)
    if _interval(run):
        options["series"] = _interval(run)
    for name, value in sorted(options.items()):
        yield f"{'path-order' if name == 'order' else name} {value}"  # "order" lists paths there
    for name in plan.failed:
        yield f"fail {name} {round((plan.fail_after or 0.0) * _NS)}"
    for bad in plan.bad:
        yield f"bad {bad.link} {bad.towards} {round(bad.after * _NS)} {' '.join(map(str, _faults(run, bad)))}"
    number: dict[Host, int] = {host: place for place, host in enumerate(run.tree.hosts())}
    for place, one in enumerate(plan.transfers):
        size = -1 if one.bytes is None else one.bytes
        before = ",".join(map(str, one.after)) or "-1"
        traced = int(place in plan.traced)
        yield f"transfer {number[one.src]} {number[one.dst]} {size} {round(one.start * _NS)} {before} {traced}"


def _faults(run: Run, one: BadLink) -> Iterator[int]:
    """Yield the threshold and the seed of loss and of corruption, and the rate in bit/s, 0 for all of it."""
    for probability, kind in ((one.loss, DrawKind.LOSS), (one.corruption, DrawKind.CORRUPTION)):
        yield threshold(probability)
        yield stream(run.seed, one.link, one.towards, kind)
    tree = run.tree
    link = tree.link_by_name(one.link)
    yield (
        0 if one.rate == 1 else max(1, round(one.rate * tree.capacity(link) / tree.level_rate("host") * run.scale.rate_mbit * 1e6))
    )


def _run(
    program: Path, text: str, tick: Callable[[float], None], started: Callable[[subprocess.Popen[str]], None]
) -> tuple[str, str]:
    """Run the program, and return its output and its messages. Progress reports are passed to ``tick``."""
    said: list[str] = []
    pipe = subprocess.PIPE
    # The kernel kills the program if this process is killed.
    command = ["setpriv", "--pdeathsig", "KILL", str(program)]
    environment = {**os.environ, "GLIBC_TUNABLES": ALLOCATOR}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        started(process)
        assert process.stdin
        assert process.stdout
        errors = process.stderr

        def listen() -> None:
            assert errors
            for line in errors:
                time, _, received = line.partition(" ")
                if time.isdigit() and received.strip().isdigit():
                    tick(int(time) / _NS)
                else:
                    said.append(line)

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        try:
            process.stdin.write(text)
            process.stdin.close()
            output = process.stdout.read()
        except BrokenPipeError:
            output = ""
        except BaseException:
            process.kill()
            raise
        listener.join()
    if process.returncode:
        how = "".join(said).strip() or f"status {process.returncode}"
        raise SimulatorError(f"the simulator failed: {how}")
    return output, "".join(said)


def _flow(run: Run, one: dict[str, Any]) -> FlowRecord:
    size = run.plan.transfers[one["transfer"]].bytes
    seconds = max(0, one["ended"] - one["started"]) / _NS
    received = one["received"]
    return run.flow_record(
        "ns3",
        one["transfer"],
        bytes=received,
        seconds=round(seconds, 9),
        mbit=round(8 * received / seconds / 1e6, 6) if seconds else 0.0,
        completed=size is None or received >= size,
        start=one["started"] / _NS,
        packets=one["packets"],
        reordered=one["reordered"],
        retransmits=one["retransmitted"],
        spurious=0,
        fast_retransmits=one["fast_retransmits"],
        timeouts=one["timeouts"],
        rtt_ms=0.0,
        valid=True,
    )
