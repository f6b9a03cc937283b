"""The agents of a lab's hosts, what they log, and the controller that they follow where no switch has one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from experiments.emulation.bad_links import Forwarding
from experiments.emulation.processes import AgentProcess, ControllerProcess, metric_samples
from experiments.schemes import Scheme
from topologies import Clos, Host
from topologies.lab.links import FRAME_BYTES

# Per host: hosts of a lab have few flows, and 128 of them share the memory of this machine.
FLOWS = 4096
_LEFT = re.compile(r"(\S+ \S+) [A-Z]+ (\S+): ((?:leaves|takes) .*?): ")
LONG_QUEUES = 2  # on one path more than on another


def agent_process(
    lab: Forwarding,
    hosts: Iterable[Host],
    controller: str | Sequence[str],
    token_file: Path,
    directory: Path,
    options: Sequence[str],
    enter: Sequence[str] = (),
) -> AgentProcess:
    """Return an agent process, not started, for some hosts; its log is beside the directory of its state."""
    interfaces = [f"{lab.interface(host, 0)}@{lab.netns(host)}" for host in hosts]
    every = [f"--flows={FLOWS}", f"--state-dir={directory}", f"--token-file={token_file}", *options]
    return AgentProcess(interfaces, controller, directory.with_name(f"{directory.name}.log"), every, enter)


def patience_ms(rate_mbit: float, packets: int) -> float:
    """Return what the delays of two paths of a lab may differ by, in ms, if queues of so many packets are not exceeded for long."""
    return max(20.0, LONG_QUEUES * packets * FRAME_BYTES * 8 / (1000 * rate_mbit))


def agent_options(scheme: Scheme, seed: int, patience: float) -> list[str]:
    """Return the options of ``sopa agent`` for a scheme; after ``patience`` milliseconds MCS takes for lost what is missing."""
    of_mcs = [f"--channels={scheme.channels}", f"--channel-kind={scheme.channel_kind}", f"--mcs-patience={patience:g}"]
    of_tcp = [
        f"--spray={scheme.spray}",
        *([f"--segments={scheme.segments}"] if scheme.slots is None else []),  # slots limit bursts
        f"--fr-threshold={scheme.fr_threshold}",
        f"--min-rtt-window={scheme.min_rtt_window}",
    ]
    return [
        f"--policy={scheme.policy}",
        *scheme.policy_options,
        *(of_mcs if scheme.channels else of_tcp),  # with MCS agents leave TCP's settings to host_sysctls.py
        *([] if scheme.weights else ["--no-weights"]),
        *(["--no-probes"] if scheme.probes is False else []),
        f"--seed={seed}",
    ]


def logged_at(text: str) -> float:
    """Return the time at the beginning of a log line, in seconds since the epoch."""
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S,%f").timestamp()


def paths_left(log: Path, begin: float) -> list[tuple[float, str]]:
    """Return what agents have logged of paths that they leave or take again, with the seconds after ``begin``.

    Each of them logs some of its changes in ten seconds, and leaves out the others.
    """
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    said = [(logged_at(one[1]) - begin, f"{one[2]} {one[3]}") for one in map(_LEFT.match, lines) if one]
    return [(round(seconds, 3), text) for seconds, text in said if seconds >= 0]


class McsMetrics:
    """What agents with the policy ``mcs`` say of themselves at the ``--metrics-port`` of their process."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._url = f"http://{host}:{port}"

    def all_scatter(self, count: int) -> bool:
        """Return True if each of ``count`` agents scatters to all others."""
        samples = metric_samples(self._url)
        return [sample.value for sample in samples if sample.name == "sopa_agent_mcs_hosts"] == count * [count - 1]

    def packets(self) -> Counter[str]:
        """Return the packets of all agents by what was done with them, named as counters of a run: ``McsAckFiltered``."""
        sums: Counter[str] = Counter()
        for sample in metric_samples(self._url):
            if sample.name == "sopa_agent_mcs_packets_total":
                sums["Mcs" + sample.labels["outcome"].title().replace("_", "")] += int(sample.value)
        return sums


def lone_controller(tree: Clos, log: Path, openflow_port: int, rest_port: int, options: Sequence[str]) -> ControllerProcess:
    """Return a controller, not started, that no switch connects to: agents learn from it which hosts run one."""
    return ControllerProcess(tree, log, openflow_port, rest_port, options=["--sopa-no-switches", *options])


_IN_FORCE = re.compile(r"(\S+ \S+) [A-Z]+ (\S+): version (\d+)(?: of term (\d+))? in force: ")


class InForce(NamedTuple):
    """A version that an agent has put in force, at a time since 1970 exact to a millisecond. The term is 0 without a cluster."""

    at: float
    agent: str
    term: int
    version: int


class AgentsLog:
    """What the agents of a process have put in force so far. Each agent logs a version that changes its paths."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self.entries: list[InForce] = []

    def follow(self) -> list[InForce]:
        """Return all entries, those that have come since the last call included."""
        with self._file.open("rb") as log:
            log.seek(self._read)
            whole, _, _ = log.read().rpartition(b"\n")
        self._read += len(whole) + 1 if whole else 0
        for line in whole.decode(errors="replace").splitlines():
            found = _IN_FORCE.match(line)
            if found:
                at, agent, version, term = found.groups()
                self.entries.append(InForce(logged_at(at), agent, int(term or 0), int(version)))
        return self.entries

    def all_at(self, version: int, agents: int) -> float | None:
        """Return when the last of so many agents had a version or a later one; None if some do not have it."""
        first: dict[str, float] = {}
        for entry in self.follow():
            if entry.version >= version:
                first.setdefault(entry.agent, entry.at)
        return max(first.values()) if len(first) >= agents else None
