"""The simulator's outputs are kept by what decides them, and a damaged one is as good as none."""

import gzip
from pathlib import Path

import pytest

from experiments.core.run import Run
from experiments.ns3.cache import Cache, directory, key
from experiments.ns3.simulate import lines
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer
from topologies import FatTree


def test_what_was_kept_comes_back_under_its_own_name_only(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "cache")
    assert cache.get("one") is None
    cache.put("one", "é\n" * 1000)
    assert cache.get("one") == "é\n" * 1000
    assert cache.get("other") is None


def test_another_program_or_other_settings_have_another_name() -> None:
    assert len({key("a", "k 4"), key("b", "k 4"), key("a", "k 6"), key("a", "k 4\nk 4")}) == 4
    assert key("a", "k 4") == key("a", "k 4")


def test_the_order_of_options_does_not_matter() -> None:
    tree = FatTree(4)
    plan = Plan((Transfer(tree.host("h0_0_2"), tree.host("h1_0_2"), 1_000),), 1.0)
    words: list[tuple[str, int | str]] = [("spread", 5), ("delay", 7), ("patience", 3)]
    texts = [
        list(lines(Run(tree, plan, "test", named("sopa"), 1, Scale(1000.0, 1.0), options=dict(its))))
        for its in (words, words[::-1])
    ]
    assert texts[0] == texts[1]
    assert "spread 5" in texts[0]


def test_a_damaged_one_is_taken_away(tmp_path: Path) -> None:
    cache, file = Cache(tmp_path), tmp_path / "one.gz"
    cache.put("one", "some output " * 100)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0x40]) + whole[middle + 1 :]
    for damaged in (b"", whole[:-9], flipped, b"some output", gzip.compress(b"\xff\xfe")):
        file.write_bytes(damaged)
        assert cache.get("one") is None
        assert not file.exists()
        cache.put("one", "again")
        assert cache.get("one") == "again"


def test_nothing_is_left_of_one_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "one.gz").mkdir()  # what a file cannot be renamed to
    with pytest.raises(OSError, match="one"):
        Cache(tmp_path).put("one", "text")
    assert [file.name for file in tmp_path.iterdir()] == ["one.gz"]


def test_where_it_is_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SOPA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert directory() == tmp_path / "xdg/sopa/ns3"
    monkeypatch.setenv("SOPA_CACHE", str(tmp_path / "own"))
    assert directory() == tmp_path / "own/ns3"
