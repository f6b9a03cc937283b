"""What switches do to labelled packets, done at the sender's interface."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sopa_ryu.agent.kernel import libbpf, tc
from sopa_ryu.agent.kernel.build import build

OBJECT = Path(__file__).with_name("switched.o")
_PRIORITY, _HANDLE = 20, 1  # behind the agent's


@contextmanager
def switched(ifname: str) -> Iterator[None]:
    """Write over the hops of the labels that leave by an interface of this namespace; other packets are looked at only."""
    build([OBJECT])
    ifindex = socket.if_nametoindex(ifname)
    created = tc.create_clsact(ifindex)
    with libbpf.Object(OBJECT) as program:
        fd = program.program_fd("switched")
        tc.attach(ifindex, fd, handle=_HANDLE, priority=_PRIORITY, replace=False)
        try:
            yield
        finally:
            tc.detach(ifindex, handle=_HANDLE, priority=_PRIORITY)
            if created:
                tc.destroy_clsact(ifindex)
