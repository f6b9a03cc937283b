"""`make mutants`: its catalogue fits the product."""

from tests.mutants.catalogue import load
from tests.mutants.runner import ROOT


def test_every_defect_fits_the_product() -> None:
    for defect in load():
        text = (ROOT / defect.file).read_text()
        assert defect.applied(text), defect.name
        assert defect.lines(text), defect.name
        if defect.file.endswith(".py"):
            compile(defect.applied(text), defect.name, "exec")
