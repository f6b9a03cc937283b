"""The leader's side of its relays' channels: which relay has which hosts, and what each is sent. Pure.

What a relay says of its hosts cannot be proven, but it may not take a host over whose reports another one hands on: its agent is
there. The controller's own front is believed at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from ipaddress import IPv4Address

from sopa_ryu.channel import relayed
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.mcs_hosts import McsHosts
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.probe_lists import REPORT_SECONDS, REPORTS_AT_ONCE, ProbeLists
from sopa_ryu.channel.relayed import Feed, Given, Handed, McsEvents, Relayed, TraceAnswers
from topologies import Clos, Host

LOG = logging.getLogger("sopa.notify")

SILENT_SECONDS = 3.0
"""A host of which a relay has handed on no report for so long may be another's: agents report once a second."""


class RelayDesk:
    """The relays that are connected.

    Args:
        lists: Of all agents, whose reports those of relays are added to.
        traced: Takes what a host's agent answers to a trace; raises `ProtocolError`.
        mcs: The lists of all hosts that run MCS, to which those of relays are added.
        now: Return the time in seconds.

    Attributes:
        counts: Those of the lists; also ``foreign`` reports and answers, of hosts that are none of the relay's, which are
            dropped, and ``malformed`` messages.
    """

    def __init__(
        self,
        tree: Clos,
        lists: ProbeLists,
        traced: Callable[[Host, str], None] = lambda host, text: None,
        mcs: McsHosts | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.relays: dict[str, Relayed] = {}
        self.counts: Counter[str] = lists.counts
        self.counts.update(foreign=0, malformed=0)
        self._now = now
        self._heard: dict[int, tuple[Relayed, float]] = {}
        self._tree, self._lists, self._traced = tree, lists, traced
        self._mcs = mcs or McsHosts()
        self._hosts = list(tree.hosts())
        self._places = {host: place for place, host in enumerate(self._hosts)}

    # -- the relays -----------------------------------------------------------------------------------------------------

    def own(self, connection: object) -> Relayed:
        """Begin the channel of the controller's own front, which is trusted with every host; it has no name."""
        front = self.relays[""] = Relayed("", "", connection)
        front.places, front.traces = frozenset(range(len(self._hosts))), True
        return front

    def entered(self, name: str, peer: str, connection: object) -> tuple[Relayed, Relayed | None]:
        """Begin a relay's channel; return it, and the former one of the same name, which is to be closed."""
        former = self.relays.get(name)
        relay = self.relays[name] = Relayed(name, peer, connection)
        LOG.info("relay at %s connected, %s: the probes of its agents come by it", peer, name)
        return relay, former

    def left(self, relay: Relayed) -> None:
        """End a relay's channel: its agents' programs go on answering probes."""
        self._lists.relays(relay, set())
        self._mcs.lose_all(relay)
        self._heard = {place: heard for place, heard in self._heard.items() if heard[0] is not relay}
        if self.relays.get(relay.name) is not relay:
            return
        del self.relays[relay.name]
        if relay.name:
            LOG.info("relay at %s disconnected, %s: its agents go on with the streams that they have", relay.peer, relay.name)

    def received(self, relay: Relayed, message: str | bytes) -> bool:
        """Take a relay's message; return whether something is due to it. Raises `ProtocolError` if it is malformed."""
        try:
            return self._take_reports(relay, message) if isinstance(message, bytes) else self._take(relay, message)
        except ProtocolError:
            self.counts["malformed"] += 1
            raise

    def _take(self, relay: Relayed, message: str) -> bool:
        said = relayed.from_relay(message, len(self._hosts))
        if isinstance(said, TraceAnswers):
            wrong = [place for place, text in said.rows if not self._take_traced(relay, place, text)]
            for place in wrong:
                relay.forged(place, 1)
            return bool(wrong)
        if isinstance(said, McsEvents):
            self._take_mcs(relay, said)
            return False
        if said.mcs and relay.mcs is None:
            relay.mcs = Feed()
        if relay.name:
            relay.places, relay.traces = frozenset(said.hosts), said.traces
        elsewhere = {place for place in said.hosts if self._is_elsewhere(relay, place)}
        again = self._lists.relays(relay, {self._hosts[place] for place in said.hosts if place not in elsewhere})
        # an agent reports only once it has a list, and is known to be here only once it reports
        return self._give(relay, [*again, *(self._hosts[place] for place in elsewhere)])

    def _is_elsewhere(self, relay: Relayed, place: int) -> bool:
        """Tell whether another relay hands on the reports of a host."""
        by, at = self._heard.get(place, (relay, 0.0))
        return by.name != relay.name != "" and self._now() - at < SILENT_SECONDS

    def _give(self, relay: Relayed, hosts: list[Host]) -> bool:
        for host in hosts:
            relay.give(Given(self._places[host], *self._lists.list_of(host)))
        return bool(hosts)

    def _take_reports(self, relay: Relayed, message: bytes) -> bool:
        """Take reports at the pace of `ProbeLists.take`; what they prove to be here is given its list again."""
        now, count = self._now(), len(relay.places)
        left = relay.reports_left + (now - relay.reported_at) * count / REPORT_SECONDS
        relay.reports_left, relay.reported_at = min(REPORTS_AT_ONCE * count, left), now
        kept, moved = [], []
        found = relayed.reports(message, int(relay.reports_left))
        for place, report in found:
            if place not in relay.places or self._is_elsewhere(relay, place):
                continue
            kept.append(report)
            self._heard[place] = relay, now
            if relay.name and self._lists.answering.get(host := self._hosts[place]) is not relay:
                moved.append(host)
        relay.reports_left -= len(found)
        relay.wrong_since = (relay.wrong_since or now) if len(kept) < len(found) else 0.0
        if relay.wrong_since and now - relay.wrong_since > 2 * SILENT_SECONDS:
            LOG.warning(
                "relay at %s, %s, hands on reports of hosts that another one has, %d in a message. They are dropped. Check which "
                "relay is right",
                relay.peer,
                relay.name,
                len(found) - len(kept),
            )
        self.counts["foreign"] += len(found) - len(kept)
        self.counts["excess"] += len(message) > sum(len(report) for _, report in found)
        self._lists.take_relayed(b"".join(kept), len(kept))
        return self._give(relay, self._lists.take_over(relay, moved))

    def _take_traced(self, relay: Relayed, place: int, text: str) -> bool:
        """Take what an agent answers to a trace; return False if its relay has to be told that this was wrong."""
        if place not in relay.places:
            self.counts["foreign"] += 1
            return True
        try:
            self._traced(self._hosts[place], text)
        except ProtocolError as error:
            LOG.debug("relay at %s, %s: %s: %s", relay.peer, relay.name, self._hosts[place], error)
            return False
        return True

    def _take_mcs(self, relay: Relayed, told: McsEvents) -> None:
        """Take which of a relay's hosts have begun and ended to run MCS."""
        for place in (*told.lost, *told.left):
            relay.waiting.pop(place, None)
        for version, places in told.here:
            relay.waiting.update(dict.fromkeys(places, version))
        relay.waiting.update(dict.fromkeys(told.none))
        self._take_waiting(relay)
        for place in told.lost:
            self._mcs.lose(relay, self._hosts[place])
        for place in told.left:
            self._mcs.leave(relay, self._hosts[place])
        relay.mcs = relay.mcs or Feed()
        relay.mcs.heard = told.number

    def _take_waiting(self, relay: Relayed) -> None:
        """Take which version of MCS hosts run that are at no other relay, or not any more."""
        for place in [place for place in relay.waiting if not self._is_elsewhere(relay, place)]:
            host, version = self._hosts[place], relay.waiting.pop(place)
            variant = None if version is None else Variant(version, ChannelKind.PATHS)
            self._mcs.remove(host, unless=variant)
            if variant is not None:
                self._mcs.hold(relay, variant, host, self._tree.ip(host))

    # -- to the relays --------------------------------------------------------------------------------------------------

    def assign(self, host: Host, number: int, text: str) -> Relayed | None:
        """Give the list of a host to the relay that has its agent; None if no relay has it."""
        relay = self._lists.answering.get(host)
        if not isinstance(relay, Relayed):
            return None
        self._lists.assign(host, number, text)
        relay.give(Given(self._places[host], number, text))
        return relay

    def ask(self, relay: Relayed, host: Host, text: str) -> Relayed:
        """Have a relay ask the agent of a host for a trace, or end one."""
        relay.ask(Handed(self._places[host], text))
        return relay

    def forged(self, host: Host, count: int) -> Relayed | None:
        """Have the relay of a host's agent count forged records; None if no relay has it."""
        relay = self._lists.answering.get(host)
        if not isinstance(relay, Relayed):
            return None
        relay.forged(self._places[host], count)
        return relay

    def bring(self) -> list[Relayed]:
        """Bring relays to the present lists of the hosts that run MCS; return those to which something is due."""
        for relay in self.relays.values():
            self._take_waiting(relay)
        lists = self._mcs.lists(ChannelKind.PATHS)
        if lists is None:
            return []  # what relays have said is not in the lists yet
        complete = self._mcs.is_complete
        return [relay for relay in self.relays.values() if relay.mcs is not None and relay.mcs.bring(lists, complete)]

    def due(self, relay: Relayed) -> str | None:
        """Return the next message for a relay; None if nothing is due."""
        return relay.due(self._places_of)

    @cached_property
    def _places_of(self) -> dict[IPv4Address, int]:
        return {self._tree.ip(host): place for host, place in self._places.items()}
