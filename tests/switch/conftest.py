"""A real controller and a real Open vSwitch with the dummy datapath: every switch of a fat-tree, no packets needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.fabrics import Fabric, running


@pytest.fixture(scope="module", params=[4, 6, 8], ids="k={}".format)
def any_fabric(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A healthy fabric of each size; tests leave it as they found it."""
    with running(request.param, tmp_path_factory.mktemp("fabric")) as fabric:
        yield fabric


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    """A k=4 fabric of one's own."""
    with running(4, tmp_path) as its:
        yield its
