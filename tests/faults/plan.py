"""Faults in the order in which they happen, drawn from one seed, as plain text that replays."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from topologies import Clos, Host, Level, Switch, TopologyError

KINDS = {
    "link": 5, "hostlink": 1, "silent": 4, "switch": 3, "drain": 4, "flap": 2, "agents": 1, "controller": 1,
    "cables": 1, "channels": 3, "partition": 2, "pause": 1, "impostor": 2, "files": 1, "filter": 2, "rules": 1,
    "clock": 3,
}  # fmt: skip
"""Kinds of faults, with their weights: of as many faults in sequence as the sum, each kind has its weight."""
ALONE = frozenset({"channels", "partition", "pause", "impostor", "files", "filter", "rules", "clock"})
"""Kinds that happen while nothing else is broken: of them, the oracle says that nothing at all may change."""
PASSING = frozenset({"flap", "partition", "pause", "impostor", "files", "filter", "rules"})
"""Kinds that end by themselves."""
MAX_PAUSE_SECONDS = 13
EVERYWHERE = "all"
PARTITION_SECONDS = (3, 12, 35)
"""No channel is lost; the switches' are; the agents' are as well."""

MAX_AT_ONCE = 4
AT_ONCE_SHARE = 0.25
HEAL_SHARE = 0.4
HEAL_ALL_SHARE = 0.1


@dataclass(frozen=True)
class Fault:
    """One thing that breaks: ``link a0_0-c0_1``, ``silent a0_0-c0_1>c0_1``, ``drain c0_0``, ``agents 2``, ``partition 2 12``..."""

    kind: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.what}".strip()


@dataclass
class Step:
    """Faults that begin and faults that are healed one right after the other; then everything has to settle and be right."""

    begin: list[Fault] = field(default_factory=list)
    heal: list[Fault] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join([*(f"+{fault}" for fault in self.begin), *(f"-{fault}" for fault in self.heal)])

    @property
    def begun(self) -> list[str]:
        return [fault.kind for fault in self.begin]

    @classmethod
    def parse(cls, text: str) -> Step:
        step = cls()
        for part in filter(None, (part.strip() for part in text.split(";"))):
            kind, _, what = part[1:].partition(" ")
            {"+": step.begin, "-": step.heal}[part[0]].append(Fault(kind, what))
        return step


def plan(tree: Clos, seed: int, faults: int, without: Collection[str] = ()) -> Iterator[Step]:
    """Yield a number of faults, up to `MAX_AT_ONCE` of them at a time, all healed in random order at the end.

    Kinds to do without are left out. If no switch has two uplinks, whose cables could be exchanged, that kind has to be.
    """
    if "cables" not in without and not _forks(tree):
        raise TopologyError(f"no switch of a {tree.title} has two uplinks: leave out the kind cables")
    draw = random.Random(f"{seed} faults")
    deck = _Deck(tree, draw, {kind: weight for kind, weight in KINDS.items() if kind not in without})
    active: list[Fault] = []
    begun = 0
    while begun < faults or active:
        step = Step()
        full = len(active) >= MAX_AT_ONCE or any(fault.kind in ALONE for fault in active)
        if not active or not (begun >= faults or full or draw.random() < HEAL_SHARE):
            count = draw.randrange(2, MAX_AT_ONCE + 1) if draw.random() < AT_ONCE_SHARE else 1
            step.begin += _begin(deck, active, min(count, MAX_AT_ONCE - len(active), faults - begun))
            begun += len(step.begin)
            active += [fault for fault in step.begin if fault.kind not in PASSING]
        if not step.begin:  # it is time to heal, or nothing that is left in the deck fits before
            count = len(active) if draw.random() < HEAL_ALL_SHARE else 1
            step.heal += [active.pop(draw.randrange(len(active))) for _ in range(count)]
        yield step


class _Deck:
    """The kinds of the next faults: each kind as often as its weight, shuffled, and shuffled anew when all have been dealt.

    A kind that does not fit what is broken stays for later, so that none is left out however rarely it fits.
    """

    def __init__(self, tree: Clos, draw: random.Random, weights: Mapping[str, int]) -> None:
        self._tree, self._draw, self._weights = tree, draw, weights
        self._kinds: list[str] = []

    def deal(self, others: Sequence[Fault]) -> Fault | None:
        """Return a fault of the first kind that fits beside the others, or None if none does; without others one always does."""
        if not self._kinds:
            weights = self._weights
            self._kinds = self._draw.sample(list(weights), sum(weights.values()), counts=list(weights.values()))
        for position, kind in enumerate(self._kinds):
            fault = _draw(self._tree, self._draw, kind)
            if fault not in others and _fits(fault, others):
                del self._kinds[position]
                return fault
        return None


def _begin(deck: _Deck, active: Sequence[Fault], count: int) -> list[Fault]:
    """Return up to ``count`` faults that fit beside those that are active and each other."""
    begin: list[Fault] = []
    while len(begin) < count and not any(fault.kind in ALONE for fault in begin):
        fault = deck.deal([*active, *begin])
        if fault is None:
            break
        begin.append(fault)
    return begin


def _draw(tree: Clos, draw: random.Random, kind: str) -> Fault:
    link = draw.choice(_fabric_links(tree))
    match kind:
        case "link" | "flap":
            return Fault(kind, link)
        case "hostlink":
            host = draw.choice(list(tree.hosts()))
            return Fault("link", f"{tree.name(host)}-{tree.name(tree.edge_of(host))}")
        case "silent":
            return Fault(kind, f"{link}>{draw.choice(link.split('-'))}")
        case "drain":
            return Fault(kind, draw.choice([link, tree.name(draw.choice(list(tree.switches())))]))
        case "switch" | "impostor" | "rules":
            return Fault(kind, tree.name(draw.choice(list(tree.switches()))))
        case "filter":
            return Fault(kind, tree.name(draw.choice([host for host in tree.hosts() if host not in tree.no_label])))
        case "pause":
            return Fault(kind, str(draw.randint(1, MAX_PAUSE_SECONDS)))
        case "partition":
            whom = draw.choice([EVERYWHERE, str(draw.randrange(part_count(tree)))])
            return Fault(kind, f"{whom} {draw.choice(PARTITION_SECONDS)}")
        case "channels":
            return Fault(kind, " ".join(map(tree.name, _group(tree, draw))))
        case "agents":
            return Fault(kind, str(draw.randrange(part_count(tree))))
        case "cables":
            exchanged = draw.sample(list(tree.links_above(draw.choice(_forks(tree)))), 2)
            return Fault(kind, " ".join(map(tree.name, exchanged)))
    return Fault(kind)


@cache
def _fabric_links(tree: Clos) -> list[str]:
    return [tree.name(link) for link in tree.switch_links()]


@cache
def _forks(tree: Clos) -> list[Switch]:
    """The switches of the highest level with two uplinks or more that have them."""
    for level in reversed(Level):
        if forks := [switch for switch in tree.switches(level) if len(tree.uplinks(switch)) > 1]:
            return forks
    return []


def _group(tree: Clos, draw: random.Random) -> list[Switch]:
    """Return one switch, those of a part, all of the highest, some, or all."""
    switches = list(tree.switches())
    part = part_switches(tree, draw.randrange(part_count(tree)))
    top = list(tree.switches(Level.CORE if tree.cores else Level.AGGREGATION))
    some = sorted(draw.sample(switches, draw.randint(2, len(switches))))
    return draw.choice(([draw.choice(switches)], part, top, some, switches))


def _fits(fault: Fault, others: Sequence[Fault]) -> bool:
    """Return True if a fault can be distinguished from the others.

    A link that is down does not flap, and cables are exchanged only where nothing else is broken.
    """
    if others and fault.kind in ALONE:
        return False
    downs = ("flap", "link")
    if fault.kind in downs and any(other.kind in downs and other.what == fault.what for other in others):
        return False
    touching = [each for each in (fault, *others) if each.kind in ("link", "silent", "switch", "flap", "cables")]
    ends = [set(each.what.replace(">", "-").replace(" ", "-").split("-")) for each in touching]
    return not any(
        ends[number] & other
        for number, each in enumerate(touching)
        if each.kind == "cables"
        for at, other in enumerate(ends)
        if at != number
    )


# -- parts of a fabric that fail together: its pods, or of a leaf-spine fabric its racks ------------------------------


def part_count(tree: Clos) -> int:
    return tree.pods if tree.pods > 1 else tree.edges


def part_of(tree: Clos, host: Host) -> int:
    return host.pod if tree.pods > 1 else host.edge


def part_switches(tree: Clos, part: int) -> list[Switch]:
    """Return the switches of a part: a pod's, or the rack's edge switch."""
    if tree.pods == 1:
        return [Switch(Level.EDGE, 0, part)]
    return [switch for switch in tree.switches() if switch.level is not Level.CORE and switch.pod == part]
