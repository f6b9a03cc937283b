"""One switch's OpenFlow channel: sends what the core has due, and pairs answers with their questions."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from sopa_ryu.fabric.messages import (
    Answer,
    BarrierRequest,
    EchoRequest,
    FlowsRequest,
    GenerationRequest,
    GroupsRequest,
    Message,
    Modification,
    OtherRequest,
    Refusal,
    Request,
    RoleRequest,
    SendProbe,
)
from sopa_ryu.fabric.switch_session import ANSWER_SECONDS, SwitchError, SwitchSession
from sopa_ryu.fabric.traffic import PortCounters
from sopa_ryu.runtime import green_threads
from sopa_ryu.runtime.library import hub
from sopa_ryu.southbound import openflow
from topologies import Switch
from topologies.failures import Reason
from topologies.ovsdb import certified_names

MAX_ASKED = 8
"""So many of the core's questions of a kind may wait for an answer: the core waits for the latest one only."""
MAX_PACKED_BYTES = 16384
"""So much is written to a switch before other green threads have their turn."""
_PORT_STATISTICS = "OFPPortStatsReply"
_REQUESTS = RoleRequest | GenerationRequest | EchoRequest | FlowsRequest | GroupsRequest | BarrierRequest


class Connection:
    """A connected switch's channel.

    The core's questions are sent by `send` and answered by what `received` and `refused` return; anything else may ask by `ask`,
    which waits.
    """

    def __init__(self, datapath: Any) -> None:
        self.datapath = datapath
        self._requests: dict[int, Request] = {}
        self._replies: dict[int, list[Any]] = {}
        self._kinds: dict[int, str] = {}
        self._waiting: dict[int, hub.Queue] = {}
        datapath.take_statistics = self._statistics
        # now: a connection that is closed tells no more, and what it has reported may still be looked at
        self._names = _names_of(datapath.socket)

    @property
    def dpid(self) -> int:
        """The datapath id."""
        return int(self.datapath.id)

    @property
    def address(self) -> str:
        """The IP address that the switch connects from."""
        return str(self.datapath.address[0])

    def ports(self) -> Mapping[int, Reason | None]:
        """Return the switch's ports by number, each with the reason why it carries no packets, or None if it does."""
        ports = self.datapath.ports.items()
        return {number: openflow.port_trouble(port) for number, port in ports if number <= openflow.OPENFLOW.OFPP_MAX}

    def certified_names(self) -> Collection[str] | None:
        """Return the common names and subjectAltNames of the certificate that the switch has shown; None if it has shown none."""
        return self._names

    def close(self) -> None:
        """Break the connection; Ryu then reports it as closed."""
        with contextlib.suppress(OSError):
            self.datapath.socket.shutdown(socket.SHUT_RDWR)

    def begun(self) -> None:
        """This is the connection of a switch of the fabric: it keeps its place at the listening socket."""
        self.datapath.socket.proven()

    def port_speed(self, port: int) -> float | None:
        """Return what fits through a port in bits per second, or None if the switch does not tell."""
        described = self.datapath.ports.get(port)
        return None if described is None else openflow.port_speed(described)

    # -- the core's messages ------------------------------------------------------------------------------------------

    def send(self, message: Message) -> bool:
        """Send a message; waits while the switch takes none. Return False if the connection is gone."""
        encoded = openflow.encode(self.datapath, message)
        if isinstance(message, _REQUESTS):
            xid = self.datapath.set_xid(encoded)
            same = [earlier for earlier, asked in self._requests.items() if type(asked) is type(message)]
            if len(same) >= MAX_ASKED:
                self._forget(same[0])
            self._requests[xid] = message
            self._kinds[xid] = openflow.reply_kind(encoded)
        return bool(self.datapath.send_msg(encoded))

    def _forget(self, xid: int) -> Request | None:
        self._replies.pop(xid, None)
        self._kinds.pop(xid, None)
        return self._requests.pop(xid, None)

    def send_all(self, messages: Iterable[Message]) -> bool:
        """Send messages as `send` does, rules' changes and probes many at a time; return False if the connection is gone."""
        packed = bytearray()
        for message in messages:
            green_threads.SWITCHES.take()
            if isinstance(message, Modification):
                packed += openflow.with_xid(openflow.packed(message), self._next_xid())
            elif isinstance(message, SendProbe):
                packed += openflow.with_xid(openflow.packed_probe(self.dpid, message.port), self._next_xid())
            elif not self._flush(packed) or not self.send(message):
                return False
            if len(packed) >= MAX_PACKED_BYTES and not self._flush(packed):
                return False
        return self._flush(packed)

    def _next_xid(self) -> int:
        self.datapath.xid = (self.datapath.xid + 1) & openflow.OPENFLOW.MAX_XID
        return int(self.datapath.xid)

    def _flush(self, packed: bytearray) -> bool:
        if not packed:
            return True
        sent = bool(self.datapath.send(bytes(packed)))
        packed.clear()
        return sent

    def received(self, reply: Any) -> tuple[Request, Answer] | None:
        """Take a reply; return the core's question with its whole answer, or None if it is none or goes on.

        A reply of another kind than its transaction's request is no answer.
        """
        if self._kinds.get(reply.xid) != type(reply).__name__:
            return None
        queue = self._waiting.get(reply.xid)
        if queue is not None:
            queue.put(reply)
        if reply.xid not in self._requests:
            return None
        replies = self._replies.setdefault(reply.xid, [])
        replies.append(reply)
        if not openflow.is_last(reply):
            return None
        request = self._forget(reply.xid)
        assert request is not None
        return request, openflow.decode(request, replies)

    def _statistics(self, reply: openflow.PortStatistics) -> None:
        queue = self._waiting.get(reply.xid)
        if queue is not None and self._kinds[reply.xid] == _PORT_STATISTICS:
            queue.put(reply)

    def refused(self, error: Any) -> tuple[Request | None, Refusal]:
        """Take an error message; return it with the question that it answers, or None if it answers a flow-mod or group-mod."""
        refusal = openflow.refusal(error)
        queue = self._waiting.get(error.xid)
        if queue is not None:
            queue.put(SwitchError(refusal.text))
            return OtherRequest(), refusal
        return self._forget(error.xid), refusal

    # -- other questions ----------------------------------------------------------------------------------------------

    def ask(self, message: Any) -> list[Any]:
        """Send one of Ryu's request messages, and wait for its whole answer; return the bodies of the reply's messages.

        `SwitchError` if the switch answers with an error, or not at all.
        """
        xid = self.datapath.set_xid(message)
        answers: hub.Queue = hub.Queue()
        self._waiting[xid] = answers
        self._kinds[xid] = openflow.reply_kind(message)
        bodies: list[Any] = []
        try:
            if not self.datapath.send_msg(message):
                raise SwitchError("the connection was lost")
            while True:
                reply = answers.get(timeout=ANSWER_SECONDS)
                if isinstance(reply, Exception):
                    raise reply
                bodies += reply.body
                if openflow.is_last(reply):
                    return bodies
        except hub.QueueEmpty:
            raise SwitchError(f"no answer to {type(message).__name__} in {ANSWER_SECONDS:g} s") from None
        finally:
            del self._waiting[xid], self._kinds[xid]

    def flow_statistics(self) -> list[Any]:
        """Ask the switch for its flow entries with their counters; raises as `ask` does."""
        return self.ask(openflow.encode(self.datapath, FlowsRequest()))

    def groups(self) -> dict[int, tuple[int, ...]]:
        """Ask the switch for its groups, each one's ports in order; raises as `ask` does."""
        return openflow.installed_groups(self.ask(openflow.encode(self.datapath, GroupsRequest())))

    def port_counters(self) -> dict[int, PortCounters]:
        """Ask the switch for its port statistics, by port number; raises as `ask` does."""
        return dict(self.ask(openflow.port_stats_request(self.datapath)))

    def closed(self) -> None:
        """The connection is gone: everything that waits for an answer gets an error instead."""
        for queue in self._waiting.values():
            queue.put(SwitchError("the connection was lost"))


class Connections(Mapping[Switch, Connection]):
    """The connections of the switches that the core knows, as they are at the time of each look."""

    def __init__(self, sessions: Mapping[Switch, SwitchSession]) -> None:
        self._sessions = sessions

    def __getitem__(self, switch: Switch) -> Connection:
        return connection_of(self._sessions[switch])

    def __iter__(self) -> Iterator[Switch]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)


def connection_of(session: SwitchSession) -> Connection:
    """Return the connection that a session was made with."""
    assert isinstance(session.connection, Connection)
    return session.connection


class Writer:
    """Has messages sent to each switch in a green thread of its own: a switch that takes nothing delays no other.

    ``send_due`` is called with a session, in its green thread, whenever it may have messages due.
    """

    def __init__(self, send_due: Callable[[SwitchSession], None]) -> None:
        self._send_due = send_due
        self._again: dict[SwitchSession, bool] = {}

    def wake(self, session: SwitchSession) -> None:
        """Have what is due to a switch sent soon."""
        if session in self._again:
            self._again[session] = True
        else:
            self._again[session] = False
            hub.spawn(self._write, session)

    def _write(self, session: SwitchSession) -> None:
        try:
            self._send_due(session)
            while self._again[session]:
                self._again[session] = False
                self._send_due(session)
        finally:
            del self._again[session]


def _names_of(channel: Any) -> Collection[str] | None:
    try:
        certificate: dict[str, Any] = getattr(channel, "getpeercert", dict)()
    except (OSError, ValueError, AttributeError):  # it is closed already, for which `ssl` has all three
        return None
    return certified_names(certificate) if certificate else None
