"""Connections that are not used: of no switch of the fabric, with a wrong certificate or wrong ports, or a second one. Pure.

Of two connections of one datapath id the older one is asked whether it lives. If it answers within `ALIVE_SECONDS`, the newer one
is closed; if it does not, or leaves, the newer one takes its place. Until then nothing that the newer one reports is believed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.events.event import Event, EventKind
from sopa_ryu.fabric.messages import SwitchConnection
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_session import SwitchSession
from topologies import Clos, Switch, TopologyError

LOG = logging.getLogger("sopa")

ALIVE_SECONDS = 2.0
RANGES_SHOWN = 8
SAY_AGAIN_SECONDS = 60.0
"""A switch with two controller addresses tries every few seconds: the log has it once in this time."""


class Rejections:
    """The connections that are not used, by datapath id; `FabricState.rejected` has the reasons.

    Attributes:
        bind_certificates: Whether a switch has to show a certificate with its name or datapath id.
        misnamed: Connections that were rejected for their certificates.
        fabric_file: The file that describes the fabric, for messages; None for a fat-tree of the option k.
    """

    def __init__(self, state: FabricState, bind_certificates: bool) -> None:
        self.state = state
        self.tree = state.tree
        self.bind_certificates = bind_certificates
        self.misnamed = 0
        self.fabric_file: Path | None = None
        self._connections: dict[int, SwitchConnection] = {}

    def is_rejected(self, connection: SwitchConnection) -> bool:
        """Tell whether it is this connection of its datapath id that is not used."""
        return self._connections.get(connection.dpid) is connection

    def may_mend(self, connection: SwitchConnection) -> bool:
        """Tell whether a connection that is not used may be one day, with other ports: it has a datapath id of the fabric."""
        if not self.is_rejected(connection):
            return False
        try:
            self.tree.switch_by_dpid(connection.dpid)
        except TopologyError:
            return False
        return True

    def identify(self, connection: SwitchConnection) -> Switch | None:
        """Return the switch of the fabric that a connection is of, or reject it."""
        ports = connection.ports()
        try:
            switch = self.tree.switch_by_dpid(connection.dpid)
        except TopologyError as error:
            file = self.fabric_file
            self.reject(connection, str(error) if file is None else f"{error} ({file}): correct the file, or the bridge's id")
            return None
        if self.bind_certificates and (mismatch := self._mismatch(connection, switch)):
            self.misnamed += 1
            self.reject(connection, mismatch)
            return None
        planned = self.tree.ports(switch).keys()
        if not planned <= ports.keys() <= set(range(1, self.tree.port_count(switch.level) + 1)):
            self.reject(connection, self._misfit(switch, set(ports), set(planned)))
            return None
        return switch

    def _misfit(self, switch: Switch, ports: set[int], planned: set[int]) -> str:
        name, has, plan = self.tree.name(switch), _ranges(ports), _ranges(planned)
        if self.fabric_file is None:
            return f"{name} has ports {has}, but a {self.tree.title}'s switch has {plan}"
        return (
            f"{name} has ports {has}, but {self.fabric_file} plans {plan}. sopa doctor switch --fabric {self.fabric_file} there "
            "says what mends it. Or correct the file (an absent link's port may be missing), and reload the controller"
        )

    def _mismatch(self, connection: SwitchConnection, switch: Switch) -> str:
        """Tell what is wrong with the certificate of a connection; nothing if it is the switch's."""
        name, dpid = self.tree.name(switch), f"{connection.dpid:016x}"
        names = connection.certified_names()
        if names is None:
            return f"{name} has shown no certificate: it has to connect by TLS with one for {name}"
        if certificate_names(self.tree, switch).isdisjoint(names):
            shown = ", ".join(sorted(names)) or "no name"
            return f"{name} has shown a certificate for {shown:.80}: it needs one for {name} or {dpid}"
        return ""

    def reject(self, connection: SwitchConnection, reason: str) -> None:
        """Note that a connection is not used, and log it unless it is known."""
        if self.state.rejected.get(connection.dpid) != reason:
            LOG.error("switch at %s ignored: %s", connection.address, reason)
            why = f"ignored as a switch: {reason}"
            self.state.note((Event(time.time(), EventKind.REFUSED, cause=why, actor=connection.address),))
        self.state.rejected[connection.dpid] = reason
        self._connections[connection.dpid] = connection

    def clear(self, connection: SwitchConnection) -> None:
        """Forget a connection that is gone, or has mended."""
        if self.is_rejected(connection):
            del self._connections[connection.dpid], self.state.rejected[connection.dpid]

    def forget(self, dpid: int) -> None:
        """Forget whichever connection of a datapath id was rejected: another one is used now."""
        self.state.rejected.pop(dpid, None)
        self._connections.pop(dpid, None)


def certificate_names(tree: Clos, switch: Switch) -> set[str]:
    """Return the names of which a switch's certificate has to have one where certificates are bound."""
    dpid = f"{tree.dpid(switch):016x}"
    return {tree.name(switch), dpid, f"0x{dpid}"}


def _ranges(numbers: set[int]) -> str:
    """Format port numbers for people: ``1-3, 7``; ``none`` if there are none. Of many ranges the first are named."""
    parts: list[str] = []
    ordered = sorted(numbers)
    while ordered:
        first = last = ordered.pop(0)
        while ordered and ordered[0] == last + 1:
            last = ordered.pop(0)
        parts.append(str(first) if first == last else f"{first}-{last}")
    shown = ", ".join(parts[:RANGES_SHOWN]) + ", and others" * (len(parts) > RANGES_SHOWN)
    return shown or "none"


class Contest(NamedTuple):
    """A newer connection that waits until the older one, a session's, has answered or has not."""

    session: SwitchSession
    newer: SwitchConnection
    deadline: float


class Contests:
    """The connections that wait.

    ``decided`` counts those that were closed because the ``older`` one lives, and those that took its place (``newer``).
    """

    def __init__(self) -> None:
        self.decided: Counter[str] = Counter(older=0, newer=0)
        self._waiting: list[Contest] = []
        self._said: dict[Switch, float] = {}

    @property
    def next_tick(self) -> float:
        """When the next one is decided at the latest, in monotonic seconds."""
        return min((contest.deadline for contest in self._waiting), default=float("inf"))

    def begin(self, session: SwitchSession, newer: SwitchConnection, now: float) -> None:
        """Have a session asked whether it lives."""
        if all(contest.newer is not newer for contest in self._waiting):
            self._waiting.append(Contest(session, newer, now + ALIVE_SECONDS))
            session.ask_alive()

    def leave(self, newer: SwitchConnection) -> None:
        """Forget a connection that is gone."""
        self._waiting = [contest for contest in self._waiting if contest.newer is not newer]

    def lives(self, session: SwitchSession, now: float) -> list[SwitchConnection]:
        """Take the answer of a session; return the newer connections, which have to be closed."""
        taken = self._take(session)
        for newer in taken:
            self.decided["older"] += 1
            if now - self._said.get(session.switch, float("-inf")) >= SAY_AGAIN_SECONDS:
                self._said[session.switch] = now
                LOG.error(
                    "second connection of switch %s from %s closed: the one from %s lives. Check for a second controller address "
                    "of the switch, and for a device with its datapath id %016x",
                    session.name,
                    newer.address,
                    session.connection.address,
                    newer.dpid,
                )
        return taken

    def succeed(self, session: SwitchSession) -> list[SwitchConnection]:
        """Return the newer connections, the first of which takes the place of a session that is gone."""
        taken = self._take(session)
        if taken:
            self.decided["newer"] += 1
            LOG.warning(
                "switch %s: its connection from %s does not answer or is gone. The one from %s takes its place",
                session.name,
                session.connection.address,
                taken[0].address,
            )
        return taken

    def overdue(self, now: float) -> list[SwitchSession]:
        """Return the sessions that have not answered in time."""
        return list(dict.fromkeys(contest.session for contest in self._waiting if contest.deadline <= now))

    def _take(self, session: SwitchSession) -> list[SwitchConnection]:
        taken = [contest.newer for contest in self._waiting if contest.session is session]
        self._waiting = [contest for contest in self._waiting if contest.session is not session]
        return taken
