"""The frame of all benches: where they run, their rounds side by side, progress, medians and times."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from experiments.core.run import Run
from experiments.emulation.processes import ControllerProcess
from experiments.schemes import named
from experiments.workloads import Scale
from experiments.workloads import named as workload_named
from sopa_ryu.agent.kernel import libbpf
from topologies import Clos
from topologies.lab.isolation import isolated

T = TypeVar("T")
SHORT = bool(os.environ.get("SOPA_BENCH_SHORT"))
"""One round of everything and short runs, to see that a bench works."""
REFERENCE_EMPTY_NS = 39
"""What an empty tc program takes in BPF_PROG_TEST_RUN on an AMD EPYC."""

Results = dict[str, Any]
"""The rows of a bench's table, in order."""
Figures = dict[str, float]
"""What one round of one arm has measured."""


def say(text: str) -> None:
    """Say on standard error how far a bench of minutes is, and what it has measured so far: one may be ended half way."""
    print(text, file=sys.stderr, flush=True)


def in_lab(measure: Callable[..., Results]) -> Callable[..., Results]:
    """Have a function run in the namespaces of a lab, in a child process.

    Raises RuntimeError if the function fails (the traceback is on standard error), and KeyboardInterrupt if it was interrupted.
    """

    @functools.wraps(measure)
    def measured(*arguments: object) -> Results:
        with tempfile.TemporaryDirectory() as directory:
            answer = Path(directory) / "answer.json"

            def main() -> int:
                answer.write_text(json.dumps(measure(*arguments)))
                return 0

            status = isolated(main)
            if status == 128 + signal.SIGINT:
                raise KeyboardInterrupt
            if status:
                raise RuntimeError(f"the measurement in the lab failed with status {status}")
            results: Results = json.loads(answer.read_text())
        return results

    return measured


def planned(tree: Clos, workload: str, scheme: str, seed: int, scale: Scale) -> Run:
    """Return a run of a workload with a scheme, by their names."""
    build = workload_named(workload)
    return Run(tree, build.build(tree, seed, scale), build.name, named(scheme), seed, scale)


# -- rounds ---------------------------------------------------------------------------------------------------------------


def times(count: int) -> int:
    """Return how often to measure something: so often, or once if runs are short."""
    return 1 if SHORT else count


def side_by_side(
    count: int, arms: Mapping[str, Callable[[], AbstractContextManager[object]]], measure: Callable[[], T]
) -> dict[str, list[T]]:
    """Measure within each arm's context, all arms in turn, so many rounds: what disturbs the machine disturbs all of them."""
    rounds: dict[str, list[T]] = {name: [] for name in arms}
    for number in range(times(count)):
        for name, arm in arms.items():
            say(f"round {number + 1} of {times(count)}: {name}")
            with arm():
                rounds[name].append(measure())
    return rounds


def medians(rounds: Sequence[Figures], digits: int = 3) -> Figures:
    """Return the median of each figure."""
    return {figure: round(median(one[figure] for one in rounds), digits) for figure in rounds[0]}


def percent_of(rounds: Sequence[Figures], baseline: Sequence[Figures], digits: int = 3) -> Figures:
    """Return the medians of the shares that each round's figures have of the same round's baseline."""
    pairs = zip(rounds, baseline, strict=True)
    return medians([{figure: 100 * one[figure] / other[figure] for figure in one} for one, other in pairs], digits)


def median_and_worst(name: str, values: Iterable[float], unit: str = "ms", digits: int | None = 1) -> Results:
    """Return the rows ``NAME_median_UNIT`` and ``NAME_worst_UNIT``."""
    values = list(values)
    return {f"{name}_median_{unit}": round(median(values), digits), f"{name}_worst_{unit}": round(max(values), digits)}


# -- time and memory ------------------------------------------------------------------------------------------------------


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """Return the median of the milliseconds that a function takes."""

    def once() -> float:
        began = time.perf_counter()
        work()
        return 1000 * (time.perf_counter() - began)

    return median(once() for _ in range(times(rounds)))


def added_ns(program: int, baseline: int, frame: bytes, rounds: int, repeat: int, runs: int = 1) -> float:
    """Return the median of the nanoseconds per packet that a BPF program takes more than another one, by their file descriptors.

    BPF_PROG_TEST_RUN repeats a program on one frame, ``runs`` times in a round. Rounds of the two programs alternate, so that
    changes of clock rate or load affect both; the first round does not count.
    """

    def once(which: int) -> float:
        return sum(libbpf.run_program(which, frame, repeat=repeat).nanoseconds for _ in range(runs)) / runs

    return median([once(program) - once(baseline) for _ in range(rounds + 1)][1:])


def allowed(ratio: float, empty_ns: float = 0) -> int:
    """Return the nanoseconds that a program may take more than an empty one: so many times what that takes.

    Processors whose empty program is faster than the reference's allow as much as that one: a look-up in a map is not faster
    there by as much.
    """
    return round(ratio * max(empty_ns, REFERENCE_EMPTY_NS))


def children(process: int) -> list[int]:
    """Return the processes that a process has started (proc(5)): of a controller its front, and the estimator."""
    return [int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()]


def bind(process: int, processor: int) -> None:
    """Let a process and its children run on one processor."""
    for each in (process, *children(process)):
        os.sched_setaffinity(each, {processor})


def processor_seconds(process: int) -> float:
    """Return the processor time that a process and its children have used, in user and kernel mode (proc(5))."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + sum(map(processor_seconds, children(process)))


def cores(process: int, seconds: float, digits: int = 3) -> float:
    """Return the processors that a process and its children use in the next seconds: 1 for all of one."""
    before = processor_seconds(process)
    time.sleep(seconds)
    return round((processor_seconds(process) - before) / seconds, digits)


def peak_mib(process: int | str = "self") -> float:
    """Return the peak memory of a process in MiB (VmHWM of proc(5)), with those of its children if it is another process.

    getrusage() would include the parent before exec.
    """
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    own = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return round(own + (0.0 if isinstance(process, str) else sum(map(peak_mib, children(process)))), 1)


def link_seconds(controller: ControllerProcess, set_link: Callable[[bool], object]) -> float:
    """Fail (False) and heal (True) a link three times; return the median of the seconds until all switches have its rules.

    ``GET /changes`` of the controller says how long each version took.
    """
    took: list[float] = []
    for up in (False, True) * 3:
        since = controller.fabric()["version"]
        set_link(up)
        installed: list[float] = []

        def is_installed(since: int = since, installed: list[float] = installed) -> bool:
            changes = controller.get("/changes").json()["changes"]
            later = (change["installed_ms"] for change in changes if change["version"] > since)
            installed += [milliseconds / 1000 for milliseconds in later if milliseconds is not None]
            return bool(installed)

        controller.wait_until(is_installed, "a link's rules were installed", 60)
        took.append(installed[0])
    return round(median(took), 3)


def wait(ready: Callable[[], bool], problem: Callable[[], str], seconds: float, pause: float) -> None:
    """Wait until something is so. Raises RuntimeError, with the problem, after so many seconds."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {seconds:g} s {problem()}")
        time.sleep(pause)
