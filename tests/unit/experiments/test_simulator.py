"""What the simulator is given of weights, by racks that send to each other, and how its outputs are kept."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import ns3
from experiments.core.run import Run
from experiments.ns3 import program
from experiments.ns3.cache import Cache, directory, key
from experiments.ns3.run_lines import fabric_lines, order_lines
from experiments.ns3.simulate import lines
from experiments.schemes import named
from experiments.workloads import Plan, Scale, Transfer, with_failed_links
from experiments.workloads.pairs import permutation
from tests.helpers.golden import Script, Step, each_script
from topologies import Clos, Failures, FatTree, Level
from topologies.weights import sequence, weights_from

SCALE = Scale(1000.0, 1.0)


def run(tree: Clos, plan: Plan, scheme: str = "sopa") -> Run:
    return Run(tree, plan, "test", named(scheme), 1, SCALE)


@each_script(__file__, "simulator")
def test_lines(script: Script) -> None:
    tree = FatTree(4)

    def handle(step: Step) -> str:
        """Take another fabric, or say what the simulator is told of it, or of the paths of a pair of hosts or a permutation."""
        nonlocal tree
        scheme, fields = step.options.pop("scheme", "sopa"), {name: json.loads(text) for name, text in step.options.items()}
        if step.command == "clos":
            tree = Clos(*map(int, step.words), **fields)
            return ""
        hosts = map(tree.host, step.words)
        plan = replace(Plan((Transfer(*hosts),), 1.0) if step.words else permutation(tree, 1, SCALE), **fields)
        return "\n".join((fabric_lines if step.command == "fabric" else order_lines)(run(tree, plan, scheme)))

    script.play(handle)


def test_orders_are_those_of_the_weights_from_the_failure_on() -> None:
    tree = FatTree(8)
    plan = with_failed_links(permutation(tree, 1, SCALE), tree, 1, 5)
    at_once, later = (list(order_lines(run(tree, each))) for each in (plan, replace(plan, fail_after=0.25)))
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


def test_another_program_or_other_settings_have_another_name() -> None:
    assert len({key("a", "k 4"), key("b", "k 4"), key("a", "k 6"), key("a", "k 4\nk 4")}) == 4
    assert key("a", "k 4") == key("a", "k 4")


def test_sizes_follow_the_round_trip_of_the_fabric_and_leave_what_is_set() -> None:
    # the matrix of Ultra Ethernet: 14 us there and back, 43 packets
    uec, queue = ns3.sized(ns3.parse(["packet=4160", "delay=1us", "sizes=fabric", "ecn=30"]), FatTree(16), 100_000.0, None)
    assert queue == 5 * 43
    by_hand = ["packet=4160", "delay=1us", "initial-window=43", "ecn=30", "receive-buffer=4194304", "send-buffer=4194304"]
    assert uec == ns3.parse([*by_hand, "resequencing=21033ns", "delayed-ack=7011ns", "least-timeout=85574ns"])
    slow, queue = ns3.sized(ns3.parse(["sizes=fabric"]), FatTree(4), 1000.0, None)
    assert (queue, slow["initial-window"], slow["ecn"]) == (100, 10, 20)
    assert ns3.sized(ns3.parse(["ecn=3"]), FatTree(4), 1000.0, 7) == ({"ecn": 3}, 7)
    with pytest.raises(ns3.SimulationOptionError, match="receive-buffer, 200000, must not be below send-buffer, 4194304"):
        ns3.sized(ns3.parse(["packet=4160", "delay=1us", "sizes=fabric", "receive-buffer=200000"]), FatTree(16), 100_000.0, None)


def test_the_order_of_options_does_not_matter() -> None:
    its = run(FatTree(4), permutation(FatTree(4), 1, SCALE))
    orders = {"spread": 5, "delay": 7}, {"delay": 7, "spread": 5}
    one, other = (list(lines(replace(its, options=options))) for options in orders)
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


def test_the_program_is_built_again_once_ns3_has_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    made, directory = tmp_path / "made", tmp_path / "build"

    def run(*command: str) -> None:
        built.append(command[1])
        (directory / "sopa_simulation").touch()

    monkeypatch.setattr(program, "OPTIMISED", tmp_path)
    monkeypatch.setattr(program, "_run", run)
    monkeypatch.setattr(program.shutil, "which", lambda name: name)
    for _ in range(2):
        made.write_text(f"{len(built)}\n")
        for _ in range(2):
            program.build(directory=directory)
    assert built == ["--fresh", "--build"] * 2
