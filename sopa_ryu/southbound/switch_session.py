"""One switch's OpenFlow connection: questions with answers, and the work of bringing its rules up to date."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ryu.lib import hub

from flowrules.model import SwitchRules
from sopa_ryu.fabric.traffic import PortCounters
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.openflow import OPENFLOW, PARSER
from topologies import Switch

ANSWER_SECONDS = 30.0
ANOTHER_MASTER = "another controller, started later than this one, is its master; restart this one to take it back"


class SwitchError(Exception):
    """A switch refused what it was sent, did not answer, or went away; the text says which."""


@dataclass
class Sent:
    """What a switch has been sent, and has refused, since the controller started, over all its connections.

    Attributes
    ----------
    flow_mods, group_mods : int
    errors : Counter of str
        Its error messages by type.
    """

    flow_mods: int = 0
    group_mods: int = 0
    errors: Counter[str] = field(default_factory=Counter)


class SwitchSession:
    """A connected switch.

    Parameters
    ----------
    datapath : ryu.controller.controller.Datapath
    switch : Switch
        Which one of the fat-tree's it is.
    name : str
    sent : Sent, optional
        Goes on counting from there.

    Attributes
    ----------
    rules : SwitchRules or None
        What it is known to hold, confirmed by a barrier; None until then.
    version : int
        The fabric's version that these rules are of; 0 before the first.
    messages_sent : int
        Flow-mods and group-mods sent so far.
    coming, busy, probing : bool
        Whether somebody is taking it in, bringing it to the present version, or sending its probes, just now.
    to_probe : set of int
        Ports whose probes are still to be sent.
    """

    def __init__(self, datapath: Any, switch: Switch, name: str, sent: Sent | None = None) -> None:
        self.datapath = datapath
        self.switch = switch
        self.name = name
        self.rules: SwitchRules | None = None
        self.version = 0
        self.messages_sent = 0
        self.sent = sent or Sent()
        self.coming = self.busy = self.probing = False
        self.to_probe: set[int] = set()
        self.connected_at = time.monotonic()
        self._waiting: dict[int, hub.Queue] = {}
        self._errors: list[str] = []

    def ask(self, message: Any) -> list[Any]:
        """Send a request and wait for its whole answer.

        Returns
        -------
        list
            The reply's messages: several if it is a multipart one.

        Raises
        ------
        SwitchError
            If the switch answers with an error, or not at all.
        """
        xid = self.datapath.set_xid(message)
        answers: hub.Queue = hub.Queue()
        self._waiting[xid] = answers
        replies: list[Any] = []
        try:
            self._send(message)
            while True:
                reply = answers.get(timeout=ANSWER_SECONDS)
                if isinstance(reply, SwitchError):
                    raise reply
                replies.append(reply)
                if not getattr(reply, "flags", 0) & OPENFLOW.OFPMPF_REPLY_MORE:
                    return replies
        except hub.QueueEmpty:
            raise SwitchError(f"no answer to {type(message).__name__} in {ANSWER_SECONDS:g} s") from None
        finally:
            del self._waiting[xid]

    def answered(self, message: Any) -> None:
        """Take in a reply from the switch."""
        queue = self._waiting.get(message.xid)
        if queue is not None:
            queue.put(message)

    def refused(self, message: Any) -> None:
        """Take in an error message from the switch."""
        error = openflow.error_text(message)
        self.sent.errors[openflow.error_type(message)] += 1
        queue = self._waiting.get(message.xid)
        if queue is not None:
            queue.put(SwitchError(error))
        else:
            self._errors.append(error)

    def closed(self) -> None:
        """The connection is gone: whoever waits for an answer gets an error instead."""
        for queue in self._waiting.values():
            queue.put(SwitchError("the connection was lost"))

    def become_master(self, generation: int) -> None:
        """Claim the switch (OpenFlow 1.3, section 6.3.4); `SwitchError` if a controller started later holds it."""
        try:
            self.ask(PARSER.OFPRoleRequest(self.datapath, OPENFLOW.OFPCR_ROLE_MASTER, generation))
        except SwitchError as error:
            if "role request failed" in str(error):
                raise SwitchError(f"{ANOTHER_MASTER} (or this machine's clock went back)") from error
            raise

    def is_master(self) -> bool:
        """Ask whether this controller is still its master: OpenFlow 1.3 does not tell by itself when another takes over."""
        (reply,) = self.ask(PARSER.OFPRoleRequest(self.datapath, OPENFLOW.OFPCR_ROLE_NOCHANGE, 0))
        return bool(reply.role == OPENFLOW.OFPCR_ROLE_MASTER)

    def installed(self) -> openflow.InstalledState:
        """Ask the switch which flow entries and groups it holds.

        Raises
        ------
        SwitchError
            If it does not answer.
        """
        return openflow.InstalledState(openflow.installed_flows(self.flow_statistics()), self.groups())

    def flow_statistics(self) -> list[Any]:
        """Ask the switch for its flow entries with their counters; `SwitchError` if it does not answer."""
        replies = self.ask(PARSER.OFPFlowStatsRequest(self.datapath))
        return [body for reply in replies for body in reply.body]

    def groups(self) -> dict[int, tuple[int, ...]]:
        """Ask the switch for its groups, each one's ports in order; `SwitchError` if it does not answer."""
        replies = self.ask(PARSER.OFPGroupDescStatsRequest(self.datapath, 0))
        return openflow.installed_groups(body for reply in replies for body in reply.body)

    def port_counters(self) -> dict[int, PortCounters]:
        """Ask the switch what its ports have counted, by port number; `SwitchError` if it does not answer."""
        replies = self.ask(PARSER.OFPPortStatsRequest(self.datapath, 0, OPENFLOW.OFPP_ANY))
        return openflow.port_counters(body for reply in replies for body in reply.body)

    def reconcile(self, installed: openflow.InstalledState, wanted: SwitchRules, version: int) -> openflow.Changes:
        """Make the switch hold exactly the wanted rules, touching only what differs, and wait for its barrier.

        Raises
        ------
        SwitchError
            If it refuses any of it, or does not answer.
        """
        changes = openflow.compare(wanted, installed)
        self._carry_out(changes, wanted, version)
        return changes

    def update(self, wanted: SwitchRules, version: int) -> int:
        """Go from the rules that the switch is known to hold to others; the number of messages that took.

        After an update that failed it is not known what the switch holds: then it is asked.
        """
        if self.rules is None:
            return self.reconcile(self.installed(), wanted, version).size
        if self.rules == wanted:
            return 0
        changes = openflow.difference(self.rules, wanted)
        self._carry_out(changes, wanted, version)
        return changes.size

    def _carry_out(self, changes: openflow.Changes, wanted: SwitchRules, version: int) -> None:
        self._errors.clear()
        self.rules = None  # until the barrier, what it holds is not known
        for message in openflow.messages(self.datapath, changes, version):
            self._send(message)
            self.messages_sent += 1
            if isinstance(message, PARSER.OFPGroupMod):
                self.sent.group_mods += 1
            else:
                self.sent.flow_mods += 1
        self.ask(PARSER.OFPBarrierRequest(self.datapath))
        if self._errors:
            raise SwitchError("; ".join(sorted(set(self._errors))))
        self.rules = wanted

    def _send(self, message: Any) -> None:
        if not self.datapath.send_msg(message):
            raise SwitchError("the connection was lost")
