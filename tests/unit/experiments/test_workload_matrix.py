"""A traffic matrix does what its file says, and a file that is wrong is refused with its line and what to write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.workloads import Plan, Scale, Transfer, Workload, WorkloadError, checks, from_csv
from tests.helpers.golden import Step, play, scripts
from topologies import FatTree, Host

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


def planned(workload: Workload, k: int = 4, seed: int = 1) -> Plan:
    return workload.build(FatTree(k), seed, SCALE)


def test_every_line_is_a_transfer_in_the_order_of_the_file(write: Write) -> None:
    workload = from_csv(write(HEAD + "h0_0_2,h1_0_3,1000,2.5\n10.3.1.3,10.0.0.2,,\nh0_0_2,h0_0_3,7,0\n"))
    plan = planned(workload)
    assert plan.transfers == (
        Transfer(Host(0, 0, 2), Host(1, 0, 3), 1000, 2.5),
        Transfer(Host(3, 1, 3), Host(0, 0, 2), None, 0.0),
        Transfer(Host(0, 0, 2), Host(0, 0, 3), 7, 0.0),
    )
    assert plan.seconds == SCALE.seconds
    assert workload.name == "mine"
    assert "mine.csv" in workload.summary
    assert planned(workload, seed=2) == plan


@pytest.mark.parametrize("k", [4, 6])
def test_every_host_can_be_named_either_way(write: Write, k: int) -> None:
    hosts = list(FatTree(k).hosts())
    turned = [*hosts[1:], hosts[0]]
    lines = [f"{FatTree.name(src)},{FatTree.ip(dst)},5" for src, dst in zip(hosts, turned, strict=True)]
    plan = planned(from_csv(write("src,dst,bytes\n" + "\n".join(lines))), k)
    assert [(one.src, one.dst) for one in plan.transfers] == list(zip(hosts, turned, strict=True))


@pytest.mark.parametrize(
    "content",
    [
        "src,dst,bytes\nh0_0_2,h1_0_2,5\n",
        "bytes,start,dst,src\n5,0,h1_0_2,h0_0_2\n",
        "\ufeffsrc,dst,bytes,start\r\nh0_0_2,h1_0_2,5,\r\n",
        "\n src , dst , bytes \n\n h0_0_2 , h1_0_2 , 5 \n,,\n",
        'src,dst,bytes\n"h0_0_2","h1_0_2","5"',
    ],
    ids=["no start", "columns in another order", "from a spreadsheet", "blanks", "quotes"],
)
def test_the_same_transfer_can_be_written_in_several_ways(write: Write, content: str) -> None:
    assert planned(from_csv(write(content))).transfers == (Transfer(Host(0, 0, 2), Host(1, 0, 2), 5),)


def test_the_first_transfer_between_pods_is_the_one_to_record(write: Write) -> None:
    assert planned(from_csv(write(HEAD + "h0_0_2,h0_0_3,5,\nh0_0_2,h1_0_2,5,\nh0_0_2,h2_0_2,5,\n"))).traced == (1,)
    assert planned(from_csv(write(HEAD + "h0_0_2,h0_0_3,5,\n"))).traced == ()


def test_a_run_is_longer_than_its_last_start_if_nobody_says_otherwise(write: Write) -> None:
    workload = from_csv(write(HEAD + "h0_0_2,h1_0_2,5,45\nh0_0_2,h1_0_2,5,3\n"))
    plan = workload.build(FatTree(4), 1, Scale(4.0, workload.seconds))
    assert plan.transfers[0].start == 45
    assert workload.seconds > 45


def test_results_of_a_changed_file_are_of_another_experiment(write: Write) -> None:
    before = from_csv(write(HEAD + "h0_0_2,h1_0_2,5,\n")).parameters
    assert from_csv(write(HEAD + "h0_0_2,h1_0_2,5,\n")).parameters == before
    assert from_csv(write(HEAD + "h0_0_2,h1_0_2,6,\n")).parameters != before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + "h0_0_2,h1_0_2,\u0665,\n", "line 2: bytes"),
        (HEAD + f"h0_0_2,h1_0_2,{'9' * 5000},\n", "line 2: bytes"),
        (HEAD + 'h0_0_2,"h1_0_2,5,\n', "line 2: .*write plain values"),
        (b"\xff\xfe\x00", "is not UTF-8 text: write"),
    ],
)
def test_a_file_that_is_hardly_text_is_refused(write: Write, content: str | bytes, said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        from_csv(write(content))


@pytest.mark.parametrize("script", scripts(__file__, "matrix"), ids=lambda path: path.stem)
def test_files(script: Path, write: Write, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Read a file with these lines, and plan it in a fat-tree."""
        path = write("".join(f"{line}\n" for line in step.words))
        try:
            plan = planned(from_csv(path), int(step.options.get("k", 4)))
        except WorkloadError as error:
            return f"refused: {str(error).replace(str(path), 'FILE')}"
        told = [(FatTree.name(one.src), FatTree.name(one.dst), one.bytes, one.start) for one in plan.transfers]
        return "\n".join(f"{src} to {dst}: {size or 'all the time'} from {start:g} s" for src, dst, size, start in told)

    play(script, handle, record=request.config.option.record)


def test_a_file_with_more_transfers_than_can_be_kept_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_TRANSFERS", 3)
    with pytest.raises(WorkloadError, match=r"more than 3 transfers.*split the file"):
        from_csv(write("src,dst,bytes\n" + "h0_0_2,h1_0_2,5\n" * 4))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.csv cannot be read: No such file"):
        from_csv(tmp_path / "none.csv")
    with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
        from_csv(tmp_path)
