"""A traffic matrix does what its file says, and a file that is wrong is refused with its line and what to write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.workloads import Scale, WorkloadError, checks, from_csv
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree

SCALE = Scale(4.0, 10.0)
HEAD = "src,dst,bytes,start\n"
Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to(content: str | bytes) -> Path:
        path = tmp_path / "mine.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return to


def test_a_run_is_longer_than_its_last_start_if_nobody_says_otherwise(write: Write) -> None:
    workload = from_csv(write(HEAD + "h0_0_2,h1_0_2,5,45\nh0_0_2,h1_0_2,5,3\n"))
    assert workload.latest == 45
    plan = workload.build(FatTree(4), 1, Scale(4.0, workload.latest + 0.01 * workload.seconds))
    assert plan.transfers[0].start == 45


def test_results_of_a_changed_file_are_of_another_experiment(write: Write) -> None:
    workload = from_csv(write(HEAD + "h0_0_2,h1_0_2,5,\n"))
    assert (workload.name, "mine.csv" in workload.summary) == ("mine", True)
    before = workload.parameters
    assert from_csv(write(HEAD + "h0_0_2,h1_0_2,5,\n")).parameters == before
    assert from_csv(write(HEAD + "h0_0_2,h1_0_2,6,\n")).parameters != before


@each_script(__file__, "matrix")
def test_files(script: Script, write: Write) -> None:
    def handle(step: Step) -> str:
        """Read a file with these lines, and plan it in a fat-tree."""
        path = write("".join(f"{line}\n" for line in step.words).encode().decode("unicode_escape"))
        try:
            plan = from_csv(path).build(FatTree(int(step.options.get("k", 4))), 1, SCALE)
        except WorkloadError as error:
            return f"refused: {str(error).replace(str(path), 'FILE')}"
        traced = f"traced {' '.join(map(str, plan.traced)) or 'nothing'}"
        told = [(FatTree.name(one.src), FatTree.name(one.dst), one.bytes, one.start) for one in plan.transfers]
        lines = (f"{src} to {dst}: {size or 'all the time'} from {start:g} s" for src, dst, size, start in told)
        return "\n".join([traced, *lines])

    script.play(handle)


def test_a_file_with_more_transfers_than_can_be_kept_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_TRANSFERS", 3)
    with pytest.raises(WorkloadError, match=r"more than 3 transfers.*split the file"):
        from_csv(write("src,dst,bytes\n" + "h0_0_2,h1_0_2,5\n" * 4))


def test_a_file_that_is_not_there_or_no_text_is_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.csv cannot be read: No such file"):
        from_csv(tmp_path / "none.csv")
    with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
        from_csv(tmp_path)
    with pytest.raises(WorkloadError, match="line 2: bytes"):
        from_csv(write(f"{HEAD}h0_0_2,h1_0_2,{'9' * 5000},\n"))
    with pytest.raises(WorkloadError, match="is not UTF-8 text: write"):
        from_csv(write(b"\xff\xfe\x00"))
