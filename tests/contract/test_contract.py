"""Comparison of this version's answers with the recorded ones, field by field: what outside users rely on has not changed.

A test that fails names each difference by its path. Either the change is a mistake, or a contract changes deliberately: then
`tests.contract.record` says what to do.
"""

import json
from typing import Any

import pytest

from tests.contract import fabric, plain, values


def compare(name: str, now: Any) -> None:
    """Fail with every difference between a part's recorded and present answers."""
    now = json.loads(json.dumps(now))  # as it would be recorded
    found = values.differences(values.load(name), now, "")
    assert not found, "\n".join([f"{name}: {len(found)} differences", *values.summary(found)])


@pytest.mark.parametrize("name", plain.PARTS)
def test_what_needs_no_controller_is_as_recorded(name: str) -> None:
    compare(name, plain.PARTS[name]())


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return fabric.collect(tmp_path_factory.mktemp("contract"))


@pytest.mark.switch
@pytest.mark.parametrize("name", fabric.PARTS)
def test_what_a_controller_answers_is_as_recorded(answers: dict[str, Any], name: str) -> None:
    compare(name, answers[name])
