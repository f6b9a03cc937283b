"""The path sets that an agent computes are those that the controller returns over REST, without those that the host avoids."""

import json
import random
from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from flowrules import label
from flowrules.label import UNUSED, Carrier
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section
from sopa_ryu.agent.paths.path_sets import PathSets, path_table
from sopa_ryu.agent.paths.path_table import GATEWAY_SLOTS, PARAMETERS, Label, PathTable, Policy, WayOut
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.path_tables import decode
from topologies import Clos, Failures, FatTree
from topologies.failures import Reason
from topologies.weights import weights

TREE = FatTree(4)


def sets_of(tree: Clos = TREE, **options: Any) -> PathSets:
    return PathSets(tree, next(tree.hosts()), 7, Policy.ROUND_ROBIN, **options)


def down(*names: str) -> Failures:
    return Failures(TREE, dict.fromkeys(names, "down"))


@pytest.mark.parametrize("k", [2, 4, 6, 8])
@pytest.mark.parametrize("broken", [(), ("a0_0-c0_0",), ("a0_0", "e1_0-a1_0")])
def test_the_table_has_exactly_the_usable_candidate_paths_by_their_weights(k: int, broken: tuple[str, ...]) -> None:
    tree = FatTree(k)
    failures, src = Failures(tree, dict.fromkeys(broken, "down")), next(tree.hosts())
    table = path_table(tree, src, failures, seed=7, policy=Policy.ROUND_ROBIN)
    for dst in tree.hosts():
        usable = [label.hop_bytes(path.up) for path in failures.split(src, dst)[0]]
        order = list(table.candidates(tree.ip(dst)) or ())
        if not broken:
            assert order == usable
        elif dst != src:
            assert set(order) <= set(usable)
            shares = [order.count(its) / len(order) for its in usable]
            assert shares == pytest.approx(weights(failures, src, dst))


def test_a_healthy_fabric_needs_three_sets_however_large_it_is() -> None:
    table = sets_of(FatTree(48)).follow(Failures(FatTree(48)))
    assert (len(table.sets), len(table.destinations)) == (3, 48 * 24)
    assert len(table.encode()) < 200_000


@pytest.mark.parametrize("k", [4, 6])
def test_a_change_swaps_the_table_for_the_one_computed_anew_if_that_is_another(k: int) -> None:
    tree = FatTree(k)
    names = [tree.name(each) for each in (*tree.switches(), *tree.links())]
    draw = random.Random(f"{k} follow")
    for host in draw.sample(list(tree.hosts()), 2):
        sets, failures = PathSets(tree, host, 7, Policy.ROUND_ROBIN), Failures(tree)
        table, often = sets.follow(failures), draw.sample(names, 4)
        for _ in range(40):
            name = draw.choice(often if draw.random() < 0.5 else names)
            heals = name in failures and draw.random() < 0.7  # or fails for another reason
            failures = failures.without(name) if heals else failures.with_failed(name, draw.choice(list(Reason)))
            before, table = table, path_table(tree, host, failures, 7, Policy.ROUND_ROBIN)
            assert sets.follow(failures) == (table if table != before else None)


def test_a_failure_that_excludes_no_path_of_this_host_shifts_its_weights() -> None:
    sets, one = sets_of(), down("a0_0-c0_0")
    sets.follow(one)
    other = one.with_failed("a1_0-c0_0")  # over a core switch that this host's pod has lost already
    edge = TREE.edge_of(next(TREE.hosts()))
    assert one.choices_from(edge) == other.choices_from(edge)
    assert sets.follow(other) not in (None, sets_of().follow(one))


def test_only_what_a_change_touches_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sets, asked, whole = sets_of(FatTree(8)), list[object](), Failures.choices_from
    sets.follow(Failures(FatTree(8)))
    noted = lambda its, edge, pods=None: asked.append(pods) or whole(its, edge, pods)  # noqa: E731
    monkeypatch.setattr(Failures, "choices_from", noted)
    sets.follow(Failures(FatTree(8), {"e5_1-a5_0": "down"}))
    assert asked == [frozenset({5})]


@pytest.mark.parametrize("carrier", Carrier)
def test_ports_spread_the_bursts_of_a_host_by_id_while_it_avoids_no_path(carrier: Carrier) -> None:
    sets, avoided = sets_of(carrier=carrier), Avoided(frozenset({Section(0, None, 2, 1)}))
    tables = [sets.follow(down(), its) for its in (NOTHING, avoided, NOTHING)]
    assert [its is not None and its.spreads for its in tables] == [carrier is Carrier.ID, False, carrier is Carrier.ID]


class Followed:
    """The path sets of a fabric's first host, which follow failures and what the host avoids: sections as in ``0,1`` or ``0``."""

    def handle(self, step: Step) -> str:
        return str(getattr(self, f"do_{step.command}")(*step.words, **step.options) or "")

    def do_fabric(self, *numbers: str, weighted: str = "true", **fabric: str) -> None:
        self.tree = Clos(*map(int, numbers), **{name: json.loads(text) for name, text in fabric.items()})
        self.sets = sets_of(self.tree, weighted=json.loads(weighted))

    def do_follow(self, *failed: str, avoid: str = "") -> str:
        sections = [Section(*map(int, each.split(","))) for each in avoid.split()]
        now = Failures(self.tree, dict.fromkeys(failed, "down")), Avoided(frozenset(sections))
        self.table = self.sets.follow(*now)
        assert self.sets.follow(*now) is None
        return f"{len(self.table.sets)} sets, {self.sets.avoided_paths} paths avoided"

    def do_to(self, *destinations: str) -> str:
        return "\n".join(_in_turn(self.table.candidates(self._address(each))) for each in destinations)

    def do_instead(self, destination: str, up1: str, up2: str = str(UNUSED)) -> str:
        """Say what is taken in place of a path that another has chosen, in four turns."""
        chosen = int(up1), int(up2)
        return " ".join(str(self.sets.instead(self._address(destination), chosen, turn)) for turn in range(4))

    def _address(self, text: str) -> IPv4Address:
        return self.tree.ip(self.tree.host(text)) if text.startswith("h") else IPv4Address(text)


def _in_turn(ups: tuple[Label, ...] | None) -> str:
    """Return the labels in the order of their turns; of many only how often each occurs."""
    if not ups:
        return "nothing" if ups is None else "no path"
    return " ".join(map(str, ups) if len(ups) < 6 else (f"{often}*{up}" for up, often in Counter(ups).items()))


@each_script(__file__, "path_sets")
def test_script(script: Script) -> None:
    script.play(Followed().handle)


@pytest.mark.parametrize("policy", Policy)
def test_a_policys_parameter_is_its_default_unless_another_one_is_given(policy: Policy) -> None:
    for given, wanted in ((0, PARAMETERS.get(policy, 0)), (77, 77)):
        table = path_table(TREE, next(TREE.hosts()), down(), 7, policy, given)
        assert table.parameter == decode(table.encode()).parameter == wanted


WAYS = tuple(WayOut(bytes.fromhex(f"02000a0{pod}0002"), ((0, 0),)) for pod in range(4))


@pytest.mark.parametrize("gone", WAYS)
def test_a_gateway_that_leaves_moves_its_own_flows_only(gone: WayOut) -> None:
    def slots(*ways: WayOut) -> list[bytes]:
        return [ways[at].mac for at in PathTable(IPv4Network("10.0.0.0/8"), 1, (), (), ways_out=ways).slots]

    before, after = slots(*WAYS), slots(*(way for way in WAYS if way != gone))
    assert len(before) == len(after) == GATEWAY_SLOTS
    assert {was for was, now in zip(before, after, strict=True) if was != now} == {gone.mac}
    assert min(Counter(before).values()) > GATEWAY_SLOTS / len(WAYS) / 2
