"""The controller's core with switches in memory: a script for each rule.

After each word everything happens that can without time passing, but for what is held. The output is what has changed for an
operator since the word before. `MemoryFabric` checks every message and effect meanwhile, and `rest` the whole.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby

import pytest

from flowrules.model import Flow, Table
from sopa_ryu.fabric.effects import Effects
from sopa_ryu.fabric.messages import UNKNOWN_INSTRUCTIONS, AddFlow, Heard, Installed, InstalledState, SendProbe
from tests.helpers.golden import Script, Step, each_script
from tests.models.memory_fabric import MemoryFabric
from tests.models.memory_switch import Channel, MemorySwitch, place_of
from tests.models.reports import End
from topologies import Level, Switch
from topologies.failures import Reason

TROUBLES = {"up": None, "down": Reason.DOWN, "silent": Reason.SILENT}
FOREIGN = Flow(Table.DOWN, 77, (), "another application's")
TAMPERED = Installed(0, 99, 0x1234, (), UNKNOWN_INSTRUCTIONS)


class World:
    """A k=4 fat-tree in memory that has settled, unless a script begins with ``fabric``."""

    def __init__(self, logged: Callable[[], list[str]]) -> None:
        self._logged, self._told = logged, 0
        self._seen: dict[str, object] = {}
        self.fabric: MemoryFabric | None = None
        self._impostor: Channel | None = None
        self._master: Channel | None = None
        self._read: dict[Switch, InstalledState] = {}

    def handle(self, step: Step) -> str:
        if step.command == "fabric":
            numbers = {name: float(its) for name, its in step.options.items()}
            self.fabric = MemoryFabric(int(numbers.pop("k", 4)), **numbers)
            list(self._news())
            return ""
        if self.fabric is None:
            self.fabric = MemoryFabric()
            self.fabric.connect_all()
            self.fabric.advance(1.0)
            list(self._news())
            self._handled(self.fabric.switches)
        told = getattr(self, f"_tell_{step.command}", None)
        found = list(told(*step.words)) if told else self._happens(step.command, step.words, step.options)
        self.fabric.settle()
        return "\n".join([*(found or ()), *self._news()])

    def _news(self) -> Iterator[str]:
        state, run = self.fabric.state, self.fabric.run
        if self._changed("settled", state.settled):
            yield "settled" if state.settled else "not settled"
        for change in state.changes:
            if change.version > self._seen.get("version", 1):  # type: ignore[operator]
                failed = [f"{name} {reason}" for name, reason in change.failed.items()]
                yield f"version {change.version}: {_some(failed + [f'{name} back' for name in change.healed])}"
        self._seen["version"] = state.version
        if confirmed := run.in_force[self._seen.get("in force", 0) :]:  # type: ignore[misc]
            yield f"in force: {', '.join(map(str, confirmed))}"
        self._seen["in force"] = len(run.in_force)
        former, rejected = self._seen.get("rejected", {}), dict(state.rejected)
        yield from (f"rejected: {why}" for dpid, why in rejected.items() if former.get(dpid) != why)
        yield from (f"no longer rejected: {former[dpid].split(':')[0]}" for dpid in former if dpid not in rejected)
        self._seen["rejected"] = rejected
        without = [self.fabric.tree.name(switch) for switch in state.no_channel]
        if self._changed("without", without):
            yield f"without a channel: {_some(without)}"
        if self._changed("fault", state.management.in_grace):
            yield "management fault" if state.management.in_grace else "management fault is over"
        if self._changed("deposed", self.fabric.core.is_deposed):
            yield "deposed" if self.fabric.core.is_deposed else "not deposed"

    def _changed(self, what: str, value: object) -> bool:
        before, self._seen[what] = self._seen.get(what), value
        return bool(value if before is None else value != before)

    def _happens(self, command: str, words: list[str], options: dict[str, str]) -> None:
        """Carry out a word that says nothing itself."""
        fabric, tree = self.fabric, self.fabric.tree
        match command, words:
            case "advance", [seconds]:
                fabric.advance(float(seconds))
            case "rest", []:  # lift all limits of answers and time, and check everything against what is really there
                fabric.rest()
            case "restart_controller", []:
                fabric.restart_controller()
                self._seen = {"version": 1, "rejected": {}}
                self._handled(fabric.switches)
            case "stand_still", [seconds, *names]:  # the controller, and switches close their connections meanwhile
                fabric.stand_still(float(seconds), self._switches(names))
            case "drain" | "restore", names:
                for name in names:
                    fabric.drain(name, command == "drain")
            case "connect", ["all"]:  # that are not connected
                fabric.connect_all()
            case "connect", names:
                for switch in self._switches(names):
                    fabric.connect(switch).holds_messages = options.get("hold") == "messages"
            case "lose", names:  # connections, without anything happening to the switches
                for switch in self._switches(names):
                    fabric.disconnect(switch)
            case "notice", []:  # the connections that others have replaced
                fabric.notice_lost()
            case "hold", [name, what]:  # messages to switches, or their answers, or nothing any more
                for switch in self._switches([name]):
                    channel = self.fabric.channel(switch)
                    channel.holds_messages, channel.holds_answers = what == "messages", what == "answers"
            case "stranger", [dpid]:  # a switch connects that is none of the fabric
                fabric.connect_stranger(int(dpid, 16))
            case "impostor", [_, "leaves"]:
                self._impostor.close()
                fabric.observe(fabric.core.switch_disconnected, self._impostor)
            case "impostor", [name]:  # a device with a switch's datapath id, which reports that port 3 is silent
                self._impostor = fabric.connect_impostor(tree.switch(name))
                self._impostor.switch.set_port(3, Reason.SILENT)
            case "port", [name, *changes]:  # one after the other: a0_0 3 down 3 up
                device = self._device(name)
                for port, what in zip(map(int, changes[::2]), changes[1::2], strict=True):
                    device.remove_port(port) if what == "gone" else device.set_port(port, TROUBLES[what])
            case "link", [name, what]:  # both ends at one time
                link = tree.link_by_name(name)
                for here, there in (link, link[::-1]):
                    if isinstance(here, Switch):
                        fabric.switches[here].set_port(tree.port(here, there), TROUBLES[what])
            case "links_of", [name, what]:  # those to other switches, one after the other, but perhaps the last
                switch = tree.switch(name)
                fars = [far for far in tree.ports(switch).values() if isinstance(far, Switch)]
                for far in fars[: -1 if options.get("but") == "last" else None]:
                    self._happens("link", [tree.name(tree.link(switch, far)), what], {})
                    fabric.settle()
            case "restart", [name]:
                fabric.restart_switch(tree.switch(name))
            case "dies", [name]:  # at one moment all links of a switch are reported down, and its connection is gone
                fabric._carry_out(fabric.core.together(self._reports_of_a_death(tree.switch(name)), fabric.now))
            case "exchange", plugs:  # in two ports, a0_0:3 and another; the ports go down and come up
                ends = [end for plug in plugs for end in self._ends(plug)]
                for switch, port in ends:
                    fabric.switches[switch].set_port(port, Reason.DOWN)
                fabric.swap(*ends)
                for switch, port in ends:
                    fabric.switches[switch].set_port(port, None)
            case "limit", [name, *entries]:  # a switch's tables to so many entries, or no longer
                self._device(name).limits = dict.fromkeys(Table, int(entries[0])) if entries else {}
            case "frame", [at, *name]:  # a switch hears a datapath's LLDP at a port, or a device's that calls itself so
                dpid = options.get("dpid")
                device = Heard(None, None, " ".join(name))
                probe = Heard(int(dpid, 16), int(options.get("port", "1")), "") if dpid else device
                for switch, port in self._ends(at):
                    fabric.observe(fabric.core.probe_heard, self.fabric.channel(switch), port, probe)
            case "tamper", [name, what]:  # another program changes a switch's rules
                self._tamper(self._device(name), what)
            case "read", [name]:  # keep what is installed
                self._read[tree.switch(name)] = self._device(name).installed()
            case "take", names:  # a later controller becomes the master, and changes a rule
                for switch in self._switches(names):
                    self._master = fabric.take(switch)
                    fabric.switches[switch].handle(self._master, AddFlow(FOREIGN, 1))
                self._handled(fabric.switches)
            case "leave", []:  # it leaves the switch that it took last
                self._master.close()
            case "ahead", [number, *names]:  # switches know a generation id so far ahead of this controller's epoch
                for switch in self._switches(names):
                    fabric.switches[switch].generation = (fabric.epoch + int(number)) % (1 << 64)
            case _:
                raise ValueError(f"no word of a script: {command} {words}")

    def _reports_of_a_death(self, dead: Switch) -> Iterator[Callable[[], Effects]]:
        core, now, tree = self.fabric.core, self.fabric.now, self.fabric.tree
        for neighbour in tree.ports(dead).values():
            if isinstance(neighbour, Switch):
                port = tree.port(neighbour, dead)
                yield partial(core.port_status, self.fabric.channel(neighbour), port, Reason.DOWN, now)
        yield partial(core.switch_disconnected, self.fabric.channel(dead), now)

    def _tamper(self, device: MemorySwitch, what: str) -> None:
        place, entry = next((place, its) for place, its in device.entries.items() if its.installed.priority == 40)
        match what:
            case "instructions":
                device.entries[place] = entry._replace(installed=entry.installed._replace(does=UNKNOWN_INSTRUCTIONS))
            case "missing":
                del device.entries[place]
            case "foreign":
                device.entries[place_of(TAMPERED)] = entry._replace(installed=TAMPERED)
            case "group":
                device.groups[1] = device.groups[1]._replace(buckets=device.groups[1].buckets[:1])

    def _tell_contests(self) -> Iterator[str]:
        """Tell how many second connections were closed, how many have taken over, and what became of the last impostor."""
        decided, evil = self.fabric.core.switches.contests.decided, self._impostor
        yield f"closed {decided['older']}, taken over {decided['newer']}"
        if evil is not None:
            sent = "something" if evil.switch.handled else "nothing"
            yield f"impostor {'open' if evil.is_open else 'closed'}, sent {sent}"

    def _tell_learn(self, name: str, port: str) -> Iterator[str]:
        """Have a host behind a port send an ARP request with another Ethernet address than planned."""
        yield "learned" if self._device(name).learn(int(port)) else "not learned"

    def _tell_check(self, name: str, what: str = "") -> Iterator[str]:
        """Hand the core a switch's rules, or those that were read before; tell what it mends."""
        fabric, switch = self.fabric, self.fabric.tree.switch(name)
        fabric.check_rules(switch, self._read[switch] if what == "read" else None)
        session = fabric.session(switch)
        mends = session.installation.is_to_mend
        fabric.settle()
        found = fabric.switches[switch].installed()
        assert not mends or not fabric.core.installed(session, found, fabric.now).due, "what was put right is not right"
        yield f"to mend: {'yes' if mends else 'no'}, mended {session.sent.mended} times"

    def _tell_generation(self, *names: str) -> Iterator[str]:
        yield from (f"{self.fabric.switches[switch].generation}" for switch in self._switches(names))

    def _tell_show(self, *names: str) -> Iterator[str]:
        """Tell a switch's phase and version; without one, whatever lasts."""
        for its in map(self.fabric.session, self._switches(names)):
            yield f"{its.name}: {its.phase.name.lower().replace('_', ' ')}, version {its.version}"
        if names:
            return
        state, tree = self.fabric.state, self.fabric.tree
        held = {its["name"]: its["held_seconds"] for its in state.failure_list(self.fabric.now)}
        lasts = {name: f" for {seconds:g} s more" if seconds else "" for name, seconds in held.items()}
        yield f"version {state.version}: {_some([f'{name} {why}{lasts[name]}' for name, why in state.failures.items()])}"
        missing = [tree.name(switch) for switch in tree.switches() if switch not in state.connected]
        yield f"connected: {len(state.connected)} of {tree.switch_count}; missing: {_some(missing)}"
        report = state.fabric()["management"]
        faults = [f"{report['channels_faults']} faults of channels, {report['pauses_faults']} pauses", report["detail"]]
        yield "; ".join(filter(None, faults))

    def _tell_versions(self) -> Iterator[str]:
        sessions = [(its.version, its.name) for its in self.fabric.core.switches.sessions.values()]
        yield from (f"{version}: {_some(names)}" for version, names in _grouped(sessions))

    def _tell_agents(self) -> Iterator[str]:
        """Tell what agents have in force, and whether the last changes were acknowledged."""
        yield from (f"agents have version {view.version}" for view in self.fabric.agents.values() if view is not None)
        for change in self.fabric.state.changes:
            yield f"{change.version} acknowledged by {change.agents} after {change.acknowledged_ms} ms"

    def _tell_messages(self, *names: str) -> Iterator[str]:
        """Tell what switches were sent since the last time; without names, which ones were sent more than probes."""
        asked = self._handled(self._switches(names or ["all"])).items()
        if names:
            yield from (f"{name}: {_some(_runs(kinds), 99)}" for name, kinds in asked)
        else:
            yield _some([name for name, kinds in asked if not all(kind.startswith("SendProbe") for kind in kinds)])

    def _tell_probes(self) -> Iterator[str]:
        """Tell by which ports which switches were told to send probes since the last time."""
        handled = self._handled(self.fabric.switches).items()
        ports = [(" ".join(kind[10:] for kind in kinds if kind.startswith("SendProbe ")), name) for name, kinds in handled]
        yield from (f"{_some(names)}: {sent}" for sent, names in _grouped(ports) if sent)

    def _tell_log(self, words: str) -> Iterator[str]:
        """Tell what was logged with these words since the last time."""
        messages = self._logged()
        found = [line for line in messages[self._told :] if words in line]
        self._told = len(messages)
        yield from found[:8]
        if len(found) > 8:
            yield f"and {len(found) - 8} more"

    def _tell_drops(self) -> Iterator[str]:
        """Tell which edge switches drop packets because no path is left."""
        edges = {self.fabric.tree.name(switch): switch for switch in self.fabric.tree.switches(Level.EDGE)}
        purposes = {name: {flow.purpose for flow in self._device(name).flows()} for name in edges}
        yield _some([name for name in edges if "no way left: drop" in purposes[name]])

    def _device(self, name: str) -> MemorySwitch:
        return self.fabric.switches[self.fabric.tree.switch(name)]

    def _ends(self, text: str) -> list[End]:
        """Return the port written as ``a0_0:3``, or ``all`` of all switches."""
        tree = self.fabric.tree
        if text == "all":
            return [(switch, port) for switch in tree.switches() for port in tree.ports(switch)]
        name, port = text.split(":")
        return [(tree.switch(name), int(port))]

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

    def _handled(self, switches: Iterable[Switch]) -> dict[str, list[str]]:
        found = {}
        for switch in switches:
            handled = self.fabric.switches[switch].handled
            probes = [f"SendProbe {its.port}" if isinstance(its, SendProbe) else type(its).__name__ for _, its in handled]
            if probes:
                found[self.fabric.tree.name(switch)] = probes
            handled.clear()
        return found


def _some(parts: list[str], most: int = 8) -> str:
    more = f" and {len(parts) - most} more" if len(parts) > most else ""
    return (", ".join(parts[:most]) + more) or "nothing"


def _runs(kinds: Iterable[str]) -> list[str]:
    counted = [(kind, len(list(its))) for kind, its in groupby(kinds)]
    return [kind if number == 1 else f"{kind} x{number}" for kind, number in counted]


def _grouped(pairs: Iterable[tuple[object, str]]) -> list[tuple[object, list[str]]]:
    """Return each value with the names that have it, in the order in which values come first."""
    found: dict[object, list[str]] = {}
    for value, name in pairs:
        found.setdefault(value, []).append(name)
    return list(found.items())


@each_script(__file__, "coordinator", "channels", "probes")
def test_script(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sopa"):
        script.play(World(lambda: caplog.messages).handle)
