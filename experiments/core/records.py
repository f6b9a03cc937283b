"""What is kept of a run, and how: one JSON object per line and flow, beside one file of what concerns the run as a whole.

A directory of results holds ``experiment.json`` (`Settings`), and for each scheme and seed ``SCHEME-SEED.jsonl`` with one
`FlowRecord` a line, and ``SCHEME-SEED.run.json`` with a `RunRecord`. The latter is written first: a run whose ``.jsonl`` is there
is complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SETTINGS = "experiment.json"


class ResultsError(RuntimeError):
    """A directory of results that cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Settings:
    """What all runs of one directory have in common; another experiment's results do not go there.

    Attributes
    ----------
    workload, backend : str
    k : int
    rate_mbit, seconds : float
    parameters : mapping
        What else decides the results: queue, carrier, the workload's parameters.
    """

    workload: str
    backend: str
    k: int
    rate_mbit: float
    seconds: float
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FlowRecord:
    """What one flow of one run reached: with `Settings`, enough to repeat it.

    Attributes
    ----------
    workload, backend, scheme : str
    k, seed : int
    rate_mbit : float
        Of the links.
    flow : int
        Its number in the workload's plan.
    kind : str
        What the plan calls it; empty where all are of one kind.
    src, dst : str
        Hosts' names.
    bytes : int
        Payload that the receiver got.
    seconds : float
        From opening the connection to the last byte that the receiver got.
    mbit : float
        Payload over that time, in Mbit/s.
    size : int or None
        What it was to send; None for one that sends until the time is over.
    completed : bool
        Whether all of that arrived in time; true for one without a size.
    start : float
        Seconds after the start of the run.
    packets, reordered : int
        Data segments that the receiver's TCP got, and those that came after a later one (TCP_INFO).
    retransmits, spurious : int
        Segments that the sender sent again, and those that the receiver had already (DSACK, RFC 2883).
    fast_retransmits, timeouts : int
        How often the sender entered fast retransmit, and how often its timer expired.
    rtt_ms : float
        The sender's smoothed round-trip time at the end.
    valid : bool
        False if the machine had no processor time to spare, so that figures show the machine.
    """

    workload: str
    backend: str
    scheme: str
    k: int
    seed: int
    rate_mbit: float
    flow: int
    kind: str
    src: str
    dst: str
    bytes: int
    seconds: float
    mbit: float
    size: int | None
    completed: bool
    start: float
    packets: int
    reordered: int
    retransmits: int
    spurious: int
    fast_retransmits: int
    timeouts: int
    rtt_ms: float
    valid: bool


@dataclass(frozen=True)
class RunRecord:
    """What concerns one run as a whole.

    Attributes
    ----------
    scheme : str
    seed : int
    valid : bool
    cpu_idle_percent : float
    machine : mapping
        Processor, kernel, versions.
    command : str
        What was typed.
    options : mapping
        The scheme's policy, threshold and other settings, as they were in force.
    counters : mapping
        Kernel counters (nstat's names) over the run, summed over hosts: ``TCPFastRetrans``, ``TCPTimeouts``, ``TCPDSACKRecv``, ...
    core_packets : mapping
        From each core switch to the packets that it received.
    queue_ms : float
        Milliseconds between samples of `queues`.
    queues : mapping
        From each switch port, ``e0_0-eth3``, to its queue's length in packets at each sample.
    cwnd : mapping
        From a flow's number to pairs of seconds and congestion window in packets.
    arrivals : mapping
        From a traced flow's number to ``[seconds, packet, up1, up2, delay_ms]`` for each data packet in the order of arrival: its
        number by sequence, the path that it carried (255 for a hop not taken), and the time since it was sent.
    series_ms : float
        Milliseconds of each interval of `series`.
    series : mapping
        From a flow's number to what arrived in each interval, in Mbit/s.
    failed_at : float or None
        When something failed during the run, in seconds.
    events : sequence
        ``[seconds, text]`` of what was done to the fabric, or seen.
    """

    scheme: str
    seed: int
    valid: bool
    cpu_idle_percent: float
    machine: Mapping[str, Any]
    command: str
    options: Mapping[str, Any]
    counters: Mapping[str, int]
    core_packets: Mapping[str, int]
    queue_ms: float = 0.0
    queues: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cwnd: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    arrivals: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    series_ms: float = 1000.0
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    failed_at: float | None = None
    events: Sequence[Sequence[Any]] = ()


class Results:
    """A directory of results.

    Parameters
    ----------
    directory : Path
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, settings: Settings) -> None:
        """Begin, or go on with, an experiment's results.

        Raises
        ------
        ResultsError
            If the directory has the results of another experiment, or something else, or cannot be written.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if (self.directory / SETTINGS).exists():
                before, now = asdict(self.settings()), asdict(settings)
                other = [
                    f"{name} {before[name]!r} instead of {now[name]!r}" for name in now if before[name] != now[name]
                ]
                if other:
                    raise ResultsError(
                        f"{self.directory} holds the results of another experiment ({'; '.join(other)}): give another --out"
                    )
            elif any(file.name != f".{SETTINGS}.part" for file in self.directory.iterdir()):  # that of a killed one
                raise ResultsError(f"{self.directory} holds something else than results: give an empty --out")
            else:
                self._write(SETTINGS, json.dumps(asdict(settings), indent=1) + "\n")
        except OSError as error:
            raise ResultsError(f"{self.directory} cannot be used: {error.strerror or error}") from error

    def settings(self) -> Settings:
        """What its runs have in common; `ResultsError` if it is not there or damaged."""
        try:
            return Settings(**json.loads((self.directory / SETTINGS).read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ResultsError(f"{self.directory} holds no results: {error}") from error

    def has(self, scheme: str, seed: int) -> bool:
        """Whether a run is complete and valid; one that is not is to be done again."""
        file = self._flows(scheme, seed)
        try:
            with file.open() as lines:
                first = lines.readline()
                return not first or bool(json.loads(first)["valid"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{file} is damaged ({error}): delete it, and run again") from error

    def add(self, run: RunRecord, flows: Sequence[FlowRecord]) -> None:
        """Keep a run; whoever reads sees all of it or nothing, also after a kill.

        Raises
        ------
        ResultsError
            If it cannot be written; nothing is left of it then.
        """
        try:
            self._write(self._run(run.scheme, run.seed).name, json.dumps(asdict(run)) + "\n")
            lines = "".join(json.dumps(asdict(flow)) + "\n" for flow in flows)
            self._write(self._flows(run.scheme, run.seed).name, lines)
        except OSError as error:
            self._run(run.scheme, run.seed).unlink(missing_ok=True)
            raise ResultsError(f"results cannot be written to {self.directory}: {error.strerror or error}") from error

    def flows(self) -> Iterator[FlowRecord]:
        """Every flow of every complete run, in the order of files; `ResultsError` for a file that is damaged."""
        known = {one.name for one in fields(FlowRecord)}
        for file in sorted(self.directory.glob("*.jsonl")):
            try:
                lines = file.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ResultsError(f"{file} cannot be read ({error}): delete it, and run again") from error
            for number, line in enumerate(lines, 1):
                try:
                    record = json.loads(line)
                    yield FlowRecord(**{name: value for name, value in record.items() if name in known})
                except (ValueError, TypeError, AttributeError) as error:
                    raise ResultsError(
                        f"{file}, line {number}, is damaged ({error}): delete the file, and run again"
                    ) from error

    def run(self, scheme: str, seed: int) -> RunRecord:
        """What concerns a run as a whole; `ResultsError` if it is not there or damaged."""
        file = self._run(scheme, seed)
        try:
            return RunRecord(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ResultsError(f"{file} is damaged or missing ({error}): delete its .jsonl, and run again") from error

    def _flows(self, scheme: str, seed: int) -> Path:
        return self.directory / f"{scheme}-{seed}.jsonl"

    def _run(self, scheme: str, seed: int) -> Path:
        return self.directory / f"{scheme}-{seed}.run.json"

    def _write(self, name: str, text: str) -> None:
        """In one step, so that no reader and no crash sees half of it."""
        part = self.directory / f".{name}.part"
        try:
            with part.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.rename(self.directory / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
