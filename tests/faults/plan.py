"""Faults in the order in which they happen, drawn from one seed, as plain text that replays."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from topologies import FatTree, Level, Switch

KINDS = {
    "link": 5,
    "hostlink": 1,
    "silent": 4,
    "switch": 3,
    "drain": 4,
    "flap": 2,
    "agents": 1,
    "controller": 1,
    "cables": 1,
    "channels": 3,
    "pause": 1,
    "impostor": 2,
    "files": 1,
    "filter": 2,
    "rules": 1,
    "clock": 3,
}
"""Kinds of faults, with their weights."""
ALONE = frozenset({"channels", "pause", "impostor", "files", "filter", "rules", "clock"})
"""Kinds that happen while nothing else is broken: of them, the oracle says that nothing at all may change."""
PASSING = frozenset({"flap", "pause", "impostor", "files", "filter", "rules"})
"""Kinds that end by themselves."""
MAX_PAUSE_SECONDS = 13

MAX_AT_ONCE = 4
AT_ONCE_SHARE = 0.25


@dataclass(frozen=True)
class Fault:
    """One thing that breaks: ``link a0_0-c0_1``, ``silent a0_0-c0_1>c0_1``, ``switch a0_0``, ``drain c0_0``, ``agents 2``..."""

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

    @classmethod
    def parse(cls, text: str) -> Step:
        """The step that a line of a failing run's report names."""
        step = cls()
        for part in filter(None, (part.strip() for part in text.split(";"))):
            kind, _, what = part[1:].partition(" ")
            {"+": step.begin, "-": step.heal}[part[0]].append(Fault(kind, what))
        return step


def plan(tree: FatTree, seed: int, faults: int) -> Iterator[Step]:
    """Yield a number of faults, up to `MAX_AT_ONCE` of them at a time, all healed in random order at the end."""
    draw = random.Random(f"{seed} faults")
    active: list[Fault] = []
    begun = 0
    while begun < faults or active:
        step = Step()
        full = len(active) >= MAX_AT_ONCE or any(fault.kind in ALONE for fault in active)
        healing = active and (begun >= faults or full or draw.random() < 0.4)
        if healing:
            count = len(active) if draw.random() < 0.1 else 1
            for _ in range(count):
                step.heal.append(active.pop(draw.randrange(len(active))))
        else:
            count = draw.randrange(2, MAX_AT_ONCE + 1) if draw.random() < AT_ONCE_SHARE else 1
            while len(step.begin) < min(count, MAX_AT_ONCE - len(active), faults - begun):
                fault = _draw(tree, draw)
                if fault not in active and fault not in step.begin and _fits(fault, [*active, *step.begin]):
                    step.begin.append(fault)
                    if fault.kind in ALONE:
                        break
            begun += len(step.begin)
            active += [fault for fault in step.begin if fault.kind not in PASSING]
        yield step


def _draw(tree: FatTree, draw: random.Random) -> Fault:
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    fabric = [tree.name(link) for link in tree.links() if not tree.name(link).startswith("h")]
    link = draw.choice(fabric)
    if kind in ("link", "flap"):
        return Fault(kind, link)
    if kind == "hostlink":
        host = draw.choice(list(tree.hosts()))
        return Fault("link", f"{tree.name(host)}-{tree.name(tree.edge_of(host))}")
    if kind == "silent":
        return Fault(kind, f"{link}>{draw.choice(link.split('-'))}")
    if kind == "switch":
        return Fault(kind, tree.name(draw.choice(list(tree.switches()))))
    if kind == "drain":
        return Fault(kind, draw.choice([link, tree.name(draw.choice(list(tree.switches())))]))
    if kind in ("impostor", "rules"):
        return Fault(kind, tree.name(draw.choice(list(tree.switches()))))
    if kind == "filter":
        return Fault(kind, tree.name(draw.choice(list(tree.hosts()))))
    if kind == "pause":
        return Fault(kind, str(draw.randint(1, MAX_PAUSE_SECONDS)))
    if kind == "channels":
        return Fault(kind, " ".join(map(tree.name, _group(tree, draw))))
    if kind == "agents":
        return Fault(kind, str(draw.randrange(tree.k)))
    if kind == "cables":
        below = draw.choice(list(tree.switches(Level.AGGREGATION)))
        first, second = draw.sample(range(tree.half), 2) if tree.half > 1 else (0, 0)
        name = tree.name(below)
        return Fault(kind, " ".join(f"{name}-{tree.name(tree.uplink(below, index))}" for index in (first, second)))
    return Fault(kind)


def _group(tree: FatTree, draw: random.Random) -> list[Switch]:
    """Return one switch, a pod's, all core switches, some, or all."""
    switches = list(tree.switches())
    pod = draw.randrange(tree.k)
    return draw.choice(
        (
            [draw.choice(switches)],
            [switch for switch in switches if switch.level is not Level.CORE and switch.pod == pod],
            list(tree.switches(Level.CORE)),
            sorted(draw.sample(switches, draw.randint(2, len(switches)))),
            switches,
        )
    )


def _fits(fault: Fault, others: Sequence[Fault]) -> bool:
    """Return True if a fault can be distinguished from the others.

    A link that is down does not flap, and cables are exchanged only where nothing else is broken.
    """
    if fault.kind in ("flap", "link") and any(
        other.kind in ("flap", "link") and other.what == fault.what for other in others
    ):
        return False
    if others and fault.kind in ALONE:
        return False
    touching = [fault, *others]
    cables = [one for one in touching if one.kind == "cables"]
    for one in cables:
        ends = {end for link in one.what.split() for end in link.split("-")}
        for other in touching:
            if other is one or other.kind not in ("link", "silent", "switch", "flap", "cables"):
                continue
            if ends & set(other.what.replace(">", "-").replace(" ", "-").split("-")):
                return False
    return True
