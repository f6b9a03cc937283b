"""Drains outlive the controller, and whatever stands in their file."""

import json
from pathlib import Path

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.state_directory import DRAINS_FILE, Drains, StateError
from topologies import FatTree, TopologyError

TREE = FatTree(4)


def drains(directory: Path, tree: FatTree = TREE, names: str = "") -> Drains:
    its = Drains(directory, tree, FabricState(tree, 1).drainable)
    for name in names.split():
        its.add(name)
    return its


def test_what_is_drained_is_drained_after_a_restart(tmp_path: Path) -> None:
    first = drains(tmp_path / "new" / "state", names="a0_0-c0_1 c1_1")
    first.remove("c1_1")
    first.close()
    assert drains(tmp_path / "new" / "state").names == {"a0_0-c0_1"}


def test_an_unknown_name_changes_nothing(tmp_path: Path) -> None:
    its = drains(tmp_path, names="c0_0")
    for name in ("c9_9", "a0_0-c1_0", "c0_1-a0_0", "banana", "", "a0_0-c0_1-e0_0", "-", "a0_0-"):
        with pytest.raises(TopologyError):
            its.add(name)
    with pytest.raises(ValueError, match="only link"):
        its.add("h0_0_2-e0_0")
    assert its.names == {"c0_0"}
    assert json.loads((tmp_path / DRAINS_FILE).read_text()) == {"k": 4, "drained": ["c0_0"]}


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"k": 4}', '{"k": 4, "drained": [4]}', '{"k": 4, "drained": 4}', "\0"])
def test_an_unreadable_file_is_said_and_kept(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / DRAINS_FILE).write_text(content)
    its = drains(tmp_path)
    assert its.names == frozenset()
    assert "nothing is drained" in caplog.text
    its.add("c0_1")
    assert (tmp_path / "drains.refused").read_text() == content


def test_of_another_fabric_only_what_it_lacks_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    drains(tmp_path, FatTree(6), "c0_0 a5_0-c0_1 c2_2").close()
    its = drains(tmp_path)
    assert its.names == {"c0_0"}
    assert "this fabric has no a5_0-c0_1, c2_2, drained before the start: now in drains.refused" in caplog.text
    assert json.loads((tmp_path / "drains.refused").read_text()) == {"k": 6, "drained": ["a5_0-c0_1", "c2_2"]}
    assert json.loads((tmp_path / DRAINS_FILE).read_text()) == {"k": 4, "drained": ["c0_0"]}
    its.close()
    caplog.clear()
    assert drains(tmp_path).names == {"c0_0"}
    assert "refused" not in caplog.text


def test_two_controllers_do_not_share_a_directory(tmp_path: Path) -> None:
    first = drains(tmp_path)
    with pytest.raises(StateError, match="--sopa-state-dir"):
        drains(tmp_path)
    first.close()
    drains(tmp_path).close()


def test_a_full_disk_refuses_the_drain_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    its = drains(tmp_path, names="c0_0")
    (tmp_path / "drains.new").mkdir()  # nothing can be written there, even by root
    with pytest.raises(StateError, match="cannot be written"):
        its.add("c0_1")
    (tmp_path / "drains.new").rmdir()
    assert its.names == {"c0_0"}
    its.close()
    assert drains(tmp_path).names == {"c0_0"}


def test_a_directory_that_cannot_be_made_refuses_drains_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    its = drains(tmp_path / "file" / "state")
    assert "drains will be rejected" in caplog.text
    with pytest.raises(StateError):
        its.add("c0_0")
    assert its.names == frozenset()
