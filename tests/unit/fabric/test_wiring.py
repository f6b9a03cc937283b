"""Wiring: which cables count as wrong, for how long, and the report about them."""

import random
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from sopa_ryu.fabric.wiring import Wiring
from topologies import FatTree, Level, Link, Switch

PATIENCE = 10.0

End = tuple[Switch, int]


def links(tree: FatTree) -> list[Link]:
    """Every link between switches, in the tree's order."""
    return [link for link in tree.links() if isinstance(link.lower, Switch)]


def cables(tree: FatTree) -> list[tuple[End, End]]:
    """The ends of those links as planned, the lower one first."""
    return [((a, tree.port(a, b)), (b, tree.port(b, a))) for a, b in links(tree) if isinstance(a, Switch)]


class Fabric:
    """A wiring and the fabric that it watches: probes run along the cables that are really there."""

    def __init__(self, k: int = 4) -> None:
        self.tree = FatTree(k)
        self.wiring = Wiring(self.tree, PATIENCE)
        self.cables = cables(self.tree)

    def end(self, text: str) -> End:
        """The end written as ``a0_0:3``."""
        name, port = text.split(":")
        return self.tree.switch(name), int(port)

    def arrive(self, at: str, sent_from: str, now: float = 0.0) -> bool:
        """A probe of one end arrives at another."""
        return self.hear(self.end(at), self.end(sent_from), now)

    def hear(self, at: End, sent_from: End, now: float) -> bool:
        return self.wiring.heard(*at, self.tree.dpid(sent_from[0]), sent_from[1], "", now)

    def round(self, now: float = 0.0, but: Iterable[str] = ()) -> bool:
        """Every port sends a probe, but none arrives at the ends in ``but``."""
        deaf = {self.end(text) for text in but}
        changed = False
        for a, b in self.cables:
            for at, sender in ((a, b), (b, a)):
                changed |= at not in deaf and self.hear(at, sender, now)
        return changed

    def exchange(self, one: str, other: str) -> None:
        """Exchange the plugs in two ports."""
        places = {self.end(one): self.end(other), self.end(other): self.end(one)}
        self.cables = [(places.get(a, a), places.get(b, b)) for a, b in self.cables]

    def report(
        self, now: float = 0.0, down: dict[str, str] | None = None, absent: Iterable[str] = ()
    ) -> dict[str, Any]:
        """The report when all switches but those in ``absent`` have been connected since second 0."""
        connected = set(self.tree.switches()) - {self.tree.switch(name) for name in absent}
        return self.wiring.report(down or {}, connected, dict.fromkeys(connected, 0.0), now)

    def problems(self, now: float = 0.0) -> list[tuple[str, str]]:
        return [(problem["link"], problem["kind"]) for problem in self.report(now)["problems"]]


# -- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4, 6, 8])
def test_a_fabric_cabled_as_planned_is_all_right(k: int) -> None:
    fabric = Fabric(k)
    assert not fabric.round()
    assert fabric.wiring.miswired == {}
    assert fabric.report() == {
        "links": k**3 // 2,
        "right": k**3 // 2,
        "unchecked": 0,
        "problems": [],
        "refused": 0,
        "also_heard": [],
    }


def test_before_the_first_probes_nothing_is_right_and_nothing_a_problem() -> None:
    fabric = Fabric()
    assert fabric.report(PATIENCE) == {
        "links": 32,
        "right": 0,
        "unchecked": 32,
        "problems": [],
        "refused": 0,
        "also_heard": [],
    }


def test_a_link_heard_at_one_end_only_is_not_yet_checked() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_0:1")
    assert (fabric.report(1)["right"], fabric.report(1)["unchecked"]) == (0, 32)
    fabric.arrive("c0_0:1", "a0_0:3")
    assert (fabric.report(1)["right"], fabric.report(1)["unchecked"]) == (1, 31)


# -- swapped ----------------------------------------------------------------------------------------------------------


def test_two_cables_exchanged_at_one_switch() -> None:
    fabric = Fabric()
    fabric.exchange("a0_0:3", "a0_0:4")
    assert fabric.round()
    assert fabric.wiring.miswired == {
        "a0_0-c0_0": (
            "a0_0 port 3 leads to c0_1 port 1, not to c0_0 port 1; c0_0 port 1 leads to a0_0 port 4, not to a0_0 port 3"
        ),
        "a0_0-c0_1": (
            "a0_0 port 4 leads to c0_0 port 1, not to c0_1 port 1; c0_1 port 1 leads to a0_0 port 3, not to a0_0 port 4"
        ),
    }
    report = fabric.report()
    assert report["problems"] == [
        {"link": link, "kind": "swapped", "detail": words} for link, words in fabric.wiring.miswired.items()
    ]
    assert (report["right"], report["refused"]) == (30, 2)


def test_two_cables_exchanged_across_switches_and_levels() -> None:
    fabric = Fabric()
    fabric.exchange("a2_1:4", "e0_1:3")
    assert fabric.round()
    assert fabric.problems() == [("e0_1-a0_0", "swapped"), ("a2_1-c1_1", "swapped")]
    assert fabric.wiring.miswired["a2_1-c1_1"] == (
        "a2_1 port 4 leads to a0_0 port 2, not to c1_1 port 3; c1_1 port 3 leads to e0_1 port 3, not to a2_1 port 4"
    )


def test_one_end_is_enough_to_tell() -> None:
    fabric = Fabric()
    assert fabric.arrive("c0_0:1", "a1_0:3")
    assert fabric.wiring.miswired == {"a0_0-c0_0": "c0_0 port 1 leads to a1_0 port 3, not to a0_0 port 3"}
    assert not fabric.arrive("c0_0:1", "a1_0:3")


def test_the_right_switch_at_the_wrong_port_is_swapped() -> None:
    fabric = Fabric()
    assert fabric.arrive("a0_0:3", "c0_0:2")
    assert fabric.wiring.miswired == {"a0_0-c0_0": "a0_0 port 3 leads to c0_0 port 2, not to c0_0 port 1"}
    assert fabric.problems() == [("a0_0-c0_0", "swapped")]


@pytest.mark.parametrize("sender", ["a0_0:3", "a0_0:4", "e0_0:1"])
def test_a_loop_or_a_host_port_at_the_other_end_is_swapped(sender: str) -> None:
    fabric = Fabric()
    assert fabric.arrive("a0_0:3", sender)
    assert fabric.problems() == [("a0_0-c0_0", "swapped")]


# -- foreign ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dpid", "port", "text", "who"),
    [
        (0x99, 1, "", "datapath 0x0000000000000099 port 1"),
        (0x020400, 3, "", "datapath 0x0000000000020400 port 3"),
        (2**64 - 1, 0xFFFFFFFE, "", "datapath 0xffffffffffffffff port 4294967294"),
        (0x030000, 5, "", "c0_0 port 5"),
        (0x030000, 0, "", "c0_0 port 0"),
        (0x030000, None, "", "c0_0 port unknown"),
    ],
)
def test_who_is_not_of_the_fat_tree_is_foreign(dpid: int | None, port: int | None, text: str, who: str) -> None:
    fabric = Fabric()
    assert fabric.wiring.heard(*fabric.end("a0_0:3"), dpid, port, text, 0.0)
    assert fabric.wiring.miswired == {"a0_0-c0_0": f"a0_0 port 3 leads to {who}, not to c0_0 port 1"}
    assert fabric.problems() == [("a0_0-c0_0", "foreign")]


@pytest.mark.parametrize(
    ("text", "who"),
    [("leaf12, 00:1b:21:aa:bb:cc port swp49",) * 2, ("", "a device without a name")],
)
def test_a_device_instead_of_the_planned_neighbour_is_foreign(text: str, who: str) -> None:
    fabric = Fabric()
    end = fabric.end("a0_0:3")
    assert not fabric.wiring.heard(*end, None, None, text, 0.0)
    assert fabric.wiring.heard(*end, None, None, text, fabric.wiring.patience)
    assert fabric.wiring.miswired == {"a0_0-c0_0": f"a0_0 port 3 leads to {who}, not to c0_0 port 1"}
    assert fabric.hear(end, fabric.end("c0_0:1"), fabric.wiring.patience + 1)
    assert fabric.wiring.miswired == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_device_beside_the_planned_neighbour_changes_nothing(seed: int) -> None:
    """Whatever their order and their intervals, as long as the planned neighbour is heard within the patience."""
    rng = random.Random(seed)
    fabric = Fabric()
    end, now = fabric.end("a0_0:3"), 0.0
    patience, right = fabric.wiring.patience, 0.0
    assert not fabric.hear(end, fabric.end("c0_0:1"), now)
    for _ in range(300):
        now += rng.uniform(0, 0.2) * patience
        device = rng.choice(["lldpd", "firmware", "printer"])
        if now - right > 0.7 * patience or rng.random() < 0.2:
            assert not fabric.hear(end, fabric.end("c0_0:1"), now)
            right = now
        elif rng.random() < 0.1:
            assert not fabric.wiring.forget(*end)
            assert not fabric.wiring.heard(*end, None, None, device, now)
            assert not fabric.hear(end, fabric.end("c0_0:1"), now)
            right = now
        else:
            assert not fabric.wiring.heard(*end, None, None, device, now)
            assert fabric.wiring.beside(*end) == device
    assert fabric.wiring.miswired == {}
    assert fabric.wiring.refused == 0
    assert [each["at"] for each in fabric.report(now)["also_heard"]] == ["a0_0 port 3"]


def test_a_link_with_an_unknown_neighbour_at_one_end_is_foreign() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1")
    fabric.wiring.heard(*fabric.end("c0_0:1"), None, None, "leaf12", 0.0)
    fabric.wiring.heard(*fabric.end("c0_0:1"), None, None, "leaf12", fabric.wiring.patience)
    assert fabric.problems() == [("a0_0-c0_0", "foreign")]
    assert fabric.wiring.miswired["a0_0-c0_0"].count(" leads to ") == 2


# -- where nothing is planned -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", [1, 2, 0, -1, 5, 0xFFFFFFFE])
def test_a_probe_at_a_host_port_or_at_none_is_ignored(port: int) -> None:
    fabric = Fabric()
    assert not fabric.wiring.heard(fabric.tree.switch("e0_0"), port, 0x030000, 1, "", 0.0)
    assert not fabric.wiring.heard(fabric.tree.switch("e0_0"), port, None, None, "a host's lldpd", 0.0)
    assert not fabric.wiring.forget(fabric.tree.switch("e0_0"), port)
    assert fabric.wiring.miswired == {}
    assert fabric.wiring.refused == 0


def test_a_switch_of_another_fat_tree_is_ignored() -> None:
    assert not Fabric().wiring.heard(Switch(Level.CORE, 7, 7), 1, 0x020001, 3, "", 0.0)


# -- missing ----------------------------------------------------------------------------------------------------------


def test_silence_is_reported_only_after_patience_and_never_miswired() -> None:
    fabric = Fabric()
    fabric.round(now=1.0, but=["a0_0:3", "c0_0:1"])
    assert fabric.report(PATIENCE)["unchecked"] == 1
    report = fabric.report(PATIENCE + 0.1)
    assert report["problems"] == [
        {"link": "a0_0-c0_0", "kind": "missing", "detail": "nothing arrives at a0_0 port 3 or at c0_0 port 1"}
    ]
    assert (report["right"], report["unchecked"], report["refused"]) == (31, 0, 0)
    assert fabric.wiring.miswired == {}
    assert len(fabric.problems(PATIENCE + 1.1)) == 32


def test_a_link_that_carries_one_way_only_is_missing_the_other_way() -> None:
    fabric = Fabric()
    fabric.round(now=11.0, but=["c0_0:1"])
    (problem,) = fabric.report(11.0)["problems"]
    assert problem == {
        "link": "a0_0-c0_0",
        "kind": "missing",
        "detail": "nothing from a0_0 port 3 arrives at c0_0 port 1, only the other way round",
    }


def test_links_of_a_newly_connected_switch_are_not_missing_immediately() -> None:
    fabric = Fabric()
    late = fabric.tree.switch("c0_0")
    since = dict.fromkeys(fabric.tree.switches(), 0.0) | {late: 95.0}
    report = fabric.wiring.report({}, since, since, 100.0)
    assert report["unchecked"] == 4
    assert len(report["problems"]) == 28
    assert fabric.wiring.report({}, since, since, 105.1)["unchecked"] == 0


def test_a_link_known_to_be_down_is_missing_whatever_was_heard() -> None:
    fabric = Fabric()
    fabric.round()
    report = fabric.report(down={"a0_0-c0_0": "down", "h0_0_2-e0_0": "down", "e0_0": "down"})
    assert report["problems"] == [{"link": "a0_0-c0_0", "kind": "missing", "detail": "the link is down"}]


def test_a_link_to_a_switch_that_is_not_connected_is_missing() -> None:
    fabric = Fabric()
    report = fabric.report(absent=["c0_0"])
    assert [problem["link"] for problem in report["problems"]] == [f"a{pod}_0-c0_0" for pod in range(4)]
    assert {(problem["kind"], problem["detail"]) for problem in report["problems"]} == {
        ("missing", "c0_0 is not connected")
    }
    details = [problem["detail"] for problem in fabric.report(absent=["e0_0", "a0_0"])["problems"]]
    assert details[0] == "e0_0 and a0_0 are not connected"


def test_a_wrong_neighbour_outweighs_every_other_finding() -> None:
    fabric = Fabric()
    fabric.round(but=["c0_0:1"])
    fabric.arrive("a0_0:3", "c0_1:1")
    reports = [fabric.report(), fabric.report(down={"a0_0-c0_0": "down"}), fabric.report(absent=["c0_0"])]
    assert [report["problems"][0]["kind"] for report in reports] == ["swapped"] * 3


# -- back to right ----------------------------------------------------------------------------------------------------


def test_cables_put_right_are_right_with_the_next_probes() -> None:
    fabric = Fabric()
    fabric.exchange("a0_0:3", "a0_0:4")
    fabric.round()
    assert [fabric.wiring.forget(*fabric.end(end)) for end in ("a0_0:3", "a0_0:4", "c0_0:1", "c0_1:1")] == [True] * 4
    assert fabric.wiring.miswired == {}
    fabric.exchange("a0_0:3", "a0_0:4")
    assert not fabric.round(now=1.0)
    assert fabric.report(1.0)["right"] == 32


def test_a_corrected_link_is_right_with_the_first_right_probe() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1", now=0.0)
    assert not fabric.arrive("a0_0:3", "c0_0:1", now=PATIENCE - 0.1)
    assert list(fabric.wiring.miswired) == ["a0_0-c0_0"]
    assert fabric.arrive("a0_0:3", "c0_0:1", now=PATIENCE)
    assert fabric.wiring.miswired == {}


def test_silence_does_not_make_a_wrong_cable_right() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1", now=0.0)
    assert ("a0_0-c0_0", "swapped") in fabric.problems(now=100 * PATIENCE)
    assert list(fabric.wiring.miswired) == ["a0_0-c0_0"]


def test_each_end_heals_by_itself() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1")
    fabric.arrive("c0_0:1", "a1_0:3")
    assert fabric.wiring.forget(*fabric.end("a0_0:3"))
    assert fabric.wiring.miswired == {"a0_0-c0_0": "c0_0 port 1 leads to a1_0 port 3, not to a0_0 port 3"}
    assert fabric.arrive("c0_0:1", "a0_0:3", now=PATIENCE)
    assert fabric.wiring.miswired == {}


def test_a_port_that_went_down_is_not_right_until_heard_again() -> None:
    fabric = Fabric()
    fabric.round(now=20.0)
    assert not fabric.wiring.forget(*fabric.end("a0_0:3"))
    assert fabric.problems(20.0) == [("a0_0-c0_0", "missing")]
    assert not fabric.arrive("a0_0:3", "c0_0:1", now=21.0)
    assert fabric.problems(21.0) == []


def test_a_switch_that_went_down_forgets_all_its_ports_and_no_others() -> None:
    fabric = Fabric()
    fabric.exchange("c0_0:1", "c0_0:2")
    fabric.exchange("a3_1:3", "a3_1:4")
    fabric.round()
    before = fabric.wiring.miswired
    assert fabric.wiring.forget(fabric.tree.switch("a3_1"))
    assert fabric.wiring.forget(fabric.tree.switch("c0_0"))
    assert not fabric.wiring.forget(fabric.tree.switch("c0_0"))
    after = fabric.wiring.miswired
    assert list(after) == list(before) == ["a0_0-c0_0", "a1_0-c0_0", "a3_1-c1_0", "a3_1-c1_1"]
    assert all(";" not in words for words in after.values())
    assert after["a0_0-c0_0"].startswith("a0_0 port 3 leads to c0_0 port 2")


# -- a hub --------------------------------------------------------------------------------------------------------------


def test_behind_a_hub_a_wrong_neighbour_counts_as_long_as_it_is_heard() -> None:
    fabric = Fabric()
    assert fabric.arrive("a0_0:3", "c0_1:1")
    for now in range(1, 100):
        assert not fabric.arrive("a0_0:3", "c0_0:1", now)
        assert not fabric.arrive("a0_0:3", "c0_1:1", now)
    assert not fabric.arrive("a0_0:3", "c0_0:1", 99 + PATIENCE - 0.1)
    assert fabric.arrive("a0_0:3", "c0_0:1", 99 + PATIENCE)
    assert fabric.wiring.refused == 1


def test_of_several_wrong_neighbours_the_first_counts_until_it_is_silent() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1")
    words = fabric.wiring.miswired
    for now in range(1, 100):
        assert not fabric.arrive("a0_0:3", "c1_0:1", now)
        assert not fabric.arrive("a0_0:3", "c0_1:1", now)
    assert fabric.wiring.miswired == words
    assert not fabric.arrive("a0_0:3", "c1_0:1", 99 + PATIENCE - 0.1)
    assert fabric.arrive("a0_0:3", "c1_0:1", 99 + PATIENCE)
    assert "leads to c1_0 port 1" in fabric.wiring.miswired["a0_0-c0_0"]
    assert fabric.wiring.refused == 2


def test_a_wrong_neighbour_that_does_not_count_still_keeps_the_link_out() -> None:
    fabric = Fabric()
    fabric.arrive("a0_0:3", "c0_1:1", now=0.0)
    fabric.arrive("a0_0:3", "c1_0:1", now=9.0)
    assert not fabric.arrive("a0_0:3", "c0_0:1", now=PATIENCE)
    assert fabric.arrive("a0_0:3", "c0_0:1", now=9.0 + PATIENCE)


# -- refused ------------------------------------------------------------------------------------------------------------


def test_refused_counts_each_time_that_a_link_comes_up_wrong() -> None:
    fabric = Fabric()
    at, other = fabric.end("a0_0:3"), fabric.end("c0_0:1")
    fabric.arrive("a0_0:3", "c0_1:1")
    fabric.arrive("c0_0:1", "a0_0:4")
    fabric.arrive("a0_0:3", "c0_1:1", now=1.0)
    assert fabric.wiring.refused == 1
    fabric.wiring.forget(*at)
    fabric.wiring.forget(*other)
    assert fabric.wiring.refused == 1
    fabric.arrive("a0_0:3", "c0_1:1", now=2.0)
    assert fabric.wiring.refused == 2
    fabric.arrive("a0_0:3", "c1_1:1", now=2.0 + PATIENCE)
    assert fabric.wiring.refused == fabric.report()["refused"] == 3


# -- any wiring ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("seed", range(5))
def test_exactly_the_links_that_hear_a_wrong_neighbour_are_miswired(k: int, seed: int) -> None:
    rng = random.Random(f"{k} {seed}")
    fabric = Fabric(k)
    planned = dict(fabric.cables) | {b: a for a, b in fabric.cables}
    ends = list(planned)
    moved = rng.sample(ends, rng.randrange(len(ends) + 1))
    places = dict(zip(moved, rng.sample(moved, len(moved)), strict=True))
    fabric.cables = [(places.get(a, a), places.get(b, b)) for a, b in fabric.cables]
    cut = set(rng.sample(range(len(fabric.cables)), rng.randrange(4)))
    fabric.cables = [cable for number, cable in enumerate(fabric.cables) if number not in cut]
    real = dict(fabric.cables) | {b: a for a, b in fabric.cables}
    fabric.round(now=100.0)

    def wrong(end: End) -> bool:
        return end in real and real[end] != planned[end]

    names = [fabric.tree.name(link) for link in links(fabric.tree)]
    expected = [name for name, (a, b) in zip(names, cables(fabric.tree), strict=True) if wrong(a) or wrong(b)]
    assert list(fabric.wiring.miswired) == expected
    assert fabric.wiring.refused == len(expected)

    absent = rng.sample([fabric.tree.name(switch) for switch in fabric.tree.switches()], rng.randrange(3))
    report = fabric.report(100.0, dict.fromkeys(rng.sample(names, rng.randrange(3)), "down"), absent)
    problems = report["problems"]
    assert report["links"] == len(names) == report["right"] + report["unchecked"] + len(problems)
    told = [problem["link"] for problem in problems]
    assert told == [name for name in names if name in set(told)]
    assert [problem["link"] for problem in problems if problem["kind"] != "missing"] == expected
    assert Counter(problem["kind"] for problem in problems).keys() <= {"swapped", "missing"}

    for switch in fabric.tree.switches():
        fabric.wiring.forget(switch)
    assert fabric.wiring.miswired == {}
    fabric.cables = cables(fabric.tree)
    fabric.round(now=101.0)
    assert fabric.report(101.0)["right"] == len(names)


@pytest.mark.parametrize("seed", range(5))
def test_true_is_returned_exactly_when_miswired_changes(seed: int) -> None:
    rng = random.Random(seed)
    fabric = Fabric()
    ends = [end for cable in fabric.cables for end in cable][:6]
    changes = 0
    for step in range(3000):
        before, now = fabric.wiring.miswired, float(step)
        if rng.random() < 0.1:
            at = rng.choice(ends)
            changed = fabric.wiring.forget(at[0], rng.choice([at[1], None]))
        elif rng.random() < 0.1:
            changed = fabric.wiring.heard(*rng.choice(ends), None, None, rng.choice(["leaf1", "leaf2"]), now)
        else:
            changed = fabric.hear(rng.choice(ends), rng.choice(ends), now)
        assert changed == (before != fabric.wiring.miswired)
        changes += changed
    assert changes > 100


def test_a_report_of_a_large_fabric_is_quick() -> None:
    fabric = Fabric(16)
    fabric.round(now=100.0)
    start = time.perf_counter()
    assert fabric.report(100.0)["right"] == 2048
    assert time.perf_counter() - start < 0.3
