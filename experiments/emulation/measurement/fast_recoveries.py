"""Fast recoveries per TCP connection. The kernel itself counts them per network namespace only."""

from __future__ import annotations

import os
import struct
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import build

OBJECT = Path(__file__).with_name("fast_recoveries.o")
_KEY = struct.Struct("=Q4sHH")


class FastRecoveries:
    """Counts the fast recoveries of every connection of this machine, as a context manager.

    Raises:
        BpfError, BuildError: On entering, if the kernel lacks the tracepoint, or the program cannot be compiled or loaded.
    """

    def __enter__(self) -> FastRecoveries:
        build([OBJECT])
        with ExitStack() as opened:
            program = opened.enter_context(libbpf.Object(OBJECT))
            opened.callback(os.close, program.trace("state_set"))
            self._flows = program.map_fd("flows")
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._opened.close()

    def entered(self, netns: int, source: IPv4Address, port: int | None = None) -> int:
        """Return how often a connection has entered fast recovery so far.

        Args:
            netns: Cookie of the network namespace of the connection.
            port: Source port of the connection; default: the sum over all ports of the address.
        """
        if port is not None:
            value = libbpf.lookup(self._flows, _KEY.pack(netns, source.packed, port, 0), 8)
            return int(struct.unpack("=Q", value)[0]) if value else 0
        total = 0
        for key in set(libbpf.keys(self._flows, _KEY.size)):
            of, address, its, _ = _KEY.unpack(key)
            if (of, address) == (netns, source.packed):
                total += self.entered(netns, source, its)
        return total
