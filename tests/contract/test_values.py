"""The comparison itself: it must report every kind of difference, and nothing that changes from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract import values
from tests.contract.values import AS_HEALTHY, NUMBER, TEXT, compact, differences, expand, masked, summary

BODY = {"k": 4, "failures": [{"name": "c0_0", "reason": "down"}]}
FABRIC = {"GET /fabric": {"status": 200, "body": BODY}}


def changed(**fields: Any) -> Any:
    return {"GET /fabric": {"status": 200, "body": {**BODY, **fields}}}


@pytest.mark.parametrize(
    ("now", "line"),
    [
        (
            changed(failures=[{"name": "c0_0", "reason": "broken"}]),
            'GET /fabric body.failures[0].reason: recorded "down", now "broken"',
        ),
        (changed(k="4"), 'GET /fabric body.k: recorded 4, now "4"'),
        (changed(k=4.0), "GET /fabric body.k: recorded 4, now 4.0"),
        (changed(k=None), "GET /fabric body.k: recorded 4, now null"),
        (changed(pods=4), "GET /fabric body.pods: not recorded, now 4"),
        (
            changed(failures=[]),
            'GET /fabric body.failures: recorded 1 items, now 0; from [0] on [{"name": "c0_0", "reason": "down"}]',
        ),
        ({"GET /fabric": {**FABRIC["GET /fabric"], "status": 404}}, "GET /fabric status: recorded 200, now 404"),
        ({"GET /fabric": {"status": 200}}, "GET /fabric body: recorded"),
    ],
)
def test_each_kind_of_difference_is_reported_with_its_path(now: Any, line: str) -> None:
    [found] = differences(FABRIC, now, "")
    assert found.startswith(line)


def test_the_same_has_no_difference_and_the_order_of_a_list_counts() -> None:
    assert differences(FABRIC, changed(), "") == []
    assert differences({"hops": ["a", "b"]}, {"hops": ["b", "a"]}, "") == [
        'hops[0]: recorded "a", now "b"',
        'hops[1]: recorded "b", now "a"',
    ]


def test_a_situation_stands_before_the_request() -> None:
    now = {"a link is down": changed(k=6)}
    assert differences({"a link is down": FABRIC}, now, "") == ["a link is down: GET /fabric body.k: recorded 4, now 6"]


def test_differences_that_are_alike_are_shown_once() -> None:
    lines = [
        "healthy: GET /links body.links[0].up: recorded 1, now 2",
        "other: GET /links body.links[7].up: recorded 1, now 2",
    ]
    assert summary([*lines, "GET /fabric body.k: recorded 4, now 6"]) == [
        f"{lines[0]} (and 1 more like it)",
        "GET /fabric body.k: recorded 4, now 6",
    ]


def test_run_dependent_values_are_masked_by_type_and_null_is_not() -> None:
    body = {"epoch": 1700000000000, "at": 1.5, "held_seconds": None, "detail": "off", "reason": "down", "memory_mib": 3}
    assert masked(body) == {
        "epoch": NUMBER,
        "at": NUMBER,
        "held_seconds": None,
        "detail": TEXT,
        "reason": "down",
        "memory_mib": NUMBER,
    }
    assert masked({"detail": 4}) == {"detail": 4}
    assert masked({"does": ["drop"]}) == {"does": [TEXT]}
    assert masked({"packets": [0, 1], "etag": '"17-3-0123abcd"'}) == {"packets": [0, 1], "etag": "<etag>"}


def test_versions_are_counted_from_the_situations_first() -> None:
    assert masked({"version": 9, "changes": [{"version": 8}], "rules_version": None}, 8) == {
        "version": 1,
        "changes": [{"version": 0}],
        "rules_version": None,
    }


def test_answers_as_in_the_healthy_fabric_are_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    situations = {"healthy": {"GET /hosts": [1, 2]}, "a link is down": {"GET /hosts": [1, 2], "GET /links": [3]}}
    stored = compact(situations)
    assert stored["a link is down"] == {"GET /hosts": AS_HEALTHY, "GET /links": [3]}
    assert expand(stored) == situations
    monkeypatch.setattr(values, "DIRECTORY", tmp_path)
    values.save("rest", stored)
    assert values.load("rest") == stored
