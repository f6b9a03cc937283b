"""The lists of the hosts that run MCS, one for each variant, and what each agent was sent of them. Pure.

A host is listed once its agent has acknowledged a version, since its programs are attached then. One whose agent leaves is taken
off; one whose channel is lost stays for a while, since the programs of a killed agent go on and its successor takes them over. With
the kind ``ports`` it does not: it would not hear of hosts that begin to scatter, and could not translate what they send.
Agents hear of changes at most once a second, in one message of their own: nothing of it touches the versions of the fabric.
A host is in one list, and lists that nobody is in or reads are forgotten: there are no more of them than hosts, whatever variants
agents name.

The leader of a cluster lists the hosts of its relays, too: `RelayDesk` says which relay holds which. A relay's own lists are
those of `HandedMcsHosts`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.mcs import ChannelKind, HostList, Variant
from topologies import Host

INTERVAL_SECONDS = 1.0
"""The least time between two changes of a list."""
MESSAGES_A_SECOND = 2000
"""With more agents than this the time between two changes is longer."""
LOST_SECONDS = 60.0
"""A host whose channel is lost is listed for so long, by paths."""
SETTLE_SECONDS = 10.0
"""After so long all agents have found a restarted controller."""
OVERDUE_SECONDS = 5.0
"""A host whose agent does not acknowledge a list for so long is not scattered to, by ports."""
MAX_IN_SNAPSHOT = 512
"""A longer list is a message of its own behind the snapshot: its text is the same for all agents, and made once."""

Holder = object
"""What a host's agent is connected to: its session here, or a relay."""


@dataclass(slots=True)
class Listed:
    """A listed host: ``since`` the list of that number, 0 before; ``holder`` is None while its channel is lost."""

    address: IPv4Address
    holder: Holder | None
    since: int = 0
    lost_at: float | None = None

    @property
    def session(self) -> AgentSession | None:
        """Its agent's session, if that is here."""
        return self.holder if isinstance(self.holder, AgentSession) else None


class McsHosts:
    """The lists of all variants."""

    def __init__(self) -> None:
        self._listed: dict[Variant, dict[Host, Listed]] = {}
        self._published: dict[Variant, HostList] = {}
        self._changed: set[Variant] = set()
        self._texts: dict[tuple[Variant, int, int], str] = {}
        self._last = 0  # number, of all lists: one that was forgotten begins with a number that nobody has seen
        self._next = 0.0
        self._complete_at: float | None = None
        self._complete = False

    def begin(self) -> None:
        """Forget all hosts, as a controller does that has not led until now: their agents are still to come."""
        self._listed.clear()
        self._published.clear()
        self._changed.clear()
        self._texts.clear()
        self._complete_at, self._complete = None, False

    # -- the agents -----------------------------------------------------------------------------------------------------

    def connected(self, session: AgentSession) -> None:
        """Note a session that begins: its host does not run any other variant any more."""
        for variant in list(self._listed):
            if variant != session.variant or variant.kind == ChannelKind.PORTS:
                self._remove(variant, session.host)

    def acknowledged(self, session: AgentSession, address: IPv4Address, number: int) -> None:
        """Note that an agent has acknowledged a version of the fabric, and the list of that number."""
        if session.variant is None:
            return
        session.mcs_acknowledged = number
        self.hold(session, session.variant, session.host, address)

    def closed(self, session: AgentSession, left: bool) -> None:
        """Note that a session has ended; ``left`` if its agent has said so."""
        if session.variant is None:
            return
        if left or session.variant.kind == ChannelKind.PORTS:
            self.leave(session, session.host)
        else:
            self.lose(session, session.host)

    # -- those of relays, too -------------------------------------------------------------------------------------------

    def hold(self, holder: Holder, variant: Variant, host: Host, address: IPv4Address) -> None:
        """Note that a host runs a variant, and what its agent is connected to: nothing else holds it any more."""
        if variant not in self._listed:
            self._forget(self._published)  # an agent that comes as ever another variant leaves no lists to the next tick
        entry = self._listed.setdefault(variant, {}).get(host)
        if entry is None:
            self._listed[variant][host] = Listed(address, holder)
            self._changed.add(variant)
        else:
            entry.holder, entry.lost_at = holder, None

    def lose(self, holder: Holder, host: Host) -> None:
        """Note that a holder has lost the channel of a host's agent: the host stays listed for a while."""
        for listed in self._listed.values():
            entry = listed.get(host)
            if entry is not None and entry.holder is holder:
                entry.holder = None

    def leave(self, holder: Holder, host: Host) -> None:
        """Note that a host's agent has ended and said so, unless something else holds the host by now."""
        for variant, listed in self._listed.items():
            entry = listed.get(host)
            if entry is not None and entry.holder in (holder, None):
                self._remove(variant, host)

    def remove(self, host: Host, *, unless: Variant | None = None) -> None:
        """Note that a host runs none of it any more, whatever held it, or no other variant than one."""
        for variant in self._listed:
            if variant != unless:
                self._remove(variant, host)

    def lose_all(self, holder: Holder) -> None:
        """Note that a relay's channel is lost."""
        for listed in self._listed.values():
            for entry in listed.values():
                if entry.holder is holder:
                    entry.holder = None

    def lists(self, kind: ChannelKind) -> dict[Variant, HostList] | None:
        """Return the present lists of a kind; None while they lack what has been noted since they were made."""
        if any(variant.kind == kind for variant in self._changed):
            return None
        return {variant: host_list for variant, host_list in self._published.items() if variant.kind == kind}

    @property
    def is_complete(self) -> bool:
        """Whether a host that is missing does not run it, rather than has not come back yet."""
        return self._complete

    def _remove(self, variant: Variant, host: Host) -> None:
        if self._listed[variant].pop(host, None) is not None:
            self._changed.add(variant)

    # -- to the agents --------------------------------------------------------------------------------------------------

    def tick(self, now: float, sessions: Iterable[AgentSession]) -> list[AgentSession]:
        """Make new lists if it is time and something has changed; return the sessions that are to be sent one."""
        if self._complete_at is None:
            self._complete_at = now + SETTLE_SECONDS
        self._complete = now >= self._complete_at
        if now < self._next or not self._listed:
            return []
        self._drop_lost(now)
        changed = {variant for variant in self._listed if self._is_due(variant) and self._publish(variant, now)}
        self._changed.clear()
        self._forget(each.variant for each in sessions)
        self._next = now + INTERVAL_SECONDS
        if not changed:
            return []
        told = [each for each in sessions if each.variant in changed and each.mcs_sent]
        self._next = now + max(INTERVAL_SECONDS, len(told) / MESSAGES_A_SECOND)
        return told

    def list_for(self, session: AgentSession, now: float) -> HostList | None:
        """Return the list that a session's snapshot has, and note that it is sent; None if its agent does not run MCS."""
        if session.variant is None:
            return None
        host_list = self._current(session.variant)
        self._note_sent(session, host_list if len(host_list.hosts) <= MAX_IN_SNAPSHOT else _TO_FOLLOW, now)
        return session.mcs_sent

    def due(self, session: AgentSession, now: float) -> str | None:
        """Return the message that brings a session to the current list, and note that it is sent; None if it has that."""
        before = session.mcs_sent
        if session.variant is None or before is None:
            return None
        after = self._current(session.variant)
        if after.number == before.number:
            return None
        key = session.variant, before.number, after.number
        if key not in self._texts:
            self._texts[key] = protocol.host_change(before, after)
        self._note_sent(session, after, now)
        return self._texts[key]

    def _note_sent(self, session: AgentSession, host_list: HostList, now: float) -> None:
        session.mcs_sent, session.mcs_sent_at = host_list, now

    def _current(self, variant: Variant) -> HostList:
        return self._published.get(variant) or HostList(0, frozenset(), 0, self._is_complete(variant))

    def _is_complete(self, variant: Variant) -> bool:
        return self._complete

    def _is_due(self, variant: Variant) -> bool:
        """Return True if a list may differ from the one before; by ports it depends on what agents acknowledge, too."""
        before = self._published.get(variant)
        if before is None or variant.kind == ChannelKind.PORTS or variant in self._changed:
            return True
        return before.complete != self._is_complete(variant)

    def _forget(self, used: Iterable[Variant | None]) -> None:
        """Forget the lists that nobody is in, but for those that are still used."""
        empty = {variant for variant, listed in self._listed.items() if not listed and not self._needs(variant)}
        if empty and (empty := empty.difference(used)):
            for variant in empty:
                del self._listed[variant]
                self._published.pop(variant, None)
            self._changed -= empty
            self._texts = {key: text for key, text in self._texts.items() if key[0] not in empty}

    def _needs(self, variant: Variant) -> bool:
        """Tell whether a list has hosts that this object does not hold, or agents have to hear that they are gone."""
        return bool(self._current(variant).hosts)

    def _drop_lost(self, now: float) -> None:
        for variant, listed in self._listed.items():
            for host, entry in list(listed.items()):
                if entry.holder is None and entry.lost_at is None:
                    entry.lost_at = now
                elif entry.lost_at is not None and now - entry.lost_at >= LOST_SECONDS:
                    self._remove(variant, host)

    def _hosts(self, variant: Variant, chosen: frozenset[IPv4Address], now: float) -> frozenset[IPv4Address]:
        """Return the hosts of a list, by those that this object holds."""
        return chosen

    def _publish(self, variant: Variant, now: float) -> bool:
        """Make a new list of a variant if there is something to say; return True if so."""
        before = self._current(variant)
        chosen = [entry for entry in self._listed[variant].values() if self._belongs(entry, variant, before, now)]
        hosts = self._hosts(variant, frozenset(entry.address for entry in chosen), now)
        complete = self._is_complete(variant)
        known = self._known(variant, chosen, before.number)
        by_ports = variant.kind == ChannelKind.PORTS
        waited_for = by_ports and any(entry.since == 0 or before.known < entry.since <= known for entry in chosen)
        if before.number and hosts == before.hosts and before.complete == complete and not waited_for:
            return False
        number = self._last = self._last + 1
        for entry in self._listed[variant].values():
            entry.since = (entry.since or number) if entry.address in hosts else 0
        self._published[variant] = HostList(number, hosts, known, complete)
        self._texts = {key: text for key, text in self._texts.items() if key[0] != variant}
        return True

    def _belongs(self, entry: Listed, variant: Variant, before: HostList, now: float) -> bool:
        """Return True if a host is to be scattered to: by ports, only if it knows all that may do that, and answers."""
        if variant.kind != ChannelKind.PORTS:
            return True
        session = entry.session
        if session is None or session.mcs_acknowledged < before.known:
            return False
        sent = session.mcs_sent
        is_late = sent is not None and session.mcs_acknowledged < sent.number
        return not is_late or now - session.mcs_sent_at < OVERDUE_SECONDS

    def _known(self, variant: Variant, chosen: list[Listed], number: int) -> int:
        """Return the latest list that all these know; where nothing depends on it, the latest."""
        if variant.kind != ChannelKind.PORTS:
            return number
        return min([number, *(entry.session.mcs_acknowledged for entry in chosen if entry.session is not None)])


_TO_FOLLOW = HostList(0, frozenset(), 0, False)
"""In the place of a long list: an agent keeps what it knows until the message behind the snapshot."""
