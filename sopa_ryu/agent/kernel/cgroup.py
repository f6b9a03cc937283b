"""The root of cgroup v2, to which a program for the events of TCP sockets is attached.

The sockets of all processes are below it, those of containers too. Where it is mounted, systemd has done that; in a mount namespace
with a ``/sys`` of its own the old mounts are listed, but hidden, and it is mounted anew, without a place (fsmount(2), Linux 5.2).
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from ctypes import c_uint32
from pathlib import Path

from sopa_ryu.agent.kernel.libbpf import AttachError, call, check

_TYPE = "cgroup2"
_SOCK_OPS = 3  # enum bpf_attach_type
_CONTROL = "cgroup.controllers"
"""A file of every cgroup of version 2."""
_CLOEXEC, _CREATE = 1, 6  # FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC; FSCONFIG_CMD_CREATE
_libc = ctypes.CDLL(None, use_errno=True)


def mounted(mountinfo: str) -> Iterator[str]:
    """Yield where roots of cgroup v2 are mounted, by the text of ``/proc/self/mountinfo`` (proc(5)).

    Examples
    --------
    >>> list(mounted("38 31 0:38 / /sys/fs/cgroup/a\\\\040b rw,relatime shared:9 - cgroup2 cgroup2 rw\\n"))
    ['/sys/fs/cgroup/a b']
    """
    for line in mountinfo.splitlines():
        place, _, kind = line.partition(" - ")
        _, _, _, root, point, *_ = place.split(" ")
        if kind.split(" ")[0] == _TYPE and root == "/":
            yield point.encode().decode("unicode_escape").encode("latin-1").decode()


def open_root() -> int:
    """Open the root; the caller closes the descriptor.

    Raises
    ------
    AttachError
        If the kernel has no cgroup v2, or does not let this process mount it.
    """
    for point in mounted(Path("/proc/self/mountinfo").read_text()):
        try:
            root = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        if _is_root(root):
            return root
        os.close(root)
    return _mount()


def attach_sock_ops(program: int) -> int:
    """Attach a program to the sockets of the whole machine; return the link: it stays until that descriptor is closed.

    Raises
    ------
    AttachError
        If there is no cgroup v2, or the kernel refuses; it allows 64 programs.
    """
    root = open_root()
    try:
        result = call("bpf_link_create", program, root, c_uint32(_SOCK_OPS), None)
    finally:
        os.close(root)
    hint = (
        ": other programs, or agents of more than 60 interfaces, have taken all 64 places"
        if result == -errno.E2BIG
        else ""
    )
    return check(result, f"cannot attach to the sockets of this machine (cgroup v2){hint}", AttachError)


def _is_root(directory: int) -> bool:
    try:
        os.stat(_CONTROL, dir_fd=directory)
    except OSError:
        return False
    return True


def _mount() -> int:
    """Mount it where no path leads, for as long as the descriptor is open."""
    context = _checked(_libc.fsopen(_TYPE.encode(), _CLOEXEC))
    try:
        _checked(_libc.fsconfig(context, _CREATE, None, None, 0))
        mount = _checked(_libc.fsmount(context, _CLOEXEC, 0))
    finally:
        os.close(context)
    try:
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=mount)
    finally:
        os.close(mount)


def _checked(result: int) -> int:
    if result < 0:
        reason = os.strerror(ctypes.get_errno())
        raise AttachError(
            f"cgroup v2 is not mounted, and cannot be: {reason}. --policy mcs attaches a program to TCP's sockets there: "
            "mount -t cgroup2 none /sys/fs/cgroup, or start this machine with systemd's default (no cgroup_no_v1, no legacy mode)"
        )
    return result
