"""The listening socket of OpenFlow: what is no switch costs a bounded time, bounded bytes, and no more than its turn.

A connection that cannot be accepted now, for want of files or memory, waits in the kernel's queue and is accepted later. One is
unproven until it is that of a switch of the fabric. Where an address has its share of unproven ones, or all have their total, the
newest takes the place of the oldest one of that address, or of the address with most: idle strangers keep no switch out.

A connection has `HANDSHAKE_SECONDS` for TLS, and as long again until the switch has said its features and ports. Reading lets other
green threads have their turn, however much is sent.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket as sockets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import eventlet
import eventlet.green.socket

from sopa_ryu.runtime import green_threads
from sopa_ryu.runtime.certificates import Certificates
from sopa_ryu.runtime.clients import Clients, ExcessClient, client_of, plain
from sopa_ryu.runtime.listeners import NO_ROOM, RECOVERED_SECONDS, RETRY_SECONDS, SparingLog, file_share, listening, turned_away

LOG = logging.getLogger("sopa")

NAME = "openflow"
HANDSHAKE_SECONDS = 10.0
MAX_HANDSHAKE_BYTES = 1 << 20
"""What a switch may send before it is known: hello, features, and 64 bytes for each port."""
SLICE_SECONDS = 0.002
"""So long a switch is read without a turn for other green threads."""
ACCEPTS_AT_ONCE = 16
"""After so many, other green threads have their turn."""
READ_BYTES = 4096
SPARE_CONNECTIONS = 32
PENALTY_SECONDS = 1.0
"""So long a connection that sent what is not OpenFlow keeps its place in the share: each leaves memory to the collector."""
BACKLOG = 4096
"""Connections that wait to be accepted, as far as the kernel allows (net.core.somaxconn): a large fabric's switches together."""
_CLOSED = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}

NO_AUTHORITY = (
    "OpenFlow over TLS without ca_certs: any client is accepted as a switch. Set ca_certs (--ca-certs) to the authority that "
    "signed the switches' certificates"
)


def switch_share(switches: int) -> tuple[int, int]:
    """Return how many unproven connections one address may have, and all together.

    All switches may be on one machine, and come at once.
    """
    share = switches + SPARE_CONNECTIONS
    return share, max(share, file_share(2 * share))


class Place:
    """An unproven connection of an address, which a newer one may take the place of."""

    def __init__(self, socket: Any, peer: str) -> None:
        self.socket = socket
        self.peer = peer

    @property
    def client(self) -> str:
        """What has a share."""
        return client_of(self.peer)


class SwitchServer:
    """The server of OpenFlow, in the place of Ryu's ``StreamServer``.

    It listens at an address, or the path of a Unix domain socket, and a port. ``handle`` serves a switch.
    """

    def __init__(
        self, where: tuple[str, int], handle: Callable[[Any, Any], None], tls: Certificates | None, clients: Clients
    ) -> None:
        host, port = where
        if os.path.isdir(os.path.dirname(host)):
            self.server = eventlet.listen(host, family=sockets.AF_UNIX)
        else:
            self.server = listening(host, port, BACKLOG, eventlet.green.socket.socket)
        self._handle = handle
        self._tls = tls
        self._clients = clients
        self._unproven: dict[Place, None] = {}
        self._say = SparingLog(LOG).warning
        self._recovery: Any = None

    def serve_forever(self) -> None:
        """Serve switches until killed."""
        number = 0
        while True:
            number += 1
            if not number % ACCEPTS_AT_ONCE:
                eventlet.sleep(0)
            try:
                socket, address = self.server.accept()
            except OSError as error:
                if error.errno in _CLOSED:
                    raise
                self._cannot(error)
                continue
            # an IPv4 address is written as such; a Unix domain socket has none
            address = (plain(address[0]), *address[1:2]) if address else ("", 0)
            place = Place(socket, address[0])
            while (excess := self._clients.enter(place.peer)) is not None:
                self._make_room(excess, place.client if excess is ExcessClient.SHARE else self._clients.busiest)
            self._unproven[place] = None
            eventlet.spawn_n(self._attend, place, address)

    def _cannot(self, error: OSError) -> None:
        """Wait if there is no room for a connection; any other error is that of one connection, which is gone (accept(2))."""
        if error.errno not in NO_ROOM:
            LOG.debug("%s: a connection was lost before it was accepted: %s", NAME, error)
            eventlet.sleep(0)
            return
        if self._recovery is None:
            turned_away[NAME, "files"] += 1
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            LOG.error(
                "%s: no file is left for new connections (%s). They wait, established ones continue. Raise the limit of %d open "
                "files (LimitNOFILE of the unit, ulimit -n)",
                NAME,
                error.strerror,
                soft,
            )
        else:
            self._recovery.cancel()
        self._recovery = eventlet.hubs.get_hub().schedule_call_global(RECOVERED_SECONDS, self._say_recovered)
        eventlet.sleep(RETRY_SECONDS)

    def _say_recovered(self) -> None:
        self._recovery = None
        LOG.warning("%s: files are free again, new connections are accepted", NAME)

    def _make_room(self, excess: ExcessClient, client: str) -> None:
        """Close the oldest unproven connection of a client."""
        turned_away[NAME, excess] += 1
        has, where = (
            (self._clients.share, "from there, the most for one address")
            if excess is ExcessClient.SHARE
            else (self._clients.most, "in all, the most")
        )
        text = "%s: the oldest connection from %s closed for a newer one: %d of no switch of the fabric %s. Look for what connects"
        self._say(excess, text, NAME, client, has, where)
        oldest = next(place for place in self._unproven if place.client == client)
        self._leave(oldest)
        eventlet.greenio.shutdown_safe(oldest.socket)

    def _leave(self, place: Place) -> None:
        """Count a connection no longer: it is closed, or a switch's of the fabric."""
        if place in self._unproven:
            del self._unproven[place]
            self._clients.leave(place.peer)

    def _attend(self, place: Place, address: tuple[Any, ...]) -> None:
        """Serve one connection to its end. One that is no switch's keeps its place for a while, but nothing of what it has sent."""
        is_openflow = True
        try:
            is_openflow = self._serve(place, address)
        finally:
            place.socket.close()
            if is_openflow:
                self._leave(place)
            else:
                eventlet.hubs.get_hub().schedule_call_global(PENALTY_SECONDS, self._leave, place)

    def _serve(self, place: Place, address: tuple[Any, ...]) -> bool:
        """Serve one connection to its end; return False if something came that is not OpenFlow."""
        peer, socket = place.peer, place.socket
        try:
            if self._tls is not None:
                try:
                    with eventlet.Timeout(HANDSHAKE_SECONDS, TimeoutError(f"not done in {HANDSHAKE_SECONDS:g} s")):
                        socket = self._tls().wrap_socket(socket, server_side=True, do_handshake_on_connect=False)
                        place.socket = socket
                        socket.do_handshake()
                except (OSError, ValueError, AttributeError) as error:  # the last two: it was closed meanwhile
                    if place in self._unproven:  # not for a newer one
                        turned_away[NAME, "tls"] += 1
                        self._say("tls", "TLS handshake with switch at %s failed, check its certificate: %s", peer, error)
                    return True
            self._handle(SwitchSocket(socket, lambda: self._leave(place)), address)
        except OSError as error:
            LOG.debug("connection of switch at %s ended: %s", peer, error)
        except Exception as error:  # of Ryu's parsers, for a message that is none
            turned_away[NAME, "malformed"] += 1
            text = "switch at %s sent what is not OpenFlow 1.3 (%s: %s): connection closed. Check what connects from there"
            self._say("malformed", text, peer, type(error).__name__, str(error))
            return False
        return True


class SwitchSocket:
    """A switch's socket that is read in turns and, until the switch is known, to a limit.

    It ``waits_for_us`` while something that the switch has sent is handled, or waits for its turn: then its next answer may wait.
    ``proven`` is to be called when the switch is one of the fabric, and this its connection.
    """

    def __init__(self, socket: Any, proven: Callable[[], None] = lambda: None) -> None:
        self._socket = socket
        self.proven = proven
        # with TLS, what is written is not what the kernel takes
        self._plain = None if hasattr(socket, "do_handshake") else getattr(socket, "fd", None)
        self._left: int | None = MAX_HANDSHAKE_BYTES
        self._turn_ends = 0.0
        self.waits_for_us = True
        self._read, self._at = b"", 0

    def known(self) -> None:
        """End the limit: the switch has said its features and ports."""
        self._left = None

    @property
    def is_known(self) -> bool:
        """True after `known`."""
        return self._left is None

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes; none at the end, or after too many."""
        now = time.monotonic()
        if now > self._turn_ends:
            eventlet.sleep(0)
            green_threads.SWITCHES.take()
            now = time.monotonic()
            self._turn_ends = now + SLICE_SECONDS
        if self._at == len(self._read):
            self.waits_for_us = False
            try:
                self._read, self._at = self._socket.recv(max(size, READ_BYTES)), 0
            finally:
                self.waits_for_us = True
            if time.monotonic() - now > SLICE_SECONDS:  # it has waited, and others have had their turn
                green_threads.SWITCHES.take()
                self._turn_ends = time.monotonic() + SLICE_SECONDS
        data = self._read[self._at : self._at + size]
        self._at += len(data)
        if self._at == len(self._read):
            self._read, self._at = b"", 0  # of a closed connection, which garbage may hold for a while
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                return b""
        return data

    def send_now(self, data: bytes | bytearray) -> int:
        """Write what the kernel takes of some bytes, without waiting; return how many these are."""
        if self._plain is None:
            return 0
        try:
            return int(self._plain.send(data))
        except OSError:  # it takes none; or a wrong one, which who waits for it hears of
            return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


@contextmanager
def watched(datapath: Any) -> Iterator[None]:
    """Close the connection of a datapath, on a `SwitchSocket`, that is not known after `HANDSHAKE_SECONDS`."""

    hub = eventlet.hubs.get_hub()

    def look() -> None:
        if datapath.socket.is_known:
            return
        if datapath.socket.waits_for_us:  # thousands connect at once; what it may send is bounded
            timers.append(hub.schedule_call_global(HANDSHAKE_SECONDS, look))
            return
        turned_away[NAME, "timeout"] += 1
        text = "client at %s did not finish OpenFlow's handshake in %g s: connection closed. Check what connects from there"
        LOG.warning(text, datapath.address[0], HANDSHAKE_SECONDS)
        eventlet.greenio.shutdown_safe(datapath.socket)

    # a timer of the hub: a cancelled green thread would leave a cycle of its traceback and this connection
    timers = [hub.schedule_call_global(HANDSHAKE_SECONDS, look)]
    try:
        yield
    finally:
        timers[-1].cancel()
