"""How a host leaves bad paths by itself: hears what became of probes and of its own packets, and has path tables swapped.

What decides is `PathHealth`; this reads, tells, logs and counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Address
from itertools import islice
from typing import NoReturn, Protocol

from sopa_ryu.agent.follower import LOAD_RETRY_SECONDS, Follower
from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.own_traffic import RouterError, SentAgain
from sopa_ryu.agent.paths.avoided import NOTHING, Avoided, Section, WayTo
from sopa_ryu.agent.paths.path_table import Label, Policy
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.path_health import HealthChange, PathHealth
from sopa_ryu.channel.messages import MAX_LEFT, MAX_STREAMS, Stream
from sopa_ryu.runtime.service import set_or_after
from topologies import Clos, Failures, Level, Switch
from topologies.usids import switch_of

LOG = logging.getLogger("sopa.agent")

LOOK_SECONDS = 0.1
"""The interval of reading what the program has seen, and of judging."""
PAUSE_SECONDS = 0.5
"""An agent that has not looked for so long has stood still, with its host."""
COUNT_SECONDS = 1.0
"""The interval of reading the packets of each label."""
BUSY_SECONDS = 1.0
"""A rack that no packet has gone to for so long is not probed as one that is used."""
MAX_BUSY = 16
"""Racks that are probed as used ones at a time: those with the latest packets."""
RACKS_SECONDS, LIST_SECONDS = 0.2, 1.0
"""The interval of reading which racks packets go to, and of making the list of streams to them, unless there is a reason before."""
PARTNER_SECONDS = 1.0
"""The time that a host of a used rack has for its first answer."""
MAX_SCOUTED = 32
"""So many hosts of a rack are tried, of those that are not known to answer."""
MEETING_SECONDS, MEET_AGAIN_SECONDS = 2.0, 60.0
"""For so long hosts of a rack that packets begin to go to are tried where too few are known, and once in so long."""
PARTNERS = 2
"""So many hosts of a used rack are probed, as far as it has them: what one alone says of paths is not believed."""
TURN_SECONDS = 2.0
"""The time after which other candidate paths are probed, where there are too many of them."""
LOG_SECONDS, LOG_LINES = 10.0, 6
PER_PACKET = (Policy.ROUND_ROBIN, Policy.RANDOM, Policy.LEAST_USED, Policy.SOPA_SKIP)
"""Policies with which each packet's path is chosen anew. With others a flow's losses are all on its path, bad or not."""


class Swaps(Protocol):
    """What puts path tables in force: `HostAgent`."""

    async def avoid(self, avoided: Avoided) -> bool:
        """Put a table in force without these; return False if the kernel refuses."""


class TrafficSeen(Protocol):
    """What the program has seen: `OwnTraffic`."""

    def sent_again(self) -> list[SentAgain]:
        """Return the retransmissions since the last call."""

    def busy(self) -> list[tuple[int, int]]:
        """Return the racks that packets went to since the last call."""

    @property
    def errors_fd(self) -> int:
        """What becomes readable when a router has said something of a list of uSIDs; -1 if none can."""

    def router_errors(self) -> set[RouterError]:
        """Return what routers have said since the last call."""


class Counted(Protocol):
    """What the program has counted: `Counters`."""

    def by_path(self, tree: Clos) -> dict[Label, int]:
        """Return the packets by label."""


class Probing(Protocol):
    """What probes: `Prober`."""

    @property
    def has_assignment(self) -> bool:
        """Whether the controller has said how many probes the host may send."""

    def answering(self, pod: int, edge: int) -> tuple[IPv4Address, ...]:
        """Return the hosts of a rack that answer."""


class Reaction:
    """The reaction of one host to bad paths, a judge of the prober.

    Args:
        follower: Knows the fabric and its candidate paths.
        traffic: None with policies whose packets are not remembered.
        drops: Returns the packets that this host itself has dropped so far.
        keep: Leave no path: what would be left is logged only.

    Attributes:
        departed, departures: Set when `links_left` may be others; how often.
        left: Sections that were left so far, by cause.
        returned, retransmissions: Sections put back so far; segments sent again whose path is known.
    """

    def __init__(
        self,
        follower: Follower,
        swaps: Swaps,
        probing: Probing,
        traffic: TrafficSeen | None = None,
        counted: Counted | None = None,
        drops: Callable[[], int] = lambda: 0,
        *,
        keep: bool = False,
    ) -> None:
        self.left: Counter[str] = Counter()
        self.returned = self.retransmissions = 0
        self._follower, self._swaps, self._probing = follower, swaps, probing
        self._traffic, self._counted, self._drops, self._keep = traffic, counted, drops, keep
        self._dropped = 0
        self._health = PathHealth(follower.address)
        self._partners: dict[tuple[int, int], dict[IPv4Address, float]] = {}
        self._listed: dict[Stream, float] = {}
        self._listed_at = self._racks_at = float("-inf")
        self._looked_at = float("inf")
        self._used_at: dict[tuple[int, int], float] = {}
        self._met_at: dict[tuple[int, int], float] = {}
        self._tried: set[IPv4Address] = set()
        self._carried: dict[Label, int] = {}
        self._counted_at = float("-inf")
        self._in_force = NOTHING
        self._retry_at = float("-inf")
        self._decided, self.departed = asyncio.Event(), asyncio.Event()
        self.departures = 0
        self._tree: Clos | None = None
        self._failures: Failures | None = None
        self._logged: list[float] = []
        self._unsaid = 0
        self._problem = ""
        self._too_big: set[Switch] = set()

    # -- for the prober -----------------------------------------------------------------------------------------------

    def decided(self, fate: Fate, now: float) -> None:
        """Note what became of a probe."""
        self._note_look(now)
        if fate.stream.destination in self._tried:
            if not fate.came_back:
                return  # nobody may be there
            self._tried.remove(fate.stream.destination)
            self._listed_at = float("-inf")
        self._health.decided(fate, now)
        if self._health.changes:
            self._decided.set()

    def _note_look(self, now: float) -> None:
        """Note a standstill, before anything is concluded from what was lost in it."""
        if now - self._looked_at > PAUSE_SECONDS:
            self._health.stood_still(now)
            self._looked_at = now

    def busy(self, now: float) -> Mapping[Stream, float]:
        """Return the streams to probe besides the assignment: to racks that packets go to now, by weight, and what is avoided."""
        doubts = self._health.doubts(now)
        if now - self._listed_at >= (RACKS_SECONDS if doubts else LIST_SECONDS):
            self._listed, self._listed_at = self._to_probe(doubts, now), now
        return self._listed

    def _to_probe(self, doubts: list[Section], now: float) -> dict[Stream, float]:
        for rack in [rack for rack, at in self._used_at.items() if now - at > BUSY_SECONDS]:
            del self._used_at[rack]
        streams = dict.fromkeys(self._health.returning()[:MAX_STREAMS], 1.0)
        racks = sorted(sorted(self._used_at, key=self._used_at.__getitem__, reverse=True)[:MAX_BUSY])
        streams |= dict.fromkeys(islice(self._scout(doubts, now), MAX_STREAMS // 4), 1.0)
        racks = sorted({*racks, *((section.pod or 0, section.edge or 0) for section in doubts)})
        room = MAX_STREAMS - len(streams)
        for number, (pod, edge) in enumerate(racks):
            hosts, ups = self._probing.answering(pod, edge), self._follower.candidates(pod, edge)
            if not hosts:
                continue
            parts = self._follower.parts(pod, edge)
            partners = self._partners_of((pod, edge), hosts, now)
            most = room // (len(racks) - number) // len(partners)
            first = int(now / TURN_SECONDS) * most % len(ups) if len(ups) > most else 0
            for host in partners:
                for up in (ups[first:] + ups[:first])[:most]:
                    if up:
                        streams.setdefault(Stream(host, *up), parts.get(up, 1.0))
            room = MAX_STREAMS - len(streams)
        return streams

    def _scout(self, doubts: list[Section], now: float) -> Iterator[Stream]:
        """Yield a stream to each host that is not known to answer, of racks where one alone says that a path is bad, or would."""
        tree, answering = self._tree, self._probing.answering
        if tree is None:
            return
        apart = {*tree.gateways, *tree.no_label}
        bad: dict[tuple[int, int], list[Section]] = {
            rack: []
            for rack in self._used_at
            if now - self._met_at.get(rack, float("-inf")) < MEETING_SECONDS and len(answering(*rack)) < PARTNERS
        }
        for section in doubts:
            bad.setdefault((section.pod or 0, section.edge or 0), []).append(section)
        for (pod, edge), sections in bad.items():
            ups = [up for up in self._follower.candidates(pod, edge) if up]
            ways = [up for up in ups if not any(section.covers(WayTo(pod, edge, up)) for section in sections)] or ups
            known, hosts = answering(pod, edge), tree.hosts_of(Switch(Level.EDGE, pod, edge))
            strangers = [ip for host in hosts if host not in apart and (ip := tree.ip(host)) not in known]
            first = int(self._follower.address) % max(1, len(strangers))
            most = min(MAX_SCOUTED, max(1, MAX_STREAMS // 4 // len(bad))) if ways else 0
            for number, host in enumerate((strangers[first:] + strangers[:first])[:most]):
                self._tried.add(host)
                yield Stream(host, *ways[number % len(ways)])

    def _partners_of(self, rack: tuple[int, int], hosts: tuple[IPv4Address, ...], now: float) -> list[IPv4Address]:
        """Return the hosts of a rack that are probed: others when the last ones have not answered for a while."""
        before = self._partners.get(rack, {})
        partners = {
            host: since
            for host, since in before.items()
            if host in hosts and (now - since < PARTNER_SECONDS or self._health.answers(host, now))
        }
        first = hosts.index([*before][-1]) + 1 if before and [*before][-1] in hosts else int(self._follower.address)
        others = [host for number in range(len(hosts)) if (host := hosts[(first + number) % len(hosts)]) not in partners]
        fresh = [host for host in others if host not in before] + [host for host in others if host in before]
        partners |= dict.fromkeys(fresh[: PARTNERS - len(partners)], now)
        self._partners[rack] = partners
        return list(partners)

    # -- at work ------------------------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Watch, and leave and take back paths, until cancelled."""
        loop = asyncio.get_running_loop()
        errors_fd = -1 if self._traffic is None else self._traffic.errors_fd
        if errors_fd >= 0:
            loop.add_reader(errors_fd, self._hear_or_stop, errors_fd)
        try:
            while True:
                await set_or_after(self._decided, LOOK_SECONDS)
                self._decided.clear()
                self.look(loop.time())
                if self._health.avoided != self._in_force and loop.time() >= self._retry_at:
                    await self._put_in_force(loop.time())
        finally:
            if errors_fd >= 0:
                loop.remove_reader(errors_fd)

    def look(self, now: float) -> None:
        """Read what the program has seen, and judge."""
        self._follow_fabric(now)
        self._note_look(now)
        self._looked_at = now
        try:
            if self._traffic is not None:
                self._read(self._traffic, now)
            self._problem = ""
        except BpfError as error:
            if self._problem != str(error):
                self._problem = str(error)
                LOG.error("%s: its own packets cannot be watched: %s. Probes alone judge its paths. Check dmesg",
                          self._follower.address, error)  # fmt: skip
        self._health.tick(now)
        for change in self._health.changes:
            self._note(change, now)
        self._health.changes.clear()

    def _hear_or_stop(self, errors_fd: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            self.hear_routers(loop.time())
        except BpfError as error:
            loop.remove_reader(errors_fd)  # or it would be readable for ever
            LOG.error("%s: routers are not heard any more: %s. Probes alone judge its paths. Check dmesg", self._name, error)

    def hear_routers(self, now: float) -> None:
        """Follow what routers say of this host's lists, at once: who says it has dropped the packet."""
        self._follow_fabric(now)
        tree, errors = self._tree, self._traffic.router_errors() if self._traffic is not None else set()
        for error in errors if tree is not None else ():
            assert tree is not None
            own = tree.edge_of(tree.host_by_ip(self._follower.address))
            try:
                at, after = switch_of(error.router) if error.router else own, switch_of(error.next)
            except ValueError:
                continue
            section = Section.behind(own, at, after) if tree.has(at) and tree.has(after) else None
            if section is None:
                continue
            if error.mtu is None:
                self._health.unreachable(section, f"{tree.name(at)} has no way to {tree.name(after)}", now)
            elif at not in self._too_big:
                self._too_big.add(at)
                LOG.error(
                    "%s: %s drops packets of this host, as only %d bytes fit on its way to %s. Raise the MTU of that link, or "
                    "lower that of this host's interface",
                    self._name,
                    tree.name(at),
                    error.mtu,
                    tree.name(after),
                )
        if self._health.changes:
            self._decided.set()

    def _read(self, traffic: TrafficSeen, now: float) -> None:
        judges = self._follower.policy in PER_PACKET
        for rack, label in traffic.sent_again():
            self.retransmissions += 1
            if judges:
                self._health.retransmitted(rack, label, now)
        if now - self._racks_at >= RACKS_SECONDS:
            self._racks_at, used = now, traffic.busy()
            if not self._used_at.keys() >= set(used):
                self._listed_at = float("-inf")
            self._used_at.update(dict.fromkeys(used, now))
            if self._probing.has_assignment:
                met = [rack for rack in used if now - self._met_at.get(rack, float("-inf")) > MEET_AGAIN_SECONDS]
                self._met_at.update(dict.fromkeys(met, now))
        if self._counted is None or self._tree is None or now - self._counted_at < COUNT_SECONDS or not self._used_at:
            return
        dropped, self._dropped = self._dropped, self._drops()
        if self._dropped > dropped:
            self._health.dropped(now)
        before, self._carried = self._carried, self._counted.by_path(self._tree)
        if now - self._counted_at < 2 * COUNT_SECONDS:
            self._health.carried({label: count - before.get(label, 0) for label, count in self._carried.items()}, now)
        self._counted_at = now

    def _follow_fabric(self, now: float) -> None:
        failures = self._follower.view.failures if self._follower.view is not None else None
        if failures is self._failures:
            return
        tree = failures.tree if failures is not None else None
        if tree != self._tree:
            self._tree, self._health = tree, PathHealth(self._follower.address)
            self._used_at.clear()
            self._met_at.clear()
            self._tried.clear()
        elif failures is not None and self._failures is not None and failures.keys() != self._failures.keys():
            self._health.loads_moved(now)
        self._failures, self._listed_at = failures, float("-inf")

    async def _put_in_force(self, now: float) -> None:
        avoided = self._health.avoided
        if self._keep or await self._swaps.avoid(avoided):
            if avoided.dead != self._in_force.dead:
                self.departures += 1
                self.departed.set()
            self._in_force = avoided
        else:
            self._retry_at = now + LOAD_RETRY_SECONDS

    def _note(self, change: HealthChange, now: float) -> None:
        self._listed_at = float("-inf")
        if change.left:
            self.left[change.cause] += 1
        else:
            self.returned += 1
        self._logged = [at for at in self._logged if now - at < LOG_SECONDS]
        if len(self._logged) >= LOG_LINES:
            self._unsaid += 1
            return
        self._logged.append(now)
        more = f" ({self._unsaid} such lines left out before)" if self._unsaid else ""
        self._unsaid = 0
        if not change.left:
            LOG.info("%s: takes %s again: %s%s", self._name, self._paths(change.section), change.detail, more)
        elif self._keep:
            LOG.warning("%s: would leave %s: %s. It stays, by --keep-paths. sopa health names the link%s",
                        self._name, self._paths(change.section), change.detail, more)  # fmt: skip
        else:
            LOG.warning("%s: leaves %s: %s. It stays away for %g s at least. sopa health names the link, sopa trace shows it%s",
                        self._name, self._paths(change.section), change.detail, change.hold, more)  # fmt: skip

    @property
    def links_left(self) -> tuple[str, ...]:
        """The names of links between switches that this host has left since they carry nothing; `departed` says when to look."""
        tree = self._tree
        if tree is None or self._keep:
            return ()
        own = tree.edge_of(tree.host_by_ip(self._follower.address))
        names = {section.link(tree, own) for section in self._health.avoided.dead}
        return tuple(sorted(name for name in names if name is not None))[:MAX_LEFT]

    @property
    def _name(self) -> str:
        tree = self._tree
        return str(self._follower.address) if tree is None else tree.name(tree.host_by_ip(self._follower.address))

    def _paths(self, section: Section) -> str:
        """Describe the paths of a section: by the link that they share, or the one path."""
        if self._tree is None:
            return str(section)
        own = self._tree.edge_of(self._tree.host_by_ip(self._follower.address))
        link = section.link(self._tree, own)
        if link is not None:
            return f"the paths over link {link}"
        up = tuple(hop for hop in section[:2] if hop is not None)
        rack = self._tree.name(Switch(Level.EDGE, section.pod or 0, section.edge or 0))
        return f"path {up} to rack {rack}"
