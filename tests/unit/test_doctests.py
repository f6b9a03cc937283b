"""The examples in docstrings run."""

import doctest

import topologies.fattree


def test_the_examples_of_the_fat_tree_are_true() -> None:
    result = doctest.testmod(topologies.fattree)
    assert result.attempted > 0
    assert result.failed == 0
