"""The catalogue: defects as data, a file for each area of the product."""

import tomllib
from pathlib import Path
from typing import NamedTuple

CATALOGUE = Path(__file__).parent / "catalogue"


class MutantsError(ValueError):
    """A defect that cannot be tried, or a run that cannot begin; the message says what to do."""


class Defect(NamedTuple):
    """A text that occurs once in a file of the product, and what it becomes; a test has to find that.

    ``tests`` are patterns of the modules that test a file that is compiled: coverage does not see it. ``equivalent`` says why no
    test can find it.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ("tests/bpf/test_*.py",)
    equivalent: str = ""

    def applied(self, text: str) -> str:
        """Return the text of its file with the defect; raises `MutantsError` if it does not fit that text any more."""
        if (count := text.count(self.old)) != 1:
            raise MutantsError(f"its old text occurs {count} times: replace it by what the file has now, or drop the defect")
        return text.replace(self.old, self.new)

    def lines(self, text: str) -> list[int]:
        """Return the numbers of the lines of its file's text that it changes."""
        first, kept = text.count("\n", 0, text.index(self.old)) + 1, self.new.splitlines()
        changed = [number for number, line in enumerate(self.old.splitlines(), first) if line not in kept]
        return changed or [first]


def load(directory: Path = CATALOGUE) -> list[Defect]:
    """Return all defects, file by file; raises `MutantsError`."""
    defects: dict[str, Defect] = {}
    for path in sorted(directory.glob("*.toml")):
        content = tomllib.loads(path.read_text())
        for its in content["defect"]:
            patterns = its.get("tests") or content.get("tests", {}).get(its["file"]) or Defect._field_defaults["tests"]
            try:
                defect = Defect(**{**its, "tests": tuple(patterns)})
            except TypeError as error:
                raise MutantsError(f"{path.name}, {its.get('name')}: {error}") from error
            if defects.setdefault(defect.name, defect) is not defect:
                raise MutantsError(f"{path.name} has a second defect named {defect.name!r}")
    return list(defects.values())
