"""Wiring: which cables count as wrong, for how long, and the report about them."""

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.fabric.wiring import Wiring
from tests.helpers.golden import Script, Step, each_script
from topologies import FatTree, Level, Switch

PATIENCE = 10.0

End = tuple[Switch, int]


def cables(tree: FatTree) -> list[tuple[End, End]]:
    """The ends of the links between switches as planned, in the tree's order, the lower end first."""
    return [((a, tree.port(a, b)), (b, tree.port(b, a))) for a, b in tree.switch_links() if isinstance(a, Switch)]


class Fabric:
    """A wiring with a patience of 10 s, and the fabric that it watches: probes run along the cables that are really there."""

    def __init__(self, k: int = 4) -> None:
        self.tree = FatTree(k)
        self.wiring = Wiring(self.tree, PATIENCE)
        self.cables = cables(self.tree)
        self.now = 0.0

    def end(self, text: str) -> End:
        name, port = text.split(":")
        return self.tree.switch(name), int(port)

    def hear(self, at: End, sent_from: End) -> bool:
        return self.wiring.heard(*at, Heard(self.tree.dpid(sent_from[0]), sent_from[1], ""), self.now)

    def round(self, deaf: Iterable[End] = ()) -> bool:
        pairs = [pair for a, b in self.cables for pair in ((a, b), (b, a)) if pair[0] not in deaf]
        return max([self.hear(at, sender) for at, sender in pairs])

    def report(self, down: Iterable[str] = (), absent: Iterable[str] = (), late: Iterable[str] = ()) -> dict[str, Any]:
        """The report when all switches but those in ``absent`` have been connected since second 0, and the ``late`` for 5 s."""
        connected = set(self.tree.switches()) - {self.tree.switch(name) for name in absent}
        since = dict.fromkeys(connected, 0.0) | {self.tree.switch(name): self.now - 5.0 for name in late}
        return self.wiring.report(dict.fromkeys(down, "down"), since, self.now)

    def handle(self, step: Step) -> str:
        """Carry out a step at second ``now``; tell what has changed of the links that are miswired."""
        options = dict(step.options)
        self.now = float(options.pop("now", self.now))
        before = self.wiring.miswired
        if step.command == "report":
            return "\n".join(self._reported(**options))
        words: dict[str, Callable[[], bool]] = {
            "exchange": lambda: self._exchange(*step.words),
            "forget": lambda: self.wiring.forget(self.tree.switch(step.words[0]), *map(int, step.words[1:])),
            "hear": lambda: self._hear(*step.words, **options),
            "round": lambda: self.round([self.end(text) for text in _names(options.get("but", ""))]),
        }
        changed, after = words[step.command](), self.wiring.miswired
        assert changed == (before != after)
        healed = [f"{link}: no longer miswired" for link in before if link not in after]
        return "\n".join([*(f"{link}: {said}" for link, said in after.items() if before.get(link) != said), *healed])

    def _exchange(self, one: str, other: str) -> bool:
        """Exchange the plugs in two ports; no probe tells so yet."""
        places = {self.end(one): self.end(other), self.end(other): self.end(one)}
        self.cables = [(places.get(a, a), places.get(b, b)) for a, b in self.cables]
        return False

    def _hear(self, at: str, who: str = "", device: str = "", dpid: str = "", port: str = "1") -> bool:
        """A probe of an end, of a datapath's port, or LLDP of a device arrives at a port."""
        if dpid:
            return self.wiring.heard(*self.end(at), Heard(int(dpid, 16), int(port) if port != "none" else None, ""), self.now)
        device_frame = Heard(None, None, device)
        return self.hear(self.end(at), self.end(who)) if who else self.wiring.heard(*self.end(at), device_frame, self.now)

    def _reported(self, **options: str) -> Iterable[str]:
        found = self.report(*(_names(options.get(name, "")) for name in ("down", "absent", "late")))
        counts = [f"{name} {found[name]}" for name in ("links", "right", "unchecked", "refused")]
        problems = [f"{its['kind']} {its['link']}: {its['detail']}" for its in found["problems"]]
        yield ", ".join([*counts, f"problems {len(problems)}"])
        yield from problems[:4]
        yield from (f"also heard at {its['at']}: {its['who']}" for its in found["also_heard"])


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


@each_script(__file__, "wiring")
def test_script(script: Script) -> None:
    script.play(Fabric().handle)


@pytest.mark.parametrize("port", [1, 2, 0, -1, 5, 0xFFFFFFFE])
def test_a_probe_at_a_host_port_or_at_none_is_ignored(port: int) -> None:
    wiring, edge = Fabric().wiring, Switch(Level.EDGE, 0, 0)
    assert not wiring.heard(edge, port, Heard(0x030000, 1, ""), 0.0)
    assert not wiring.heard(edge, port, Heard(None, None, "a host's lldpd"), 0.0)
    assert not wiring.forget(edge, port)
    assert not wiring.heard(Switch(Level.CORE, 7, 7), 1, Heard(0x020001, 3, ""), 0.0)  # of another fat-tree
    assert (wiring.miswired, wiring.refused) == ({}, 0)


@pytest.mark.parametrize(("k", "seed"), [(k, seed) for k in (2, 4, 6) for seed in range(4)])
def test_exactly_the_links_that_hear_a_wrong_neighbour_are_miswired(k: int, seed: int) -> None:
    rng, fabric = random.Random(f"{k} {seed}"), Fabric(k)
    names = [fabric.tree.name(link) for link in fabric.tree.switch_links()]
    planned_cables = fabric.cables
    planned = dict(planned_cables) | {b: a for a, b in planned_cables}

    def all_are_right() -> None:
        fabric.round()
        assert (fabric.wiring.miswired, fabric.report()["right"]) == ({}, len(names))

    all_are_right()
    moved = rng.sample(list(planned), rng.randrange(len(planned) + 1))
    places = dict(zip(moved, rng.sample(moved, len(moved)), strict=True))
    cut = set(rng.sample(range(len(names)), rng.randrange(min(4, len(names)))))
    exchanged = [(places.get(a, a), places.get(b, b)) for a, b in planned_cables]
    fabric.cables = [cable for number, cable in enumerate(exchanged) if number not in cut]
    real = dict(fabric.cables) | {b: a for a, b in fabric.cables}
    wrong = {end for end in real if real[end] != planned[end]}
    fabric.now = 100.0
    fabric.round()
    expected = [name for name, ends in zip(names, planned_cables, strict=True) if not wrong.isdisjoint(ends)]
    assert (list(fabric.wiring.miswired), fabric.wiring.refused) == (expected, len(expected))

    absent = rng.sample([fabric.tree.name(switch) for switch in fabric.tree.switches()], rng.randrange(3))
    report = fabric.report(rng.sample(names, rng.randrange(min(3, len(names)))), absent)
    problems = {problem["link"]: problem["kind"] for problem in report["problems"]}
    assert report["links"] == len(names) == report["right"] + report["unchecked"] + len(report["problems"])
    assert list(problems) == [name for name in names if name in problems]
    assert [name for name, kind in problems.items() if kind != "missing"] == expected
    assert set(problems.values()) <= {"swapped", "missing"}

    for switch in fabric.tree.switches():
        fabric.wiring.forget(switch)
    fabric.cables, fabric.now = planned_cables, 101.0
    all_are_right()
