"""The path sets of one host, from the structure and the failures: the paper's component 1 (section 3.3). Pure."""

from __future__ import annotations

from functools import lru_cache

from flowrules import label
from sopa_ryu.agent.paths.path_table import PARAMETERS, Label, PathTable, Policy
from topologies import Failures, FatTree, Host, Switch
from topologies.structure import FABRIC_NETWORK

Choices = tuple[tuple[int, ...], ...]


class PathSets:
    """A host's path sets through the fabric's versions: what a change touches is computed again, the rest is kept.

    Parameters
    ----------
    tree : FatTree
    host : Host
        The sender.
    seed : int
        32 bits that decide every flow's start and every random choice.
    policy : Policy
    parameter : int
        The policy's, if it has one; 0 for its default.
    """

    def __init__(self, tree: FatTree, host: Host, seed: int, policy: Policy, parameter: int = 0) -> None:
        self.tree = tree
        self.host = host
        self.seed = seed
        self.policy = policy
        self.parameter = parameter or PARAMETERS.get(policy, 0)
        self._failures = Failures(tree)
        self._choices: dict[Switch, Choices] = {}

    def follow(self, failures: Failures) -> PathTable | None:
        """Take in what has failed now; the table that follows from it, or None if it is the one before.

        Returns
        -------
        PathTable or None
            For every rack the words of its candidate paths, in round-robin order. Racks with the same candidates share one
            set; a rack that cannot be reached has none (-1), so that its packets go unlabelled.
        """
        edge = self.tree.edge_of(self.host)
        if self._choices:
            # which failed and which healed; another reason for the same failure costs nothing
            changed = failures.keys() ^ self._failures.keys()
            fresh = failures.choices_from(edge, failures.pods_affected(edge, changed))
        else:
            fresh = failures.choices_from(edge)
        same = all(self._choices.get(rack) == choices for rack, choices in fresh.items())
        # no rack is added: the order stays that of the switches
        self._failures, self._choices = failures, self._choices | fresh
        return None if same else self._table()

    def _table(self) -> PathTable:
        sets: dict[Choices, int] = {}
        destinations = [sets.setdefault(choices, len(sets)) if choices else -1 for choices in self._choices.values()]
        words = tuple(_words(choices) for choices in sets)
        choice = self.seed, self.policy, self.parameter
        return PathTable(FABRIC_NETWORK, self.tree.half, words, tuple(destinations), *choice)


def path_table(
    tree: FatTree, host: Host, failures: Failures, seed: int, policy: Policy, parameter: int = 0
) -> PathTable:
    """The table that a host's eBPF program works with while those failures last."""
    table = PathSets(tree, host, seed, policy, parameter).follow(failures)
    assert table is not None  # the first always differs from none
    return table


@lru_cache(maxsize=64)
def _words(choices: Choices) -> tuple[Label, ...]:
    return tuple(label.hop_bytes(up) for up in choices)
