"""Faults of a cluster's parts, drawn from one seed, as plain text that replays. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

from tests.faults.hostile import WAYS as HOSTILE_WAYS
from topologies import Clos

LEADER, STANDBY, RELAY, ETCD, ETCD_LEADER = "leader", "standby", "relay", "etcd", "etcd-leader"
KINDS = {"kill": 5, "pause": 4, "partition": 8, "clock": 1, "disk": 1, "switches": 1, "stale": 1, "hostile": 6}
"""Kinds of faults, with their weights: of as many faults in sequence as the sum, each kind has its weight."""
ROLES = {LEADER: 4, STANDBY: 2, RELAY: 2, ETCD: 1, ETCD_LEADER: 1}
CUTS = {
    LEADER: ("etcd", "switches", "agents", "relays", "all"),
    STANDBY: ("etcd", "switches", "all"),
    RELAY: ("etcd", "agents", "controllers", "all"),
    ETCD: ("etcd", "controllers", "relays", "all"),
    ETCD_LEADER: ("etcd", "controllers", "relays", "all"),
}
WAYS = ("both", "sent", "received")
SECONDS = (0.3, 4.5)
"""How long a fault lasts: less than a lease to more than two."""
UNTIL_ANOTHER_LEADS = inf
"""Seconds of a fault of the leader that lasts until another member leads."""
BOTH_SHARE = 0.3
LINK_SHARE = 0.7
MAX_DOWN = 2


@dataclass(frozen=True)
class Fault:
    """What happens to a part: ``kill leader 2.5``, ``partition etcd 1.2 controllers sent``, ``stale leader inf``.

    The part is a role, and at the time of the fault one that has it is taken; or a switch: ``hostile c1_1 3 slave``. What ends by
    itself has a time all the same, in which other faults and links may change.
    """

    kind: str
    role: str
    seconds: float
    what: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.kind, self.role, f"{self.seconds:g}", *self.what])

    @classmethod
    def parse(cls, text: str) -> Fault:
        kind, role, seconds, *what = text.split()
        return cls(kind, role, float(seconds), tuple(what))


@dataclass(frozen=True)
class Step:
    """Faults that begin together, and links, by name, that go up (True) or down meanwhile; then all is healed and checked.

    As text: ``kill leader 2.5; pause etcd 1; -a0_0-c0_1; +a0_1-c1_0``, a link that goes down with a minus.
    """

    faults: tuple[Fault, ...]
    links: tuple[tuple[str, bool], ...]

    def __str__(self) -> str:
        return "; ".join([*map(str, self.faults), *(f"{'+' if up else '-'}{name}" for name, up in self.links)])

    @property
    def begun(self) -> list[str]:
        return [f"{fault.kind} {fault.what[0] if fault.kind == 'hostile' else fault.role}" for fault in self.faults]

    @classmethod
    def parse(cls, text: str) -> Step:
        words = [word.strip() for word in text.split(";")]
        links = tuple((word[1:], word[0] == "+") for word in words if word[0] in "+-")
        return cls(tuple(Fault.parse(word) for word in words if word[0] not in "+-"), links)


def plan(tree: Clos, seed: int, faults: int) -> Iterator[Step]:
    """Yield steps with so many faults in all; after the last one all links are up."""
    draw = random.Random(f"{seed} cluster faults")
    links = [tree.name(link) for link in tree.switch_links()]
    switches = [tree.name(switch) for switch in tree.switches()]
    down: list[str] = []
    deck: list[str] = []
    while faults:
        if not deck:
            deck = draw.sample(list(KINDS), sum(KINDS.values()), counts=list(KINDS.values()))
        begun = [_fault(draw, deck.pop(), switches)]
        if faults > 1 and deck and draw.random() < BOTH_SHARE:
            begun.append(_fault(draw, deck.pop(), switches))
        faults -= len(begun)
        changes: list[tuple[str, bool]] = []
        if faults == 0:
            changes = [(name, True) for name in down]
        elif draw.random() < LINK_SHARE:
            up = len(down) == MAX_DOWN or (bool(down) and draw.random() < 0.5)
            name = draw.choice(down if up else [link for link in links if link not in down])
            (down.remove if up else down.append)(name)
            changes = [(name, up)]
        yield Step(tuple(begun), tuple(changes))


def _fault(draw: random.Random, kind: str, switches: Sequence[str]) -> Fault:
    seconds = round(draw.uniform(*SECONDS), 1)
    role = draw.choices([*ROLES], [*ROLES.values()])[0]
    match kind:
        case "partition":
            return Fault(kind, role, seconds, (draw.choice(CUTS[role]), draw.choice(WAYS)))
        case "clock":
            return Fault(kind, draw.choice((LEADER, STANDBY)), seconds)
        case "disk":
            return Fault(kind, ETCD, seconds)
        case "switches":
            return Fault(kind, "all", seconds)
        case "stale":
            return Fault(kind, LEADER, UNTIL_ANOTHER_LEADS)
        case "hostile":
            return Fault(kind, draw.choice(switches), seconds, (draw.choice(HOSTILE_WAYS),))
    return Fault(kind, role, seconds)
