"""The send buffer of a userspace switch: memory for frames that wait in its links' queues.

Open vSwitch's userspace datapath sends through one packet socket for all ports, and every frame in a link's queue counts
against that socket's send buffer: some 90 frames by default, for the whole fabric. Beyond that it drops frames, which no
queue's counter shows. The default (net.core.wmem_default) belongs to the whole machine, so the buffer is raised on the socket
itself, through a copy of the daemon's descriptor (pidfd_getfd(2)).
"""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_SO_SNDBUFFORCE = 32
_BYTES_MAX = 2**30 - 1

_libc = ctypes.CDLL(None, use_errno=True)


def raise_send_buffers(pid: int, size: int) -> int:
    """Raise the send buffer of every send-only packet socket of a process: one that is bound to no protocol.

    Parameters
    ----------
    pid : int
        The process id.
    size : int
        Bytes of frames in flight in the kernel's accounting (a full frame takes some 2.3 KB).

    Returns
    -------
    int
        The number of such sockets; 0 before the process has sent anything.

    Raises
    ------
    OSError
        If the process has ended or the caller lacks CAP_SYS_PTRACE or CAP_NET_ADMIN.
    """
    raised = 0
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
                if copy.family == socket.AF_PACKET and copy.getsockname()[1] == 0:
                    copy.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, min(size, _BYTES_MAX))
                    raised += 1
    finally:
        os.close(process)
    return raised


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except FileNotFoundError:  # closed meanwhile
        return False
