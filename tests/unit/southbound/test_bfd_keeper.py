"""The BFD keeper with databases in memory and a virtual clock: when it enables BFD, where, and what it says of it, as scripts."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.southbound import bfd as bfd_module
from sopa_ryu.southbound import bfd_keeper as keeper_module
from sopa_ryu.southbound.bfd_keeper import BfdKeeper
from sopa_ryu.southbound.connection import Connection
from tests.helpers.golden import Script, Step, each_script
from tests.models.green_time import GreenTime
from tests.models.memory_ovsdb import End, MemoryOvsdb
from tests.models.memory_switch import Channel, MemorySwitch
from topologies import Clos, FatTree, Reason, Switch
from topologies import ovsdb as client

TREE = FatTree(4)
OWN = "tcp:*:6640"


class World:
    """The words of the scripts: a settled fabric, a k=4 fat-tree unless ``fabric`` says otherwise, its databases, and a keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, logged: Callable[[], list[str]]) -> None:
        self._patch = monkeypatch.setattr
        self._logged = logged
        self._said: object = None
        self.start()

    def start(self, addresses: Sequence[str] = (OWN,), tree: Clos = TREE) -> None:
        self.tree = tree
        self._told = len(self._logged())
        self.commands = True
        self.before_each_step: Callable[[], None] = lambda: None
        self.state = FabricState(tree, epoch=1)
        self.connections: dict[Switch, Channel] = {}
        self.ovsdb = MemoryOvsdb(tree, self.address)
        self._troubles: dict[End, Reason | None] = {}
        for switch in tree.switches():
            self.connect(switch)
        self.state.settle(0)
        self.clock = GreenTime(self._report)
        self._patch(keeper_module, "hub", self.clock)
        self._patch(keeper_module, "time", self.clock)
        self._patch(client, "transact", self.ovsdb.transact)
        connections = cast(Mapping[Switch, Connection], self.connections)
        self.keeper = BfdKeeper(self.state, connections, addresses, may_change=self._commands)
        self.clock.spawn(self.keeper.watch)

    def _report(self) -> None:
        self.ovsdb.now = self.clock.now
        for end in self.ovsdb.fabric_ends():
            trouble = self.ovsdb.trouble(end)
            if self._troubles.get(end) is not trouble:
                self._troubles[end] = trouble
                self.state.port_changed(*end, trouble, self.clock.now)

    def _commands(self) -> bool:
        self.before_each_step()
        return self.commands

    def host(self, switch: Switch) -> str:
        return f"192.0.2.{list(self.tree.switches()).index(switch) + 1}"

    def connect(self, switch: Switch, host: str | None = None) -> None:
        self.connections[switch] = MemorySwitch(self.tree.dpid(switch), {}).connect(host or self.host(switch))
        self.state.switch_heard(switch, {}, 0)
        self.state.switch_ready(switch, 0)

    def address(self, switch: Switch) -> str:
        return f"tcp:{self.host(switch)}:6640"

    def handle(self, step: Step) -> str:
        """Do as told; tell what the keeper says if it is something else than before, and what it has logged."""
        told = list(self._told_by(step))
        bfd, messages = self.state.bfd, self._logged()
        if bfd != self._said:
            told.append(f"{'on' if bfd['enabled'] else 'off'}: {bfd['detail']}")
        told += [f"log: {line}" for line in messages[self._told :]]
        self._said, self._told = dict(bfd), len(messages)
        return "\n".join(told)

    def _told_by(self, step: Step) -> Iterator[str]:
        tree, ovsdb = self.tree, self.ovsdb
        match step.command, step.words:
            case "fabric", []:  # whose keeper has these addresses of databases
                addresses = step.options.pop("addresses", OWN).split()
                numbers = {name: int(value) for name, value in step.options.items()}
                self.start(addresses, Clos(**numbers) if numbers else TREE)
            case "look", []:  # a switch has connected
                self.keeper.look()
            case "run", [seconds]:  # tell at how many ends BFD was enabled meanwhile, and after how many seconds
                begin, before = self.clock.now, set(ovsdb.enabled_at)
                self.clock.run(float(seconds))
                times = Counter(round(at - begin, 2) for end, at in ovsdb.enabled_at.items() if end not in before)
                yield from (f"enabled at {count} ends after {at:g} s" for at, count in sorted(times.items()))
                yield from [f"failed: {', '.join(self.state.failures)}"] * bool(self.state.failures)
            case "uplinks", []:  # which uplinks' ends have BFD, by when it was enabled
                found: dict[float, set[int]] = {}
                for (switch, port), at in ovsdb.enabled_at.items():
                    found.setdefault(at, set()).add(max(switch, tree.neighbour(switch, port)).index)  # type: ignore[type-var,union-attr]
                yield from (f"uplinks {sorted(its)}" for _, its in sorted(found.items()))
            case "asked", []:
                yield f"{len(ovsdb.transactions)} transactions"
            case "settings", [text]:  # set those of an interface, or tell them
                [place] = self._ends(tree, [text])
                if step.options:
                    ovsdb.bfd[place] = step.options
                    if step.options["enable"] == "true":
                        ovsdb.enabled_at[place] = 0.0
                else:
                    yield " ".join(f"{key}={value}" for key, value in sorted(ovsdb.bfd[place].items()))
            case "broken", ends:  # BFD hears nothing at these ports, and at all others as usual
                ovsdb.broken = set(self._ends(tree, ends))
            case "silent", names:  # the databases of these switches, and no others
                ovsdb.refusing = {self.address(tree.switch(name)) for name in names}
            case "lists", [name, *others]:  # the database of a switch, these bridges besides its own
                ovsdb.more[self.address(tree.switch(name))] = [tree.switch(other) for other in others]
            case "away", [name]:
                del self.connections[tree.switch(name)]
            case "connect", [name]:
                self.connect(tree.switch(name), step.options.get("host"))
            case "settled", [does]:
                self.state.settled = does == "yes"
            case "commands", ["until"]:  # this controller commands the switches until it has enabled BFD somewhere
                self.before_each_step = lambda: setattr(self, "commands", not ovsdb.enabled_at)
            case "commands", [does]:
                self.commands = does == "yes"
            case "another_begins", []:  # to enable BFD at the first uplinks just before this process would
                self.before_each_step = lambda: None if ovsdb.enabled_at else self._begin()
            case _:
                raise ValueError(f"no word of a script: {step}")

    def _begin(self) -> None:
        bfd_module.enable({self.address(switch): {switch} for switch in TREE.switches()}, TREE, 100, uplink=0)
        self.clock.sleep(0.01)  # its switches say so

    @staticmethod
    def _ends(tree: Clos, texts: Iterable[str]) -> list[End]:
        return [(tree.switch(name), int(port)) for name, port in (text.split(":") for text in texts)]


@each_script(__file__, "bfd")
def test_script(script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sopa.bfd"):
        script.play(World(monkeypatch, lambda: caplog.messages).handle)
