"""The words of the scripts in `tests/unit/fabric/scripts`: what happens to a fabric in memory, and what the controller makes of it.

After each word everything happens that can without time passing, but for what is held. The output is what has changed for an
operator since the word before. `MemoryFabric` checks every message and effect meanwhile, and `rest` the whole.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TypeVar

from flowrules.model import Flow, Table
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import UNKNOWN_INSTRUCTIONS, AddFlow, Heard, Installed, InstalledState, SendProbe
from tests.helpers.golden import Step
from tests.models.memory_fabric import MemoryFabric
from tests.models.memory_switch import Channel, MemorySwitch, place_of
from topologies import Clos, Level, Switch
from topologies.failures import Reason

Key = TypeVar("Key")
TROUBLES = {"up": None, "down": Reason.DOWN, "silent": Reason.SILENT}
FOREIGN = Flow(Table.DOWN, 77, (), "another application's")


class World:
    """A k=4 fat-tree in memory that has settled, unless a script begins with ``fabric``."""

    def __init__(self, logged: Callable[[], list[str]]) -> None:
        self._logged, self._told = logged, 0
        self._fabric: MemoryFabric | None = None
        self._impostor: Channel | None = None
        self._master: Channel | None = None
        self._read: dict[Switch, InstalledState] = {}

    def handle(self, step: Step) -> str:
        if step.command == "fabric":
            self._make(int(step.options.pop("k", "4")), **{name: float(its) for name, its in step.options.items()})
            return ""
        if self._fabric is None:
            self._make(4)
            self.connect("all")
            self.advance("1")
            self._news()
            self._handled(self.fabric.switches)
        found = getattr(self, step.command)(*step.words, **step.options)
        self.fabric.settle()
        return "\n".join([*(found or ()), *self._news()])

    def _make(self, k: int, **options: float) -> None:
        self._fabric = MemoryFabric(k, **options)
        self._seen: dict[str, object] = {}
        self._news()

    @property
    def fabric(self) -> MemoryFabric:
        assert self._fabric is not None
        return self._fabric

    def _news(self) -> list[str]:
        state, news = self.fabric.state, []
        if self._changed("settled", state.settled):
            news.append("settled" if state.settled else "not settled")
        known = self._seen.get("version", 1)
        for change in state.changes:
            if change.version > known:  # type: ignore[operator]
                parts = [f"{name} {reason}" for name, reason in change.failed.items()]
                parts += [f"{name} back" for name in change.healed]
                news.append(f"version {change.version}: {_some(parts)}")
        self._seen["version"] = state.version
        if confirmed := self.fabric.run.in_force[self._seen.get("in force", 0) :]:  # type: ignore[misc]
            news.append(f"in force: {', '.join(map(str, confirmed))}")
        self._seen["in force"] = len(self.fabric.run.in_force)
        former, rejected = self._seen.get("rejected", {}), dict(state.rejected)
        assert isinstance(former, dict)
        news += [f"rejected: {why}" for dpid, why in rejected.items() if former.get(dpid) != why]
        news += [f"no longer rejected: {former[dpid].split(':')[0]}" for dpid in former if dpid not in rejected]
        self._seen["rejected"] = rejected
        without = [self.fabric.tree.name(switch) for switch in state.no_channel]
        if self._changed("without", without):
            news.append(f"without a channel: {_some(without) or 'none'}")
        fault, deposed = state.management.in_grace, self.fabric.core.is_deposed
        if self._changed("fault", fault):
            news.append("management fault" if fault else "management fault is over")
        if self._changed("deposed", deposed):
            news.append("deposed" if deposed else "not deposed")
        return news

    def _changed(self, what: str, value: object) -> bool:
        before = self._seen.get(what)
        self._seen[what] = value
        return bool(value if before is None else value != before)

    def advance(self, seconds: str) -> None:
        self.fabric.advance(float(seconds))

    def rest(self) -> None:
        """Lift all limits of answers and time, and check everything against what is really there."""
        self.fabric.rest()

    def restart_controller(self) -> None:
        self.fabric.restart_controller()
        self._seen.clear()
        self._seen.update(version=1, rejected={})
        self._handled(self.fabric.switches)

    def stand_still(self, seconds: str, *names: str) -> None:
        """Stop the controller for a while; switches close their connections meanwhile."""
        self.fabric.stand_still(float(seconds), self._switches(names))

    def drain(self, *names: str) -> None:
        for name in names:
            self.fabric.drain(name)

    def restore(self, *names: str) -> None:
        for name in names:
            self.fabric.drain(name, False)

    def connect(self, *names: str, hold: str = "") -> None:
        """Connect switches; ``all`` that are not connected, or ``all but`` some."""
        if names == ("all",):
            self.fabric.connect_all()
            return
        for switch in self._switches(names):
            channel = self.fabric.connect(switch)
            channel.holds_messages = hold == "messages"

    def lose(self, *names: str) -> None:
        for switch in self._switches(names):
            self.fabric.disconnect(switch)

    def notice(self) -> None:
        """Have the controller notice the connections that others have replaced."""
        self.fabric.notice_lost()

    def hold(self, name: str, what: str) -> None:
        """Hold ``messages`` to a switch, or its ``answers``, or ``nothing`` any more."""
        for switch in self._switches([name]):
            channel = self._channel(switch)
            channel.holds_messages, channel.holds_answers = what == "messages", what == "answers"

    def stranger(self, dpid: str) -> list[str]:
        """Connect a switch that is none of the fabric."""
        device = self.fabric.connect_stranger(int(dpid, 16))
        self.fabric.settle()
        return [] if not device.handled else ["it is sent something"]

    def impostor(self, name: str, what: str = "") -> list[str]:
        """Connect a device with a switch's datapath id, which reports that port 3 is silent; or have it leave."""
        if what == "leaves":
            assert self._impostor is not None
            self._impostor.close()
            self.fabric.observe(self.fabric.core.switch_disconnected, self._impostor)
            return []
        self._impostor = self.fabric.connect_impostor(self._switch(name))
        self._impostor.switch.set_port(3, Reason.SILENT)
        return []

    def contests(self) -> list[str]:
        """Tell how many second connections were closed, how many have taken over, and what became of the last impostor."""
        decided, evil = self.fabric.core.switches.contests.decided, self._impostor
        found = [f"closed {decided['older']}, taken over {decided['newer']}"]
        if evil is not None:
            sent = "something" if evil.switch.handled else "nothing"
            found.append(f"impostor {'open' if evil.is_open else 'closed'}, sent {sent}")
        return found

    def port(self, name: str, *words: str) -> None:
        """Change a port, or several one after the other: ``a0_0 3 down``, ``a0_0 3 down 3 up``."""
        device = self._device(name)
        for port, what in zip(words[::2], words[1::2], strict=True):
            if what == "gone":
                device.remove_port(int(port))
            else:
                device.set_port(int(port), TROUBLES[what])

    def link(self, name: str, what: str) -> None:
        """Change both ends of a link at one time."""
        link = self.fabric.tree.link_by_name(name)
        for here, there in (link, link[::-1]):
            if isinstance(here, Switch):
                self.fabric.switches[here].set_port(self.fabric.tree.port(here, there), TROUBLES[what])

    def links_of(self, name: str, what: str, but: str = "") -> list[str]:
        """Change the links of a switch to others, one after the other; ``but`` the last."""
        for link in self._links(name)[: -1 if but == "last" else None]:
            self.link(link, what)
            self.fabric.settle()
        return []

    def restart(self, name: str) -> None:
        self.fabric.restart_switch(self._switch(name))

    def dies(self, name: str) -> None:
        """Report at one moment that all links of a switch are down and its connection is gone."""
        fabric, dead = self.fabric, self._switch(name)

        def reports() -> Iterator[Callable[[], Effects]]:
            core, now = fabric.core, fabric.now
            for neighbour in fabric.tree.ports(dead).values():
                if isinstance(neighbour, Switch):
                    port = fabric.tree.port(neighbour, dead)
                    yield partial(core.port_status, self._channel(neighbour), port, Reason.DOWN, now)
            yield partial(core.switch_disconnected, self._channel(dead), now)

        fabric._carry_out(fabric.core.together(reports(), fabric.now))

    def exchange(self, one: str, other: str) -> None:
        """Exchange the plugs in two ports, written as ``a0_0:3``; the ports go down and come up."""
        ends = [(self._switch(name), int(port)) for name, port in (one.split(":"), other.split(":"))]
        for switch, port in ends:
            self.fabric.switches[switch].set_port(port, Reason.DOWN)
        self.fabric.swap(*ends)
        for switch, port in ends:
            self.fabric.switches[switch].set_port(port, None)

    def learn(self, name: str, port: str) -> list[str]:
        """Have a host behind a port send an ARP request with another Ethernet address than planned."""
        return ["learned" if self._device(name).learn(int(port)) else "not learned"]

    def limit(self, name: str, entries: str = "") -> None:
        """Limit a switch's tables to so many entries, or no longer."""
        device = self._device(name)
        device.limits = dict.fromkeys(Table, int(entries)) if entries else {}

    def frame(self, at: str, *words: str, dpid: str = "", port: str = "1") -> None:
        """Have a switch hear a datapath's LLDP at a port (``a0_0:3``), or ``all`` at all ports a device's that calls itself so."""
        probe = Heard(int(dpid, 16), int(port), "") if dpid else Heard(None, None, " ".join(words))
        for end in _ends(self.fabric.tree, at):
            self.fabric.observe(self.fabric.core.probe_heard, self._channel(end[0]), end[1], probe)

    def tamper(self, name: str, what: str) -> None:
        """Have another program change a switch's rules: ``instructions``, ``missing``, ``foreign`` or ``group``."""
        device = self._device(name)
        place, entry = next((place, its) for place, its in device.entries.items() if its.installed.priority == 40)
        if what == "instructions":
            device.entries[place] = entry._replace(installed=entry.installed._replace(does=UNKNOWN_INSTRUCTIONS))
        elif what == "missing":
            del device.entries[place]
        elif what == "foreign":
            foreign = Installed(0, 99, 0x1234, (), UNKNOWN_INSTRUCTIONS)
            device.entries[place_of(foreign)] = entry._replace(installed=foreign)
        else:
            device.groups[1] = device.groups[1]._replace(buckets=device.groups[1].buckets[:1])

    def read(self, name: str) -> None:
        self._read[self._switch(name)] = self._device(name).installed()

    def check(self, name: str, what: str = "") -> list[str]:
        """Hand the core a switch's rules, or those that were read before; tell what it mends."""
        fabric, switch = self.fabric, self._switch(name)
        fabric.check_rules(switch, self._read[switch] if what == "read" else None)
        session = fabric.session(switch)
        mends = session.is_to_mend
        fabric.settle()
        found = fabric.switches[switch].installed()
        assert not mends or not fabric.core.installed(session, found, fabric.now).due, "what was put right is not right"
        return [f"to mend: {'yes' if mends else 'no'}, mended {session.sent.mended} times"]

    def take(self, *names: str) -> None:
        """Have a later controller become the master of switches, and change a rule."""
        for switch in self._switches(names):
            self._master = self.fabric.take(switch)
            self.fabric.switches[switch].handle(self._master, AddFlow(FOREIGN, 1))
        self._handled(self.fabric.switches)

    def leave(self) -> None:
        assert self._master is not None
        self._master.close()

    def generation(self, *names: str, ahead: str = "") -> list[str]:
        """Let switches know a generation id that is ahead of this controller's epoch, or tell which one they know."""
        devices = [self.fabric.switches[switch] for switch in self._switches(names)]
        if not ahead:
            return [f"{its.generation}" for its in devices]
        for device in devices:
            device.generation = (self.fabric.epoch + int(ahead)) % (1 << 64)
        return []

    def show(self, *names: str) -> list[str]:
        """Tell a switch's phase and version; without one, whatever lasts."""
        if names:
            sessions = [self.fabric.session(switch) for switch in self._switches(names)]
            phases = {its.name: its.phase.name.lower().replace("_", " ") for its in sessions}
            return [f"{its.name}: {phases[its.name]}, version {its.version}" for its in sessions]
        state, tree = self.fabric.state, self.fabric.tree
        missing = [tree.name(switch) for switch in tree.switches() if switch not in state.connected]
        held = {its["name"]: its["held_seconds"] for its in state.failure_list(self.fabric.now)}
        failed = [
            f"{its} {why}" + (f" for {held[its]:g} s more" if held[its] else "") for its, why in state.failures.items()
        ]
        report = state.fabric()["management"]
        faults = [f"{report['channels_faults']} faults of channels, {report['pauses_faults']} pauses", report["detail"]]
        return [
            f"version {state.version}: {_some(failed)}",
            f"connected: {len(state.connected)} of {tree.switch_count}; missing: {_some(missing)}",
            "; ".join(filter(None, faults)),
        ]

    def versions(self) -> list[str]:
        """Tell which version the rules of each switch are of."""
        sessions = [(its.version, its.name) for its in self.fabric.core.switches.sessions.values()]
        return [f"{version}: {_some(names)}" for version, names in _grouped(sessions)]

    def agents(self) -> list[str]:
        """Tell what agents have in force, and whether the last changes were acknowledged."""
        found = [f"agents have version {view.version}" for view in self.fabric.agents.values() if view is not None]
        for change in self.fabric.state.changes:
            found.append(f"{change.version} acknowledged by {change.agents} after {change.acknowledged_ms} ms")
        return found

    def messages(self, *names: str) -> list[str]:
        """Tell what switches were sent since the last time; without names, which ones were sent more than probes."""
        if names:
            return [
                f"{name}: {_some(_runs(kinds), 99)}" for name, kinds in self._handled(self._switches(names)).items()
            ]
        asked = self._handled(self.fabric.switches).items()
        return [_some([name for name, kinds in asked if not all(kind.startswith("SendProbe") for kind in kinds)])]

    def probes(self) -> list[str]:
        """Tell by which ports which switches were told to send probes since the last time."""
        handled = self._handled(self.fabric.switches).items()
        sent = [
            (" ".join(kind[10:] for kind in kinds if kind.startswith("SendProbe ")), name) for name, kinds in handled
        ]
        return [f"{_some(names)}: {ports}" for ports, names in _grouped(sent) if ports]

    def log(self, words: str) -> list[str]:
        """Tell what was logged with these words since the last time."""
        messages = self._logged()
        found = [line for line in messages[self._told :] if words in line]
        self._told = len(messages)
        return [*found[:8], *([f"and {len(found) - 8} more"] if len(found) > 8 else ())]

    def drops(self) -> list[str]:
        """Tell which edge switches drop packets because no path is left."""
        dropping = {
            switch
            for switch, device in self.fabric.switches.items()
            if any(flow.purpose == "no way left: drop" for flow in device.flows())
        }
        return [
            _some(
                [
                    self.fabric.tree.name(switch)
                    for switch in self.fabric.tree.switches(Level.EDGE)
                    if switch in dropping
                ]
            )
        ]

    def _switch(self, name: str) -> Switch:
        return self.fabric.tree.switch(name)

    def _device(self, name: str) -> MemorySwitch:
        return self.fabric.switches[self._switch(name)]

    def _switches(self, names: Iterable[str]) -> list[Switch]:
        """Return the switches of that name; ``all``, those ``but`` some, or of a pod (``pod1``) or above all (``cores``)."""
        every, found, tree = list(self.fabric.switches), [], self.fabric.tree
        names = list(names)
        for name in names[: names.index("but")] if "but" in names else names:
            if name == "all":
                found += every
            elif name == "cores":
                found += tree.switches(Level.CORE)
            elif name.startswith("pod"):
                found += [switch for switch in every if switch.level is not Level.CORE and switch.pod == int(name[3:])]
            else:
                found.append(tree.switch(name))
        but = self._switches(names[names.index("but") + 1 :]) if "but" in names else []
        return [switch for switch in found if switch not in but]

    def _channel(self, switch: Switch) -> Channel:
        channel = self.fabric.channel(switch)
        assert channel is not None
        return channel

    def _links(self, name: str) -> list[str]:
        tree, switch = self.fabric.tree, self._switch(name)
        return [tree.name(tree.link(switch, far)) for far in tree.ports(switch).values() if isinstance(far, Switch)]

    def _handled(self, switches: Iterable[Switch]) -> dict[str, list[str]]:
        """Return what switches were sent since the last time, by their names."""
        found = {}
        for switch in switches:
            handled = self.fabric.switches[switch].handled
            if handled:
                found[self.fabric.tree.name(switch)] = [
                    f"SendProbe {its.port}" if isinstance(its, SendProbe) else type(its).__name__ for _, its in handled
                ]
            handled.clear()
        return found


def _ends(tree: Clos, text: str) -> Iterator[tuple[Switch, int]]:
    if text == "all":
        yield from ((switch, port) for switch in tree.switches() for port in tree.ports(switch))
    else:
        name, port = text.split(":")
        yield tree.switch(name), int(port)


def _some(parts: list[str], most: int = 8) -> str:
    """Return a short list of anything."""
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return (", ".join(parts[:most]) + more) or "nothing"


def _runs(kinds: Iterable[str]) -> list[str]:
    """Return what comes several times in a row once, with how often."""
    counted = [(kind, len(list(its))) for kind, its in groupby(kinds)]
    return [kind if number == 1 else f"{kind} x{number}" for kind, number in counted]


def _grouped(pairs: Iterable[tuple[Key, str]]) -> list[tuple[Key, list[str]]]:
    """Return each value with the names that have it, in the order in which values come first."""
    found: dict[Key, list[str]] = {}
    for value, name in pairs:
        found.setdefault(value, []).append(name)
    return list(found.items())
