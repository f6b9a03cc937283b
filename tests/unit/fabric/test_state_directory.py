"""Drains outlive the controller, and a start says what a changed fabric changes, whatever stands in their files."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from sopa_ryu.fabric.drain import Drain
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.state_directory import Drains, StateError, note_fabric, read_anew
from sopa_ryu.runtime.atomic_file import make_atomically, replaced
from tests.helpers.golden import Script, Step, each_script, octets
from tests.helpers.records import files_up_to
from topologies import Clos, FatTree, TopologyError


class Directory:
    """A directory, its controllers by name, and what they log."""

    def __init__(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.path, self.caplog, self.controllers = path, caplog, dict[str, Drains]()

    def handle(self, step: Step) -> str:
        self.caplog.clear()
        try:
            said = getattr(self, f"do_{step.command}")(*step.words, **step.options) or ""
        except (StateError, ValueError) as error:
            said = f"{type(error).__name__}: {error}"
        records = [f"{record.levelname.lower()}: {record.getMessage()}" for record in self.caplog.records]
        text = "\n".join([said, *records]).replace(str(self.path), "DIR")
        return re.sub(r"(cannot be \w+): .*?; (nothing|what)", r"\1; \2", text)  # the words differ from Python to Python

    def do_start(self, name: str, k: str = "4", at: str = "state") -> str:
        tree = FatTree(int(k))
        self.controllers[name] = Drains(self.path / at, tree, FabricState(tree, 1).drainable)
        return self.do_drained(name)

    def do_end(self, name: str) -> None:
        self.controllers.pop(name).close()

    def do_drain(self, name: str, *elements: str, **options: str) -> str:
        for element in elements:
            self.controllers[name].add(element, Drain(**options))
        return self.do_drained(name)

    def do_restore(self, name: str, element: str) -> str:
        self.controllers[name].remove(element)
        return self.do_drained(name)

    def do_drained(self, name: str) -> str:
        drains = self.controllers[name].drains.items()
        told = (f"{name} ({drain.actor}: {drain.reason})" if drain.actor else name for name, drain in sorted(drains))
        return "drained: " + (" ".join(told) or "nothing")

    def do_fabric(self, document: str, at: str = "state") -> None:
        note_fabric(self.path / at, Clos(**json.loads(document)))

    def do_write(self, name: str, text: str) -> None:
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_bytes(octets(text))

    def do_read(self, name: str) -> str:
        return repr((self.path / name).read_text())

    def do_occupy(self, name: str) -> None:
        """Have nobody write a file, even root."""
        (self.path / name).mkdir()

    def do_free(self, name: str) -> None:
        (self.path / name).rmdir()


@each_script(__file__, "state_directory")
def test_script(script: Script, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa")
    script.play(Directory(tmp_path, caplog).handle)


@pytest.mark.parametrize("room", [0, 3])
def test_a_secret_that_cannot_be_written_whole_is_not_there(tmp_path: Path, room: int) -> None:
    file = tmp_path / "token"
    with files_up_to(room), pytest.raises(OSError, match="File too large"):
        make_atomically(file, b"secret\n")
    assert list(tmp_path.iterdir()) == []
    make_atomically(file, b"secret\n")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"secret\n", 0o600)
    with pytest.raises(FileExistsError):
        make_atomically(file, b"another\n")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"secret\n"]


def test_two_that_replace_a_file_at_the_same_time_have_a_name_each(tmp_path: Path) -> None:
    file = tmp_path / "program.o"
    with replaced(file) as outer:
        outer.write_text("outer")
        with replaced(file) as inner:
            inner.write_text("inner")
        assert file.read_text() == "inner"
    assert file.read_text() == "outer"
    with files_up_to(2), pytest.raises(OSError, match="File too large"), replaced(file) as fresh:
        fresh.write_text("half")
    assert file.read_text() == "outer"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"hosts": 3}, "e0_0 port 3 would lead to h0_0_4 instead of a0_0: ports of running switches stay where they are"),
        ({"edges": 2}, "e0_2 is connected: take SOPA off it first"),
        ({"links": {}}, "a0_0 has no port 2: sopa fabric plan prints what makes it"),
        ({"edges": 4}, "a0_1 has no port 4: sopa fabric plan prints what makes it"),
        ({"mbit": {"host": 10}}, ""),
        ({"edges": 4, "links": {"e0_1-a0_0": "absent", "e0_3-a0_0": "absent", "e0_3-a0_1": "absent"}}, ""),
    ],
)
def test_a_changed_file_is_taken_if_the_connected_switches_fit_it(change: dict[str, Any], wrong: str) -> None:
    document = {"pods": 1, "edges": 3, "aggregations": 2, "cores": 0, "hosts": 2, "links": {"e0_1-a0_0": "absent"}}
    tree, new = Clos(**document), Clos(**{**document, **change})
    ports = {switch: tree.ports(switch).keys() for switch in tree.switches()}
    if wrong:
        with pytest.raises(TopologyError, match=re.escape(wrong)):
            read_anew(lambda: new, tree, tree.aliases, ports)
        new = Clos(**document)
    found = read_anew(lambda: new, tree, tree.aliases, ports)
    assert (found.fabric, bool(found.changed), found.named) == (new, not wrong, [])
