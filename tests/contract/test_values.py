"""The comparison itself: it must report every kind of difference, and nothing that changes from run to run."""

from pathlib import Path
from typing import Any

import pytest

from tests.contract import values
from tests.contract.values import AS_HEALTHY, NUMBER, TEXT, compact, differences, expand, masked, summary

FAILED = {"name": "c0_0", "reason": "down"}
BODY = {"k": 4, "failures": [FAILED], "hops": ["a", "b"]}
FABRIC = {"GET /fabric": {"status": 200, "body": BODY}}


@pytest.mark.parametrize(("changes", "lines"), [
    ({}, []),
    ({"failures": [{**FAILED, "reason": "broken"}]}, ['failures[0].reason: recorded "down", now "broken"']),
    ({"k": "4"}, ['k: recorded 4, now "4"']),
    ({"k": 4.0}, ["k: recorded 4, now 4.0"]),
    ({"k": None}, ["k: recorded 4, now null"]),
    ({"pods": 4}, ["pods: not recorded, now 4"]),
    ({"k": {}}, ["k: recorded 4, now {}"]),
    ({"failures": []}, ['failures: recorded 1 items, now 0; from [0] on [{"name": "c0_0", "reason": "down"}]']),
    ({"hops": ["b", "a"]}, ['hops[0]: recorded "a", now "b"', 'hops[1]: recorded "b", now "a"']),
])  # fmt: skip
def test_each_kind_of_difference_is_reported_with_its_path(changes: dict[str, Any], lines: list[str]) -> None:
    now = {"GET /fabric": {"status": 200, "body": {**BODY, **changes}}}
    assert differences(FABRIC, now, "") == [f"GET /fabric body.{line}" for line in lines]
    assert len(differences(now, FABRIC, "")) == len(lines)
    named = [f"a link is down: GET /fabric body.{line}" for line in lines]
    assert differences({"a link is down": FABRIC}, {"a link is down": now}, "") == named


def test_differences_that_are_alike_are_shown_once() -> None:
    alike = [f"{where}].up: recorded 1, now 2" for where in ("healthy: GET /links [0", "other: GET /links [7")]
    last = "GET /fabric body.k: recorded 4, now 6"
    assert summary([*alike, last]) == [f"{alike[0]} (and 1 more like it)", last]


@pytest.mark.parametrize(("body", "kept"), [
    ({"epoch": 17, "at": 1.5, "memory_mib": 3}, {"epoch": NUMBER, "at": NUMBER, "memory_mib": NUMBER}),
    ({"held_seconds": None, "detail": "off", "reason": "down"}, {"held_seconds": None, "detail": TEXT, "reason": "down"}),
    ({"detail": 4, "does": ["drop"]}, {"detail": 4, "does": [TEXT]}),
    ({"packets": [0, 1], "etag": '"17-3-0123abcd"'}, {"packets": [0, 1], "etag": "<etag>"}),
    ({"version": 9, "changes": [{"version": 8}], "rules_version": None},
     {"version": 1, "changes": [{"version": 0}], "rules_version": None}),
])  # fmt: skip
def test_run_dependent_values_are_masked_by_type_and_versions_counted_from_the_first(body: Any, kept: Any) -> None:
    assert masked(body, 8) == kept


def test_answers_as_in_the_healthy_fabric_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    situations = {"healthy": {"GET /hosts": [1, 2]}, "a link is down": {"GET /hosts": [1, 2], "GET /links": [3]}}
    stored = compact(situations)
    assert stored["a link is down"] == {"GET /hosts": AS_HEALTHY, "GET /links": [3]}
    assert expand(stored) == situations
    monkeypatch.setattr(values, "DIRECTORY", tmp_path)
    values.save("rest", stored)
    assert values.load("rest") == stored
