"""Packets around failures: a host with a path left is reached, labelled or not; drained elements carry packets as a last resort."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import networkx
import pytest

from flowrules import label
from flowrules.model import Table
from flowrules.steering import MAX_SLOTS
from flowrules.switch_rules import fabric_rules, switch_rules
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.random_fabrics import random_fabric
from tests.models.flow_table import TableFabric, ipv4_packet
from topologies import Clos, Failures, FatTree, Host, Level, Switch
from topologies.failures import Reason
from topologies.weights import weights

# A port notices that its cable is cut or silent. It does not notice that its cable leads to the wrong place.
NOTICED = ("down", "silent")
UNNOTICED = ("miswired", "missing")

# (k, seeds, pairs of hosts): fewer where a fabric is larger
SIZES = [(4, 12, 8), (6, 6, 5), (8, 2, 4)]
SCENES = [(FatTree(k), seed, pairs) for k, seeds, pairs in SIZES for seed in range(seeds)]
SCENES += [(random_fabric(seed), seed, 6) for seed in range(16)]
each_scene = pytest.mark.parametrize(("tree", "seed", "pairs"), SCENES, ids=lambda its: str(its) if its else None)


class Scene:
    """A fabric with random failures, its rules in force, and pairs of hosts to try.

    Seed 0 has none. Every other scene has all its failures in and above two pods, where together they cut more ways
    than far apart.
    """

    def __init__(self, tree: Clos, seed: int, pairs: int, reasons: Iterable[str], most: int = 6) -> None:
        self.tree, choose = tree, random.Random(f"{tree.shape} {seed}")
        pods = choose.sample(range(tree.pods), min(2, tree.pods) if seed % 2 else tree.pods)
        names = [tree.name(switch) for switch in tree.switches() if near(switch, pods)]
        names += [tree.name(link) for link in tree.links() if near(link.lower, pods)]
        failed = choose.sample(names, choose.randint(1, min(most, len(names)))) if seed else []
        kinds = list(reasons)
        self.failures = Failures(tree, {name: choose.choice(kinds) for name in failed})
        # an element whose failure no port notices continues to carry packets
        noticed = [name for name, reason in self.failures.items() if reason in NOTICED]
        self.fabric = TableFabric(tree, fabric_rules(tree, self.failures), dead=noticed)
        hosts = list(tree.hosts())
        close = [host for host in hosts if host.pod in pods[:2]]
        drawn = [choose.sample(close if number % 2 and len(close) > 1 else hosts, 2) for number in range(pairs)]
        self.pairs = [(src, dst) for src, dst in drawn]

    def unlabelled(self, src: Host, dst: Host) -> Iterator[tuple[list[str], bool]]:
        for port in range(4 * self.tree.aggregations):
            yield self._send(src, dst, None, tcp_src=port, tcp_dst=80)

    def labelled(self, src: Host, dst: Host) -> Iterator[tuple[list[str], bool]]:
        """The ways of packets with every word that there can be, some of them out of range, and whether they arrive."""
        for up1 in [*range(self.tree.aggregations + 1), 0xFE, 0xFF]:
            for up2 in [*range(self.tree.cores_of_group + 1), 0xFE, 0xFF]:
                yield self._send(src, dst, f"02:53:9e:04:{up1:02x}:{up2:02x}")

    def _send(self, src: Host, dst: Host, mac: str | None, **fields: int) -> tuple[list[str], bool]:
        way, seen = self.fabric.send(src, ipv4_packet(self.tree, src, dst, mac, **fields))
        arrives = seen is not None and way[-1] == self.tree.name(dst)
        assert seen is None or not arrives or seen["eth_dst"] == self.tree.mac(dst)
        return way, arrives


def near(node: Host | Switch, pods: list[int]) -> bool:
    return (isinstance(node, Switch) and node.level is Level.CORE) or node.pod in pods


def climbing_and_falling(failures: Failures) -> "networkx.DiGraph[tuple[str, str]]":
    """Return the rest of the fabric as two layers, upwards and downwards, with edges only from the first to the second."""
    tree = failures.tree
    left: networkx.DiGraph[tuple[str, str]] = networkx.DiGraph()
    left.add_edges_from(((node, "up"), (node, "down")) for node in tree.graph())
    for link in tree.links():
        if tree.name(link) not in failures:
            lower, upper = tree.name(link.lower), tree.name(link.upper)
            left.add_edge((lower, "up"), (upper, "up"))
            left.add_edge((upper, "down"), (lower, "down"))
    left.remove_nodes_from([(name, side) for name in failures if "-" not in name for side in ("up", "down")])
    return left


def crossed(tree: Clos, way: list[str]) -> set[str]:
    return {*way, *(tree.name(tree.link(tree.node(here), tree.node(there))) for here, there in pairwise(way))}


def connected(graph: "networkx.DiGraph[tuple[str, str]]", tree: Clos, src: Host, dst: Host) -> bool:
    return bool(networkx.has_path(graph, (tree.name(src), "up"), (tree.name(dst), "down")))


@each_scene
@pytest.mark.parametrize(("noticed", "most"), [(NOTICED, 6), ((), 40)], ids=["failures and drains", "drains alone"])
def test_a_packet_arrives_exactly_if_a_way_is_left_and_over_what_is_drained_only_if_there_is_no_other(
    tree: Clos, seed: int, pairs: int, noticed: tuple[str, ...], most: int
) -> None:
    scene = Scene(tree, seed, pairs, (*noticed, Reason.DRAINED, Reason.DRAINED), most)
    left, undrained = climbing_and_falling(scene.failures.hard), climbing_and_falling(scene.failures)
    for src, dst in scene.pairs:
        expected, spared = (connected(graph, tree, src, dst) for graph in (left, undrained))
        for way, arrives in [*scene.unlabelled(src, dst), *scene.labelled(src, dst)]:
            assert arrives is expected
            assert not spared or crossed(tree, way).isdisjoint(scene.failures)
        if not scene.failures:
            shortest = {path.hops for path in tree.candidate_paths(src, dst)}
            assert {tuple(way[:-1]) for way, _ in scene.unlabelled(src, dst)} <= shortest
    for switch in tree.switches():  # no two entries stand in each other's place
        flows = switch_rules(tree, switch, scene.failures).flows
        assert len({(flow.table, flow.priority, flow.match) for flow in flows}) == len(flows)
        assert all(flow.goto is None or flow.goto > flow.table for flow in flows)


@each_scene
def test_a_word_that_names_a_usable_path_is_obeyed_exactly(tree: Clos, seed: int, pairs: int) -> None:
    scene = Scene(tree, seed, pairs, (*NOTICED, *UNNOTICED, Reason.DRAINED))
    for src, dst in scene.pairs:
        for path in scene.failures.split(src, dst)[0]:
            packet = ipv4_packet(tree, src, dst, label.carrier_mac(path.up))
            way, seen = scene.fabric.send(src, packet)
            assert way == [*path.hops, tree.name(dst)]
            # one address for all paths, or the receiver would merge no packets of the flow
            assert seen["eth_src"] == label.carrier_mac(())


@each_scene
def test_failed_links_carry_nothing_although_their_ports_are_up(tree: Clos, seed: int, pairs: int) -> None:
    scene = Scene(tree, seed, pairs, UNNOTICED)
    broken = [name for name in scene.failures if not name.startswith("h")]
    for src, dst in scene.pairs:
        for way, _ in [*scene.unlabelled(src, dst), *scene.labelled(src, dst)]:
            # a packet cannot help meeting its own edge switch
            assert (crossed(tree, way) - {way[0]}).isdisjoint(broken)


@each_script(__file__, "cost")
def test_what_a_failure_costs(script: Script) -> None:
    def handle(step: Step) -> str:
        """Let elements of a fat-tree fail, each for its reason; tell who holds how many entries more for words and hashes."""
        tree = FatTree(int(step.words[0]))
        before, by_cost = dict(fabric_rules(tree)), dict[str, list[str]]()
        for switch, rules in fabric_rules(tree, Failures(tree, step.options)):
            if set(rules.flows) != set(before[switch].flows):
                more = Counter(flow.table for flow in rules.flows)
                more.subtract(flow.table for flow in before[switch].flows)
                words, hashes = more[Table.UP], more[Table.UNLABELLED]
                assert more.total() == words + hashes
                by_cost.setdefault(f"{words} for words, {hashes} for hashes", []).append(tree.name(switch))
        return "\n".join(f"{told}: {' '.join(sorted(names))}" for told, names in sorted(by_cost.items()))

    script.play(handle)


@pytest.mark.parametrize("reason", ["down", Reason.DRAINED])
def test_of_many_uplinks_one_that_leads_to_fewer_core_switches_is_hashed_to_as_others(reason: str) -> None:
    tree = FatTree(32)
    failures = Failures(tree, {"a0_0-c0_1": reason})
    for name in ("e0_0", "e1_0"):
        switch = tree.switch(name)
        assert switch_rules(tree, switch, failures) == switch_rules(tree, switch)


def test_flows_without_a_word_are_hashed_in_proportion_to_the_weights() -> None:
    slower = {f"e0_{leaf}-a0_1": 5000 for leaf in range(4)}
    half = dict.fromkeys(["a0_0-c0_1", "a0_1-c1_0", "a0_1-c1_1"], 0.5)
    fabrics = Clos(1, 4, 2, 0, 2, mbit={"edge": 10000}, links=slower), Clos(2, 2, 2, 4, 2, links=half)
    for tree in fabrics:
        src, dst = next(tree.hosts()), list(tree.hosts())[-1]
        its, failures = TableFabric(tree, fabric_rules(tree)), Failures(tree)
        packets = (ipv4_packet(tree, src, dst, None, tcp_src=port, tcp_dst=80) for port in range(4000))
        ways = Counter(tuple(its.send(src, packet)[0][:-1]) for packet in packets)
        for path, weight in zip(tree.candidate_paths(src, dst), weights(failures, src, dst), strict=True):
            assert ways[path.hops] / 4000 == pytest.approx(weight, abs=0.04)


def test_every_allowed_uplink_is_hashed_to_however_slow_it_is() -> None:
    tree = Clos(1, 3, 3, 0, 2, mbit={"edge": 1000}, links={f"e0_{leaf}-a0_2": 1 for leaf in range(3)})
    (entry,) = (flow for flow in switch_rules(tree, tree.switch("e0_0")).flows if flow.table is Table.UNLABELLED)
    (action,) = entry.apply
    assert set(action.ports) == {3, 4, 5}
    assert action.ports.count(5) == 1
    assert action.ports.count(3) == action.ports.count(4) > 3


@pytest.mark.parametrize("seed", range(8))
def test_uneven_fabrics_need_few_entries(seed: int) -> None:
    tree = random_fabric(seed, rates=True)
    for switch, rules in fabric_rules(tree):
        if switch.level is not Level.CORE:
            hashed = [flow for flow in rules.flows if flow.table is Table.UNLABELLED]
            assert len(hashed) <= 1 + tree.pods + tree.pods * tree.edges
            assert all(len(action.ports) <= MAX_SLOTS for flow in hashed for action in flow.apply)
