"""Whether TCP's send buffers hold enough for slots, which are granted for what sockets have taken from applications by then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from ipaddress import IPv4Address

from sopa_ryu.agent.kernel.netns import SYSCTLS, NetnsError, inside
from sopa_ryu.agent.slots.cfr_grants import Grants

LOG = logging.getLogger("sopa.agent")

BATCHES = 8
"""What a connection's buffer has to hold. Two batches are granted ahead, and a third one is, by a demand that may be a batch old.
TCP wakes its application when a third of the buffer is free. The kernel counts half of a packet's bytes again for its memory."""


def wmem() -> tuple[int, int, int]:
    """Return the least, first and largest size of a connection's send buffer (tcp(7), ``tcp_wmem``) in this network namespace."""
    least, first, most = map(int, (SYSCTLS / "ipv4" / "tcp_wmem").read_text().split())
    return least, first, most


class SendBuffers:
    """What is known of one host.

    Args:
        address: Of the host, for log lines.
        netns: Path of its network namespace.
        read: As `wmem`.
    """

    def __init__(
        self, address: IPv4Address, netns: str | None, grants: Grants, read: Callable[[], tuple[int, int, int]] = wmem
    ) -> None:
        self._address, self._netns, self._grants, self._read = address, netns, grants, read
        self._said = 0

    def look(self) -> None:
        """Say once if connections begin with too little: their buffers grow with the window, which slots keep small."""
        wanted = BATCHES * self._grants.batch_bytes
        if wanted <= self._said:
            return
        try:
            with inside(self._netns):
                least, first, most = self._read()
        except (NetnsError, OSError):
            return  # said by what needs it
        self._said = wanted
        if first < wanted:
            LOG.warning(
                "%s: a connection's send buffer begins with %d bytes, and slots need %d. Slots are granted for what TCP has taken "
                "from applications, so the host gets fewer than its link carries. Set, for new connections: "
                "sysctl -w net.ipv4.tcp_wmem='%d %d %d'",
                self._address,
                first,
                wanted,
                least,
                wanted,
                max(most, wanted),
            )
