"""A BPF ring buffer that a process reads when it likes, by libbpf."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_void_p

from sopa_ryu.agent.kernel.libbpf import BpfMapError, call, check, open_pointer

_SampleFn = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


class RingBuffer:
    """The reading end of a ring buffer, one per buffer.

    Args:
        fd: The map's descriptor, which stays the caller's.

    Raises:
        BpfMapError: If the kernel refuses.
    """

    def __init__(self, fd: int) -> None:
        self._taken: list[bytes] = []
        self._take = _SampleFn(self._sample)  # libbpf keeps the pointer: this must live as long
        self._pointer: int | None = open_pointer(
            "ring_buffer__new", fd, self._take, None, None, doing="cannot map a ring buffer", kind=BpfMapError
        )

    @property
    def fd(self) -> int:
        """What becomes readable when the program wakes the reader; -1 once it is closed."""
        return -1 if self._pointer is None else call("ring_buffer__epoll_fd", c_void_p(self._pointer))

    def take(self) -> list[bytes]:
        """Return what has been written since the last call."""
        if self._pointer is None:
            return []
        self._taken = []
        check(call("ring_buffer__consume", c_void_p(self._pointer)), "cannot read a ring buffer")
        return self._taken

    def close(self) -> None:
        """Close it. May be repeated."""
        if self._pointer is not None:
            call("ring_buffer__free", c_void_p(self._pointer))
            self._pointer = None

    def _sample(self, _context: int, data: int, size: int) -> int:
        self._taken.append(ctypes.string_at(data, size))
        return 0
