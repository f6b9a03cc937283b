"""The arbiter's library for its tests."""

import pytest

from sopa_ryu.arbiter.build import build


@pytest.fixture(autouse=True, scope="session")
def library() -> None:
    build()
