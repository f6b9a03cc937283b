"""Losses by path over the last seconds, and whether a section of the fabric loses more than chance explains. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from typing import NamedTuple

from flowrules.label import UNUSED, hop_bytes
from sopa_ryu.agent.paths.avoided import Section, WayTo, sections
from sopa_ryu.agent.paths.path_table import Label

WINDOW_SECONDS = 30
MIN_LOSSES = 5
MIN_SHARE = 0.005
"""A smaller share of losses is left to the controller, which sees all hosts."""
MIN_RATIO = 2.0
"""How many times the share of the other paths of the same racks it has to be."""
CHANCE = 1e-6
"""The probability of a false alarm of one test at most, if losses fall on all paths of a rack alike."""


WITNESS_CHANCE = 0.005
"""The same without the host, or rack, that has lost most: of half as many losses, half as clear."""


class Excess(NamedTuple):
    """A section that loses more than others: the share that it loses, that of the others, and how probable that is by chance."""

    section: Section
    share: float
    others: float
    chance: float


Test = tuple[float, float, float]
"""The share that a section loses, that of others, and how probable that is by chance."""


class Target:
    """A host, by a path. Each is one object: a key that costs less than an address."""

    __slots__ = ("host", "way")

    def __init__(self, way: WayTo, host: IPv4Address) -> None:
        self.way, self.host = way, host


class _Second(NamedTuple):
    number: int
    sent: Counter[WayTo]
    lost: Counter[WayTo]
    sent_to: Counter[Target]
    lost_to: Counter[Target]
    again: Counter[WayTo]
    bursts: Counter[WayTo]
    carried: Counter[Label]


class LossWindow:
    """Probes and retransmissions of the last `WINDOW_SECONDS`, by path.

    Attributes:
        fresh: There have been losses since `worst` was asked for.
    """

    def __init__(self) -> None:
        self.fresh = False
        self._seconds: deque[_Second] = deque()
        self._whole = self._empty(0)

    @staticmethod
    def _empty(number: int) -> _Second:
        return _Second(number, Counter(), Counter(), Counter(), Counter(), Counter(), Counter(), Counter())

    def probed(self, target: Target, lost: bool, now: float) -> None:
        """Note a probe whose fate is known."""
        way = target.way
        for second in (self._at(now), self._whole):
            second.sent[way] += 1
            second.sent_to[target] += 1
            if lost:
                second.lost[way] += 1
                second.lost_to[target] += 1
                self.fresh = True

    def sent_again(self, way: WayTo, now: float, begins: bool = True) -> None:
        """Note a retransmission of what a path had carried, and whether it begins a burst, whose losses have one cause."""
        for second in (self._at(now), self._whole):
            second.again[way] += 1
            second.bursts[way] += begins
        self.fresh = True

    def carried(self, packets: Mapping[Label, int], now: float) -> None:
        """Note how many packets went out under each label since the last call."""
        second = self._at(now)
        for label, count in packets.items():
            if count:
                second.carried[label] += count
                self._whole.carried[label] += count

    def forget_second(self, now: float) -> None:
        """Forget the retransmissions of this second."""
        second = self._at(now)
        for whole, counts in ((self._whole.again, second.again), (self._whole.bursts, second.bursts)):
            whole.subtract(counts)
            counts.clear()

    def forget(self, section: Section) -> None:
        """Forget what was noted of the paths of a section."""
        for second in (*self._seconds, self._whole):
            for counts in (second.sent, second.lost, second.again, second.bursts):
                for way in [way for way in counts if section.covers(way)]:
                    del counts[way]
            for to_hosts in (second.sent_to, second.lost_to):
                for target in [target for target in to_hosts if section.covers(target.way)]:
                    del to_hosts[target]

    def __len__(self) -> int:
        """Return the number of paths of which something is known."""
        return len(self._whole.sent)

    def advance(self, now: float) -> None:
        """Forget what is too old."""
        while self._seconds and self._seconds[0].number <= int(now) - WINDOW_SECONDS:
            self._take_out(self._seconds.popleft())

    def worst(self, without: Iterable[Section], is_only_witness: Callable[[Section, bytes], bool]) -> Excess | None:
        """Return the section that certainly loses more than the other paths of its racks, if there is any.

        Among several it is the least probable one; paths of sections that are avoided already count neither for nor against.
        Where one host alone says so, ``is_only_witness`` tells of its address whether it is believed; it is empty for
        retransmissions.

        References:
            Hoeffding: Probability Inequalities for Sums of Bounded Random Variables. JASA 58 (1963), theorem 1.
        """
        self.fresh = False
        avoided = tuple(without)
        suspects: set[Section] = set()
        for counts in (self._whole.lost, self._whole.again):
            losses: Counter[Section] = Counter()
            for way in self._but(avoided, counts):
                losses.update(dict.fromkeys(sections(way), counts[way]))
            suspects.update(section for section, count in losses.items() if count >= MIN_LOSSES)
        known = set(self._but(avoided, {*self._whole.sent, *self._whole.again, *self._beside()})) if suspects else set()
        found = [excess for section in suspects if (excess := self._excess(section, known, is_only_witness)) is not None]
        return min(found, key=lambda excess: (excess.chance, str(excess.section)), default=None)

    def share_without(self, prefix: bytes, losses: float) -> float:
        """Return the share of probes that hosts of other addresses lose, with so many losses less, and one probe lost at least.

        A host that has answered none says nothing.
        """
        sent, lost = Counter[IPv4Address](), Counter[IPv4Address]()
        for counts, to_hosts in ((sent, self._whole.sent_to), (lost, self._whole.lost_to)):
            for target, count in to_hosts.items():
                counts[target.host] += count
        others = [host for host in sent if lost[host] < sent[host] and not host.packed.startswith(prefix)]
        return max(1.0, sum(lost[host] for host in others) - losses) / max(1, sum(sent[host] for host in others))

    @staticmethod
    def _but(avoided: Iterable[Section], ways: Iterable[WayTo]) -> Iterator[WayTo]:
        return (way for way in ways if not any(section.covers(way) for section in avoided))

    def _beside(self) -> Iterator[WayTo]:
        """Yield the paths to racks with retransmissions that have carried something: losses might have been on any of them."""
        ups = [tuple(hop for hop in label if hop != UNUSED) for label in self._whole.carried]
        for pod, edge, hops in {(way.pod, way.edge, len(way.up)) for way in self._whole.again}:
            yield from (WayTo(pod, edge, up) for up in ups if len(up) == hops)

    def _excess(self, section: Section, known: set[WayTo], is_only_witness: Callable[[Section, bytes], bool]) -> Excess | None:
        inside = {way for way in known if section.covers(way)}
        racks = {way[:2] for way in inside}
        outside = {way for way in known if way[:2] in racks and way not in inside}
        if not outside:
            return None
        second = self._whole
        by_probes, by_traffic = self._by_probes(second, inside, outside), self._by_traffic(second, inside, outside)
        tests, believed = [test for test in (by_probes, by_traffic) if test is not None], list[Test]()
        if by_probes is not None and self._is_witnessed(section, inside, outside):
            believed.append(by_probes)
        if by_traffic is not None and self._is_traffic_witnessed(inside, outside):
            believed.append(by_traffic)
        if tests and not believed:
            losses = self._lost_to(inside, section.edge is None)
            if is_only_witness(section, max(losses, key=losses.__getitem__, default=b"")):
                believed = tests
        return Excess(section, *min(believed, key=lambda test: test[2])) if believed else None

    def _lost_to(self, ways: set[WayTo], by_rack: bool) -> Counter[bytes]:
        """Return the lost probes on some paths by host, or by rack."""
        losses: Counter[bytes] = Counter()
        for target, count in self._whole.lost_to.items():
            if target.way in ways:
                losses[target.host.packed[:3] if by_rack else target.host.packed] += count
        return losses

    def _is_witnessed(self, section: Section, inside: set[WayTo], outside: set[WayTo]) -> bool:
        """Tell whether the test by probes holds without its main witness: a host, or a rack of a section that leads to several."""
        [(main, _)] = self._lost_to(inside, section.edge is None).most_common(1)
        sums = {True: [0, 0], False: [0, 0]}
        for lost, counts in enumerate((self._whole.sent_to, self._whole.lost_to)):
            for target, count in counts.items():
                if (target.way in inside or target.way in outside) and not target.host.packed.startswith(main):
                    sums[target.way in inside][lost] += count
        (sent, lost), (others_sent, others_lost) = sums[True], sums[False]
        if not lost or not others_sent:
            return False
        expected = (lost + others_lost) * sent / (sent + others_sent)
        return _judged(lost, others_lost, expected, lost / sent, others_lost / others_sent, WITNESS_CHANCE) is not None

    def _is_traffic_witnessed(self, inside: set[WayTo], outside: set[WayTo]) -> bool:
        """Tell whether the test by traffic holds without the rack with most of it, or probes to several hosts are lost, too."""
        bursts: Counter[tuple[int, int]] = Counter()
        for way in inside:
            bursts[way[:2]] += self._whole.bursts[way]
        [(main, _)] = bursts.most_common(1)
        rest, others = ({way for way in ways if way[:2] != main} for ways in (inside, outside))
        if rest and self._by_traffic(self._whole, rest, others, least=1, most=WITNESS_CHANCE):
            return True
        losses = self._lost_to(inside, by_rack=False)
        return sum(losses.values()) > max(losses.values(), default=0)

    @staticmethod
    def _by_probes(second: _Second, inside: set[WayTo], outside: set[WayTo]) -> Test | None:
        lost, others_lost = (sum(second.lost[way] for way in ways) for ways in (inside, outside))
        sent, others_sent = (sum(second.sent[way] for way in ways) for ways in (inside, outside))
        if lost < MIN_LOSSES or not others_sent:
            return None
        expected = (lost + others_lost) * sent / (sent + others_sent)
        return _judged(lost, others_lost, expected, lost / sent, others_lost / others_sent)

    @staticmethod
    def _by_traffic(
        second: _Second, inside: set[WayTo], outside: set[WayTo], least: int = MIN_LOSSES, most: float = CHANCE / 2
    ) -> Test | None:
        lost, others_lost = (sum(second.again[way] for way in ways) for ways in (inside, outside))
        if lost < least:
            return None
        expected = 0.0
        for rack in {way[:2] for way in inside}:
            here = [sum(second.carried[_label(way)] for way in ways if way[:2] == rack) for ways in (inside, outside)]
            bursts = sum(second.bursts[way] for way in (*inside, *outside) if way[:2] == rack)
            expected += bursts * here[0] / sum(here) if sum(here) else bursts
        sent, others_sent = (sum(second.carried[label] for label in {*map(_label, ways)}) for ways in (inside, outside))
        if not sent or not others_sent:
            return None
        hits, others = (sum(second.bursts[way] for way in ways) for ways in (inside, outside))
        return _judged(hits, others, expected, lost / sent, others_lost / others_sent, most)

    def _at(self, now: float) -> _Second:
        if not self._seconds or self._seconds[-1].number < int(now):
            self.advance(now)
            self._seconds.append(self._empty(int(now)))
        return self._seconds[-1]

    def _take_out(self, second: _Second) -> None:
        whole = self._whole
        of_ways = (whole.sent, second.sent), (whole.lost, second.lost), (whole.again, second.again), (whole.bursts, second.bursts)
        for total, old in of_ways:
            total -= old
        for to_hosts, old_to in ((whole.sent_to, second.sent_to), (whole.lost_to, second.lost_to)):
            to_hosts -= old_to
        _carried = whole.carried
        _carried -= second.carried


def _judged(hits: int, others: int, expected: float, share: float, others_share: float, most: float = CHANCE / 2) -> Test | None:
    """Return share, that of others and the probability of so many losses by chance, if all of them say that it is worse.

    ``most`` is the probability at most: of one of two tests.
    """
    if share < MIN_SHARE or share < MIN_RATIO * others_share:
        return None
    chance = by_chance(hits, hits + others, expected)
    return (share, others_share, chance) if chance <= most else None


def by_chance(hits: int, count: int, expected: float) -> float:
    """Return a bound of the probability that at least so many of ``count`` independent losses fall on a section.

    Args:
        expected: How many are expected there; the losses' own probabilities may differ.

    Ten losses, all on one of four paths:

    >>> f"{by_chance(10, 10, 2.5):.1e}", by_chance(2, 10, 2.5)
    ('9.5e-07', 1.0)
    """
    if not count or hits <= expected:
        return 1.0
    mean, share = expected / count, hits / count
    distance = share * math.log(share / mean) if mean else math.inf
    if share < 1:
        distance += (1 - share) * math.log((1 - share) / (1 - mean))
    return math.exp(-count * distance)


def _label(way: WayTo) -> Label:
    return hop_bytes(way.up)
