"""A bounded number of inputs of each kind of garbled input; ``make fuzz`` takes longer."""

from collections.abc import Iterator

import pytest

from tests.fuzz.__main__ import KINDS, fuzz
from tests.fuzz.target import Target, target

pytestmark = pytest.mark.switch

STEPS = {"openflow": 15, "agents": 40, "rest": 1000, "lldp": 500}


@pytest.fixture(scope="module")
def its(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("fuzz")) as its:
        yield its


@pytest.mark.parametrize("kind", KINDS)
def test_garbled_input_changes_nothing_else(its: Target, kind: str) -> None:
    fuzz(its, kind, seed=1, most=STEPS[kind])
