"""A fabric whose links lose packets, and one host that probes it as `Prober` does: simulated truth for what judges paths.

Time is simulated. Every link has a loss for each direction; a probe crosses the links out and the same ones back.
"""

import heapq
import random
from collections.abc import Callable
from itertools import islice, pairwise
from math import prod

from sopa_ryu.agent.paths.avoided import Up
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import PathHealth
from sopa_ryu.agent.reaction import PARTNERS
from sopa_ryu.channel.messages import Stream
from topologies import Clos, Host, Switch

DELAY, DEADLINE, TICK = 0.001, 0.03, 0.05
RATE, ASSIGNED_RATE = 200.0, 50.0


class ProbedFabric:
    """One probing host in a fabric: 50 probes a second of an assignment, or half of the rate, and the rest of the busy rack."""

    def __init__(self, tree: Clos, seed: int, rate: float = RATE) -> None:
        assigned_rate = min(ASSIGNED_RATE, rate / 2)
        self._intervals = 1 / assigned_rate, 1 / (rate - assigned_rate)
        self.tree, self.draw = tree, random.Random(f"{seed} probed fabric")
        self.health = PathHealth()
        hosts = list(tree.hosts())
        self.host = self.draw.choice(hosts)
        elsewhere = [host for host in hosts if host[:2] != self.host[:2]]
        self.busy_host = self.draw.choice([host for host in elsewhere if host.pod != self.host.pod] or elsewhere)
        assigned = self.draw.sample(elsewhere, min(8, len(elsewhere)))
        paths = [(host, self.draw.choice(tree.choices_between(self.host, host))) for host in assigned]
        self.assigned = [self._stream(*path) for path in paths]
        self.loss: dict[tuple[Switch, Switch], float] = {}  # by neighbours, from and to
        self.crowded: set[tuple[Switch, Switch]] = set()  # such with a full queue
        self.dead_hosts: set[Host] = set()
        self.lies: Callable[[Host, Up], bool] = lambda host, up: False
        """Whether a host drops a probe that has come by a path."""
        self.own_loss = self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._turns = [0, 0]
        self._at(0.0, self._assigned_turn)
        self._at(0.001, self._busy_turn)
        self._at(0.002, self._tick)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = until

    def run_until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Let time pass until a condition holds; return how long that took, or infinity."""
        begin = self.now
        while not condition():
            if self.now - begin > seconds:
                return float("inf")
            self.run(0.01)
        return self.now - begin

    def way_out(self, host: Host, up: Up) -> list[tuple[Switch, Switch]]:
        """Return the directions of links between switches on the way out."""
        return list(pairwise(self.tree.hops(self.host, host, up)))

    def kept(self, host: Host) -> tuple[Up, ...]:
        return self.health.avoided.kept(self.tree.edge_of(host), self.tree.choices_between(self.host, host))

    def lost_share(self, host: Host, up: Up) -> float:
        """Return the probability that a packet on a path is lost on its way out."""
        return 1 - prod(1 - self.loss.get(pair, 0.0) for pair in self.way_out(host, up))

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
        self._at(self.now + self._intervals[0], self._assigned_turn)

    def _busy_turn(self) -> None:
        ups = self.tree.choices_between(self.host, self.busy_host)
        partners = islice(self.tree.hosts_of(self.tree.edge_of(self.busy_host)), PARTNERS)
        streams = list(dict.fromkeys([*self.health.returning(), *(self._stream(host, up) for host in partners for up in ups)]))
        self._turns[1] += 1
        self._probe(streams[self._turns[1] % len(streams)])
        self._at(self.now + self._intervals[1], self._busy_turn)

    def _probe(self, stream: Stream) -> None:
        host = self.tree.host_by_ip(stream.destination)
        up = tuple(hop for hop in stream[1:] if hop != 255)
        out = self.way_out(host, up)
        way = [*out, *((there, here) for here, there in reversed(out))]
        shares = [*(self.loss.get(pair, 0.0) for pair in way), self.own_loss]
        lost = host in self.dead_hosts or self.lies(host, up) or any(self.draw.random() < share for share in shares)
        crowded = any(pair in self.crowded for pair in way)
        fate = Fate(stream, not lost, None, 0 if lost else 2_000_000, crowded)
        self._at(self.now + (DEADLINE if lost else DELAY), lambda: self.health.decided(fate, self.now))
