"""`make mutants`: its catalogue fits the product, and defects of a tiny tree are found, survive, or are stale."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.mutants.catalogue import load
from tests.mutants.runner import ROOT, main

PRODUCT = "LIMIT = 3\n\n\ndef capped(n):\n    return min(n, LIMIT)\n"
TEST = "from topologies.tiny import capped\n\n\ndef test_below():\n    assert capped(2) == 2\n"
CATALOGUE = """
defect = [
    {name = "a smaller bound is found", file = "topologies/tiny.py", old = "min(n, LIMIT)", new = "min(n, 1)"},
    {name = "what fails at import is found", file = "topologies/tiny.py", old = "LIMIT = 3", new = "raise SystemError"},
    {name = "a larger bound survives", file = "topologies/tiny.py", old = "LIMIT = 3", new = "LIMIT = 4"},
    {name = "nobody can tell", file = "topologies/tiny.py", old = "min(n, LIMIT)", new = "min(LIMIT, n)", equivalent = "same"},
    {name = "old text is stale", file = "topologies/tiny.py", old = "max(n, LIMIT)", new = "n"},
]
"""


def test_every_defect_fits_the_product() -> None:
    for defect in load():
        text = (ROOT / defect.file).read_text()
        assert defect.applied(text), defect.name
        assert defect.lines(text), defect.name
        if defect.file.endswith(".py"):
            compile(defect.applied(text), defect.name, "exec")


def test_defects_are_tried_in_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"topologies/__init__.py": "", "topologies/tiny.py": PRODUCT, "tests/unit/test_tiny.py": TEST}
    for name, text in {**files, "catalogue/tiny.toml": CATALOGUE}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", *files]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)

    assert main([], tmp_path, tmp_path / "catalogue") == 2, capsys.readouterr()
    verdicts = {its["defect"]: its["verdict"] for its in json.loads((tmp_path / "build/mutants.json").read_text())["defects"]}
    assert verdicts == {
        "a smaller bound is found": "found",
        "what fails at import is found": "found",
        "a larger bound survives": "survives",
        "nobody can tell": "equivalent",
        "old text is stale": "stale",
    }
    assert (tmp_path / "topologies/tiny.py").read_text() == PRODUCT
