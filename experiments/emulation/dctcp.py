"""DCTCP for the hosts of a lab: Linux' own, or where the kernel has none a program of ours (RFC 8257)."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from experiments.emulation.traffic.transfers import TransferError
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import BuildError, build

OBJECT = Path(__file__).parent / "bpf" / "dctcp.o"
DCTCP = "dctcp"
_OURS = "sopa_dctcp"


@contextmanager
def dctcp() -> Iterator[str]:
    """Yield the name by which sockets choose DCTCP, as long as the context lasts. Connections that are open then keep it.

    Raises `TransferError` if Linux has none, and takes none of ours, or another process has it.
    """
    if _is_there(DCTCP):
        yield DCTCP
        return
    if _is_there(_OURS):
        raise TransferError("another experiment on this machine has +congestion=dctcp: wait until it ends")
    with ExitStack() as stack:
        try:
            build([OBJECT])
            stack.callback(os.close, stack.enter_context(libbpf.Object(OBJECT, linked=DCTCP)).register())
        except (libbpf.BpfError, BuildError) as error:
            raise TransferError(f"Linux has no DCTCP here (modprobe tcp_dctcp), nor takes ours, as from 6.4 on: {error}") from error
        yield _OURS


def _is_there(name: str) -> bool:
    with socket.socket() as asking:
        try:
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())  # Linux loads a module by that
        except FileNotFoundError:
            return False
    return True
