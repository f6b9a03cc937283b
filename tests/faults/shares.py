"""The weights that a controller gives candidate paths, against the linear program over them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.faults.oracle import Label, word
from tests.models.all_to_all import of_hosts, of_weights, optimum
from topologies import Failures, Switch

LEAST_PART = 0.85
"""Of the best bandwidth that all-to-all traffic can have: what weights have to give it."""


class Shares:
    """The weights of the candidate paths between racks, as ``GET /paths`` has them for some of their hosts."""

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self.of: dict[tuple[str, str], dict[Label, float]] = {}
        self.problems: list[str] = []

    def take(self, src: str, dst: str, candidates: Sequence[Mapping[str, Any]]) -> None:
        """Note the answer for two hosts."""
        if not candidates:
            return
        weights = {word(list(path["hops"])): float(path["weight"]) for path in candidates}
        pair = candidates[0]["hops"][0], candidates[0]["hops"][-1]
        if abs(sum(weights.values()) - 1) > 1e-6:
            self.problems.append(f"weights from {src} to {dst} sum to {sum(weights.values())}: {weights}")
        if any(abs(self.of.setdefault(pair, weights).get(path, 0) - weight) > 1e-9 for path, weight in weights.items()):
            self.problems.append(f"weights from {src} to {dst} are {weights}; other hosts there have {self.of[pair]}")

    def wrong_turns(self, host: str, pair: tuple[str, str], turns: Iterable[Label]) -> list[str]:
        """Tell in words if a host's path set has not as many turns for each path as its weight says."""
        counts, right = Counter(turns), self.of.get(pair, {})
        found = {label: count / counts.total() for label, count in counts.items()}
        if not right or all(abs(found.get(label, 0) - weight) < 1e-6 for label, weight in right.items()):
            return []
        return [f"{host} takes paths to {pair[1]} in shares of {found}; their weights are {right}"]

    def wrong_weights(self) -> list[str]:
        """Tell in words what is wrong with the weights: of all, all-to-all traffic must get nearly the best bandwidth."""
        limit = of_hosts(self.failures)
        reached, best = min(limit, of_weights(self.failures, self._weights)), min(limit, optimum(self.failures))
        if reached < LEAST_PART * best:
            return [*self.problems, f"weights give all-to-all traffic {reached:g} Mbit/s a pair, {best:g} are possible"]
        return self.problems

    def _weights(self, failures: Failures, src: Switch) -> dict[Switch, tuple[float, ...]]:
        name = failures.tree.name
        return {
            dst: tuple(self.of.get((name(src), name(dst)), {}).get((*up, 255, 255)[:2], 0.0) for up in choices)
            for dst, choices in failures.choices_from(src).items()
        }
