"""Scripts with golden traces, after the interaction tests of etcd's raft: what is done, and what it leads to.

A script is a text file: comments, then steps, which are a line of input each and the output that it must have::

    # A link that fails twice is held down twice as long.
    port a0_0 4 down
    ----
    version 2: a0_0-c0_1 down

A step's output ends at the next empty line. ``pytest --record`` writes what the steps say today; ``git diff`` is then the review.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

RULE = "----"
NOTHING = "ok"  # the output of a step that says nothing


@dataclass(frozen=True)
class Step:
    """A line of input: ``set a0_0 port=4`` is the command ``set``, the word ``a0_0`` and the option ``port``."""

    command: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def read(cls, line: str) -> Step:
        command, *rest = shlex.split(line)
        options = dict(part.split("=", 1) for part in rest if "=" in part)
        return cls(command, [part for part in rest if "=" not in part], options)


@dataclass(frozen=True)
class Script:
    """What the fixture ``script`` gives a test that `each_script` marks."""

    path: Path
    record: bool

    def play(self, handle: Callable[[Step], str]) -> None:
        """Play a script, and check each step's output, or record it."""
        written: list[str] = []
        lines = self.path.read_text().splitlines()
        at = 0
        while at < len(lines):
            line = lines[at]
            at += 1
            if not line.strip() or line.startswith("#"):
                written.append(line)
                continue
            place = f"{self.path.name}:{at}: {line}"
            expected = None
            if at < len(lines) and lines[at] == RULE:
                end = next((n for n in range(at + 1, len(lines)) if not lines[n].strip()), len(lines))
                expected, at = lines[at + 1 : end], end
            assert self.record or expected is not None, f"{place}: no output; pytest --record writes it"
            said = [row.rstrip() for row in handle(Step.read(line)).splitlines() if row.strip()] or [NOTHING]
            assert self.record or said == expected, f"{place}\nexpected:\n{_shown(expected)}\nsaid:\n{_shown(said)}"
            written += [line, RULE, *said]
            if expected is None and at < len(lines) and lines[at].strip():
                written.append("")
        if self.record:
            self.path.write_text("\n".join(written) + "\n")


def each_script(module: str, *subjects: str) -> pytest.MarkDecorator:
    """Have a test play the scripts of its subjects, which are beside its module's file; each has one at least."""
    of_subject = {subject: sorted((Path(module).parent / "scripts" / subject).glob("*.txt")) for subject in subjects}
    assert all(of_subject.values()), f"no scripts beside {module}: {of_subject}"
    found = [path for paths in of_subject.values() for path in paths]
    names = [path.stem if len(subjects) == 1 else f"{path.parent.name}-{path.stem}" for path in found]
    return pytest.mark.parametrize("script", found, ids=names, indirect=True)


def octets(text: str) -> bytes:
    """Read a word that stands for bytes: escapes, and ``@40`` for 40 letters."""
    raw = text.encode().decode("unicode_escape").encode("latin-1")
    return re.sub(rb"@(\d+)", lambda found: b"x" * int(found[1]), raw)


def _shown(lines: list[str] | None) -> str:
    return "\n".join(f"    {line}" for line in lines or ())
