"""The datapaths of a lab's Open vSwitch, its own, in user space, or the kernel's; and the buffers of the one in user space.

The kernel's lives in the network namespace of the switch daemon, ``ovs-system`` and its ports with it: the kernel deletes them
together with the lab's namespace, however the lab ends. All bridges share one datapath of either kind.

The userspace datapath sends through one packet socket for all ports, and every frame in a link's queue counts
against that socket's send buffer: some 90 frames by default, for the whole fabric. Beyond that it drops frames, which no
queue's counter shows. The default (net.core.wmem_default) belongs to the whole machine, so the buffer is raised on the socket
itself, through a copy of the daemon's descriptor (pidfd_getfd(2)). It reads each port by a socket of its own, which keeps some 250
small packets (net.core.rmem_default) until the daemon reads them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

MODULE, NETLINK_FAMILY = "openvswitch", "ovs_datapath"
TUN_MODULE, TUN = "tun", Path("/dev/net/tun")
_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BYTES_MAX = 2**30 - 1

_libc = ctypes.CDLL(None, use_errno=True)


class DatapathKind(StrEnum):
    """The part of Open vSwitch that forwards packets."""

    KERNEL = "kernel"
    """The kernel's, in the context of the sender, on all processors."""
    USER = "user"
    """One thread of the switch daemon. Its bridges' own interfaces need the module ``tun``."""

    @property
    def type(self) -> str:
        """Open vSwitch's name, as ``datapath_type`` of a bridge."""
        return "system" if self is DatapathKind.KERNEL else "netdev"

    @property
    def device(self) -> str:
        """The interface that Open vSwitch makes for the datapath itself."""
        return f"ovs-{self.type}"


class NoDatapathError(RuntimeError):
    """The kernel lacks what the datapath needs; the text says which module, and what to do."""


def choose(wanted: DatapathKind | None) -> DatapathKind:
    """Return ``wanted``, or for None the kernel's datapath if it is there; `NoDatapathError` if the kernel lacks what it needs."""
    chosen = wanted or (DatapathKind.KERNEL if kernel_has_it() else DatapathKind.USER)
    if wanted is DatapathKind.KERNEL and not kernel_has_it():
        raise NoDatapathError(_lacks(MODULE, "which --datapath kernel needs: use --datapath user"))
    if chosen is DatapathKind.USER and not _has_tun():
        raise NoDatapathError(_lacks(TUN_MODULE, "which --datapath user needs"))
    return chosen


def _lacks(module: str, more: str) -> str:
    return f"this kernel has no module {module} (`modprobe {module}` says why), {more}; Debian's kernels have it"


def kernel_has_it() -> bool:
    """Tell whether the kernel's datapath is there: built in, loaded, or loadable, in which case the kernel loads it now."""
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket

    with GenericNetlinkSocket() as socket:
        socket.asyncore.module_err_level = "debug"  # or pyroute2 would print that there is none
        try:
            socket.discovery(NETLINK_FAMILY)
        except NetlinkError as error:
            if error.code != errno.ENOENT:
                raise
            return False
    return True


def _has_tun() -> bool:
    """Tell whether there are tun devices; opening their file loads the module."""
    try:
        TUN.open("rb", buffering=0).close()
    except OSError:
        return False
    return True


def raise_send_buffers(pid: int, size: int) -> int:
    """Raise the send buffer of every send-only packet socket of a process: one that is bound to no protocol.

    The size is in bytes of the kernel's accounting (a full frame takes some 2.3 KB). Returns the number of such sockets, 0 before
    the process has sent anything; `OSError` if it has ended or the caller lacks CAP_SYS_PTRACE or CAP_NET_ADMIN.
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
