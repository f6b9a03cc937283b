"""The buffers of a userspace switch: memory for frames that wait in its links' queues, or for its processor.

Open vSwitch's userspace datapath sends through one packet socket for all ports, and every frame in a link's queue counts
against that socket's send buffer: some 90 frames by default, for the whole fabric. Beyond that it drops frames, which no
queue's counter shows. The default (net.core.wmem_default) belongs to the whole machine, so the buffer is raised on the socket
itself, through a copy of the daemon's descriptor (pidfd_getfd(2)).

It reads each port by a socket of its own, which keeps some 250 small packets (net.core.rmem_default) until the daemon reads them.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BYTES_MAX = 2**30 - 1

_libc = ctypes.CDLL(None, use_errno=True)


def raise_send_buffers(pid: int, size: int) -> int:
    """Raise the send buffer of every send-only packet socket of a process: one that is bound to no protocol.

    Args:
        pid: The process id.
        size: Bytes of frames in flight in the kernel's accounting (a full frame takes some 2.3 KB).

    Returns:
        The number of such sockets; 0 before the process has sent anything.

    Raises:
        OSError: If the process has ended or the caller lacks CAP_SYS_PTRACE or CAP_NET_ADMIN.
    """
    return _raise(pid, False, _SO_SNDBUFFORCE, size)


def raise_receive_buffers(pid: int, size: int) -> int:
    """Raise the receive buffer of every packet socket by which a process reads a port; as `raise_send_buffers`.

    A switch that gets no processor for a while forwards then late what it would drop otherwise, and no queue's counter would show.
    """
    return _raise(pid, True, _SO_RCVBUFFORCE, size)


def _raise(pid: int, receiving: bool, option: int, size: int) -> int:
    raised = 0
    for copy in _packet_sockets(pid):
        if (copy.getsockname()[1] != 0) == receiving:
            copy.setsockopt(socket.SOL_SOCKET, option, min(size, _BYTES_MAX))
            raised += 1
    return raised


def _packet_sockets(pid: int) -> Iterator[socket.socket]:
    """Yield a copy of each packet socket of a process, which is closed afterwards."""
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if not _is_socket(entry):
                continue
            fd = _libc.syscall(_SYS_PIDFD_GETFD, process, int(entry.name), 0)
            if fd < 0:
                number = ctypes.get_errno()
                raise OSError(number, f"process {pid}, descriptor {entry.name}: {os.strerror(number)}")
            with socket.socket(fileno=fd) as copy:
                if copy.family == socket.AF_PACKET:
                    yield copy
    finally:
        os.close(process)


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False
