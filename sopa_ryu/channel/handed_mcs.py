"""A relay's lists of the hosts that run MCS: the leader's, with what the relay's own hosts have begun and ended since. Pure.

The leader's list has the hosts of all relays, this one's included, and is right where the two differ: a host may have gone to
another relay and ended there. What the leader has not heard yet, of this relay's own hosts, comes on top of it.

Without a leader the last list stays, and own hosts still come and go. What another leader says in its first seconds takes nothing
away, as most relays have not come back to it yet. Where the leader is of a release that does not speak of MCS, agents are told of
the hosts of this relay only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address
from itertools import islice

from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.mcs import ChannelKind, Variant
from sopa_ryu.channel.mcs_hosts import LOST_SECONDS, SETTLE_SECONDS, McsHosts
from sopa_ryu.channel.relayed import MAX_HOSTS, McsBegun, McsEvents, McsLists, may_be_handed
from topologies import Clos, Host


class What(StrEnum):
    """What has happened to a host of this relay."""

    HERE = "here"
    """Its agent runs MCS."""
    LOST = "lost"
    """The channel of its agent is lost."""
    LEFT = "left"
    """Its agent has ended and said so."""
    NONE = "none"
    """Its agent is connected and runs none of it."""


@dataclass(slots=True)
class _Event:
    """The latest of a host, until the leader has heard it: in the message of that number, 0 before it is sent."""

    what: What
    variant: Variant | None
    at: float | None = None
    number: int = 0


class HandedMcsHosts(McsHosts):
    """In the place of a controller's lists."""

    def __init__(self, tree: Clos) -> None:
        super().__init__()
        self._hosts_by_place = list(tree.hosts())
        self._places = {host: place for place, host in enumerate(self._hosts_by_place)}
        self._addresses: list[IPv4Address] = []
        self._tree = tree
        self._events: dict[Host, _Event] = {}
        self._lists: dict[Variant, set[IPv4Address]] = {}
        self._kept: dict[Variant, set[IPv4Address]] = {}
        self._follows = self._greeted = self._known_complete = False
        self._is_open = False
        self._opened_at: float | None = None
        self._number = 0

    # -- the leader -----------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """Note that there is a channel to a leader, who is to be told of all hosts."""
        if self._follows:
            self._kept = {variant: set(self._present(variant)) for variant in self._all_variants()}
        self._lists = {}
        self._is_open, self._opened_at, self._greeted, self._number = True, None, False, 0
        # who has ended is said again: the same leader may take it for lost, with the channel before
        ended = {host: event for host, event in self._events.items() if event.what in (What.LEFT, What.NONE)}
        for event in ended.values():
            event.number = 0
        self._events = ended
        for variant, listed in self._listed.items():
            if may_be_handed(variant):
                held = (host for host, entry in listed.items() if entry.holder is not None)
                self._events.update({host: _Event(What.HERE, variant) for host in held})

    def ended(self) -> None:
        """Note that this channel is lost, or the leader leads no longer."""
        self._is_open, self._opened_at, self._greeted = False, None, False

    def follow(self, news: McsLists) -> None:
        """Take the leader's lists."""
        self._greeted = self._follows = True
        for host in [host for host, event in self._events.items() if 0 < event.number <= news.heard]:
            del self._events[host]
        for version, added, removed in news.lists:
            variant, gone = Variant(version, ChannelKind.PATHS), self._named(removed)
            addresses = self._lists.setdefault(variant, set())
            addresses.difference_update(gone)
            addresses.update(self._named(added))
            if variant in self._kept:
                self._kept[variant].difference_update(gone)
        if news.complete:
            self._kept.clear()
            self._known_complete = True
        self._look_again()

    def take(self) -> McsEvents | None:
        """Return what the leader is told next; None if there is nothing, or it does not speak of MCS."""
        new = list(islice(((host, event) for host, event in self._events.items() if not event.number), MAX_HOSTS))
        if not self._greeted or not new:
            return None
        self._number += 1
        here: dict[int, list[int]] = {}
        rest: dict[What, list[int]] = {What.LOST: [], What.LEFT: [], What.NONE: []}
        for host, event in new:
            event.number = self._number
            if event.variant is not None and event.what is What.HERE:
                here.setdefault(event.variant.version, []).append(self._places[host])
            else:
                rest[event.what].append(self._places[host])
        begun = tuple(McsBegun(version, tuple(places)) for version, places in sorted(here.items()))
        return McsEvents(self._number, begun, *(tuple(rest[what]) for what in (What.LOST, What.LEFT, What.NONE)))

    # -- sopa_ryu.channel.mcs_hosts.McsHosts ----------------------------------------------------------------------------

    def connected(self, session: AgentSession) -> None:
        """Note a session that begins: its host does not run any other variant any more."""
        super().connected(session)
        others = [variant for variant in self._all_variants() if variant != session.variant]
        address = self._tree.ip(session.host)
        if any(self._has(variant, session.host, address) for variant in others):
            self._note(session.host, What.NONE)

    def acknowledged(self, session: AgentSession, address: IPv4Address, number: int) -> None:
        """Note that an agent has acknowledged a version of the fabric, and the list of that number."""
        variant = session.variant
        if variant is not None and may_be_handed(variant):
            entry = self._listed.get(variant, {}).get(session.host)
            new = entry is None or entry.holder is not session
            # a leader may have taken the claim of a relay that had not noticed that the agent was gone
            if new or (self._follows and not self._has(variant, session.host, address)):
                self._note(session.host, What.HERE, variant)
        super().acknowledged(session, address, number)

    def closed(self, session: AgentSession, left: bool) -> None:
        """Note that a session has ended; ``left`` if its agent has said so."""
        variant = session.variant
        if variant is not None and may_be_handed(variant):
            entry = self._listed.get(variant, {}).get(session.host)
            if entry is not None and entry.holder is session:
                self._note(session.host, What.LEFT if left else What.LOST)
        elif (event := self._events.get(session.host)) is not None and event.what is What.NONE:
            self._note(session.host, What.LEFT)  # which counts less than what another relay says by now
        super().closed(session, left)

    def tick(self, now: float, sessions: Iterable[AgentSession]) -> list[AgentSession]:
        """Make new lists if it is time and something has changed; return the sessions that are to be sent one."""
        if self._is_open and self._opened_at is None:
            self._opened_at = now
        if self._opened_at is not None and not self._greeted and now - self._opened_at >= SETTLE_SECONDS:
            self._fall_back()
        for host, event in list(self._events.items()):
            if event.what is What.LOST and event.at is None:
                event.at = now
            elif event.at is not None and now - event.at >= LOST_SECONDS:
                self._note(host, What.LEFT)
        return super().tick(now, sessions)

    def _needs(self, variant: Variant) -> bool:
        if super()._needs(variant) or self._lists.get(variant) or self._kept.get(variant):
            return True
        self._lists.pop(variant, None)
        self._kept.pop(variant, None)
        return False

    def _is_complete(self, variant: Variant) -> bool:
        return self._known_complete if may_be_handed(variant) else super()._is_complete(variant)

    def _hosts(self, variant: Variant, chosen: frozenset[IPv4Address], now: float) -> frozenset[IPv4Address]:
        if not may_be_handed(variant) or not self._follows:
            return chosen
        return frozenset(self._present(variant))

    # -- what follows ---------------------------------------------------------------------------------------------------

    def _has(self, variant: Variant, host: Host, address: IPv4Address) -> bool:
        """Tell whether a host is in the leader's list of a variant, or the leader is to be told of it."""
        if (event := self._events.get(host)) is not None and event.what is not What.LOST:
            return event.what is What.HERE and event.variant == variant
        return address in self._lists.get(variant, ()) or address in self._kept.get(variant, ())

    def _present(self, variant: Variant) -> set[IPv4Address]:
        """Return the leader's list of a variant with what it has not heard yet."""
        hosts = self._lists.get(variant, set()) | self._kept.get(variant, set())
        for host, event in self._events.items():
            address = self._tree.ip(host)
            if event.what is What.HERE and event.variant == variant:
                hosts.add(address)
            elif event.what is not What.LOST:
                hosts.discard(address)
        return hosts

    def _note(self, host: Host, what: What, variant: Variant | None = None) -> None:
        self._events[host] = _Event(what, variant)
        if what in (What.LEFT, What.NONE) and self._kept:
            address = self._tree.ip(host)
            for kept in self._kept.values():
                kept.discard(address)
        self._look_again()

    def _fall_back(self) -> None:
        """Tell agents of the relay's own hosts only, as the leader does not speak of MCS."""
        self._known_complete = True
        if self._follows:
            self._look_again()
            self._follows = False
            self._lists, self._kept = {}, {}

    def _all_variants(self) -> set[Variant]:
        return {variant for variant in self._listed.keys() | self._lists.keys() if may_be_handed(variant)}

    def _look_again(self) -> None:
        for variant in self._lists.keys() | self._kept.keys():
            self._listed.setdefault(variant, {})
        self._changed |= self._all_variants()

    def _named(self, places: Iterable[int]) -> list[IPv4Address]:
        if not self._addresses:
            self._addresses = [self._tree.ip(host) for host in self._hosts_by_place]
        return [self._addresses[place] for place in places]
