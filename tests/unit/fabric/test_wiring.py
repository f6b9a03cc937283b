"""Wiring: which cables count as wrong, for how long, and the report about them."""

import pytest

from sopa_ryu.fabric.messages import Heard
from sopa_ryu.fabric.wiring import Wiring
from tests.helpers.golden import Script, Step, each_script
from tests.models.reports import End
from topologies import FatTree, Level, Switch


class Fabric:
    """A wiring with a patience of 10 s, and the fabric that it watches: probes run along the cables that are really there."""

    def __init__(self) -> None:
        self.tree, self.now, self.cables = FatTree(4), 0.0, dict[End, End]()
        self.wiring = Wiring(self.tree, 10.0)
        for lower, upper in self.tree.switch_links():
            ends = (lower, self.tree.port(lower, upper)), (upper, self.tree.port(upper, lower))
            self.cables |= dict([ends, ends[::-1]])

    def handle(self, step: Step) -> str:
        """Carry out a step at second ``now``; tell what has changed of the links that are miswired."""
        options = dict(step.options)
        self.now = float(options.pop("now", self.now))
        before = self.wiring.miswired
        said = getattr(self, f"do_{step.command}")(*step.words, **options)
        if isinstance(said, str):
            return said
        after = self.wiring.miswired
        assert said == (before != after)
        healed = [f"{link}: no longer miswired" for link in before if link not in after]
        return "\n".join([*(f"{link}: {said}" for link, said in after.items() if before.get(link) != said), *healed])

    def do_exchange(self, *plugs: str) -> bool:
        """Exchange the plugs in two ports; no probe tells so yet."""
        one, other = map(self._end, plugs)
        places = {one: other, other: one}
        self.cables = {places.get(here, here): places.get(there, there) for here, there in self.cables.items()}
        return False

    def do_forget(self, name: str, *port: str) -> bool:
        return self.wiring.forget(self.tree.switch(name), *map(int, port))

    def do_round(self, but: str = "") -> bool:
        """Have a probe arrive at all ends ``but`` some."""
        deaf = set(map(self._end, _names(but)))
        return max([self._hear(at, sender) for at, sender in self.cables.items() if at not in deaf])

    def do_hear(self, at: str, who: str = "", device: str = "", dpid: str = "", port: str = "1") -> bool:
        """Have a probe of an end, of a datapath's port, or LLDP of a device arrive at a port."""
        if who:
            return self._hear(self._end(at), self._end(who))
        heard = Heard(int(dpid, 16), None if port == "none" else int(port), "") if dpid else Heard(None, None, device)
        return self.wiring.heard(*self._end(at), heard, self.now)

    def do_report(self, down: str = "", absent: str = "", late: str = "") -> str:
        """Report when all switches but those in ``absent`` have been connected since second 0, and the ``late`` for 5 s."""
        since = dict.fromkeys(self.tree.switches(), 0.0) | {self.tree.switch(name): self.now - 5.0 for name in _names(late)}
        for name in _names(absent):
            del since[self.tree.switch(name)]
        found = self.wiring.report(dict.fromkeys(_names(down), "down"), since, self.now)
        counts = [f"{name} {found[name]}" for name in ("links", "right", "unchecked", "refused")]
        problems = [f"{its['kind']} {its['link']}: {its['detail']}" for its in found["problems"]]
        others = [f"also heard at {its['at']}: {its['who']}" for its in found["also_heard"]]
        return "\n".join([", ".join([*counts, f"problems {len(problems)}"]), *problems[:4], *others])

    def _end(self, text: str) -> End:
        name, port = text.split(":")
        return self.tree.switch(name), int(port)

    def _hear(self, at: End, sent_from: End) -> bool:
        return self.wiring.heard(*at, Heard(self.tree.dpid(sent_from[0]), sent_from[1], ""), self.now)


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
