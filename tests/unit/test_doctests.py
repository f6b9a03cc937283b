"""The examples in docstrings run."""

import doctest
from types import ModuleType

import pytest

import flowrules.label
import flowrules.switch_rules
import sopa_ryu.channel.protocol
import topologies.failures
import topologies.identity
import topologies.structure

MODULES = [
    topologies.identity,
    topologies.structure,
    topologies.failures,
    flowrules.label,
    flowrules.switch_rules,
    sopa_ryu.channel.protocol,
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_docstring_examples_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
