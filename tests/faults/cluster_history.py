"""What has to be true of everything that a cluster has ever committed, commanded and put in force. Pure.

The invariants are stated on histories that others have written: the engine's revisions, the agents' log, and what Open vSwitch
says of each change of a switch's flow entries.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from experiments.emulation.host_agents import InForce


class Committed(NamedTuple):
    """A view that the engine has had."""

    revision: int
    term: int
    version: int


def wrong_commits(history: Sequence[Committed]) -> list[str]:
    """Return what is wrong with the views that the engine has had, by revision: terms and versions only rise."""
    return [
        f"the engine had {later} after {earlier}"
        for earlier, later in pairwise(history)
        if later.term < earlier.term or later.version <= earlier.version
    ]


def wrong_agents(entries: Iterable[InForce], committed: Collection[tuple[int, int]]) -> list[str]:
    """Return what is wrong with what agents have put in force, in order: only committed views, and never a lower one."""
    problems = []
    latest: dict[str, tuple[int, int]] = {}
    for entry in entries:
        its, before = (entry.term, entry.version), latest.get(entry.agent, (0, 0))
        said = f"agent {entry.agent} put version {entry.version} of term {entry.term} in force"
        if its < before:
            problems.append(f"{said} after version {before[1]} of term {before[0]}")
        if its not in committed:
            problems.append(f"{said}: no leader had committed it")
        latest[entry.agent] = its
    return problems


def wrong_switches(written: Mapping[str, Sequence[int]], committed: Collection[int]) -> list[str]:
    """Return what is wrong with the versions by which switches' entries were written: only committed ones, and never a lower one.

    Versions rise from term to term, too (`wrong_commits`): so the command of an earlier term after one of a later term is a lower
    version after a higher one.
    """
    problems = []
    for switch, versions in written.items():
        problems += [
            f"switch {switch} took an entry of version {later} after one of version {earlier}"
            for earlier, later in pairwise(versions)
            if later < earlier
        ]
        if unknown := sorted(set(versions) - set(committed)):
            problems.append(f"switch {switch} took entries of versions {unknown}: no leader had committed them")
    return problems
