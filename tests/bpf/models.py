"""The policies that look at more than a packet's number, as plain state machines: what the programs have to do for each packet."""

from __future__ import annotations

from collections import Counter

from sopa_ryu.agent.paths.flow_hash import FRAGMENT_KEY, FlowKey, flow_hash, random_choice
from sopa_ryu.agent.paths.path_table import Label, PathTable

CHOICES, LOOKS_BACK = 8, 65_536


class LeastUsed:
    """`Policy.LEAST_USED` on one processor."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self.load: Counter[Label] = Counter()
        self._turns: Counter[FlowKey] = Counter()

    def choose(self, key: FlowKey, size: int) -> Label:
        """The word of a flow's next packet, of so many bytes."""
        candidates = self.table.candidates(key.daddr)
        assert candidates
        if len(candidates) == 1:
            chosen = candidates[0]
        elif key.proto & FRAGMENT_KEY:
            chosen = self.table.choose(key, 0) or candidates[0]
        else:
            start = random_choice(flow_hash(key, self.table.seed), self._turns[key], len(candidates))
            self._turns[key] += 1
            compared = [*candidates[start:], *candidates[:start]][:CHOICES]
            chosen = min(compared, key=self.load.__getitem__)  # the first of equal ones
            self.load[chosen] = max(self.load[chosen], max(self.load[word] for word in compared) - LOOKS_BACK)
        self.load[chosen] += size
        return chosen


class Flowlets:
    """`Policy.FLOWLET`; time is an argument, in nanoseconds."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self._flows: dict[FlowKey, tuple[int, int]] = {}

    def choose(self, key: FlowKey, now: int) -> Label | None:
        """The word of a flow's packet that comes at that time."""
        ended, last = self._flows.get(key, (0, now))
        ended += now - last > self.table.parameter
        self._flows[key] = ended, now
        return self.table.choose(key, ended)


class Flowcells:
    """`Policy.FLOWCELL`."""

    def __init__(self, table: PathTable) -> None:
        self.table = table
        self._sent: Counter[FlowKey] = Counter()

    def choose(self, key: FlowKey, size: int) -> Label | None:
        """The word of a flow's next packet, of so many bytes."""
        cell = self._sent[key] // self.table.parameter
        self._sent[key] += size
        return self.table.choose(key, cell)
