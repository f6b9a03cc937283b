"""Tests of how fast the product is: alone on the machine, one after another, each beside a control."""

import pytest

from tests.timing.judge import Timing


@pytest.fixture
def timing() -> Timing:
    """Measure and judge; usable in a lab's child process, too."""
    return Timing()
