"""Confirmations of a version that are missing."""

import pytest

from sopa_ryu.fabric.view import VersionTracker


@pytest.mark.parametrize(
    ("steps", "done"),
    [
        ("begin 2 abc=3, begin 3 abc=3, reached a 2, reached b 3", []),
        ("begin 2 abc=3, begin 3 abc=3, reached a 2, reached b 3, reached c 2", [2]),  # b by a later one
        ("begin 2 abc=3, begin 3 abc=3, reached a 2, reached b 3, reached c 2, reached a 3, reached c 3", [2, 3]),
        ("begin 2 ab=2, reached late 2, reached a 2, left b", [2]),  # who comes later was never waited for
        ("begin 2 =0", []),  # nobody to wait for is nothing done
        ("begin 7 ab=2, begin 2 ab=2, reached a 9, reached b 9", [2]),  # versions of a former count are never done
    ],
)
def test_a_version_is_done_when_the_last_has_followed_it(steps: str, done: list[int]) -> None:
    found: list[int] = []
    tracker = VersionTracker(found.append)
    for step in steps.split(", "):
        match step.split(" "):
            case ["begin", version, who]:
                names, waited_for = who.split("=")
                assert tracker.begin(int(version), names) == int(waited_for)
            case ["reached", name, version]:
                tracker.reached(name, int(version))
            case ["left", name]:
                tracker.left(name)
    assert found == done
