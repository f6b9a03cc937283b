"""Programs at an interface's tc ingress and egress, by libbpf, in the calling thread's network namespace (`netns.inside`)."""

from __future__ import annotations

import errno
from ctypes import Structure, byref, c_int, c_size_t, c_uint32, sizeof
from enum import IntEnum

from sopa_ryu.agent.kernel.libbpf import AttachError, call, check


class Point(IntEnum):
    """The place where a program sees packets (enum bpf_tc_attach_point)."""

    INGRESS = 1
    EGRESS = 2


_TC_F_REPLACE = 1


class _TcHook(Structure):
    _fields_ = [("sz", c_size_t), ("ifindex", c_int), ("attach_point", c_int), ("parent", c_uint32)]


class _TcOpts(Structure):
    _fields_ = [("sz", c_size_t), ("prog_fd", c_int), ("flags", c_uint32), ("prog_id", c_uint32),
                ("handle", c_uint32), ("priority", c_uint32)]  # fmt: skip


def _hook(ifindex: int, attach_point: int) -> _TcHook:
    return _TcHook(sz=sizeof(_TcHook), ifindex=ifindex, attach_point=attach_point)


def create_clsact(ifindex: int) -> bool:
    """Add the clsact qdisc; return False if it is there already."""
    result = call("bpf_tc_hook_create", byref(_hook(ifindex, Point.EGRESS)))
    if result == -errno.EEXIST:
        return False
    check(result, f"cannot add clsact to interface {ifindex}", AttachError)
    return True


def destroy_clsact(ifindex: int) -> None:
    """Remove the clsact qdisc with every filter on it; one that is gone is no error."""
    result = call("bpf_tc_hook_destroy", byref(_hook(ifindex, Point.INGRESS | Point.EGRESS)))
    if result not in (-errno.ENOENT, -errno.EINVAL, -errno.ENODEV):
        check(result, f"cannot remove clsact from interface {ifindex}", AttachError)


def attach(ifindex: int, program: int, *, handle: int, priority: int, replace: bool, point: Point = Point.EGRESS) -> None:
    """Attach under that handle and priority; ``replace`` swaps a program that is there, without a gap."""
    flags = _TC_F_REPLACE if replace else 0
    opts = _TcOpts(sz=sizeof(_TcOpts), prog_fd=program, flags=flags, handle=handle, priority=priority)
    result = call("bpf_tc_attach", byref(_hook(ifindex, point)), byref(opts))
    check(result, f"cannot attach to interface {ifindex} at {point.name.lower()}, priority {priority}", AttachError)


def attached(ifindex: int, *, handle: int, priority: int, point: Point = Point.EGRESS) -> int | None:
    """Return the id of the program under that handle and priority; None if there is none (or no clsact)."""
    opts = _TcOpts(sz=sizeof(_TcOpts), handle=handle, priority=priority)
    result = call("bpf_tc_query", byref(_hook(ifindex, point)), byref(opts))
    if result in (-errno.ENOENT, -errno.EINVAL):
        return None
    check(result, f"cannot query interface {ifindex}", AttachError)
    return int(opts.prog_id)


def detach(ifindex: int, *, handle: int, priority: int, point: Point = Point.EGRESS) -> None:
    """Remove the filter under that handle and priority; one that is gone is no error."""
    opts = _TcOpts(sz=sizeof(_TcOpts), handle=handle, priority=priority)
    result = call("bpf_tc_detach", byref(_hook(ifindex, point)), byref(opts))
    if result not in (-errno.ENOENT, -errno.EINVAL, -errno.ENODEV):
        check(result, f"cannot detach from interface {ifindex}", AttachError)
