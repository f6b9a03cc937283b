"""When agents have put versions in force, from the log of their process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from experiments.emulation.host_agents import logged_at

_IN_FORCE = re.compile(r"(\S+ \S+) [A-Z]+ (\S+): version (\d+)(?: of term (\d+))? in force: ")


class InForce(NamedTuple):
    """A version that an agent has put in force.

    Attributes:
        at: Seconds since 1970, to a millisecond.
        agent: Address of its host.
        term: 0 without a cluster.
    """

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
