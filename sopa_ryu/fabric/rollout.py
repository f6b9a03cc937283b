"""The rules of the fabric's version on their way to the switches, and the versions that all switches have confirmed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from flowrules.model import SwitchRules
from flowrules.switch_rules import switch_rules
from sopa_ryu.fabric.messages import Message
from sopa_ryu.fabric.phase import ADMITTING, Phase
from sopa_ryu.fabric.state import Change, FabricState
from sopa_ryu.fabric.switch_session import SwitchSession
from sopa_ryu.fabric.version_tracker import VersionTracker
from topologies import Host, Switch


class Rollout:
    """Brings each switch to the rules of the fabric's version, independently of the others.

    Parameters
    ----------
    state : FabricState
    sessions : mapping from Switch to SwitchSession
        Those of the connected switches, kept by `SwitchManager`.
    no_label : collection of Host
        Hosts that may not choose paths.
    """

    def __init__(
        self, state: FabricState, sessions: Mapping[Switch, SwitchSession], no_label: Collection[Host]
    ) -> None:
        self.state = state
        self._sessions = sessions
        self._no_label = no_label
        self._done: list[int] = []
        self._tracker = VersionTracker(self._done.append)

    def wanted(self, switch: Switch) -> SwitchRules:
        """Return the rules of a switch at the fabric's version."""
        return switch_rules(self.state.tree, switch, self.state.failures, self._no_label)

    def follow(self, since: int) -> list[SwitchSession]:
        """Begin with every version after one; return the sessions that are to follow."""
        following = {
            session: session.switch
            for session in self._sessions.values()
            if session.switch in self.state.connected or session.phase in ADMITTING
        }
        for version in range(min(since + 1, self.state.version), self.state.version + 1):
            self._tracker.begin(version, following.values())
        return list(following)

    def is_behind(self, session: SwitchSession) -> bool:
        """Tell whether a switch that has its rules in force needs others."""
        return session.is_to_mend or session.version != self.state.version

    def has_to_wait(self, session: SwitchSession) -> bool:
        """Tell whether a switch keeps the rules of an earlier controller for now: until it is known what has failed."""
        return not self.state.settled and session.may_have_foreign_state

    def next(self, session: SwitchSession) -> list[Message]:
        """Return the messages that bring a switch to its rules; nothing if there are none or it has to wait."""
        state = self.state
        match session.phase:
            case Phase.WAITING if not self.has_to_wait(session):
                session.phase = Phase.INSTALLING
                state.known_rules.sent(session.switch, state.failures)
                return session.install(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.is_to_mend:
                state.known_rules.sent(session.switch, state.failures)
                return session.mend(self.wanted(session.switch), state.version)
            case Phase.IN_FORCE if session.version != state.version:
                messages = session.update(self.wanted(session.switch), state.version)
                state.known_rules.sent(session.switch, state.failures)
                if not messages:
                    state.known_rules.confirmed(session.switch)
                    self._tracker.reached(session.switch, state.version)
                return messages
        return []

    def confirmed(self, session: SwitchSession) -> None:
        """Note that a switch has confirmed the rules that it was sent."""
        session.phase = Phase.IN_FORCE
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
