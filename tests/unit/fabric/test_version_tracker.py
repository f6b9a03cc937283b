"""Confirmations of a version that are missing."""

from sopa_ryu.fabric.version_tracker import VersionTracker


def test_a_version_is_done_when_the_last_has_followed_it_or_a_later_one() -> None:
    done: list[int] = []
    rollout = VersionTracker(done.append)
    assert rollout.begin(2, "abc") == 3
    assert rollout.begin(3, "abc") == 3
    rollout.reached("a", 2)
    rollout.reached("b", 3)
    rollout.reached("c", 2)
    assert done == [2]
    rollout.reached("a", 3)
    rollout.reached("c", 3)
    assert done == [2, 3]


def test_who_leaves_is_not_waited_for_and_who_comes_later_never_was() -> None:
    done: list[int] = []
    rollout = VersionTracker(done.append)
    rollout.begin(2, "ab")
    rollout.reached("late", 2)
    rollout.reached("a", 2)
    rollout.left("b")
    assert done == [2]


def test_nobody_to_wait_for_is_nothing_done() -> None:
    done: list[int] = []
    assert VersionTracker(done.append).begin(2, []) == 0
    assert done == []


def test_versions_of_a_former_count_are_never_done() -> None:
    done: list[int] = []
    rollout = VersionTracker(done.append)
    rollout.begin(7, "ab")
    rollout.begin(2, "ab")
    rollout.reached("a", 9)
    rollout.reached("b", 9)
    assert done == [2]
