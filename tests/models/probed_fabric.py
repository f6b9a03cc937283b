"""A fabric whose links lose packets, and one host that probes it as `Prober` does: simulated truth for what judges paths.

Time is simulated. Every link has a loss for each direction; a probe crosses the links out and the same ones back.
"""

import heapq
import math
import random
from collections.abc import Callable
from itertools import pairwise

from sopa_ryu.agent.paths.avoided import Avoided, Up
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import PathHealth
from sopa_ryu.channel.probes import Stream
from topologies import Clos, Host, Switch

DELAY, DEADLINE, TICK = 0.001, 0.03, 0.05


class ProbedFabric:
    """One probing host in a fabric."""

    def __init__(self, tree: Clos, seed: int, peers: int = 8, per_second: float = 50.0) -> None:
        self.tree, self.draw, self.health = tree, random.Random(f"{seed} probed fabric"), PathHealth()
        hosts = list(tree.hosts())
        self.host = self.draw.choice(hosts)
        elsewhere = [host for host in hosts if host[:2] != self.host[:2]]
        self.busy_host = self.draw.choice([host for host in elsewhere if host.pod != self.host.pod] or elsewhere)
        assigned = self.draw.sample(elsewhere, min(peers, len(elsewhere)))
        self.assigned = [self._stream(its, self.draw.choice(tree.choices_between(self.host, its))) for its in assigned]
        self.loss: dict[tuple[Switch, Switch], float] = {}  # the probability from one to a neighbour
        self.crowded: set[tuple[Switch, Switch]] = set()  # such pairs with a full queue
        self.dead_hosts: set[Host] = set()  # they do not answer
        self.own_loss = 0.0  # what this host itself loses of all that it receives
        self.now = 0.0
        self._interval = 1 / per_second  # of the assignment's probes; there are three times as many to the busy rack
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = self._known = 0
        self._turns = [0, 0]
        self.avoided: list[tuple[float, Avoided]] = []
        for number, act in enumerate((self._assigned_turn, self._busy_turn, self._tick)):
            self._at(number / 1000, act)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
            if len(self.health.changes) != self._known:
                self._known = len(self.health.changes)
                self.avoided.append((self.now, self.health.avoided))
        self.now = until

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Let time pass until a condition holds; return how long that took, or infinity."""
        begin = self.now
        while not condition():
            if self.now - begin > seconds:
                return float("inf")
            self.run(0.01)
        return self.now - begin

    def pair(self, lower: str, upper: str) -> tuple[Switch, Switch]:
        return self.tree.switch(lower), self.tree.switch(upper)

    def way_out(self, host: Host, up: Up) -> list[tuple[Switch, Switch]]:
        return list(pairwise(self.tree.hops(self.host, host, up)))

    def kept(self, host: Host) -> tuple[Up, ...]:
        return self.health.avoided.kept(self.tree.edge_of(host), self.tree.choices_between(self.host, host))

    def lost_share(self, host: Host, up: Up) -> float:
        return 1 - math.prod(1 - self.loss.get(pair, 0.0) for pair in self.way_out(host, up))

    def _stream(self, host: Host, up: Up) -> Stream:
        return Stream(self.tree.ip(host), *up)

    def _at(self, time: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, act))

    def _tick(self) -> None:
        self.health.tick(self.now)
        self._at(self.now + TICK, self._tick)

    def _assigned_turn(self) -> None:
        self._turns[0] += 1
        self._probe(self.assigned[self._turns[0] % len(self.assigned)])
        self._at(self.now + self._interval, self._assigned_turn)

    def _busy_turn(self) -> None:
        ups = self.tree.choices_between(self.host, self.busy_host)
        streams = list(dict.fromkeys([*self.health.returning(), *(self._stream(self.busy_host, up) for up in ups)]))
        self._turns[1] += 1
        self._probe(streams[self._turns[1] % len(streams)])
        self._at(self.now + self._interval / 3, self._busy_turn)

    def _probe(self, stream: Stream) -> None:
        host = self.tree.host_by_ip(stream.destination)
        out = self.way_out(host, tuple(hop for hop in stream[1:] if hop != 255))
        back = [(there, here) for here, there in reversed(out)]
        lost = (
            self._is_lost(out) or host in self.dead_hosts or self._is_lost(back) or self.draw.random() < self.own_loss
        )
        crowded = not self.crowded.isdisjoint((*out, *back))
        fate = Fate(stream, not lost, None, 0 if lost else 2_000_000, crowded)
        self._at(self.now + (DEADLINE if lost else DELAY), lambda: self.health.decided(fate, self.now))

    def _is_lost(self, way: list[tuple[Switch, Switch]]) -> bool:
        return any(self.draw.random() < self.loss.get(pair, 0.0) for pair in way)
