"""The XDP program of an interface, by libbpf, in the calling thread's network namespace (`netns.inside`)."""

from __future__ import annotations

from ctypes import Structure, byref, c_int, c_size_t, c_uint8, c_uint32, sizeof
from enum import IntEnum, StrEnum
from typing import NamedTuple

from sopa_ryu.agent.kernel.libbpf import AttachError, call, check

_FLAGS_IF_NOEXIST, _FLAGS_REPLACE = 1 << 0, 1 << 4


class Mode(StrEnum):
    """The place where a program runs."""

    NATIVE = "native"
    """In the driver, before the kernel has made a packet of it."""
    GENERIC = "generic"
    """After that: slower, but on every interface."""


_FLAGS = {Mode.GENERIC: 1 << 1, Mode.NATIVE: 1 << 2}


class _AttachedMode(IntEnum):
    """enum of linux/if_link.h."""

    NONE, DRIVER, SKB, HARDWARE, SEVERAL = range(5)


class _AttachOpts(Structure):
    _fields_ = [("sz", c_size_t), ("old_prog_fd", c_int)]


class _QueryOpts(Structure):
    _fields_ = [("sz", c_size_t), ("prog_id", c_uint32), ("drv_prog_id", c_uint32), ("hw_prog_id", c_uint32),
                ("skb_prog_id", c_uint32), ("attach_mode", c_uint8)]  # fmt: skip


class Attached(NamedTuple):
    """A program's id, and where it runs; None for in hardware, or in several places."""

    identifier: int
    mode: Mode | None


def attached(ifindex: int) -> Attached | None:
    """Return the program of an interface; None if there is none."""
    opts = _QueryOpts(sz=sizeof(_QueryOpts))
    check(call("bpf_xdp_query", ifindex, 0, byref(opts)), f"cannot query interface {ifindex}", AttachError)
    mode = _AttachedMode(opts.attach_mode)
    if mode is _AttachedMode.NONE:
        return None
    modes = {_AttachedMode.DRIVER: Mode.NATIVE, _AttachedMode.SKB: Mode.GENERIC}
    return Attached(int(opts.prog_id or opts.drv_prog_id or opts.skb_prog_id or opts.hw_prog_id), modes.get(mode))


def attach(ifindex: int, program: int, mode: Mode, old_program: int | None) -> None:
    """Attach a program in place of the one given, without a gap; with None only where there is none."""
    opts = _AttachOpts(sz=sizeof(_AttachOpts), old_prog_fd=-1 if old_program is None else old_program)
    flags = _FLAGS[mode] | (_FLAGS_IF_NOEXIST if old_program is None else _FLAGS_REPLACE)
    result = call("bpf_xdp_attach", ifindex, program, c_uint32(flags), byref(opts) if old_program is not None else None)
    check(result, f"cannot attach to interface {ifindex} in {mode} mode", AttachError)


def detach(ifindex: int, program: int, mode: Mode) -> None:
    """Remove the program if it is still the one given."""
    opts = _AttachOpts(sz=sizeof(_AttachOpts), old_prog_fd=program)
    result = call("bpf_xdp_detach", ifindex, c_uint32(_FLAGS[mode] | _FLAGS_REPLACE), byref(opts))
    check(result, f"cannot detach from interface {ifindex}", AttachError)
