"""What a front hands on between its agents and the controller that leads: probes' lists and reports, traces, MCS. Pure.

It knows none of what it hands on but the hosts that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sopa_ryu.channel import relayed
from sopa_ryu.channel.effects import Effect
from sopa_ryu.channel.handed_mcs import HandedMcsHosts
from sopa_ryu.channel.messages import ProtocolError, encode
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.relayed import AnsweringHosts, Forged, Given, Handed, TraceAnswers
from topologies import Host


class Handing:
    """One channel to the leader after the other.

    Args:
        notifier: Of the agents.
        carry_out: Carries out what follows for the agents.
    """

    def __init__(self, notifier: Notifier, carry_out: Callable[[list[Effect]], None]) -> None:
        self._notifier, self._carry_out = notifier, carry_out
        self._lists = notifier.probe_lists
        self._mcs = notifier.mcs_hosts if isinstance(notifier.mcs_hosts, HandedMcsHosts) else None
        self._hosts = list(notifier.tree.hosts())
        self._places = {host: place for place, host in enumerate(self._hosts)}
        self._known = -1

    def opened(self) -> None:
        """Begin a channel: another leader counts its lists anew."""
        for session in self._notifier.sessions.values():
            session.list_sent = session.list_reported = 0
        self._lists.take_waiting()
        self._notifier.traces.take()
        self._known = -1
        if self._mcs is not None:
            self._mcs.opened()

    def ended(self) -> None:
        """Note that the channel is lost."""
        if self._mcs is not None:
            self._mcs.ended()

    # -- to the leader --------------------------------------------------------------------------------------------------

    @property
    def has_hosts(self) -> bool:
        """Whether `hosts` has something to say."""
        return self._lists.changes != self._known

    def hosts(self) -> str:
        """Return the message that names the hosts whose agents probe."""
        self._known = self._lists.changes
        places = tuple(sorted(self._places[host] for host in self._lists.hosts()))
        return encode(AnsweringHosts(places, traces=True, mcs=self._mcs is not None))

    def reports(self) -> bytes:
        """Return the reports since the last call."""
        return self._lists.take_waiting()

    def answers(self) -> str | None:
        """Return the message of what agents have answered to traces since the last call; None if nothing."""
        answers = self._notifier.traces.take()
        return encode(TraceAnswers(tuple(Handed(self._places[host], text) for host, text in answers))) if answers else None

    def mcs(self) -> Iterator[str]:
        """Yield the messages about hosts that have begun or ended to run MCS."""
        while self._mcs is not None and (events := self._mcs.take()) is not None:
            yield encode(events)

    # -- from the leader ------------------------------------------------------------------------------------------------

    def take(self, message: str | bytes) -> Iterator[int]:
        """Take a message, and yield after each of its entries; `ProtocolError` if it is malformed."""
        for turn, entry in enumerate(relayed.from_leader(message, len(self._hosts)), 1):
            match entry:
                case Given(place, number, text):
                    self._carry_out(self._notifier.assign(self._hosts[place], number, text))
                case Handed(place, text):
                    self._ask(self._hosts[place], text)
                case Forged(place, records):
                    self._carry_out(self._notifier.forged(self._hosts[place], records))
                case _:
                    assert self._mcs is not None
                    self._mcs.follow(entry)
            yield turn

    def _ask(self, host: Host, text: str) -> None:
        try:
            self._carry_out(self._notifier.ask(host, text))
        except ProtocolError as error:
            raise ProtocolError(f"what it asks {host} is no trace: {error}") from error
