"""A few seconds of each kind of garbled input; ``make fuzz`` takes longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.__main__ import KINDS, fuzz
from tests.fuzz.target import target

pytestmark = pytest.mark.switch


@pytest.mark.parametrize("kind", KINDS)
def test_garbled_input_changes_nothing_else(kind: str, tmp_path: Path) -> None:
    with target(tmp_path) as its:
        assert fuzz(its, kind, seed=1, seconds=4) > 0
