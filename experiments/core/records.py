"""Files of results: one JSON object per line and flow, and one file per run for data of the run as a whole.

A directory of results contains ``experiment.json`` (`RunSettings`), and for each scheme and seed ``SCHEME-SEED.jsonl``
with one `FlowRecord` per line, and ``SCHEME-SEED.run.json`` with a `RunRecord`. The latter is written first: a run is
complete if its ``.jsonl`` exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sopa_ryu.runtime.atomic_file import write_atomically
from topologies import Clos, FatTree

SETTINGS = "experiment.json"


class ResultsError(RuntimeError):
    """A directory of results is unusable. The message says what to do."""


@dataclass(frozen=True)
class RunSettings:
    """Settings shared by all runs of a directory. A directory contains the results of one experiment only.

    Attributes:
        rate_mbit: Rate of hosts' links, to which all others of the fabric are in proportion.
        parameters: Everything else that affects results: queue, carrier, parameters of the workload.
        fabric: As `Clos.document` returns it; None for a fat-tree without rates and absent links, which `k` describes.
    """

    workload: str
    backend: str
    k: int | None
    rate_mbit: float
    seconds: float
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fabric: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        """The fabric in a few words: ``k=4``, or ``32x4 leaf-spine fabric``."""
        return f"k={self.k}" if self.fabric is None else self.tree().title

    def tree(self) -> Clos:
        """Return the fabric."""
        return FatTree(self.k or 0) if self.fabric is None else Clos.from_document(dict(self.fabric))


@dataclass(frozen=True)
class FlowRecord:
    """The result of one flow of one run. Together with `RunSettings` it is sufficient to repeat the run.

    Attributes:
        flow: Index of the transfer in the plan.
        kind: Kind of the transfer in the plan; empty if all are of one kind.
        bytes, mbit: Received payload, and that in Mbit/s over `seconds`.
        seconds: Time from opening the connection to the last received byte.
        size: Payload to send, in bytes; None for a transfer that lasts until the end of the run.
        completed: True if all of it was received in time; always true without a size.
        start: Seconds after the start of the run.
        packets, reordered: Data segments received by TCP, and those received after a later one (TCP_INFO).
        spurious: Retransmitted segments that the receiver reported as duplicates (DSACK, RFC 2883).
        fast_retransmits, timeouts: How often the sender entered fast retransmit, and its retransmission timer expired.
        rtt_ms: Smoothed round-trip time of the sender at the end.
        valid: False if the processors were too busy, so that the figures are limited by the machine.
    """

    workload: str
    backend: str
    scheme: str
    k: int | None
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
    """Data of one run as a whole.

    Attributes:
        options: Policy, threshold and other settings of the scheme, as in force during the run.
        counters: Kernel counters (nstat's names) over the run, summed over hosts. With MCS, also what agents counted, from their
            start on: ``McsScattered``, ``McsAckFiltered``, ...
        core_packets: Packets received by each core switch.
        marked: Packets on which each switch port set the ECN mark.
        queue_ms, series_ms: Milliseconds between samples of `queues`, and of an interval of `series`.
        queues: From each switch port, ``e0_0-eth3``, to the length of its queue in packets at each sample.
        cwnd: From the number of a flow to pairs of seconds and congestion window in packets; in the simulator of the first flows.
        arrivals: From the number of a traced flow to ``[seconds, packet, up1, up2, delay_ms]`` of each data packet in order of
            arrival: packet number by sequence, path (255 for an unused hop), and one-way delay.
        series: From the number of a flow to the received payload in each interval, in Mbit/s.
        failed_at: Time of the failure during the run, in seconds; None without one.
        events: ``[seconds, text]`` of each change of the fabric, caused or observed.
        collective: Of a collective operation: ``transfers``, those that ``completed``, and ``seconds`` from the start of the
            run to the end of the last transfer, or null if one did not end in time; of several jobs that of each, too, as ``jobs``.
            Empty of other workloads.
        round_trips: Those of pings in milliseconds, in the order of their answers; ``counters`` has the number of ``pings`` sent.
        bad: The truth of each bad link: ``link``, ``towards``, ``at`` in seconds, ``loss``, ``corruption`` and ``rate`` as
            planned, ``transfers`` that may cross it, and the ``packets`` that it carried since then, ``lost`` and
            ``corrupted``; null where nothing counts them.
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
    marked: Mapping[str, int] = field(default_factory=dict)
    queue_ms: float = 0.0
    queues: Mapping[str, Sequence[int]] = field(default_factory=dict)
    cwnd: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    arrivals: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    series_ms: float = 1000.0
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)
    failed_at: float | None = None
    events: Sequence[Sequence[Any]] = ()
    collective: Mapping[str, Any] = field(default_factory=dict)
    round_trips: Sequence[float] = field(default_factory=list)
    bad: Sequence[Mapping[str, Any]] = field(default_factory=list)


class Results:
    """A directory of results."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, settings: RunSettings) -> None:
        """Create the directory for an experiment, or check that it contains results of the same experiment.

        Raises `ResultsError` if it contains results of another experiment or other files, or is not writable.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            if (self.directory / SETTINGS).exists():
                found = self.settings()
                before, now = asdict(found), asdict(settings)
                other = [
                    f"{name} {before[name]!r} instead of {now[name]!r}" if name != "fabric" else f"another fabric, {found.title}"
                    for name in now
                    if before[name] != now[name]
                ]
                if other:
                    raise ResultsError(
                        f"{self.directory} contains the results of another experiment ({'; '.join(other)}): give another --out"
                    )
            elif any(file.name != f".{SETTINGS}.part" for file in self.directory.iterdir()):  # left by a crash
                raise ResultsError(f"{self.directory} contains other files: give an empty --out")
            else:
                write_atomically(self.directory / SETTINGS, (json.dumps(asdict(settings), indent=1) + "\n").encode())
        except OSError as error:
            raise ResultsError(f"{self.directory} cannot be used: {error.strerror or error}") from error

    def settings(self) -> RunSettings:
        """Return the settings shared by all runs."""
        try:
            found = RunSettings(**json.loads((self.directory / SETTINGS).read_text()))
            found.tree()
            return found
        except (OSError, ValueError, TypeError) as error:
            raise ResultsError(f"{self.directory} contains no results: {error}") from error

    def has(self, scheme: str, seed: int) -> bool:
        """Return True if a run is complete and valid. Invalid runs have to be repeated."""
        file = self._flows(scheme, seed)
        try:
            with file.open() as lines:
                first = lines.readline()
                return not first or bool(json.loads(first)["valid"])
        except FileNotFoundError:
            return False
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{file} is damaged ({error}): delete it and run again") from error

    def add(self, run: RunRecord, flows: Sequence[FlowRecord]) -> None:
        """Write the records of a run. Readers see all of them or none, also after a crash.

        Raises `ResultsError` if the files cannot be written. No part of them remains.
        """
        try:
            write_atomically(self._run(run.scheme, run.seed), (json.dumps(vars(run)) + "\n").encode())
            lines = "".join(json.dumps(vars(flow)) + "\n" for flow in flows)
            write_atomically(self._flows(run.scheme, run.seed), lines.encode())
        except OSError as error:
            self._run(run.scheme, run.seed).unlink(missing_ok=True)
            raise ResultsError(f"results cannot be written to {self.directory}: {error.strerror or error}") from error

    def flows(self) -> Iterator[FlowRecord]:
        """Yield every flow of every complete run, ordered by file name."""
        known = {one.name for one in fields(FlowRecord)}
        for file in sorted(self.directory.glob("*.jsonl")):
            try:
                lines = file.read_text().splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ResultsError(f"{file} cannot be read ({error}): delete it and run again") from error
            for number, line in enumerate(lines, 1):
                try:
                    record = json.loads(line)
                    yield FlowRecord(**{name: value for name, value in record.items() if name in known})
                except (ValueError, TypeError, AttributeError) as error:
                    raise ResultsError(f"{file}, line {number}, is damaged ({error}): delete the file and run again") from error

    def run(self, scheme: str, seed: int) -> RunRecord:
        """Return the data of a run as a whole."""
        file = self._run(scheme, seed)
        try:
            return RunRecord(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError) as error:
            raise ResultsError(f"{file} is damaged or missing ({error}): delete its .jsonl and run again") from error

    def _flows(self, scheme: str, seed: int) -> Path:
        return self.directory / f"{scheme}-{seed}.jsonl"

    def _run(self, scheme: str, seed: int) -> Path:
        return self.directory / f"{scheme}-{seed}.run.json"
