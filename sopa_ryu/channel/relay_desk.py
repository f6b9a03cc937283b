"""The leader's side of its relays' channels: which relay has which hosts, and what each is sent. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from ipaddress import IPv4Address

from sopa_ryu.channel import relayed
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.mcs_hosts import McsHosts
from sopa_ryu.channel.messages import ProtocolError
from sopa_ryu.channel.probe_lists import ProbeLists
from sopa_ryu.channel.relayed import Feed, Given, Handed, McsEvents, Relayed, TraceAnswers
from topologies import Clos, Host

LOG = logging.getLogger("sopa.notify")


class RelayDesk:
    """The relays that are connected.

    Args:
        lists: Of all agents, whose reports those of relays are added to.
        traced: Takes what a host's agent answers to a trace; raises `ProtocolError`.
        mcs: The lists of all hosts that run MCS, to which those of relays are added.

    Attributes:
        counts: ``foreign`` reports and answers: of hosts that are none of the relay's; they are dropped.
    """

    def __init__(
        self,
        tree: Clos,
        lists: ProbeLists,
        traced: Callable[[Host, str], None] = lambda host, text: None,
        mcs: McsHosts | None = None,
    ) -> None:
        self.relays: dict[str, Relayed] = {}
        self.counts: Counter[str] = Counter(foreign=0)
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
        LOG.info("relay %s connected from %s: the probes of its agents come by it", name, peer)
        return relay, former

    def left(self, relay: Relayed) -> None:
        """End a relay's channel: its agents' programs go on answering probes."""
        self._lists.relays(relay, set())
        self._mcs.lose_all(relay)
        if self.relays.get(relay.name) is not relay:
            return
        del self.relays[relay.name]
        if relay.name:
            LOG.info("relay %s disconnected: its agents go on with the streams that they have", relay.name)

    def received(self, relay: Relayed, message: str | bytes) -> bool:
        """Take a relay's message; return whether something is due to it. Raises `ProtocolError` if it is malformed."""
        if isinstance(message, bytes):
            kept, foreign = relayed.reports(message, relay.places)
            self.counts["foreign"] += foreign
            self._lists.take_relayed(kept, relayed.count(kept))
            return False
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
        again = self._lists.relays(relay, {self._hosts[place] for place in said.hosts})
        for host in again:
            relay.give(Given(self._places[host], *self._lists.list_of(host)))
        return bool(again)

    def _take_traced(self, relay: Relayed, place: int, text: str) -> bool:
        """Take what an agent answers to a trace; return False if its relay has to be told that this was wrong."""
        if place not in relay.places:
            self.counts["foreign"] += 1
            return True
        try:
            self._traced(self._hosts[place], text)
        except ProtocolError as error:
            LOG.debug("relay %s: %s: %s", relay.name, self._hosts[place], error)
            return False
        return True

    def _take_mcs(self, relay: Relayed, told: McsEvents) -> None:
        """Take which of a relay's hosts have begun and ended to run MCS."""
        for version, places in told.here:
            variant = Variant(version, ChannelKind.PATHS)
            for place in places:
                host = self._hosts[place]
                self._mcs.remove(host, unless=variant)
                self._mcs.hold(relay, variant, host, self._tree.ip(host))
        for place in told.lost:
            self._mcs.lose(relay, self._hosts[place])
        for place in told.left:
            self._mcs.leave(relay, self._hosts[place])
        for place in told.none:
            self._mcs.remove(self._hosts[place])
        relay.mcs = relay.mcs or Feed()
        relay.mcs.heard = told.number

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
