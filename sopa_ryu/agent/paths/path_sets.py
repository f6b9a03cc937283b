"""The path sets of one host, from the structure and the failures (SOPA paper, section 3.3, component 1). Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address

from flowrules import label
from flowrules.label import Carrier
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section
from sopa_ryu.agent.paths.path_table import PARAMETERS, Label, PathTable, Policy, WayOut
from topologies import Clos, Failures, Host, Level, Switch
from topologies.structure import FABRIC_NETWORK
from topologies.usids import BLOCK
from topologies.way_out import gateways_from
from topologies.weights import Choices, Weights, sequence, weigh


class PathSets:
    """The path sets of a host through the versions of the fabric: only the paths that a change affects are computed again.

    A set has its paths in the order in which packets take them in turn. Where their weights differ, a path occurs in it as often
    as its weight says, so that every policy that takes each place of a set equally often follows the weights.

    Args:
        host: The sender.
        seed: 32 bits that decide every flow's start and every random choice.
        parameter: The policy's, if it has one; 0 for its default.
        weighted: Whether paths occur in proportion to their weights; if not, each once.
        carrier: With `Carrier.OPTION` IPv6 is not labelled; with `Carrier.ID` edge switches' ports spread bursts, as long as the
            host avoids no path by itself; with `Carrier.SRV6` paths are lists of uSIDs.

    >>> from topologies import Clos, Failures, FatTree
    >>> tree = FatTree(4)
    >>> sets = PathSets(tree, tree.host("h0_0_2"), seed=7, policy=Policy.ROUND_ROBIN)
    >>> sets.follow(Failures(tree)).candidates(tree.ip(tree.host("h2_1_3")))
    ((0, 0), (1, 0), (0, 1), (1, 1))

    A failed core switch costs one of them, and the others have different weights then; a failed host link elsewhere leaves the
    table as it is:

    >>> failures = Failures(tree, {"c0_1": "down"})
    >>> sorted(set(sets.follow(failures).candidates(tree.ip(tree.host("h2_1_3")))))
    [(0, 0), (1, 0), (1, 1)]
    >>> sets.follow(failures.with_failed("h2_0_2-e2_0")) is None
    True

    What the host avoids by itself is left out besides:

    >>> avoided = Avoided(frozenset({Section(0, None, 2, 1)}))
    >>> set(sets.follow(failures, avoided).candidates(tree.ip(tree.host("h2_1_3"))))
    {(1, 0), (1, 1)}

    Attributes:
        avoided_paths: Candidate paths, of all racks together, that are left out of the table since the host avoids them.
    """

    def __init__(
        self,
        tree: Clos,
        host: Host,
        seed: int,
        policy: Policy,
        parameter: int = 0,
        weighted: bool = True,
        carrier: Carrier = Carrier.MAC,
    ) -> None:
        self.tree = tree
        self.host = host
        self.seed = seed
        self.policy = policy
        self.parameter = parameter or PARAMETERS.get(policy, 0)
        self.weighted = weighted
        self._spreads = carrier is Carrier.ID
        self._prefix = None if carrier is Carrier.OPTION else tree.prefix6
        block = int((tree.srv6 or BLOCK).network_address) >> 96
        self._srv6 = (block, host) if carrier is Carrier.SRV6 else None
        self._failures = Failures(tree)
        self._choices: dict[Switch, Choices] = {}
        self._weights: dict[Switch, Weights] = {}
        self._avoided = NOTHING
        self._left: dict[Switch, tuple[Label, ...]] = {}
        self.avoided_paths = 0
        self._leads_out = host in tree.gateways
        self._gateways: tuple[Host, ...] = ()

    def follow(self, failures: Failures, avoided: Avoided = NOTHING) -> PathTable | None:
        """Return the table for these failures; None if it is the table before.

        Args:
            avoided: What the host avoids besides, as far as it leaves a path to each rack.

        Returns:
            For every rack the labels of its candidate paths, in the order of their turns. Racks with the same order share one
            set; a rack that cannot be reached has none (-1), so that its packets go unlabelled.
        """
        edge = self.tree.edge_of(self.host)
        if self._choices:
            # what failed and what healed; another reason for the same failure changes no path
            changed = failures.keys() ^ self._failures.keys()
            fresh = failures.choices_from(edge, failures.pods_affected(edge, changed))
        else:
            fresh = failures.choices_from(edge)
        # no rack is added: the order stays that of the switches
        choices = self._choices | fresh
        # what failed far away may shift weights without excluding a path of this host
        weights = weigh(failures, edge, choices) if self.weighted else {}
        same = weights == self._weights and all(self._choices.get(rack) == its for rack, its in fresh.items())
        self._failures, self._choices, self._weights = failures, choices, weights
        self._left.clear()
        gateways = () if self._leads_out else gateways_from(failures, edge)
        same, self._gateways = same and gateways == self._gateways, gateways
        same, self._avoided = same and avoided == self._avoided, avoided
        return None if same else self._with_ways_out(self._table())

    def candidates(self, pod: int, edge: int) -> Choices:
        """Return the uplink indices of all candidate paths to a rack that the controller does not exclude, avoided or not."""
        return self._choices.get(Switch(Level.EDGE, pod, edge), ())

    def parts(self, pod: int, edge: int) -> dict[tuple[int, ...], float]:
        """Return the weights of the candidate paths to a rack, of which the largest is 1; nothing if all are equal."""
        rack = Switch(Level.EDGE, pod, edge)
        weights = self._weights.get(rack, ())
        most = max(weights, default=0.0)
        return {up: weight / most for up, weight in zip(self._choices[rack], weights, strict=True)} if most else {}

    def instead(self, destination: IPv4Address, chosen: Label, turn: int) -> Label:
        """Return the label to use for one that another has chosen: one of those that are left if the host avoids its path.

        Args:
            destination: In the fabric.
            turn: Which of those that are left is taken.
        """
        if not self._avoided:
            return chosen
        _, pod, edge, _ = destination.packed
        rack = Switch(Level.EDGE, pod, edge)
        choices = self._choices.get(rack, ())
        if rack not in self._left:
            self._left[rack] = _labels(self._avoided.kept(rack, choices))
        left = self._left[rack]
        return chosen if chosen in left or chosen not in _labels(choices) else left[turn % len(left)]

    def _table(self) -> PathTable:
        sets: dict[Choices, int] = {}
        # racks that nothing distinguishes share their tuples, and comparing long ones takes longer than making the table
        known: dict[tuple[int, int, frozenset[Section]], tuple[int, int]] = {}
        destinations = []
        self.avoided_paths = 0
        for rack, choices in self._choices.items():
            weights = self._weights.get(rack, ())
            key = id(choices), id(weights), self._avoided.of(rack) if self._avoided else frozenset()
            if key not in known:
                kept, its = self._kept(rack, choices, weights)
                place = sets.setdefault(sequence(kept, its), len(sets)) if kept else -1
                known[key] = place, len(choices) - len(kept)
            place, left_out = known[key]
            destinations.append(place)
            self.avoided_paths += left_out
        labels = tuple(_labels(order) for order in sets)
        choice = self.seed, self.policy, self.parameter
        return PathTable(
            FABRIC_NETWORK, self.tree.edges, labels, tuple(destinations), *choice, prefix=self._prefix, srv6=self._srv6
        )

    def _kept(self, rack: Switch, choices: Choices, weights: Weights) -> tuple[Choices, Weights]:
        """Return the candidate paths that the host does not avoid, and their weights, in proportion as before."""
        kept = self._avoided.kept(rack, choices) if self._avoided else choices
        if kept is choices or not weights:
            return kept, weights if kept is choices else ()
        left = dict(zip(choices, weights, strict=True))
        whole = sum(left[up] for up in kept)
        if not whole:  # what is left had no weight
            return kept, ()
        return kept, tuple(left[up] / whole for up in kept)

    def _with_ways_out(self, table: PathTable) -> PathTable:
        """Return a table with the paths to the gateways, which are those to their racks."""
        paths = ((gateway, table.candidates(self.tree.ip(gateway))) for gateway in self._gateways)
        ways_out = tuple(WayOut(_octets(self.tree.mac(gateway)), labels) for gateway, labels in paths if labels)
        return table._replace(ways_out=ways_out, leads_out=self._leads_out, spreads=self._spreads and not self._avoided)


def path_table(tree: Clos, host: Host, failures: Failures, seed: int, policy: Policy, parameter: int = 0) -> PathTable:
    """Return the path table of a host for these failures."""
    table = PathSets(tree, host, seed, policy, parameter).follow(failures)
    assert table is not None  # the first is always new
    return table


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


@lru_cache(maxsize=64)
def _labels(choices: Choices) -> tuple[Label, ...]:
    return tuple(label.hop_bytes(up) for up in choices)
