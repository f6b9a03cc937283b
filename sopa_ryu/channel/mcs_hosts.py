"""The controller's lists of the hosts that run MCS, one for each variant, and what each agent was sent of them. Pure.

A host is listed once its agent has acknowledged a version, since its programs are attached then. One whose agent leaves is taken
off; one whose channel is lost stays for a while, since the programs of a killed agent go on and its successor takes them over. With
the kind ``ports`` it does not: it would not hear of hosts that begin to scatter, and could not translate what they send.
Agents hear of changes at most once a second, in one message of their own: nothing of it touches the versions of the fabric.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from sopa_ryu.channel import mcs
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.mcs import ChannelKind, HostList, Variant

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


@dataclass(slots=True)
class _Listed:
    """A listed host: ``since`` the list of that number, 0 before; ``session`` is None while its channel is lost."""

    address: IPv4Address
    session: AgentSession | None
    since: int = 0
    lost_at: float | None = None


class McsHosts:
    """The lists of all variants."""

    def __init__(self) -> None:
        self._listed: dict[Variant, dict[str, _Listed]] = {}
        self._published: dict[Variant, HostList] = {}
        self._texts: dict[tuple[Variant, int, int], str] = {}
        self._next = 0.0
        self._complete_at: float | None = None
        self._complete = False

    # -- the agents -----------------------------------------------------------------------------------------------------

    def connected(self, session: AgentSession) -> None:
        """Note a session that begins: its host does not run any other variant any more."""
        for variant, listed in self._listed.items():
            if variant != session.variant or variant.kind == ChannelKind.PORTS:
                listed.pop(session.name, None)

    def acknowledged(self, session: AgentSession, address: IPv4Address, number: int) -> None:
        """Note that an agent has acknowledged a version of the fabric, and the list of that number."""
        if session.variant is None:
            return
        session.mcs_acknowledged = number
        listed = self._listed.setdefault(session.variant, {})
        its = listed.setdefault(session.name, _Listed(address, session))
        its.session, its.lost_at = session, None

    def closed(self, session: AgentSession, left: bool) -> None:
        """Note that a session has ended; ``left`` if its agent has said so."""
        variant = session.variant
        its = self._listed.get(variant, {}).get(session.name) if variant else None
        if variant is None or its is None or its.session is not session:
            return
        its.session = None
        if left or variant.kind == ChannelKind.PORTS:
            del self._listed[variant][session.name]

    # -- to the agents --------------------------------------------------------------------------------------------------

    def tick(self, now: float, sessions: Iterable[AgentSession]) -> list[AgentSession]:
        """Make new lists if it is time and something has changed; return the sessions that are to be sent one."""
        if self._complete_at is None:
            self._complete_at = now + SETTLE_SECONDS
        self._complete = now >= self._complete_at
        if now < self._next or not self._listed:
            return []
        self._drop_lost(now)
        changed = {variant for variant in self._listed if self._publish(variant, now)}
        self._next = now + max(INTERVAL_SECONDS, sum(map(len, self._listed.values())) / MESSAGES_A_SECOND)
        return [each for each in sessions if each.variant in changed and each.mcs_sent] if changed else []

    def list_for(self, session: AgentSession, now: float) -> HostList | None:
        """Return the list that a session's snapshot has, and note that it is sent; None if its agent does not run MCS."""
        if session.variant is None:
            return None
        self._note_sent(session, self._current(session.variant), now)
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
            self._texts[key] = mcs.change(before, after)
        self._note_sent(session, after, now)
        return self._texts[key]

    def _note_sent(self, session: AgentSession, its: HostList, now: float) -> None:
        session.mcs_sent, session.mcs_sent_at = its, now

    def _current(self, variant: Variant) -> HostList:
        return self._published.get(variant) or HostList(0, frozenset(), 0, self._complete)

    def _drop_lost(self, now: float) -> None:
        for listed in self._listed.values():
            for name, its in list(listed.items()):
                if its.session is None and its.lost_at is None:
                    its.lost_at = now
                elif its.lost_at is not None and now - its.lost_at >= LOST_SECONDS:
                    del listed[name]

    def _publish(self, variant: Variant, now: float) -> bool:
        """Make a new list of a variant if there is something to say; return True if so."""
        before = self._current(variant)
        chosen = [its for its in self._listed[variant].values() if self._belongs(its, variant, before, now)]
        hosts = frozenset(its.address for its in chosen)
        known = self._known(variant, chosen, before.number)
        by_ports = variant.kind == ChannelKind.PORTS
        waited_for = by_ports and any(its.since == 0 or before.known < its.since <= known for its in chosen)
        if before.number and hosts == before.hosts and before.complete == self._complete and not waited_for:
            return False
        number = before.number + 1
        for its in self._listed[variant].values():
            its.since = (its.since or number) if its.address in hosts else 0
        self._published[variant] = HostList(number, hosts, known, self._complete)
        self._texts = {key: text for key, text in self._texts.items() if key[0] != variant}
        return True

    def _belongs(self, its: _Listed, variant: Variant, before: HostList, now: float) -> bool:
        """Return True if a host is to be scattered to: by ports, only if it knows all that may do that, and answers."""
        if variant.kind != ChannelKind.PORTS:
            return True
        session = its.session
        if session is None or session.mcs_acknowledged < before.known:
            return False
        sent = session.mcs_sent
        is_late = sent is not None and session.mcs_acknowledged < sent.number
        return not is_late or now - session.mcs_sent_at < OVERDUE_SECONDS

    def _known(self, variant: Variant, chosen: list[_Listed], number: int) -> int:
        """Return the latest list that all these know; where nothing depends on it, the latest."""
        if variant.kind != ChannelKind.PORTS:
            return number
        return min([number, *(its.session.mcs_acknowledged for its in chosen if its.session is not None)])
