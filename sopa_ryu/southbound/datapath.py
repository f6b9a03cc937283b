"""Ryu's `Datapath` with less of everything that thousands of switches have thousands of times.

One green thread for each switch instead of three: what the socket takes is written at once, and what it does not by a thread that
ends when it is done; `EchoKeepalive` asks all switches. Answers to echo requests, and port statistics, which are most of what
arrives while nothing happens, do not pass through Ryu's parsers and queues. Ports that are alike share one object.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from sopa_ryu.runtime.library import DEAD_DISPATCHER, MAIN_DISPATCHER, cfg, controller, hub
from sopa_ryu.southbound import openflow
from sopa_ryu.southbound.keepalive import EchoKeepalive

LOG = logging.getLogger("sopa")

ROOM = 16
"""Writes that may wait for a switch to take them; whoever has another one waits, too. As of Ryu."""
MAX_PORTS = 1024
"""A switch of the largest fabric has 128; another one is rejected, but may have the wrong number."""
MAX_UNFINISHED_BYTES = 1 << 19
"""Of multipart answers whose last message is missing. All entries of a switch of k = 48 are a thirtieth of it."""
MESSAGE_OVERHEAD = 512
_OPENFLOW = openflow.OPENFLOW
_ANSWERS = frozenset(
    {_OPENFLOW.OFPT_ECHO_REPLY, _OPENFLOW.OFPT_MULTIPART_REPLY, _OPENFLOW.OFPT_BARRIER_REPLY, _OPENFLOW.OFPT_ROLE_REPLY}
)


class Port(NamedTuple):
    """What is used of a port's description."""

    port_no: int
    config: int
    state: int
    curr_speed: int


@lru_cache(maxsize=1 << 12)
def _port(number: int, config: int, state: int, speed: int) -> Port:
    return Port(number, config, state, speed)


class _Ports(dict[int, Port]):
    """Ports by number; descriptions of Ryu's parser go in."""

    def __setitem__(self, number: int, port: Any) -> None:
        super().__setitem__(number, _port(port.port_no, port.config, port.state, port.curr_speed))


class Datapath(controller.Datapath):
    """A connected switch.

    Attributes:
        answered_at, unanswered: As of `sopa_ryu.southbound.keepalive.Asked`.
        take_statistics: Called with each `openflow.PortStatistics`, as soon as it has arrived.
    """

    keepalive: EchoKeepalive | None = None

    def __init__(self, socket: Any, address: Any) -> None:
        self.answered_at = time.monotonic()
        self._unanswered = 0
        self.take_statistics: Callable[[openflow.PortStatistics], object] | None = None
        self._echoes: set[int] = set()
        self._unfinished: dict[int, int] = {}
        self._parts: dict[int, bytearray] = {}
        self._unsent: deque[tuple[bytes | bytearray, bool]] = deque()
        self._room = hub.Semaphore(ROOM)
        self._sender: Any = None
        self._is_ended = False
        super().__init__(socket, address)
        self.send_q = self._send_q_sem = None  # Ryu's own, of which nothing is used

    @property
    def ports(self) -> Mapping[int, Port]:
        """Its ports by number."""
        return self._ports

    @ports.setter
    def ports(self, ports: Mapping[int, Any]) -> None:
        self._ports = _Ports()
        for number, port in ports.items():
            self._ports[number] = port

    def set_state(self, state: str) -> None:
        """Go on to a state; in `MAIN_DISPATCHER` the switch is known."""
        if state == MAIN_DISPATCHER:
            if len(self._ports) > MAX_PORTS:
                LOG.error(
                    "switch at %s has more than %d ports: connection closed. It is none of the fabric", self.address[0], MAX_PORTS
                )
                self.close()
                return
            self.socket.known()
        super().set_state(state)  # which waits while many events are to be handled

    def serve(self) -> None:
        """Serve the switch until its connection is gone."""
        self.send_msg(self.ofproto_parser.OFPHello(self))
        if Datapath.keepalive is None:
            conf = cfg.CONF
            Datapath.keepalive = EchoKeepalive(conf.echo_request_interval, conf.maximum_unreplied_echo_requests)
        Datapath.keepalive.add(self)
        try:
            self._recv_loop()
        finally:
            self._end()
            if self._sender is not None:
                hub.kill(self._sender)
            self.is_active = False

    # -- echo requests ------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it is served still."""
        return not self._is_ended and self.state != DEAD_DISPATCHER

    @property
    def unanswered(self) -> int:
        """Echo requests since the last answer; none while what the switch has sent waits to be read."""
        return 0 if self.socket.waits_for_us else self._unanswered

    def ask(self) -> None:
        """Send an echo request without waiting; one that has to wait behind other messages is not sent."""
        self._unanswered = self.unanswered + 1
        if self._room.balance > 0:
            request = self.ofproto_parser.OFPEchoRequest(self)
            self._echoes.add(self.set_xid(request))
            self.send_msg(request)

    def take(self, kind: int, xid: int, message: bytes | bytearray) -> bytes | bytearray | None:
        """Note that a message has arrived; return what is to be parsed: None, or a multipart reply of several messages as one.

        `ValueError` if it is malformed, or one too many of those that the controller has to keep something of.
        """
        if kind == _OPENFLOW.OFPT_PORT_STATUS:
            self._bound_ports(message)
        if kind not in _ANSWERS:
            return message
        if kind == _OPENFLOW.OFPT_MULTIPART_REPLY:
            self._bound_answers(xid, message)
        self.answered_at = time.monotonic()
        own = xid in self._echoes
        if self._unanswered:
            self._unanswered = 0
            self._echoes.clear()
        if kind == _OPENFLOW.OFPT_ECHO_REPLY:
            return None if own else message
        if kind == _OPENFLOW.OFPT_MULTIPART_REPLY:
            if self.take_statistics is not None and (statistics := openflow.port_statistics(xid, message)) is not None:
                self.take_statistics(statistics)
                return None
            return self._joined(xid, message)
        return message

    def _bound_ports(self, message: bytes | bytearray) -> None:
        port = openflow.port_of_status(message)
        if self._ports and len(self._ports) >= MAX_PORTS and port not in self._ports:
            raise ValueError(f"it has more than {MAX_PORTS} ports")

    def _bound_answers(self, xid: int, message: bytes | bytearray) -> None:
        if not openflow.has_more(message):
            self._unfinished.pop(xid, None)
            return
        self._unfinished[xid] = self._unfinished.get(xid, 0) + len(message) + MESSAGE_OVERHEAD
        if sum(self._unfinished.values()) > MAX_UNFINISHED_BYTES:
            raise ValueError(f"it sends more than {MAX_UNFINISHED_BYTES} bytes of answers that do not end")

    def _joined(self, xid: int, message: bytes | bytearray) -> bytes | bytearray | None:
        """Keep what is not whole as it came: as objects it would take fifty times as much."""
        last = not openflow.has_more(message)
        if last and xid not in self._parts:
            return message
        joined = self._parts.setdefault(xid, bytearray())
        openflow.join(joined, message)
        return self._parts.pop(xid) if last else None

    # -- writing ------------------------------------------------------------------------------------------------------

    def send(self, buf: bytes | bytearray, close_socket: bool = False) -> bool:
        """Write a message, or have it written as soon as the switch takes it; return False if the connection is gone.

        Waits while `ROOM` others wait for the switch already.
        """
        if self._is_ended:
            return False
        if self._room.balance == ROOM and not close_socket:
            written = self.socket.send_now(buf)
            if written == len(buf):
                return True
            buf = buf[written:]
        self._room.acquire()
        if self._is_ended:
            self._room.release()
            return False
        self._unsent.append((buf, close_socket))
        if self._sender is None:
            self._sender = hub.spawn(self._send_rest)
        return True

    def _send_rest(self) -> None:
        try:
            while self._unsent:
                buf, is_last = self._unsent.popleft()
                self.socket.sendall(buf)
                self._room.release()
                if is_last:
                    self._end()
        except TimeoutError:
            LOG.debug("switch at %s took nothing for %g s", self.address, self.socket.gettimeout())
            self._end()
        except OSError as error:
            LOG.debug("writing to switch at %s: %s", self.address, error)
            self._end()
        finally:
            self._sender = None

    def _end(self) -> None:
        """Write nothing more; the connection is closed when the switch closes it."""
        if not self._is_ended:
            self._is_ended = True
            self._unsent.clear()
            self._room.release()  # wakes one who waits, who wakes the next one
            self._close_write()
