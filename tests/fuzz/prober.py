"""A host that lies in its answers to probes, beside hosts that are honest and paths that are all good, in simulated time."""

import heapq
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.agent.probing.frames import read
from sopa_ryu.agent.probing.prober import Prober
from sopa_ryu.agent.probing.stream_state import Record
from sopa_ryu.agent.reaction import LOOK_SECONDS, Reaction
from sopa_ryu.channel.messages import Assignment, Stream
from sopa_ryu.fabric.view import View
from tests.fuzz.declared import extreme
from tests.fuzz.peers import Broken
from tests.helpers.probe_frames import HERE, ends
from topologies import Failures, FatTree, Level, Switch

TREE = FatTree(4)
LIAR = IPv4Address("10.2.1.2")
RACKS = [(2, 1), (1, 0)]
"""Racks that packets go to: the liar's, and another one."""
FIELDS = {"answer_number": 32, "number": 32, "received_ns": 64, "sent_ns": 64, "ssid": 16, "up1": 8, "up2": 8, "answers": 32}
"""The bits of those that the other host writes."""
MS, WARM_SECONDS, MIN_SHARE, BURST = 1_000_000, 5.0, 0.5, 40


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: what the liar does with probes that come by an uplink, in which share, and time that passes."""
    while True:
        how = draw.choice(("drop", "burst", "twice", "late", "field", "truth"))
        bits = FIELDS[name := draw.choice([*FIELDS])]
        more = {"late": draw.choice(("3", "30", "120", "600")), "field": f"{name} {draw.choice('=+-')}{extreme(draw, bits)}"}
        yield f"{how} {draw.choice(('0', '1', 'any'))} {draw.choice((0.02, 0.1, 0.3, 0.6, 1.0))} {more.get(how, '')}".strip()
        yield f"wait {draw.choice((0.5, 3, 12, 40))}"


class LyingHost:
    """Hosts that answer the probes of the real prober, and its judge, without kernel; implements `tests.fuzz.peers.Peer`."""

    def __init__(self) -> None:
        self._now, self._next_look, self._draw = 1000 * MS, 0.0, random.Random(1)
        self._answers: list[tuple[int, int, Record]] = []
        self._order, self._taken, self._sent = count(), Counter[int](), Counter[bool]()
        self._lies: list[list[str]] = []
        self._in_burst, self._usual = 0, 0.0
        follower: Any = SimpleNamespace(view=View(1, 1, Failures(TREE)), policy=Policy.ROUND_ROBIN, address=HERE)
        follower.candidates, follower.parts = self._ups, lambda *_: {}
        self._prober = Prober(ends(), self, self, clock=lambda: self._now)
        self._reaction = Reaction(follower, Mock(), self._prober, self)
        self._prober.judges.append(self._reaction)
        self._prober.busy = self._reaction.busy
        far = [TREE.ip(host) for host in TREE.hosts() if host.pod]
        self._prober.follow(Assignment(1, 20.0, tuple(Stream(host, n % 2, n // 2 % 2) for n, host in enumerate(far)), 200.0))
        self._run(WARM_SECONDS)
        self._usual = self._sent[False] / WARM_SECONDS

    @staticmethod
    def _ups(pod: int, edge: int) -> list[tuple[int, ...]]:
        host = next(iter(TREE.hosts_of(Switch(Level.EDGE, pod, edge))))
        return list(TREE.choices_between(TREE.host_by_ip(HERE), host))

    # -- what the prober and its judge see of the kernel ------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        probe = read(bytes(frame))
        assert probe is not None
        number, is_liar, at = self._taken[probe.ssid], probe.destination == LIAR, self._now + MS
        self._taken[probe.ssid] += 1
        self._sent[is_liar] += 1
        answer = Record(at, probe.destination, number, probe.number, at, at, probe.ssid, *probe.label)
        for its in self._lied(answer) if is_liar else [answer]:
            heapq.heappush(self._answers, (its.arrived_ns, next(self._order), its))

    def _lied(self, answer: Record) -> list[Record]:
        times = 1
        for how, up, share, *more in self._lies:
            if up not in ("any", str(answer.up1)):
                continue
            if how == "burst":  # those in a row, and then others
                self._in_burst = (self._in_burst + 1) % BURST
            if self._in_burst >= BURST * float(share) if how == "burst" else self._draw.random() >= float(share):
                continue
            match how:
                case "drop" | "burst":
                    return []
                case "twice":
                    times += 1
                case "late":
                    answer = answer._replace(arrived_ns=answer.arrived_ns + int(more[0]) * MS)
                case "field":
                    name, number = more[0], int(more[1].lstrip("=")) + (more[1][0] != "=") * int(getattr(answer, more[0]))
                    answer = answer._replace(**{name: number % (1 << FIELDS[name])})
        return [answer] * times

    def records(self) -> list[Record]:
        found = []
        while self._answers and self._answers[0][0] <= self._now:
            found.append(heapq.heappop(self._answers)[2])
        return found

    def sent_again(self) -> list[Any]:
        return []

    def busy(self) -> list[tuple[int, int]]:
        return RACKS

    # -- the peer ---------------------------------------------------------------------------------------------------------

    def play(self, step: str) -> None:
        verb, *words = step.split()
        if verb == "wait":
            self._run(float(words[0]))
        elif verb == "truth":
            self._lies.clear()
        else:
            self._lies.append([verb, *words])

    def _run(self, seconds: float) -> None:
        until, self._sent = self._now + int(seconds * 1e9), Counter()
        while self._now < until:
            self._now += int(1e9 * self._prober.wake())
            if self._now >= self._next_look:
                self._reaction.look(self._now / 1e9)
                self._next_look = self._now + LOOK_SECONDS * 1e9
            self.check()
        if self._sent[False] < MIN_SHARE * self._usual * seconds:
            raise Broken(f"{self._sent[False]} probes to honest hosts in {seconds:g} s, where {self._usual:.0f} a second are usual")

    def check(self) -> None:
        """All paths are good, and an honest host of each rack says so: none is left."""
        if self._reaction.left:
            raise Broken(f"good paths are left: {self._reaction._health.avoided}")

    def heal(self) -> None:
        self._lies.clear()
        self._run(3.0)

    def said(self) -> str:
        return f"{self._now / 1e9:.0f} s of simulated time"

    @classmethod
    @contextmanager
    def start(cls, _directory: Path) -> Iterator[Self]:
        yield cls()
