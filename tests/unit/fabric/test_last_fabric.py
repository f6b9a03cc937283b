"""What a start says of a fabric that is not the one of the last start."""

import json
from pathlib import Path

import pytest

from sopa_ryu.fabric.state_directory import FABRIC_FILE, note_fabric
from topologies import Clos, FatTree

BEFORE = Clos(2, 2, 2, 4, 2, mbit={"host": 10}, links={"a0_0-c0_1": "absent"}, gateways=["h0_0_2"])


def test_the_first_start_and_the_same_fabric_say_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        note_fabric(tmp_path, BEFORE)
    assert caplog.text == ""
    assert json.loads((tmp_path / FABRIC_FILE).read_text()) == BEFORE.document()


def test_a_changed_fabric_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note_fabric(tmp_path, BEFORE)
    now = Clos(2, 2, 2, 4, 3, links={"a0_0-c0_1": 5, "e0_0-a0_1": 7}, gateways=["h0_1_2"], no_label=["h0_0_3"])
    note_fabric(tmp_path, now)
    differences = ["hosts 3 instead of 2", "mbit.host as usual instead of 10", "links.a0_0-c0_1 5 instead of absent"]
    differences += ["links.e0_0-a0_1 7 instead of as usual", "gateways with h0_1_2", "gateways without h0_0_2"]
    assert [its for its in (*differences, "no_label with h0_0_3") if its not in caplog.text] == []
    caplog.clear()
    note_fabric(tmp_path, now)
    assert caplog.text == ""


def test_of_very_many_differences_the_first_are_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note_fabric(tmp_path, FatTree(16))
    links = {f"e{pod}_{edge}-a{pod}_0": 3 for pod in range(16) for edge in range(2)}
    note_fabric(tmp_path, Clos(*FatTree(16).shape, links=links))
    assert "; and 12 more; switches and agents get it now" in caplog.text


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "3", '{"links": 3}', '{"gateways": [[]]}', "\0"])
def test_a_damaged_file_is_said_and_replaced(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FABRIC_FILE).write_text(content)
    note_fabric(tmp_path, BEFORE)
    assert "what has changed since the last start is not known" in caplog.text
    assert json.loads((tmp_path / FABRIC_FILE).read_text()) == BEFORE.document()


def test_a_full_disk_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    note_fabric(tmp_path / "nowhere", BEFORE)
    assert "cannot be written" in caplog.text
