"""The examples in docstrings run."""

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import experiments
import flowrules
import sopa_ryu
import tests.helpers
import topologies
from sopa_ryu.manager import make_ryu_importable


def modules_with_examples() -> Iterator[str]:
    for package in (topologies, flowrules, sopa_ryu, experiments, tests.helpers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            path = Path(module.module_finder.path) / module.name.rpartition(".")[2]  # type: ignore[union-attr]
            source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
            if ">>> " in source.read_text():
                yield module.name


@pytest.mark.parametrize("name", [*modules_with_examples()])
def test_docstring_examples_run(name: str) -> None:
    make_ryu_importable()
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
