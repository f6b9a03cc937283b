"""The examples in docstrings run."""

import doctest
from types import ModuleType

import pytest

import experiments.names
import experiments.schemes.hedera.demand
import flowrules.label
import flowrules.switch_rules
import topologies.failures
import topologies.identity
import topologies.structure

MODULES = [
    experiments.names,
    experiments.schemes.hedera.demand,
    topologies.identity,
    topologies.structure,
    topologies.failures,
    flowrules.label,
    flowrules.switch_rules,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_docstring_examples_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
