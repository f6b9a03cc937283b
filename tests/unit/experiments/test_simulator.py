"""What the simulator is given of weights, by racks that send to each other, and how its outputs are kept."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.core.run import Run
from experiments.ns3.cache import Cache, directory, key
from experiments.ns3.run_lines import fabric_lines, order_lines
from experiments.ns3.simulate import lines
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer, with_failed_links
from experiments.workloads.pairs import permutation
from topologies import Clos, Failures, FatTree, Host, Level, Switch
from topologies.weights import sequence, weights_from

SCALE = Scale(1000.0, 1.0)
HALF = Clos(1, 4, 2, 0, 4, links={f"e0_{leaf}-a0_1": 0.5 for leaf in range(4)})


def orders(tree: Clos, plan: Plan, scheme: str = "sopa") -> list[str]:
    return list(order_lines(Run(tree, plan, "test", named(scheme), 1, SCALE)))


def pair(src: Host, dst: Host) -> Plan:
    return Plan((Transfer(src, dst),), 1.0)


def test_racks_with_a_slow_spine_use_it_once_in_three() -> None:
    assert orders(HALF, pair(Host(0, 2, 3), Host(0, 0, 2))) == ["order 0 255 1 255 0 255", "use 0 2 0 0", "use 2 0 0 0"]


@pytest.mark.parametrize("scheme", ["sopa+weights=off", "rps", "ecmp", "drb", "hedera", "plts-rr"])
def test_schemes_without_weights_have_no_orders(scheme: str) -> None:
    assert not orders(HALF, pair(Host(0, 2, 3), Host(0, 0, 2)), scheme)


def test_an_even_fabric_and_a_rack_by_itself_need_none() -> None:
    assert not orders(FatTree(4), permutation(FatTree(4), 1, SCALE))
    assert not orders(HALF, pair(Host(0, 2, 3), Host(0, 2, 2)))


def test_orders_are_those_of_the_weights_from_the_failure_on() -> None:
    tree = FatTree(8)
    plan = with_failed_links(permutation(tree, 1, SCALE), tree, 1, 5)
    at_once = orders(tree, plan)
    later = orders(tree, replace(plan, fail_after=0.25))
    assert [line.replace(" 250000000 ", " 0 ") for line in later] == at_once
    texts = [line.split()[1:] for line in at_once if line.startswith("order ")]
    used = {(int(a), int(b)): texts[int(n)] for _, a, b, _, n in (x.split() for x in at_once if x.startswith("use "))}
    failures = Failures(tree, dict.fromkeys(plan.failed, "down"))
    racks = list(tree.switches(Level.EDGE))
    pairs = {(tree.edge_of(a), tree.edge_of(b)) for t in plan.transfers for a, b in ((t.src, t.dst), (t.dst, t.src))}
    for src, dst in pairs:
        choices = failures.choices_from(src)[dst]
        order = sequence(choices, weights_from(failures, src)[dst])
        line = used.pop((racks.index(src), racks.index(dst)), None)
        assert line == (None if order == choices else [str(up) for path in order for up in path])
    assert not used
    assert len(texts) == len(set(map(tuple, texts)))


def test_a_failure_that_makes_weights_equal_ends_an_order() -> None:
    """The second spine has half the rate at one leaf; without its link, one path is left."""
    tree = Clos(1, 2, 2, 0, 2, links={"e0_1-a0_1": 0.5})
    plan = replace(pair(Host(0, 0, 2), Host(0, 1, 2)), failed=("e0_1-a0_1",), fail_after=0.5)
    assert orders(tree, plan)[1:] == ["use 0 1 0 0", "use 1 0 0 0", "use 0 1 500000000 -1", "use 1 0 500000000 -1"]


def test_rates_are_in_proportion_to_that_of_hosts() -> None:
    tree = Clos(
        2, 2, 2, 2, 4, mbit={"host": 10_000, "edge": 40_000, "aggregation": 20_000}, no_label=["h0_1_3"],
        links={"a0_0-c0_0": "absent", "e0_1-a0_1": 20_000},
    )  # fmt: skip
    plan = replace(pair(Host(0, 0, 2), Host(1, 0, 2)), core_rate=0.5)
    lines = [list(fabric_lines(Run(tree, plan, "test", named(scheme), 1, SCALE))) for scheme in ("sopa", "ecmp")]
    assert lines[1] == [
        "fabric 2 2 2 2 4",
        "rates 1000000000 4000000000 2000000000",
        "core-share 0.5",
        "link e0_1-a0_1 2000000000",
        "absent a0_0-c0_0",
    ]
    assert lines[0] == [*lines[1], "no-label 5"]
    assert Switch(Level.AGGREGATION, 0, 0) in tree.absent_uplinks


def test_another_program_or_other_settings_have_another_name() -> None:
    assert len({key("a", "k 4"), key("b", "k 4"), key("a", "k 6"), key("a", "k 4\nk 4")}) == 4
    assert key("a", "k 4") == key("a", "k 4")


def test_the_order_of_options_does_not_matter() -> None:
    tree = FatTree(4)
    plan = Plan((Transfer(tree.host("h0_0_2"), tree.host("h1_0_2"), 1_000),), 1.0)
    one, other = (
        list(lines(Run(tree, plan, "test", named("sopa"), 1, SCALE, options=options)))
        for options in ({"spread": 5, "delay": 7}, {"delay": 7, "spread": 5})
    )
    assert one == other
    assert "spread 5" in one


def test_what_was_kept_comes_back_and_a_damaged_one_is_taken_away(tmp_path: Path) -> None:
    cache, file = Cache(tmp_path / "deep" / "cache"), tmp_path / "deep/cache/one.gz"
    cache.put("one", "some output " * 100)
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 0x40]) + whole[middle + 1 :]
    for damaged in (b"", whole[:-9], flipped, b"some output", gzip.compress(b"\xff\xfe")):
        file.write_bytes(damaged)
        assert cache.get("one") is None
        assert not file.exists()
        cache.put("one", "é\n" * 1000)
        assert cache.get("one") == "é\n" * 1000
    assert cache.get("other") is None


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
