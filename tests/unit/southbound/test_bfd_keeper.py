"""The BFD keeper with databases in memory and a virtual clock: when it enables BFD, where, and what it says of it, as scripts."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from sopa_ryu.fabric.state import FabricState
from sopa_ryu.southbound import bfd as bfd_module
from sopa_ryu.southbound import bfd_keeper as keeper_module
from sopa_ryu.southbound.bfd_keeper import BfdKeeper
from sopa_ryu.southbound.connection import Connection
from tests.helpers.golden import Step, play, scripts
from tests.models.green_time import GreenTime
from tests.models.memory_ovsdb import End, MemoryOvsdb
from tests.models.memory_switch import Channel, MemorySwitch
from topologies import Clos, FatTree, Level, Reason, Switch

TREE = FatTree(4)
OWN = ["tcp:*:6640"]


class Bench:
    """A settled fabric whose switches have a database each, and a keeper."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str] = OWN, tree: Clos = TREE) -> None:
        self.tree = tree
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
        monkeypatch.setattr(keeper_module, "hub", self.clock)
        monkeypatch.setattr(keeper_module, "time", self.clock)
        monkeypatch.setattr(bfd_module, "transact", self.ovsdb.transact)
        connections = cast(Mapping[Switch, Connection], self.connections)
        self.keeper = BfdKeeper(self.state, connections, addresses, 100, may_change=self._commands)
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

    def connect(self, switch: Switch) -> None:
        self.connections[switch] = MemorySwitch(self.tree.dpid(switch), {}).connect(self.host(switch))
        self.state.switch_heard(switch, {}, 0)
        self.state.switch_ready(switch, 0)

    def address(self, switch: Switch) -> str:
        return f"tcp:{self.host(switch)}:6640"


class World:
    """The words of the scripts: a settled k=4 fat-tree with a database at each switch, unless ``fabric`` says otherwise."""

    def __init__(self, make: Callable[..., Bench], logged: Callable[[], list[str]]) -> None:
        self._make, self._logged, self._told = make, logged, 0
        self._bench: Bench | None = None
        self._said: object = None

    def handle(self, step: Step) -> str:
        if step.command == "fabric":
            numbers = {name: int(value) for name, value in step.options.items()}
            addresses = [] if "without-databases" in step.words else OWN
            self._bench = self._make(addresses, Clos(**numbers) if numbers else TREE)
        elif self._bench is None:
            self._bench = self._make()
        found = [] if step.command == "fabric" else getattr(self, step.command)(*step.words, **step.options)
        return "\n".join([*(found or ()), *self._news()])

    @property
    def bench(self) -> Bench:
        assert self._bench is not None
        return self._bench

    def _news(self) -> list[str]:
        """What the keeper says if it is something else than before, and what it has logged."""
        bfd, messages = self.bench.state.bfd, self._logged()
        said = [f"{'on' if bfd['enabled'] else 'off'}: {bfd['detail']}"] if bfd != self._said else []
        self._said = dict(bfd)
        new, self._told = messages[self._told :], len(messages)
        return [*said, *(f"log: {line}" for line in new)]

    def look(self) -> None:
        self.bench.keeper.look()

    def run(self, seconds: str) -> list[str]:
        """Let time pass; tell at how many ends BFD was enabled meanwhile, and after how many seconds."""
        bench = self.bench
        begin, before = bench.clock.now, set(bench.ovsdb.enabled_at)
        bench.clock.run(float(seconds))
        times = Counter(round(at - begin, 2) for end, at in bench.ovsdb.enabled_at.items() if end not in before)
        found = [f"enabled at {count} ends after {at:g} s" for at, count in sorted(times.items())]
        return found + [f"failed: {', '.join(bench.state.failures)}"] * bool(bench.state.failures)

    def uplinks(self) -> list[str]:
        """Tell which uplinks' ends have BFD, by when it was enabled."""
        found: dict[float, set[int]] = {}
        for (switch, port), at in self.bench.ovsdb.enabled_at.items():
            neighbour = self.bench.tree.neighbour(switch, port)
            assert isinstance(neighbour, Switch)
            found.setdefault(at, set()).add(max(switch, neighbour).index)
        return [f"uplinks {sorted(its)}" for _, its in sorted(found.items())]

    def asked(self) -> list[str]:
        return [f"{len(self.bench.ovsdb.transactions)} transactions"]

    def settings(self, text: str, **options: str) -> list[str]:
        [place] = self._ends([text])
        if options:
            self.bench.ovsdb.bfd[place] = options
            if options["enable"] == "true":
                self.bench.ovsdb.enabled_at[place] = 0.0
            return []
        return [" ".join(f"{key}={value}" for key, value in sorted(self.bench.ovsdb.bfd[place].items()))]

    def broken(self, *ends: str) -> None:
        self.bench.ovsdb.broken = set(self._ends(ends))

    def _ends(self, texts: Iterable[str]) -> list[End]:
        return [(self.bench.tree.switch(name), int(port)) for name, port in (text.split(":") for text in texts)]

    def silent(self, *names: str) -> None:
        """Let the databases of these switches not answer, and all others."""
        self.bench.ovsdb.refusing = {self.bench.address(self.bench.tree.switch(name)) for name in names}

    def away(self, name: str) -> None:
        del self.bench.connections[self.bench.tree.switch(name)]

    def connect(self, name: str) -> None:
        self.bench.connect(self.bench.tree.switch(name))

    def settled(self, does: str) -> None:
        self.bench.state.settled = does == "yes"

    def commands(self, does: str) -> None:
        """Let this controller command the switches, or not, or ``until`` it has enabled BFD somewhere."""

        def until() -> None:
            self.bench.commands = not self.bench.ovsdb.enabled_at

        self.bench.commands = does == "yes"
        self.bench.before_each_step = until if does == "until" else lambda: None

    def another_begins(self) -> None:
        """Let another process enable BFD at the first uplinks just before this one would."""
        bench = self.bench

        def begun() -> None:
            if not bench.ovsdb.enabled_at:
                bfd_module.enable([bench.address(switch) for switch in TREE.switches()], TREE, 100, uplink=0)
                bench.clock.sleep(0.01)  # its switches say so

        bench.before_each_step = begun


@pytest.mark.parametrize("script", scripts(__file__, "bfd"), ids=lambda path: path.stem)
def test_script(
    script: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sopa.bfd"):
        play(
            script,
            World(partial(Bench, monkeypatch), lambda: caplog.messages).handle,
            record=request.config.option.record,
        )


@pytest.mark.parametrize(
    ("host", "address"), [("192.0.2.7", "ssl:192.0.2.7:6641"), ("2001:db8::7", "ssl:[2001:db8::7]:6641")]
)
def test_an_asterisk_stands_for_each_switchs_address(monkeypatch: pytest.MonkeyPatch, host: str, address: str) -> None:
    bench = Bench(monkeypatch, ["ssl:*:6641", "tcp:198.51.100.1"])
    own = bench.host
    monkeypatch.setattr(bench, "host", lambda switch: host)
    for switch in TREE.switches(Level.CORE):
        bench.connect(switch)
    others = {f"ssl:{own(switch)}:6641" for switch in TREE.switches() if switch.level is not Level.CORE}
    bench.keeper.look()
    bench.clock.run(1.5)
    assert set(bench.ovsdb.transactions) == {address, "tcp:198.51.100.1"} | others
