"""A traffic matrix does what its file says, and a file that is wrong is refused with its line and what to write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.workloads import Plan, Scale, Transfer, Workload, WorkloadError, checks, from_csv
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
        ("", "line 1: the file is empty: the first line must be src,dst,bytes"),
        ("\n\n", "the file is empty"),
        (HEAD, "contains no transfers: write one per line"),
        ("src,dst\nh0_0_2,h1_0_2\n", "line 1: column bytes is missing"),
        ("h0_0_2,h1_0_2,5\n", "line 1: unknown column 'h0_0_2': expected one of src, dst, bytes, start"),
        ("src;dst;bytes\nh0_0_2;h1_0_2;5\n", "line 1: unknown column 'src;dst;bytes'"),
        ("src,dst,byte\nh0_0_2,h1_0_2,5\n", "line 1: unknown column 'byte': did you mean bytes"),
        ("src,dst,bytes,bytes\nh0_0_2,h1_0_2,5,5\n", "line 1: a column occurs twice"),
        (HEAD + "h0_0_2,h1_0_2,5\n", "line 2: 3 values for 4 columns: write src,dst,bytes,start"),
        (HEAD + "h0_0_2,h1_0_2,5,0,1\n", "line 2: 5 values for 4 columns"),
        (HEAD + "h0_0_2,h1_0_2,5,\n\nh0_0_2,h1_0_2,-5,\n", "line 4: bytes '-5' is not a size: write a whole number"),
        (HEAD + "h0_0_2,h1_0_2,0,\n", "line 2: bytes '0'"),
        (HEAD + "h0_0_2,h1_0_2,1.5,\n", "line 2: bytes '1.5'"),
        (HEAD + "h0_0_2,h1_0_2,1_000,\n", "line 2: bytes '1_000'"),
        (HEAD + "h0_0_2,h1_0_2,\u0665,\n", "line 2: bytes"),
        (HEAD + f"h0_0_2,h1_0_2,{'9' * 5000},\n", "line 2: bytes"),
        (HEAD + "h0_0_2,h1_0_2,many,\n", "line 2: bytes 'many'"),
        (HEAD + "h0_0_2,h1_0_2,5,-1\n", "line 2: start '-1' is not a time: write seconds"),
        (HEAD + "h0_0_2,h1_0_2,5,soon\n", "line 2: start 'soon'"),
        (HEAD + "h0_0_2,h1_0_2,5,nan\n", "line 2: start 'nan'"),
        (HEAD + "h0_0_2,h1_0_2,5,inf\n", "line 2: start 'inf'"),
        (HEAD + 'h0_0_2,"h1_0_2,5,\n', "line 2: .*write plain values"),
        (b"\xff\xfe\x00", "is not UTF-8 text: write"),
    ],
)
def test_a_file_that_is_wrong_is_refused(write: Write, content: str | bytes, said: str) -> None:
    path = write(content)
    with pytest.raises(WorkloadError, match=said) as raised:
        from_csv(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("h4_0_2,h1_0_2,5,", "'h4_0_2' is not a host of a k=4 fat-tree: write a name from h0_0_2 to h3_1_3"),
        ("h0_0_2,10.4.0.2,5,", "'10.4.0.2' is not a host.*address from 10.0.0.2 to 10.3.1.3"),
        ("h0_0_2,192.168.0.1,5,", "'192.168.0.1' is not a host"),
        ("h0_0_2,10.0.0,5,", "'10.0.0' is not a host"),
        ("h0_0_2,e1_0,5,", "'e1_0' is not a host"),
        (",h1_0_2,5,", "'' is not a host"),
        ("h0_0_2,h0_0_2,5,", "sends to itself: write two different hosts"),
        ("h0_0_2,10.0.0.2,5,", "sends to itself"),
        ("h0_0_2,h1_0_2,5,10", "start 10 is not before the end of the run at 10 s: .*more --seconds"),
    ],
)
def test_a_line_that_the_fabric_cannot_do_is_refused(write: Write, line: str, said: str) -> None:
    path = write(HEAD + "h0_0_2,h1_0_2,5,\n" + line + "\n")
    with pytest.raises(WorkloadError, match=said) as raised:
        planned(from_csv(path))
    assert f"{path}, line 3" in str(raised.value)


def test_a_file_with_more_transfers_than_can_be_kept_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_TRANSFERS", 3)
    with pytest.raises(WorkloadError, match=r"more than 3 transfers.*split the file"):
        from_csv(write("src,dst,bytes\n" + "h0_0_2,h1_0_2,5\n" * 4))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.csv cannot be read: No such file"):
        from_csv(tmp_path / "none.csv")
    with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
        from_csv(tmp_path)
