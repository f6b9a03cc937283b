"""The examples in docstrings run."""

import doctest
from types import ModuleType

import pytest

import topologies.failures
import topologies.structure


@pytest.mark.parametrize("module", [topologies.failures, topologies.structure])
def test_docstring_examples_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
