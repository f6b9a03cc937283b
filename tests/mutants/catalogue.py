"""The catalogue: defects as data, a file for each area of the product."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

CATALOGUE = Path(__file__).parent / "catalogue"


class CatalogueError(ValueError):
    """A defect that cannot be read or applied; the message says what to do."""


class Defect(NamedTuple):
    """A small change of the product that a test has to find.

    Attributes
    ----------
    name : str
        What is wrong then, as a sentence.
    file : str
    old, new : str
        The text that is replaced, which occurs once in the file, and what it becomes.
    tests : tuple of str
        Patterns of the test modules that run the file, where coverage cannot tell; all of tests/bpf by default.
    equivalent : str
        Why no test can find it; empty if one can.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether its file has to be compiled."""
        return not self.file.endswith(".py")

    def lines(self, text: str) -> range:
        """Return the numbers of the lines that it changes in the text of its file."""
        old, new = self.old.splitlines(), self.new.splitlines()
        first = text[: text.index(self.old)].count("\n") + 1
        last = first + len(old) - 1
        while len(old) > 1 and new and old[0] == new[0]:
            old, new, first = old[1:], new[1:], first + 1
        while len(old) > 1 and new and old[-1] == new[-1]:
            old, new, last = old[:-1], new[:-1], last - 1
        return range(first, last + 1)

    def applied(self, text: str) -> str:
        """Return the text of its file with the defect.

        Raises
        ------
        CatalogueError
            If it does not fit the text any more.
        """
        if (count := text.count(self.old)) != 1:
            raise CatalogueError(f"its old text occurs {count} times in {self.file}: copy the text that is there now")
        return text.replace(self.old, self.new)


def load(directory: Path = CATALOGUE) -> list[Defect]:
    """Return all defects, in the order of files and in them."""
    defects: list[Defect] = []
    for path in sorted(directory.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        patterns = content.get("tests", {})
        for its in content["defect"]:
            try:
                tests = its.pop("tests", patterns.get(its["file"], ()))
                defects.append(Defect(tests=tuple(tests), **its))
            except (KeyError, TypeError) as error:
                raise CatalogueError(f"{path.name}: {its.get('name', its)}: {error}") from error
    names = [its.name for its in defects]
    if twice := {name for name in names if names.count(name) > 1}:
        raise CatalogueError(f"{path}: more than one defect is named {', '.join(sorted(twice))}")
    return defects


def chosen(defects: Sequence[Defect], words: Sequence[str], count: int | None, seed: int) -> list[Defect]:
    """Return the defects with one of the words in name or file (all without words), or so many of them, drawn by a seed."""
    named = [its for its in defects if not words or any(word.lower() in f"{its.name} {its.file}".lower() for word in words)]
    if count is None or count >= len(named):
        return named
    drawn = set(random.Random(seed).sample(range(len(named)), count))
    return [its for number, its in enumerate(named) if number in drawn]
