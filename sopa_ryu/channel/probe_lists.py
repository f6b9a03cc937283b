"""The controller's side of probes on the push channel: which list each agent is sent, and the reports that it sends. Pure.

Lists come from `sopa_ryu.health`, as texts that are ready to be sent; reports go there as bytes, in batches. Only what needs no
look into the records is checked here: the event loop takes thousands of them a second.
"""

from __future__ import annotations

import struct
from collections import Counter

from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.messages import ProtocolError, Report
from topologies import Host

REPORT_SECONDS = 0.5
"""One report in this time is taken, on average: agents send one a second."""
REPORTS_AT_ONCE = 8
"""So many may come together: a controller that stood still finds several."""
MAX_WAITING_BYTES = 16 << 20
"""Of reports that wait for their estimator; k=24 has 2 MB a second. What does not fit is dropped and counted."""
HEADER = struct.Struct("<III")
"""Before the records of a report: host, dropped packets, bytes."""
_MAX_DROPPED = (1 << 32) - 1


Holder = object
"""What a host's list is sent by: its agent's session, or the relay that its agent is connected to."""


class ProbeLists:
    """The lists of all agents, and the reports that have come in.

    Attributes:
        answering: The hosts whose agents probe and answer; None while the agent is away without having left: its program goes
            on.
        unlabelled: Hosts that are neither given streams nor probed: switches ignore their labels, and so no probe of theirs takes
            the path that it names.
        changes: How often ``answering`` has changed.
        counts: ``taken``, ``excess`` and ``unfit`` reports, the last two dropped.
    """

    def __init__(self) -> None:
        self.answering: dict[Host, Holder | None] = {}
        self.unlabelled: frozenset[Host] = frozenset()
        self.changes = 0
        self.counts: Counter[str] = Counter(taken=0, excess=0, unfit=0)
        self._lists: dict[Host, tuple[int, str]] = {}
        self._waiting: list[bytes] = []
        self._size = 0

    # -- the agents -----------------------------------------------------------------------------------------------------

    def connected(self, session: AgentSession) -> None:
        """Note a session that begins: a host whose agent does not probe any more answers none."""
        if not session.probes and self.answering.pop(session.host, session) is not session:
            self.changes += 1

    def acknowledged(self, session: AgentSession) -> None:
        """Note that an agent has a version in force: its programs are attached."""
        if session.probes and self.answering.get(session.host) is not session:
            self.changes += self.answering.get(session.host) is None  # one that was lost may have been at another relay
            self.answering[session.host] = session

    def relays(self, holder: Holder, hosts: set[Host]) -> list[Host]:
        """Note which hosts' agents a relay has that probe and answer; return those that are to be sent their lists again."""
        gone = [host for host, its in self.answering.items() if its is holder and host not in hosts]
        for host in gone:
            self.answering[host] = None
        new = [host for host in hosts if self.answering.get(host) is not holder]
        self.changes += any(host not in self.answering for host in new)
        self.answering.update(dict.fromkeys(new, holder))
        return [host for host in new if host in self._lists]

    def take_over(self, holder: Holder, hosts: list[Host]) -> list[Host]:
        """Note hosts whose agents a relay has, as it hands on their reports; return those that are to be sent their lists."""
        self.answering.update(dict.fromkeys(hosts, holder))
        return [host for host in hosts if host in self._lists]

    def list_of(self, host: Host) -> tuple[int, str]:
        """Return the number and the text of a host's list; 0 and nothing if it has none."""
        return self._lists.get(host, (0, ""))

    def closed(self, session: AgentSession, left: bool) -> None:
        """Note that a session has ended; ``left`` if its agent has said so, and taken its programs with it."""
        if self.answering.get(session.host) is not session:
            return
        if left:
            del self.answering[session.host]
            self.changes += 1
        else:
            self.answering[session.host] = None

    def hosts(self) -> list[Host]:
        """Return the hosts that are to be given streams, and to be probed."""
        return [host for host in self.answering if host not in self.unlabelled]

    # -- lists ----------------------------------------------------------------------------------------------------------

    def assign(self, host: Host, number: int, text: str) -> Holder | None:
        """Take a host's new list; return the session or relay that is to be sent it."""
        self._lists[host] = number, text
        return self.answering.get(host)

    def due(self, session: AgentSession) -> str | None:
        """Return the list that a session has not been sent yet, and note that it is sent."""
        if not session.probes or not session.acknowledged:
            return None
        number, text = self._lists.get(session.host, (0, ""))
        if number == session.list_sent:
            return None
        session.list_sent = number
        return text

    # -- reports --------------------------------------------------------------------------------------------------------

    def take(self, session: AgentSession, report: Report, place: int, now: float) -> None:
        """Take a report of the host of that number.

        Raises:
            ProtocolError: If the agent was given nothing to probe, or its numbers go back or are ahead.
        """
        if not session.list_sent:
            raise ProtocolError("it reports probes, but was given none")
        if not session.list_reported <= report.number <= session.list_sent:
            known = f"{session.list_reported} to {session.list_sent}"
            raise ProtocolError(f"it reports by list {report.number}, but has {known}")
        session.list_reported = report.number
        since = now - session.reported_at
        session.reported_at = now
        session.reports_left = min(REPORTS_AT_ONCE, session.reports_left + since / REPORT_SECONDS)
        if session.reports_left < 1.0:
            self.counts["excess"] += 1
            return
        session.reports_left -= 1.0
        self._keep(HEADER.pack(place, min(report.dropped, _MAX_DROPPED), len(report.streams)) + report.streams, 1)

    def take_relayed(self, reports: bytes, count: int) -> None:
        """Take reports that a relay has taken, each behind a `HEADER`."""
        self._keep(reports, count)

    def _keep(self, reports: bytes, count: int) -> None:
        if self._size + len(reports) > MAX_WAITING_BYTES:
            self.counts["unfit"] += count
            return
        self.counts["taken"] += count
        self._waiting.append(reports)
        self._size += len(reports)

    def take_waiting(self) -> bytes:
        """Return the reports that have come in since the last call, each behind a `HEADER`."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        return b"".join(waiting)
