"""The root of cgroup v2, to which programs for the events of TCP sockets and for the packets of sockets are attached.

The sockets of all processes are below it, those of containers too. Where it is mounted, systemd has done that; in a mount namespace
with a ``/sys`` of its own the old mounts are listed, but hidden, and it is mounted anew, without a place (fsmount(2), Linux 5.2).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from ctypes import byref, c_uint32
from pathlib import Path

from sopa_ryu.agent.kernel.libbpf import AttachError, call, check

_TYPE = "cgroup2"
MAX_PROGRAMS = 64
"""What Linux attaches to a cgroup at most (BPF_CGROUP_MAX_PROGS)."""
_INET_EGRESS, _SOCK_OPS = 1, 3  # enum bpf_attach_type
_LINK_INFO = struct.Struct("=IIIxxxxQ")  # struct bpf_link_info: type, id, program, cgroup, which is 0 if it is detached
_CONTROL = "cgroup.controllers"
"""A file of every cgroup of version 2."""
_CLOEXEC, _CREATE = 1, 6  # FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC; FSCONFIG_CMD_CREATE
_libc = ctypes.CDLL(None, use_errno=True)


def mounted(mountinfo: str) -> Iterator[str]:
    """Yield where roots of cgroup v2 are mounted, by the text of ``/proc/self/mountinfo`` (proc(5)).

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

    Raises:
        AttachError: If the kernel has no cgroup v2, or does not let this process mount it.
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
    """Attach a program to the events of the machine's sockets; return the link: it stays until that descriptor is closed.

    Raises:
        AttachError: If there is no cgroup v2, or the kernel refuses; it allows `MAX_PROGRAMS`.
    """
    return _attach(program, _SOCK_OPS)


def attach_egress(program: int) -> int:
    """Attach a program to what the machine's sockets send; return the link, and raise, as `attach_sock_ops` does."""
    return _attach(program, _INET_EGRESS)


def _attach(program: int, kind: int) -> int:
    root = open_root()
    try:
        result = call("bpf_link_create", program, root, c_uint32(kind), None)
    finally:
        os.close(root)
    hint = f": other programs, or other agents' processes, have taken all {MAX_PROGRAMS} places" if result == -errno.E2BIG else ""
    return check(result, f"cannot attach to the sockets of this machine (cgroup v2){hint}", AttachError)


def is_attached(link: int) -> bool:
    """Return False if a link that `attach_sock_ops` has made was detached (``bpftool link detach``).

    Raises:
        AttachError: If the kernel refuses.
    """
    info, length = ctypes.create_string_buffer(_LINK_INFO.size), c_uint32(_LINK_INFO.size)
    check(call("bpf_obj_get_info_by_fd", link, info, byref(length)), "cannot read a link to sockets", AttachError)
    *_, its_cgroup = _LINK_INFO.unpack(info.raw)
    return bool(its_cgroup)


def sock_ops_programs() -> list[int]:
    """Return the ids of the programs that are attached to the sockets of the whole machine.

    Raises:
        AttachError: If there is no cgroup v2, or the kernel refuses.
    """
    found, count = (c_uint32 * MAX_PROGRAMS)(), c_uint32(MAX_PROGRAMS)
    root = open_root()
    try:
        result = call("bpf_prog_query", root, c_uint32(_SOCK_OPS), c_uint32(0), None, found, byref(count))
    finally:
        os.close(root)
    check(result, "cannot list the programs at the sockets of this machine (cgroup v2)", AttachError)
    return list(found[: count.value])


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
            f"cgroup v2 is not mounted, and cannot be: {reason}. --policy mcs and cfr attach a program to TCP's sockets there: "
            "mount -t cgroup2 none /sys/fs/cgroup, or start this machine with systemd's default (no cgroup_no_v1, no legacy mode)"
        )
    return result
