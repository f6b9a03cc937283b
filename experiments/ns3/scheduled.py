"""Simulations on the workers of a Dask scheduler, on this machine or others (docs/experiments.md).

A worker gets the lines that the program reads, and returns what the program writes. It computes only if its simulator is that of
the machine that asks: the same source gives the same results. What a lost worker was computing another one computes again: the
scheduler sees to that.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from experiments.core.machine import describe
from experiments.core.records import FlowRecord, RunRecord
from experiments.core.run import Run
from experiments.ns3.cache import Cache, directory, key
from experiments.ns3.program import SimulatorError, build, digest
from experiments.ns3.simulate import check, compute, keep, program_input, records

CONNECT_SECONDS = 10
HOW = "start one with dask scheduler, and dask worker tcp://HOST:8786 on each machine"
Ended = Generator[tuple[int, tuple[RunRecord, list[FlowRecord]]]]
"""The number and the records of each run as it ends."""
_processes: dict[str, set[subprocess.Popen[str]]] = {}
"""On a worker: its simulations, by the name of their campaign."""


class Scheduled:
    """The workers of one scheduler, for one campaign."""

    def __init__(self, client: Any, address: str) -> None:
        self._client, self._address, self._name = client, address, f"sopa-{client.id}"

    def run_all(self, runs: Sequence[Run], cache: Cache, tick: Callable[[int, float], None]) -> Ended:
        """Yield the number and the records of each run as it ends; ``tick`` receives a run's number and the share that is done.

        Raises `SimulatorError` if a worker has another simulator, a run fails, or the scheduler is lost.
        """
        dask = _dask()

        def seen(event: tuple[float, tuple[int, float]]) -> None:
            number, now = event[1]
            tick(number, min(1.0, now / runs[number].scale.seconds))

        self._client.subscribe_topic(self._name, seen)
        waiting, wanted = {}, digest()
        for number, run in enumerate(runs):
            check(run.scheme, run.options)
            text = program_input(run)
            name = key(wanted, text)
            if (output := cache.get(name)) is not None:
                yield number, records(run, output)
                continue
            # the first runs first, as with processes of this machine
            place = {"key": f"{self._name}-{number}", "priority": -number, "pure": False}
            waiting[self._client.submit(_compute, text, wanted, self._name, number, **place)] = number, name
        try:
            for ready in dask.as_completed(waiting, loop=self._client.loop):
                number, name = waiting[ready]
                machine, output = ready.result()
                keep(cache, name, output)
                yield number, records(runs[number], output, machine)
                ready.release()
        except dask.KilledWorker as error:
            raise SimulatorError(f"workers of {self._address} died again and again: {error}") from error
        except dask.CancelledError as error:
            raise SimulatorError(f"the scheduler at {self._address} is lost: {HOW}") from error
        finally:
            with suppress(OSError, dask.CancelledError):  # a scheduler that is lost has no workers to tell
                self._client.cancel(list(waiting))
                self._client.run(_end, self._name, on_error="ignore")


@contextmanager
def scheduled(address: str) -> Iterator[Scheduled]:
    """Connect to a scheduler, and look at its workers.

    Raises `SimulatorError` if Dask is missing, the scheduler is away or has no worker, or one of these has another simulator.
    """
    try:
        client = _dask().Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise SimulatorError(f"no scheduler answers at {address}: {HOW} ({error})") from error
    with client:
        digests, wanted = client.run(digest, on_error="return"), digest()
        if not digests:
            raise SimulatorError(f"the scheduler at {address} has no worker: run dask worker {address} on each machine")
        for worker, found in digests.items():
            _refuse_other(worker, found, wanted)
        yield Scheduled(client, address)


def _dask() -> Any:
    try:
        return import_module("distributed")
    except ImportError:
        text = "--scheduler requires Dask: run pip install 'sopa-ryu[dask]' here, for the scheduler and for each worker"
        raise SimulatorError(text) from None


def _refuse_other(worker: str, found: str | Exception, wanted: str) -> None:
    its = f"it has no simulator of SOPA ({found!r})" if isinstance(found, Exception) else f"its simulator is {found}"
    if found != wanted:
        raise SimulatorError(f"worker {worker} is refused: {its}, and the one here is {wanted}: give both the same commit")


# -- on a worker ----------------------------------------------------------------------------------------------------------


def _compute(text: str, wanted: str, campaign: str, number: int) -> tuple[dict[str, str | int], str]:
    worker = _dask().get_worker()
    _refuse_other(worker.address, digest(), wanted)  # one that has joined since
    build()
    mine, started = _processes.setdefault(campaign, set()), list[subprocess.Popen[str]]()

    def begun(process: subprocess.Popen[str]) -> None:
        started.append(process)
        mine.add(process)

    try:
        output = compute(text, Cache(directory()), lambda now: worker.log_event(campaign, (number, now)), begun)
        return describe(), output
    finally:
        mine.difference_update(started)


def _end(campaign: str) -> None:
    for process in _processes.pop(campaign, ()):
        process.kill()
