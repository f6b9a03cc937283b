"""The controller's side of the arbiter's channel: an agents' channel with a single place, and a term for each holder. Pure.

The controller gives every arbiter that it accepts a higher term, over its own restarts, too: it begins with the controller's epoch,
and an arbiter names the last term that it had, in case the controller's clock was set back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from sopa_ryu.channel import protocol
from sopa_ryu.channel.agent_session import AgentSession, Phase
from sopa_ryu.channel.effects import Effect
from sopa_ryu.channel.messages import MAX_LINKS, MAX_NUMBER, Ack, ArbiterReport, HostLink, HostLinks, encode
from sopa_ryu.channel.notifier import Notifier, Texts
from sopa_ryu.fabric.view import View
from topologies import Clos, Host, Link

LOG = logging.getLogger("sopa.notify")

ARBITER = Host(-1, -1, -1)
"""The arbiter's place among the sessions; no fabric has such a host."""
MAX_AHEAD_MS = 86_400_000
"""An arbiter's last term may be of an epoch that is so far ahead of the controller's clock, which was set back since."""
_COUNT_BITS = 12  # arbiters of an epoch; the epoch has milliseconds, and JSON numbers 53 bits that every reader keeps


def next_term(epoch: int, last: int) -> int:
    """Return the term of the arbiter that is accepted next.

    Args:
        epoch: The controller's.
        last: The highest term that the controller knows of; 0 if none.

    >>> next_term(2, 0), next_term(2, 8193), next_term(1, 8194)
    (8193, 8194, 8195)
    """
    return max(epoch << _COUNT_BITS, last) + 1


def asked_term(values: Mapping[str, list[str]]) -> int:
    """Return the term that a request names; 0 if none, or nothing that could have been one."""
    text = values.get("term", ["0"])[0]
    term = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return term if term < MAX_NUMBER else 0


_TEXTS = Texts(
    unanswering="arbiter of %s at %s does not answer: cut off, another that connects takes its place",
    silent="arbiter of %s silent for %.0f s: cut off. It goes on with the fabric as it was. Check the arbiter and its network",
    twice="arbiter of %s connected twice: the connection from %s is cut",
    connected="arbiter of %s connected from %s (%d connected)",
    disconnected="arbiter of %s disconnected: once its leases end, hosts spray without slots until it is back (%d connected)",
    malformed="arbiter of %s: message rejected: %s. Check the arbiter's version",
    cut_off="arbiter of %s cut off after %d rejected messages. Check the arbiter's version",
    rejected="connection from %s as arbiter of %s rejected: %s",
    deposed="another controller is the master of most switches: %d arbiters are sent away. End one of the two controllers",
    stands_by="this controller stands by: %d arbiters are sent away: %s",
    accepted_again="this controller is the master of most switches again: an arbiter is accepted",
)


class ArbiterNotifier(Notifier):
    """The session of the arbiter: one at a time, each with a higher term.

    Args:
        view: Return what it has to know now; None while it is not known what has failed.
        epoch: The controller's, from which terms begin; in a cluster it is the leader's term.
        wall: Return the time of day in seconds.

    Attributes:
        term: Of the last arbiter that was accepted; 0 before the first.
        link: Returns what is known of a host's link.
    """

    texts = _TEXTS

    def __init__(self, tree: Clos, view: Callable[[], View | None], epoch: int, wall: Callable[[], float] = time.time) -> None:
        super().__init__(tree, view)
        self.term = 0
        self.link: Callable[[Link], HostLink] = lambda link: HostLink(None, None, None)
        self._epoch = epoch
        self._wall = wall
        self._known = 0
        self._since = 0.0
        self._peer: str | None = None
        self._report = ArbiterReport()
        self._asked: int | None = None

    def begin(self, epoch: int) -> None:
        """Begin terms at a later epoch."""
        self._epoch = max(self._epoch, epoch)

    def knows(self, term: int) -> None:
        """Note a term that an arbiter has had, so that the next is higher, unless no controller can have given it."""
        if term >> _COUNT_BITS <= max(self._epoch, 1000 * self._wall()) + MAX_AHEAD_MS:
            self._known = max(self._known, term)
        else:
            LOG.warning("an arbiter names term %d, more than a day ahead of this controller's clock: not believed", term)

    def enter(self, peer: str, connection: Any, now: float) -> tuple[AgentSession, list[Effect]]:
        """Begin the session of an arbiter whose claim was accepted, under the next term."""
        view = self._view()
        epoch = self._epoch if view is None else max(self._epoch, view.epoch)  # in a cluster each leadership has its own
        self.term = self._known = next_term(epoch, max(self._known, self.term))
        self._since, self._peer, self._report, self._asked = self._wall(), peer, ArbiterReport(), None
        return self.connected(ARBITER, peer, None, connection, now)

    def due(self, session: AgentSession, now: float) -> str | None:
        """Return what has to be written next; the links that an arbiter has asked for come last."""
        text = super().due(session, now)
        if text is None and session.phase is Phase.IDLE and self._asked is not None:
            first, self._asked, session.phase = self._asked, None, Phase.WRITING
            hosts = islice(self.tree.hosts(), first, first + MAX_LINKS)
            text = encode(HostLinks(first, tuple(self.link(Link(host, self.tree.edge_of(host))) for host in hosts)))
        return text

    def report(self) -> dict[str, Any] | None:
        """Return what is known of the arbiter, as in ``GET /fabric``; None if there has been none."""
        if not self.term:
            return None
        connected = ARBITER in self.sessions
        return {
            "connected": connected,
            "peer": self._peer,
            "term": self.term,
            "since": self._since,
            "version": self.sessions[ARBITER].acknowledged if connected else 0,
            "reports": msgspec.to_builtins(self._report),
        }

    def _snapshot(self, session: AgentSession, view: View, now: float) -> str:
        return protocol.snapshot(view, None, term=self.term)

    def _follow(self, session: AgentSession, ack: Ack, view: View, now: float) -> None:
        super()._follow(session, ack, view, now)
        self._report = ack.report or self._report
        if isinstance(ack.links, int):
            self._asked = ack.links
            self._effects.wake(session)

    def _foreign(self, host: Host, peer: str) -> str:
        return ""  # it may run on any machine

    def _name(self, host: Host) -> str:
        return f"the {self.tree.title}"

    def _taken(self, holder: AgentSession) -> str:
        return f"another arbiter is connected, from {holder.peer}: end that one first"
