"""What the reaction does with fates and with what the program has seen: tables, streams to probe, log lines."""

import logging
from contextlib import closing
from ipaddress import IPv4Address
from random import Random

import pytest

from flowrules.label import UNUSED
from sopa_ryu.agent.follower import Follower
from sopa_ryu.agent.kernel.libbpf import BpfMapError
from sopa_ryu.agent.kernel.own_traffic import RouterError, SentAgain
from sopa_ryu.agent.paths.avoided import Avoided, Section
from sopa_ryu.agent.paths.path_table import Label, Policy
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import HealthChange
from sopa_ryu.agent.reaction import Reaction
from sopa_ryu.channel import protocol
from sopa_ryu.channel.messages import Stream
from sopa_ryu.fabric.view import View
from tests.helpers.agent_log import log_lines
from tests.helpers.golden import Script, Step, each_script
from tests.models.virtual_clock import VirtualLoop
from topologies import Clos, Failures, FatTree, Level, Switch
from topologies.usids import usid

ADDRESS, FAR, SILENT, NEAR = map(IPv4Address, ("10.0.0.2", "10.2.1.3", "10.2.1.4", "10.1.0.3"))
FARS = FAR, IPv4Address("10.2.1.2")
UPS = [(0, 0), (1, 0), (0, 1), (1, 1)]


def switch_named(name: str) -> Switch:
    """A switch that the fabric need not have."""
    level, pod, index = {"e": Level.EDGE, "a": Level.AGGREGATION, "c": Level.CORE}[name[0]], *map(int, name[1:].split("_"))
    return Switch(level, pod, index)


class Scripted:
    """A host of which a script says what is lost and sent; it says which tables follow, and the log."""

    def __init__(self, loop: VirtualLoop, caplog: pytest.LogCaptureFixture) -> None:
        self.loop, self.caplog = loop, caplog

    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command)(*step.words, **step.options)
        tables = [f"table without {self._sections(table)}" for table in self.tables]
        self.tables.clear()
        return "\n".join([said or "", *tables, *log_lines(self.caplog)])

    async def avoid(self, avoided: Avoided) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.tables.append(avoided)
        return True

    def sent_again(self) -> list[SentAgain]:
        if self.broken:
            raise BpfMapError("cannot read a ring buffer: Input/output error")
        found, self.again = self.again, []
        return found

    def busy(self) -> list[tuple[int, int]]:
        return self.racks

    errors_fd = -1

    def router_errors(self) -> set[RouterError]:
        return {self.error}

    def by_path(self, tree: Clos) -> dict[Label, int]:
        return dict(self.packets)

    def answering(self, pod: int, edge: int) -> tuple[IPv4Address, ...]:
        return tuple(IPv4Address(f"10.{pod}.{edge}.{number}") for number in self.numbers)

    def dropped(self) -> int:
        return self.drops

    def do_host(self, policy: str = "ROUND_ROBIN", keep: str = "no") -> None:
        self.loop.end_tasks()
        self.tables, self.again, self.racks = list[Avoided](), list[SentAgain](), list[tuple[int, int]]()
        self.packets: dict[Label, int] = dict.fromkeys(UPS, 0)
        self.refusals, self.drops, self.broken, self.numbers, self.has_assignment = 0, 0, False, [3], True
        self.follower = Follower(ADDRESS, ("http://192.0.2.1:8080",), policy=Policy[policy])
        self.follower.start(inherited=False)
        self._follow(View(7, 3, Failures(FatTree(4))))
        self.its = Reaction(self.follower, *[self] * 4, self.dropped, keep=keep == "yes")
        self.task = self.loop.create_task(self.its.run())

    def do_probe(
        self,
        seconds: str,
        *bad: str,
        every: str = "1",
        crowded: str = "no",
        known: str = "",
        silent: str = "0",
        near: str = "no",
        hosts: str = "2",
        delay: str = "0",
    ) -> None:
        """Probe all four paths to hosts of a rack, 200 times a second in all; on bad ones one of so many is lost.

        The others come back after a ``delay`` in seconds.

        It is ``known`` to be lost on the way ``back``. For each probe so many go the same way to a host that never answers, and for
        each tenth one to a ``near`` rack comes back.
        """
        for n in range(round(float(seconds) * 200)):
            up, now = UPS[n % 4], self.loop.time()
            lost = ",".join(map(str, up)) in bad and n // 4 % int(every) == 0
            for _ in range(int(silent)):
                self.its.decided(Fate(Stream(SILENT, *up), False), now)
            lost_out = False if lost and known == "back" else None
            delay_ns = round(float(delay) * 1e9)
            self.its.decided(Fate(Stream(FARS[n // 4 % int(hosts)], *up), not lost, lost_out, delay_ns, crowded == "yes"), now)
            if near == "yes" and n % 10 == 0:
                self.its.decided(Fate(Stream(NEAR, 0, UNUSED), True), now)
            self.loop.advance(0.005)

    def do_stand(self, seconds: str, outstanding: str) -> None:
        """Stand still, and decide about so many probes of each path at once that were sent before."""
        self.loop.now += float(seconds)
        for up in UPS * int(outstanding):
            self.its.decided(Fate(Stream(FAR, *up), False), self.loop.time())

    def do_router(self, name: str, following: str, mtu: str = "") -> None:
        """Hear that a router, by its name or as an own edge switch's other address, has no way to another one."""
        at, after = (usid(switch_named(each)) if each != "own" else 0 for each in (name, following))
        self.error = RouterError(at, after, int(mtu) if mtu else None)
        self.its.hear_routers(self.loop.time())
        self.loop.advance(0.05)

    def do_told(self) -> str:
        return f"links left: {' '.join(self.its.links_left)}"

    def do_refuse(self, times: str) -> None:
        self.refusals = int(times)

    def do_break(self) -> None:
        self.broken = True

    def do_send(self, seconds: str, drops: str = "no", crowded: str = "no", share: str = "0", burst: str = "0") -> str:
        """Send 500 packets a second on each path to a rack, of which 40 are sent again on path (0, 1), or a share of all.

        Or so many at once in each second, while probes take 200 ms.
        """
        draw = Random("send")
        self.racks = [(2, 1)]
        for step in range(round(float(seconds) / 0.05)):
            for up in UPS:
                self.packets[up] += 25
            by_chance = [up for up in UPS for _ in range(25) if draw.random() < float(share)]
            lost = 2 if burst == "0" else int(burst) * (step % 20 == 1)
            self.again += [SentAgain((2, 1), up) for up in by_chance or [(0, 1)] * lost * (share == "0")]
            if burst != "0":
                self.its.decided(Fate(Stream(FAR, 0, 1), True, None, 200_000_000), self.loop.time())
            if crowded == "yes":
                self.its.decided(Fate(Stream(FAR, 0, 1), True, None, 1, True), self.loop.time())
            self.drops += drops == "yes"
            self.loop.advance(0.05)
        return f"{self.its.retransmissions} retransmissions"

    def do_use(self, *racks: str) -> None:
        self.racks = [(int(pod), int(edge)) for pod, _, edge in (rack.partition(",") for rack in racks)]

    def do_unassigned(self) -> None:
        self.has_assignment = False

    def do_answering(self, *numbers: str) -> None:
        self.numbers = [int(number) for number in numbers]

    def do_ask(self, seconds: str, living: str) -> str:
        """Have partners answer, of which one lives; say who was asked in the last half of the time."""
        asked = []
        for _ in range(round(float(seconds) * 100)):
            self.loop.advance(0.01)
            for partner in {stream.destination for stream in self.its.busy(self.loop.time())}:
                asked.append(str(partner))
                self.its.decided(Fate(Stream(partner, 0, 0), str(partner) == living), self.loop.time())
        return "asked " + " ".join(sorted(set(asked[len(asked) // 2 :])))

    def do_meet(self, seconds: str, *living: str) -> str:
        """Probe what is asked for, one stream each 5 ms; those that live answer, and are known then. Say who was asked.

        As often a probe to a near rack comes back, by the assignment.
        """
        asked = set[IPv4Address]()
        for n in range(round(float(seconds) * 200)):
            self.loop.advance(0.005)
            self.its.decided(Fate(Stream(NEAR, 0, UNUSED), True), self.loop.time())
            if streams := list(self.its.busy(self.loop.time())):
                asked.add((stream := streams[n % len(streams)]).destination)
                number = stream.destination.packed[3]
                self.its.decided(Fate(stream, str(number) in living), self.loop.time())
                self.numbers = sorted({*self.numbers, number} if str(number) in living else self.numbers)
        return "asked " + (" ".join(map(str, sorted(asked))) or "nobody")

    def do_wait(self, seconds: str) -> None:
        self.loop.advance(float(seconds))

    def do_busy(self) -> str:
        streams = self.its.busy(self.loop.time())
        return "probes " + (", ".join(f"{each.destination} {each.up1} {each.up2}" for each in streams) or "nothing")

    def do_turns(self, seconds: str) -> str:
        """Say how many streams are probed at once, and how many in so many seconds."""
        seen = set[Stream]()
        for _ in range(int(seconds)):
            self.loop.advance(1.0)
            seen.update(streams := self.its.busy(self.loop.time()))
        return f"probes {len(streams)} at once, {len(seen)} in all"

    def do_fabric(self, *sizes: str, gateways: str = "", no_label: str = "") -> None:
        apart = {"gateways": gateways.split(",") if gateways else (), "no_label": no_label.split(",") if no_label else ()}
        self._follow(View(8, 1, Failures(FatTree(int(sizes[0])) if len(sizes) == 1 else Clos(*map(int, sizes), **apart))))

    def do_fails(self, *names: str) -> None:
        self._follow(View(7, 4, Failures(FatTree(4), dict.fromkeys(names, "down"))))

    def do_changes(self, count: str) -> None:
        """Have so many sections left, ten a second."""
        for n in range(int(count)):
            self.its._health.changes.append(HealthChange(Section(n % 2, 0), True, "row", "3 probes in a row lost"))
            self.loop.advance(0.1)

    def do_counts(self) -> str:
        return f"left {dict(self.its.left)}, returned {self.its.returned}"

    def _follow(self, view: View) -> None:
        self.follower.loaded(self.follower.receive(protocol.snapshot(view, ADDRESS)))

    def _sections(self, table: Avoided) -> str:
        return ", ".join(str(tuple(each)) for each in sorted(table.dead | set(table.lossy), key=str)) or "nothing"


@each_script(__file__, "reaction")
def test_reaction(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sopa.agent")
    with closing(VirtualLoop()) as loop:
        script.play(Scripted(loop, caplog).handle)
