"""The rules of the fabric's version on their way to the switches, and the versions that all switches have confirmed. Pure.

A version is sent to the switches whose rules differ from those of the version before, which `flowrules.affected` finds. Any other
switch that has confirmed the version before has this one's rules, too, and is not asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from flowrules.affected import affected
from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.messages import Message
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_session import ADMITTING, SwitchPhase, SwitchSession
from sopa_ryu.fabric.view import VersionTracker
from topologies import Host, Switch
from topologies.failures import DEAD


class Rollout:
    """Brings each switch to the rules of the fabric's version, independently of the others."""

    def __init__(self, state: FabricState, sessions: Mapping[Switch, SwitchSession], no_label: Collection[Host]) -> None:
        self.state = state
        self._sessions = sessions
        self._no_label = no_label
        self._done: list[int] = []
        self._tracker = VersionTracker(self._done.append)
        self._followed = state.version, state.failures

    def wanted(self, switch: Switch) -> SwitchRules:
        """Return the rules of a switch at the fabric's version."""
        return switch_rules(self.state.tree, switch, self.state.failures, self._no_label)

    def follow(self, since: int) -> list[SwitchSession]:
        """Begin with every version after one; return the sessions that are to follow, in order.

        What still forwards is left by the lowest switches first, and what is used again is used by them last: in between no switch
        sends packets to one above that has no way for them. What is on its way to a dead element is lost in any order.
        """
        state, before = self.state, self._followed[1]
        others = self._differing(since)
        following: dict[SwitchSession, Switch] = {}
        advanced = False
        for session in self._sessions.values():
            switch = session.switch
            if switch not in state.connected and session.phase not in ADMITTING:
                continue
            if others is not None and switch not in others and session.holds(since):
                session.installation.version = state.version  # its rules are those of this version, too
                advanced = True
            else:
                following[session] = switch
        for version in range(min(since + 1, state.version), state.version + 1):
            if not self._tracker.begin(version, following.values()) and advanced and version > since:
                self._done.append(version)
        new = {state.failures[name] for name in state.failures.keys() - before.keys()}
        if new and new <= DEAD:
            return list(following)
        return sorted(following, key=lambda session: following[session].level, reverse=not new)

    def _differing(self, since: int) -> frozenset[Switch] | None:
        """Return the switches whose rules may differ from those of an earlier version; None if that is not known."""
        (version, before), self._followed = self._followed, (self.state.version, self.state.failures)
        return affected(before, self.state.failures) if version == since else None

    def is_behind(self, session: SwitchSession) -> bool:
        """Tell whether a switch that has its rules in force needs others."""
        return session.installation.is_to_mend or session.version != self.state.version

    def has_to_wait(self, session: SwitchSession) -> bool:
        """Tell whether a switch keeps the rules of an earlier controller for now: until it is known what has failed."""
        return not self.state.settled and session.installation.is_of_sopa

    def next(self, session: SwitchSession) -> list[Message]:
        """Return the messages that bring a switch to its rules; nothing if there are none or it has to wait."""
        state = self.state
        match session.phase:
            case SwitchPhase.WAITING if not self.has_to_wait(session):
                session.phase = SwitchPhase.INSTALLING
                state.known_rules.sent(session.switch, state.failures)
                return session.install(self.wanted(session.switch), state.version)
            case SwitchPhase.IN_FORCE if session.installation.is_to_mend:
                state.known_rules.sent(session.switch, state.failures)
                return session.mend(self.wanted(session.switch), state.version)
            case SwitchPhase.IN_FORCE if session.version != state.version:
                messages = session.update(self.wanted(session.switch), state.version)
                state.known_rules.sent(session.switch, state.failures)
                if not messages:
                    state.known_rules.confirmed(session.switch)
                    self._tracker.reached(session.switch, state.version)
                return messages
        return []

    def confirmed(self, session: SwitchSession) -> None:
        """Note that a switch has confirmed the rules that it was sent."""
        session.phase = SwitchPhase.IN_FORCE
        self.state.known_rules.confirmed(session.switch)
        self._tracker.reached(session.switch, session.version)

    def left(self, switch: Switch) -> None:
        """Wait for a switch no longer: it is gone, or does not take its rules."""
        self._tracker.left(switch)

    def confirmed_by_all(self) -> Iterator[Change]:
        """Yield once each version that every connected switch has confirmed."""
        while self._done:
            change = self.state.change(self._done.pop(0))
            if change is not None:
                yield change
