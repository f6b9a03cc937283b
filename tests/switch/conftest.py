"""A real controller and a real Open vSwitch with the dummy datapath: every switch of a fat-tree, no packets needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fabrics import Fabric, Kept, running

OPTIONS = (
    "--sopa-hold-down=0",
    "--sopa-hold-down-max=0",
    "--sopa-lldp-interval=0",
    "--sopa-rule-check-interval=0",
    "--sopa-stats-interval=1",
)
"""Links are back at once; cables cannot be checked where no packet flows."""


@pytest.fixture(scope="package")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    its = Kept(4, tmp_path_factory.mktemp("fabric"), *OPTIONS)
    yield its
    its.close()


@pytest.fixture
def shared(kept: Kept) -> Iterator[Fabric]:
    """The k=4 fabric that the tests of this folder share: each leaves it as it found it."""
    with kept.lend() as its:
        yield its


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    with running(4, tmp_path) as its:
        yield its
