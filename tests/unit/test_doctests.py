"""The examples in docstrings run."""

import doctest

import topologies.structure


def test_the_examples_of_the_fat_tree_are_true() -> None:
    result = doctest.testmod(topologies.structure)
    assert result.attempted > 0
    assert result.failed == 0
