"""libbpf by ctypes: programs and maps. Needs libbpf.so.1 (1.0 or later), and root for everything.

Errors::

    BpfError
    ├── BpfUnavailable   no libbpf, not permitted, or a kernel without BPF
    ├── BpfLoadError     the object file is missing or damaged, or the verifier refused it (with the end of its log)
    ├── BpfMapError      a map cannot be created, read or filled
    └── AttachError      tc or XDP refused: no such interface, no clsact, or another program in our place

Maps and programs belong to no network namespace.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Structure, byref, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p, sizeof
from functools import cache
from pathlib import Path
from typing import NamedTuple

ANY, NOEXIST, EXIST = 0, 1, 2
_ARRAY, _F_INNER_MAP = 2, 1 << 12
_BPF_STRUCT_OPS, _BPF_F_LINK = 44, 1 << 13
_MAKES_LINKS = 2  # libbpf 1.2 and later attach a map with BPF_F_LINK by a link; those before only fill it
_SKB_BYTES, _SKB_TSTAMP, _SKB_GSO_SEGS, _SKB_GSO_SIZE = 192, 152, 164, 176  # struct __sk_buff
_LOG_LINES = 20
_MAX_MAPS = 16


class BpfError(RuntimeError):
    """A BPF operation failed; the message says which, why and what to do."""


class BpfUnavailable(BpfError):
    """This machine or user cannot use BPF at all."""


class BpfLoadError(BpfError):
    """The kernel refused the program."""


class BpfMapError(BpfError):
    """A map operation failed."""


class AttachError(BpfError):
    """A program cannot be attached to, or detached from, an interface."""


class _MapCreateOpts(Structure):
    _fields_ = [("sz", c_size_t), ("btf", c_uint32 * 4), ("inner_map_fd", c_uint32), ("map_flags", c_uint32),
                ("map_extra", c_uint64), ("numa_node", c_uint32), ("map_ifindex", c_uint32)]  # fmt: skip


class _BatchOpts(Structure):
    _fields_ = [("sz", c_size_t), ("elem_flags", c_uint64), ("flags", c_uint64)]


class _TestRunOpts(Structure):
    _fields_ = [("sz", c_size_t), ("data_in", c_char_p), ("data_out", c_void_p), ("data_size_in", c_uint32),
                ("data_size_out", c_uint32), ("ctx_in", c_void_p), ("ctx_out", c_void_p), ("ctx_size_in", c_uint32),
                ("ctx_size_out", c_uint32), ("retval", c_uint32), ("repeat", c_int), ("duration", c_uint32),
                ("flags", c_uint32), ("cpu", c_uint32), ("batch_size", c_uint32)]  # fmt: skip


_heard = threading.local()
_PrintFn = ctypes.CFUNCTYPE(c_int, c_int, c_char_p, c_void_p)


def _hear(level: int, text: bytes, arguments: int) -> int:
    # Kept for the next error. A va_list parameter arrives as a pointer on all of Linux's 64-bit ABIs.
    if level > 1:  # debug
        return 0
    line = ctypes.create_string_buffer(65536)
    ctypes.CDLL(None).vsnprintf(line, c_size_t(len(line)), c_char_p(text), c_void_p(arguments))
    _heard.__dict__.setdefault("lines", []).extend(line.value.decode(errors="replace").splitlines())
    return 0


_listen = _PrintFn(_hear)  # libbpf keeps the pointer: this must live as long


@cache
def _lib() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise BpfUnavailable(f"libbpf.so.1 is missing ({error}): apt install libbpf1") from error
    lib.libbpf_set_print(_listen)
    for name in ("bpf_object__open_file", "bpf_object__find_map_by_name", "bpf_object__find_program_by_name", "ring_buffer__new",
                 "bpf_map__attach_struct_ops"):  # fmt: skip
        getattr(lib, name).restype = c_void_p
    return lib


def call(function: str, *arguments: object) -> int:
    """Call a libbpf function that returns a number; messages of libbpf are kept for the error, if it is one."""
    lib = _lib()
    _heard.lines = []
    return int(getattr(lib, function)(*arguments))


def open_pointer(function: str, *arguments: object, doing: str, kind: type[BpfError]) -> int:
    """Call a libbpf function that returns a pointer; raise the exception for the error if it is null."""
    lib = _lib()
    _heard.lines = []
    found: int | None = getattr(lib, function)(*arguments)
    if not found:
        raise kind(f"{doing}: {_reason(ctypes.get_errno())}")
    return found


def _reason(number: int) -> str:
    lines = [line for line in getattr(_heard, "lines", []) if line.strip()]
    return os.strerror(number) + "".join(f"\n  {line}" for line in lines[-_LOG_LINES:])


def check(result: int, doing: str, kind: type[BpfError] = BpfMapError) -> int:
    """Return the result of a libbpf call, or raise the exception for its negative errno."""
    if result >= 0:
        return result
    if -result in (errno.EPERM, errno.EACCES) and os.geteuid():
        raise BpfUnavailable(f"not permitted: {doing}. Run as root (CAP_BPF and CAP_NET_ADMIN).")
    if -result == errno.ENOSYS:
        raise BpfUnavailable(f"this kernel has no BPF: {doing}. SOPA needs Linux 6.1 with CONFIG_BPF_SYSCALL.")
    raise kind(f"{doing}: {_reason(-result)}")


class RunOutcome(NamedTuple):
    """The result of a program for a frame: its return value, the frame, nanoseconds per repetition, and the departure time."""

    retval: int
    data: bytes
    nanoseconds: int
    tstamp: int = 0


class Object:
    """An object file from clang, loaded for as long as the context lasts; what is attached by then stays attached.

    Args:
        max_entries: Sizes of maps by name, in place of those in the file.
        linked: The file's map of ``struct_ops`` for `register`.
    """

    def __init__(self, path: Path, max_entries: dict[str, int] | None = None, linked: str | None = None) -> None:
        self.path, self._max_entries, self._linked = path, max_entries or {}, linked
        self._pointer: int | None = None

    def __enter__(self) -> Object:
        self.load()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def load(self) -> None:
        """Load the programs and create the maps.

        Raises:
            BpfUnavailable, BpfLoadError: If the file has not been built, or the kernel refuses it.
        """
        if not self.path.exists():
            raise BpfLoadError(f"{self.path} has not been built: python -m sopa_ryu.agent.kernel.build")
        self._pointer = _lib().bpf_object__open_file(os.fsencode(self.path), None)
        if not self._pointer:
            raise BpfLoadError(f"cannot read {self.path}: {_reason(ctypes.get_errno())}")
        try:
            for name, entries in self._max_entries.items():
                found = c_void_p(self._find("map", name))
                check(call("bpf_map__set_max_entries", found, c_uint32(entries)), f"cannot resize {name}")
            if self._linked:
                found = c_void_p(self._find("map", self._linked))
                check(call("bpf_map__set_map_flags", found, c_uint32(_BPF_F_LINK)), f"cannot mark {self._linked}")
            check(call("bpf_object__load", c_void_p(self._pointer)), f"the kernel refused {self.path.name}", BpfLoadError)
        except BaseException:
            self.close()
            raise

    @property
    def loaded(self) -> bool:
        """True between `load` and `close`."""
        return bool(self._pointer)

    def close(self) -> None:
        """Close all descriptors; a second call does nothing."""
        if self._pointer:
            _lib().bpf_object__close(c_void_p(self._pointer))
            self._pointer = None

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map, open until the object is closed."""
        return call("bpf_map__fd", c_void_p(self._find("map", name)))

    def program_fd(self, name: str) -> int:
        """Return the descriptor of a program, open until the object is closed."""
        return call("bpf_program__fd", c_void_p(self._find("program", name)))

    def trace(self, name: str) -> int:
        """Attach a tracing program to what its section names; return the descriptor that keeps it there until closed."""
        return check(
            call("bpf_raw_tracepoint_open", None, self.program_fd(name)),
            f"cannot attach {name} (does this kernel have CONFIG_BPF_EVENTS?)",
            AttachError,
        )

    def register(self) -> int:
        """Have the kernel use the operations of the linked map, until the descriptor that is returned is closed."""
        assert self._linked is not None
        doing = f"cannot register {self._linked}"
        table = self._find("map", self._linked)
        link = open_pointer("bpf_map__attach_struct_ops", c_void_p(table), doing=doing, kind=AttachError)
        if call("libbpf_minor_version") >= _MAKES_LINKS:
            return call("bpf_link__fd", c_void_p(link))
        return check(call("bpf_link_create", self.map_fd(self._linked), 0, _BPF_STRUCT_OPS, None), doing, AttachError)

    def _find(self, kind: str, name: str) -> int:
        if not self._pointer:
            raise BpfLoadError(f"{self.path.name} is not loaded")
        find = getattr(_lib(), f"bpf_object__find_{kind}_by_name")
        found: int | None = find(c_void_p(self._pointer), name.encode())
        if not found:
            raise BpfLoadError(
                f"{self.path.name} has no {kind} {name}: rebuild it with python -m sopa_ryu.agent.kernel.build --force"
            )
        return found


def run_program(
    program: int, frame: bytes, *, repeat: int = 1, gso_segments: int = 0, gso_size: int = 0, tstamp: int | None = None
) -> RunOutcome:
    """Run a program on a frame (at least 14 bytes), ``repeat`` times over, without sending anything.

    With a number of segments, or a size of each, the frame is a super-packet; it may have a departure time (``skb->tstamp``).
    """
    out = ctypes.create_string_buffer(len(frame) + 256)
    opts = _TestRunOpts(sz=sizeof(_TestRunOpts), data_in=frame, data_size_in=len(frame), repeat=repeat,
                        data_out=ctypes.addressof(out), data_size_out=len(out))  # fmt: skip
    context = ctypes.create_string_buffer(_SKB_BYTES)
    if gso_segments or gso_size or tstamp is not None:
        struct.pack_into("=I", context, _SKB_GSO_SEGS, gso_segments)
        struct.pack_into("=I", context, _SKB_GSO_SIZE, gso_size)
        struct.pack_into("=Q", context, _SKB_TSTAMP, tstamp or 0)
        opts.ctx_in = opts.ctx_out = ctypes.addressof(context)
        opts.ctx_size_in = opts.ctx_size_out = len(context)
    check(call("bpf_prog_test_run_opts", program, byref(opts)), "cannot run the program on a frame", BpfError)
    left = int(struct.unpack_from("=Q", context, _SKB_TSTAMP)[0])
    return RunOutcome(opts.retval, out.raw[: opts.data_size_out], opts.duration, left)


@contextmanager
def enable_statistics() -> Iterator[None]:
    """Have the kernel count runs and run time of all programs, for as long as the context lasts (proc(5), fdinfo)."""
    fd = check(call("bpf_enable_stats", 0), "cannot enable statistics of BPF programs", BpfError)  # BPF_STATS_RUN_TIME
    try:
        yield
    finally:
        os.close(fd)


# -- maps -----------------------------------------------------------------------------------------------------------


def create_inner_array(name: str, entries: int, value_bytes: int) -> int:
    """Create an array map that fits into an array of maps whatever its size; the caller closes the descriptor."""
    opts = _MapCreateOpts(sz=sizeof(_MapCreateOpts), map_flags=_F_INNER_MAP)
    fd = call("bpf_map_create", _ARRAY, name.encode(), c_uint32(4), c_uint32(value_bytes), c_uint32(entries), byref(opts))
    return check(fd, f"cannot create map {name} of {entries} entries")


def fill_array(fd: int, values: bytes, value_bytes: int) -> None:
    """Write all elements of an array map: in one system call where the kernel can."""
    count = c_uint32(len(values) // value_bytes)
    keys = array("I", range(count.value)).tobytes()
    opts = _BatchOpts(sz=sizeof(_BatchOpts))
    result = call("bpf_map_update_batch", fd, keys, values, byref(count), byref(opts))
    if -result in (errno.EINVAL, errno.EOPNOTSUPP, 524):  # 524: ENOTSUPP, no batches for this map type
        for index in range(len(values) // value_bytes):
            update(fd, struct.pack("=I", index), values[index * value_bytes :][:value_bytes])
        return
    check(result, f"cannot write {count.value} map elements")


def update(fd: int, key: bytes, value: bytes) -> None:
    """Write one element."""
    check(call("bpf_map_update_elem", fd, key, value, c_uint64(ANY)), "cannot write a map element")


def delete(fd: int, key: bytes) -> None:
    """Remove one element; one that is gone is no error."""
    result = call("bpf_map_delete_elem", fd, key)
    if result != -errno.ENOENT:
        check(result, "cannot remove a map element")


def lookup(fd: int, key: bytes, value_bytes: int) -> bytes | None:
    """Return one element, or None if there is none; of a per-CPU map all values, each padded to 8 bytes."""
    value = ctypes.create_string_buffer(value_bytes)
    result = call("bpf_map_lookup_elem", fd, key, value)
    if result == -errno.ENOENT:
        return None
    check(result, "cannot read a map element")
    return value.raw


def keys(fd: int, key_bytes: int) -> Iterator[bytes]:
    """Iterate over the keys of a map; some may come twice while entries are added and removed."""
    last: bytes | None = None
    following = ctypes.create_string_buffer(key_bytes)
    while (result := call("bpf_map_get_next_key", fd, last, following)) == 0:
        last = following.raw
        yield last
    if result != -errno.ENOENT:
        check(result, "cannot list a map's keys")


def possible_cpus() -> int:
    """Return the number of values of an element of a per-CPU map."""
    return check(call("libbpf_num_possible_cpus"), "cannot count the CPUs")


def open_map(identifier: int) -> int:
    """Open the map with that id, as an array of maps contains it; the caller closes the descriptor."""
    return check(call("bpf_map_get_fd_by_id", c_uint32(identifier)), f"map {identifier} is gone")


def program_name(identifier: int) -> str:
    """Return the name of the program with that id, empty if it is gone (struct bpf_prog_info)."""
    fd = call("bpf_prog_get_fd_by_id", c_uint32(identifier))
    if fd == -errno.ENOENT:
        return ""
    check(fd, f"cannot open program {identifier}")
    try:
        return _info(fd, 80)[64:80].split(b"\0")[0].decode()
    finally:
        os.close(fd)


def open_program(identifier: int) -> int:
    """Open the program with that id; the caller closes the descriptor."""
    return check(call("bpf_prog_get_fd_by_id", c_uint32(identifier)), f"program {identifier} is gone")


def open_program_map(identifier: int, name: str) -> int:
    """Open the map of that name (at most 15 characters) that a program uses; the caller closes the descriptor.

    Raises:
        BpfMapError: If the program is gone, or uses none of that name.
    """
    program = open_program(identifier)
    try:
        numbers = (c_uint32 * _MAX_MAPS)()
        asked = struct.pack("=52xIQ", _MAX_MAPS, ctypes.addressof(numbers))  # nr_map_ids, map_ids
        count = min(_MAX_MAPS, int(struct.unpack_from("=I", _info(program, 80, asked), 52)[0]))
    finally:
        os.close(program)
    for number in numbers[:count]:
        fd = open_map(number)
        if _info(fd, 80)[24:40].split(b"\0")[0].decode() == name:
            return fd
        os.close(fd)
    raise BpfMapError(f"program {identifier} uses no map {name}")


def _info(fd: int, size: int, asked: bytes = b"") -> bytes:
    info, length = ctypes.create_string_buffer(asked, size), c_uint32(size)
    check(call("bpf_obj_get_info_by_fd", fd, info, byref(length)), "cannot read a BPF object's information")
    return info.raw
