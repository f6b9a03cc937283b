"""The datapaths of a lab's Open vSwitch: its own, in user space, or the kernel's.

The kernel's lives in the network namespace of the switch daemon, ``ovs-system`` and its ports with it: the kernel deletes them
together with the lab's namespace, however the lab ends. All bridges share one datapath of either kind.
"""

from __future__ import annotations

import errno
from enum import StrEnum
from pathlib import Path

MODULE, NETLINK_FAMILY = "openvswitch", "ovs_datapath"
TUN_MODULE, TUN = "tun", Path("/dev/net/tun")


class Datapath(StrEnum):
    """The part of Open vSwitch that forwards packets."""

    KERNEL = "kernel"
    """The kernel's, in the context of the sender, on all processors."""
    USER = "user"
    """One thread of the switch daemon. Its bridges' own interfaces need the module ``tun``."""

    @property
    def type(self) -> str:
        """Open vSwitch's name, as ``datapath_type`` of a bridge."""
        return "system" if self is Datapath.KERNEL else "netdev"

    @property
    def device(self) -> str:
        """The interface that Open vSwitch makes for the datapath itself."""
        return f"ovs-{self.type}"


class NoDatapathError(RuntimeError):
    """The kernel lacks what the datapath needs; the text says which module, and what to do."""


def choose(wanted: Datapath | None) -> Datapath:
    """Return the datapath that is wanted, or for None the kernel's if it is there, and else the one in user space.

    Raises:
        NoDatapathError: If the kernel lacks what it needs.
    """
    chosen = wanted or (Datapath.KERNEL if kernel_has_it() else Datapath.USER)
    if wanted is Datapath.KERNEL and not kernel_has_it():
        raise NoDatapathError(_lacks(MODULE, "which --datapath kernel needs: use --datapath user"))
    if chosen is Datapath.USER and not _has_tun():
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
