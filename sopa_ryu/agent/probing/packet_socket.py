"""A packet socket that writes probes to an interface."""

from __future__ import annotations

import contextlib
import socket

from sopa_ryu.agent.kernel.netns import inside

_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20  # linux/if_packet.h; the socket module has no names for them
_LABELLED_MARK = 0x534F5041  # bpf/probe.h
_PRIORITY = 7  # TC_PRIO_CONTROL: what devices with several queues go by


class ProbeSocket:
    """The socket of one interface. Frames pass its queueing disciplines and tc by, unless a program there is to wrap them.

    Args:
        wrapped: tc egress puts them into an outer header (`Carrier.SRV6`).
        netns: Path of the interface's network namespace; the caller's own by default.

    Raises:
        OSError: If the kernel refuses.
        NetnsError: If the namespace cannot be entered.
    """

    def __init__(self, ifname: str, netns: str | None = None, *, wrapped: bool = False) -> None:
        with inside(netns), contextlib.ExitStack() as opened:
            sock = opened.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))  # receives nothing
            sock.setblocking(False)
            if wrapped:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, _LABELLED_MARK)
            else:
                sock.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _PRIORITY)
            sock.bind((ifname, 0))
            opened.pop_all()
        self._socket = sock

    def send(self, frame: bytes | bytearray) -> None:
        """Send a frame; `OSError` if the device does not take it."""
        self._socket.send(frame)

    def close(self) -> None:
        """Close it. May be repeated."""
        self._socket.close()
