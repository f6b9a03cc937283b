"""Which paths a host leaves by itself, from what becomes of its probes and of its own packets (docs/probes.md). Pure.

Two rules. *In a row*: a section of the fabric that nothing has crossed since several probes in a row were lost in it is dead.
*Share*: a section that certainly loses several times the share of the other paths to the same racks is lossy. Besides, a router
may say itself that it has no way on. A section is put back after probes in a row have come through it for a time that doubles
whenever it has to be left again soon.

What one far host says is not believed alone: it may drop probes of some paths. Both rules have to hold without the host that has
lost most, though less clearly; a section that leads to several racks needs hosts of two of them. Of one rack, the others are asked
(`PathHealth.doubts`): if none of them answers, the one is believed, for paths to that rack. A self-probe needs no witness: nobody
else has a hand in it. It tells of the uplinks of the host's edge and aggregation switch.
"""

from __future__ import annotations

import math
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import UNUSED
from sopa_ryu.agent.paths.avoided import Avoided, Section, WayTo, sections
from sopa_ryu.agent.paths.path_table import Label
from sopa_ryu.agent.probing.evidence import MAX_LUCK, Left, LossRun, Probed, Queue, Usual, luck
from sopa_ryu.agent.probing.fate import Fate
from sopa_ryu.agent.probing.loss_window import CHANCE, Excess, LossWindow, Target
from sopa_ryu.channel.messages import Stream

MANY_RACKS = 3
"""Hosts of so many racks do not fall silent at once."""
CROWDED = 0.25
"""What a loss while a queue on the way was full counts, of one in a row; it counts nothing as a share."""
HOLD_SECONDS, MAX_HOLD_SECONDS = 2.0, 64.0
SOON_SECONDS = 60.0
"""A section that has to be left again within this time, or four times its last hold if that is longer, is held twice as long."""
SILENT_SECONDS = 60.0
"""A section that no probe has crossed for so long is put back: nothing is known of it."""
ANSWER_SECONDS = 1.0
"""A host that has not answered for so long is none whose losses count."""
DOUBT_SECONDS, DOUBT_ENDS_SECONDS = 2.0, 5.0
"""So long the other hosts of a rack have to answer before the one that does is believed; a doubt that is not repeated ends."""
WITNESS = 0.005
"""The probability that what others than the main witness have lost in a row was lost by chance, at most."""
SUSPEND_SECONDS = 1.0
LEAST_BACKLOG_SECONDS, BACKLOG_SECONDS = 0.25, 1.0
"""After a standstill of this host, so long queues may be full: those of links, and of switches that stood still, too. The least is
the longest deadline of a probe."""
SETTLE_SECONDS = 5.0
"""After another fabric, or a standstill of this host, so long nothing is concluded from what TCP sends again."""
BURST_DELAYS, MAX_BURST_SECONDS = 4.0, 1.0
"""Losses within so many delays of a path, or this time, have one cause: a queue that is full loses many packets."""
JUDGE_SECONDS, JUDGE_SECONDS_OF_PATH = 0.1, 0.002
"""The time from one judgement of shares to the next: more paths take longer."""
MAX_KNOWN, MAX_QUEUES = 1 << 10, 1 << 14
RETURNING = 4
"""Streams of a section that are probed to find out whether it is good again."""


CAUSES = ("row", "share", "unreachable")
"""Why a section is left."""


class HealthChange(NamedTuple):
    """A section that was left or put back, and why."""

    section: Section
    left: bool
    cause: str
    """One of `CAUSES`; of one put back ``good`` or ``unknown``."""
    detail: str
    hold: float = 0.0
    """The seconds for which one is left at least."""


class PathHealth:
    """The judge of one host's paths.

    Args:
        own: The host's address: probes to it are self-probes.

    Attributes:
        changes: What was decided since the caller has emptied it.

    Two paths share a link; both lose, and the others answer. Hosts of two racks say so, and then one host alone:

    >>> far = [IPv4Address("10.2.1.3"), IPv4Address("10.3.0.2"), IPv4Address("10.2.1.2")]
    >>> def dead(witnesses):
    ...     health = PathHealth()
    ...     for n in range(300):
    ...         up1, up2, host = n % 2, n // 2 % 2, far[n // 4 % 3] if n < 270 else witnesses[n // 4 % len(witnesses)]
    ...         health.decided(Fate(Stream(host, up1, up2), came_back=n < 270 or up1 == 1), now=0.01 * n)
    ...     return set(health.avoided.dead)
    >>> dead(far), dead(far[:1])
    ({Section(up1=0, up2=None, pod=None, edge=None)}, set())
    """

    def __init__(self, own: IPv4Address | None = None) -> None:
        self.changes: list[HealthChange] = []
        self._own = own
        self._window = LossWindow()
        self._runs: dict[Section, LossRun] = {}
        self._left: dict[Section, Left] = {}
        self._before: dict[Section, tuple[float, float]] = {}  # how long it was held, and until when
        self._answered: dict[IPv4Address, float] = {}
        self._doubts: dict[Section, tuple[float, float]] = {}  # since when, and when last
        self._queues: dict[WayTo, Queue] = {}
        self._probed: dict[Stream, Probed] = {}
        self._passed = self._missed = 0
        self._usual = Usual()
        self._suspended = self._judged_at = self._moving_at = -math.inf

    @property
    def avoided(self) -> Avoided:
        """What is avoided now."""
        dead = frozenset(section for section, departure in self._left.items() if departure.dead)
        return Avoided(dead, {section: departure.share for section, departure in self._left.items() if not departure.dead})

    def answers(self, host: IPv4Address, now: float) -> bool:
        """Return True if a host has answered just now."""
        return now - self._answered.get(host, -math.inf) < ANSWER_SECONDS

    def returning(self) -> list[Stream]:
        """Return streams that tell whether what is avoided is good again: of each section the last ones that have crossed it."""
        found: dict[Stream, None] = {}
        for section in self._left:
            crossing = [(probe.at, stream) for stream, probe in self._probed.items() if section.covers(probe.target.way)]
            found.update((stream, None) for _, stream in sorted(crossing, reverse=True)[:RETURNING])
        return list(found)

    def doubts(self, now: float) -> list[Section]:
        """Return sections of one rack's paths which one host says to be bad: others of that rack are to be probed."""
        if self._doubts:
            self._doubts = {section: times for section, times in self._doubts.items() if now - times[1] < DOUBT_ENDS_SECONDS}
        return list(self._doubts)

    # -- observations -------------------------------------------------------------------------------------------------

    def decided(self, fate: Fate, now: float) -> None:
        """Note what became of a probe."""
        probe = self._probed.get(fate.stream) or self._note_stream(fate.stream)
        if probe is None:
            return
        way, probe.at = probe.target.way, now
        host = fate.stream.destination
        queue = self._queue(way)
        if fate.came_back:
            self._answered[host] = now
            queue.delay = fate.delay_ns / 1e9
        if fate.crowded:
            queue.crowded_at = now
        crowded = fate.crowded or now < self._moving_at + BACKLOG_SECONDS
        through = fate.came_back or fate.lost_out is False
        if (through or not crowded) and host != self._own:
            self._window.probed(probe.target, not through, now)
        if through:
            self._come_through(probe, host, now)
        elif now > self._moving_at:  # what is decided as this host goes on was sent before it stood still
            self._lose(probe, host, CROWDED if fate.crowded else 1.0, now)

    def retransmitted(self, rack: tuple[int, int], up: Label, now: float) -> None:
        """Note that what a path had carried to a rack (its pod, and its edge switch's number) was sent again."""
        hops = tuple(hop for hop in up if hop != UNUSED)
        way = WayTo(*rack, hops)
        queue = self._queue(way)
        if not hops or now < self._suspended or now - queue.crowded_at <= SUSPEND_SECONDS:
            return
        begins = now > queue.burst_ends
        if begins:
            queue.burst_ends = now + min(MAX_BURST_SECONDS, BURST_DELAYS * queue.delay)
        self._window.sent_again(way, now, begins)

    def carried(self, packets: dict[Label, int], now: float) -> None:
        """Note how many packets went out under each label since the last call."""
        self._window.carried(packets, now)

    def unreachable(self, section: Section, detail: str, now: float) -> None:
        """Note that a router has no way on for the packets of a section; ``detail`` names it."""
        if section in self._left and self._left[section].dead:
            self._left[section].rows.clear()
            self._left[section].heard = now
        elif not self._explained(section):
            self._leave(section, 1.0, "unreachable", detail, now)

    def dropped(self, now: float) -> None:
        """Note that this host itself drops packets: what it sends again meanwhile says nothing about paths."""
        self._suspended = now + SUSPEND_SECONDS
        self._window.forget_second(now)

    def loads_moved(self, now: float) -> None:
        """Forget shares, and put lossy sections back: after a failure or its end other links are full, and lose."""
        self._forget_shares(now)
        for section in [section for section, departure in self._left.items() if not departure.dead]:
            self._put_back(section, "unknown", "the fabric has changed, and loads with it", now)

    def stood_still(self, now: float) -> None:
        """Note that this host has not run for a while, and maybe others: TCP sends again what was not lost, all at once."""
        self._forget_shares(now)
        self._runs.clear()
        self._moving_at = now

    def _forget_shares(self, now: float) -> None:
        self._window = LossWindow()
        self._suspended = now + SETTLE_SECONDS

    def tick(self, now: float) -> None:
        """Judge shares, and put back what has been good for long enough; to be called several times a second."""
        self._window.advance(now)
        if self._window.fresh and now >= self._judged_at + max(JUDGE_SECONDS, len(self._window) * JUDGE_SECONDS_OF_PATH):
            self._judged_at = now
            worst = self._window.worst(self._left, lambda section, host: self._is_only_witness(section, host, now))
            if worst is not None:
                self._leave_lossy(worst, now)
        for section, departure in list(self._left.items()):
            if now - departure.at < departure.hold:
                continue
            if departure.is_good(now):
                self._put_back(section, "good", f"{departure.through} probes in a row have come through", now)
            elif now - departure.heard >= SILENT_SECONDS:
                self._put_back(section, "unknown", f"no probe has crossed it for {SILENT_SECONDS:g} s", now)
        for section in [section for section, run in self._runs.items() if now - run.since > SILENT_SECONDS]:
            del self._runs[section]

    # -- what follows -------------------------------------------------------------------------------------------------

    def _note_stream(self, stream: Stream) -> Probed | None:
        way = way_to(stream.destination, stream[1:])
        if way is None:
            return None
        if len(self._probed) >= MAX_KNOWN:
            del self._probed[min(self._probed, key=lambda other: self._probed[other].at)]
        uplinks = Section(way.up[0]), *(Section(*way.up[:2]) for _ in way.up[1:])
        crossed = uplinks if stream.destination == self._own else sections(way)
        return self._probed.setdefault(stream, Probed(Target(way, stream.destination), crossed))

    def _queue(self, way: WayTo) -> Queue:
        if way not in self._queues and len(self._queues) >= MAX_QUEUES:
            self._queues.clear()  # what is in use is known again at once
        return self._queues.setdefault(way, Queue())

    def _covering(self, way: WayTo) -> list[Section]:
        return [section for section in self._left if section.covers(way)]

    def _come_through(self, probed: Probed, host: IPv4Address, now: float) -> None:
        self._passed += 1
        self._usual.note(False, now)
        if self._runs:
            for section in probed.sections:
                self._runs.pop(section, None)
        for section in self._covering(probed.target.way) if self._left else ():
            departure = self._left[section]
            departure.heard = now
            count, since = departure.rows.get(host, (0, now))
            departure.rows[host] = count + 1, since

    def _lose(self, probed: Probed, host: IPv4Address, weight: float, now: float) -> None:
        way = probed.target.way
        covering = self._covering(way)
        for section in covering:
            self._left[section].heard = now
            # a narrower one that is avoided explains the loss
            if not any(other != section and section.includes(other) for other in covering):
                self._left[section].rows.pop(host, None)
        # the loss of one that does not answer at all says nothing about the others
        counts = not covering and self.answers(host, now)
        dead = [section for section in covering if self._left[section].dead]
        for section in probed.sections:
            if any(not other.includes(section) for other in dead):
                continue  # what is avoided explains the loss already
            run = self._runs.setdefault(section, LossRun(now, self._passed, self._missed))
            run.counted += counts
            run.ways.add(way)
            run.weights[host] = run.weights.get(host, 0.0) + weight
        if counts:
            self._missed += 1
            self._usual.note(True, now)
        delays = BURST_DELAYS * (self._queue(way).delay or math.inf)
        if now < self._moving_at + min(BACKLOG_SECONDS, max(LEAST_BACKLOG_SECONDS, delays)):
            return  # what follows tells whether it is a queue: that lets something through, or nothing more is lost
        *wider, alone = probed.sections
        for section in (*wider, alone):  # the widest first: what it includes is left with it
            if self._explained(section) or section not in self._runs or not self._is_dead(section, section == alone, now):
                continue
            run = self._runs[section]
            row = f"{round(sum(run.weights.values()))} probes in a row lost"
            self._leave(section, 1.0, "row", row + ("" if len(run.ways) == 1 else f" on {len(run.ways)} paths"), now)

    def _explained(self, section: Section) -> bool:
        """Return True if it is avoided, or is part of what is dead and lets nothing through at all."""
        return any(
            section == other or (other.includes(section) and departure.dead and not departure.through)
            for other, departure in self._left.items()
            if departure.dead
        )

    def _is_dead(self, section: Section, alone: bool, now: float) -> bool:
        run = self._runs[section]
        if not alone and len(run.ways) < 2:
            return False
        # not the far host: that has answered on another path meanwhile, or it is many of them
        racks = {way[:2] for way in run.ways}
        if len(racks) >= MANY_RACKS:
            weights = run.weights
        else:
            weights = {host: weight for host, weight in run.weights.items() if self._answered.get(host, -math.inf) >= run.since}
        row = sum(weights.values())
        passed, missed = self._passed - run.passed, max(0, self._missed - run.missed - run.counted)
        usual = max(self._usual.share(run.counted), missed / (missed + passed) if passed else 1.0)
        if usual >= 1:
            return False
        enough = math.log(CHANCE) / math.log(usual) - 1e-9
        if row < enough or luck(math.floor(row), passed, missed) > MAX_LUCK:
            return False
        if self._own is not None and weights.get(self._own, 0.0) >= enough:
            return True
        return self._is_witnessed(section, weights, now)

    def _is_witnessed(self, section: Section, weights: dict[IPv4Address, float], now: float) -> bool:
        """Tell whether others than the host with most losses, or its rack where the section leads to several, have lost probes."""
        of_witness: dict[bytes, float] = {}
        for host, weight in weights.items():
            witness = host.packed if section.edge is not None else host.packed[:3]
            of_witness[witness] = of_witness.get(witness, 0.0) + weight
        main = max(of_witness, key=lambda witness: of_witness[witness])
        row = sum(of_witness.values()) - of_witness[main]
        is_so = row > 0 and self._window.share_without(main, row) ** row <= WITNESS
        return is_so or self._is_only_witness(section, main, now)

    def _is_only_witness(self, section: Section, witness: bytes, now: float) -> bool:
        """Tell whether the one host that says that a section is bad is believed: it answers, and no other one of its rack does.

        ``witness`` is its address; it is empty if only retransmissions say so, whose hosts are not known.
        """
        if section.edge is None:
            return False
        since, last = self._doubts.get(section, (now, now))
        self._doubts[section] = since if now - last < DOUBT_ENDS_SECONDS else now, now
        rack = section.pod, section.edge
        of_late = max(since, now - DOUBT_ENDS_SECONDS)
        answering = {host.packed for host, at in self._answered.items() if tuple(host.packed[1:3]) == rack and at >= of_late}
        return now - since >= DOUBT_SECONDS and (answering == {witness} if witness else len(answering) < 2)

    def _leave_lossy(self, worst: Excess, now: float) -> None:
        detail = f"{worst.share:.1%} lost, {worst.others:.1%} on other paths (by chance: {worst.chance:.0e})"
        self._leave(worst.section, min(worst.share, 0.99), "share", detail, now)

    def _leave(self, section: Section, share: float, cause: str, detail: str, now: float) -> None:
        for other in [other for other in self._left if section.includes(other)]:
            del self._left[other]
        hold, until = self._before.pop(section, (0.0, -math.inf))
        soon = now - until < max(SOON_SECONDS, 4 * hold)
        hold = min(2 * hold, MAX_HOLD_SECONDS) if soon and hold else HOLD_SECONDS
        self._left[section] = Left(share, now, hold, now, cause == "unreachable")
        self._doubts.pop(section, None)
        self._window.forget(section)
        self.changes.append(HealthChange(section, True, cause, detail, hold))

    def _put_back(self, section: Section, cause: str, detail: str, now: float) -> None:
        departure = self._left.pop(section)
        self._before[section] = departure.hold, now
        self._window.forget(section)
        self.changes.append(HealthChange(section, False, cause, detail))


def way_to(address: IPv4Address, up: Label) -> WayTo | None:
    """Return the path to an address of the fabric by a label; None if it takes no uplink."""
    _, pod, edge, _ = address.packed
    hops = tuple(hop for hop in up if hop != UNUSED)
    return WayTo(pod, edge, hops) if hops else None
