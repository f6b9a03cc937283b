"""BPF programs that the kernel runs for each TCP socket of a network namespace (iter/tcp)."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_uint32

from sopa_ryu.agent.kernel.libbpf import AttachError, BpfError, call, check

_TRACE_ITER = 28  # enum bpf_attach_type
_BUFFER_BYTES = 1 << 15
_RECORD_BYTES = 8
# Calls through it keep the interpreter's lock: a thread that has it runs through all sockets before another one gets in between.
_libc = ctypes.PyDLL(None, use_errno=True)


class SocketIterator:
    """A program that runs for each TCP socket.

    Args:
        program: Its descriptor, which stays the caller's.
        ahead: The program writes a record for each socket that listens. They come first: `prepare` finds them, and leaves `run`
            the rest.

    Raises:
        AttachError: If the kernel refuses: it has no CONFIG_BPF_EVENTS or no type information (BTF).
    """

    def __init__(self, program: int, *, ahead: bool = False) -> None:
        self._link = check(
            call("bpf_link_create", program, 0, c_uint32(_TRACE_ITER), None), "cannot iterate over TCP sockets", AttachError
        )
        self._ahead = ahead
        self._listening = 0  # sockets that listened in the last run; the kernel stops a reader before the socket that comes next
        self._buffer = ctypes.create_string_buffer(_BUFFER_BYTES)

    def close(self) -> None:
        """Close it. May be repeated."""
        if self._link >= 0:
            os.close(self._link)
            self._link = -1

    def prepare(self) -> int:
        """Return a descriptor for one run over the sockets of the calling thread's network namespace; `run` closes it.

        Raises:
            BpfError: If the kernel refuses.
        """
        prepared = check(call("bpf_iter_create", self._link), "cannot iterate over TCP sockets", BpfError)
        before, self._listening = self._listening, 0
        while self._listening < before and _libc.read(prepared, self._buffer, _RECORD_BYTES) > 0:
            self._listening += 1
        return prepared

    def run(self, prepared: int) -> bytes:
        """Run through the sockets; return what the program has written.

        Raises:
            BpfError: If the kernel ends it early.
        """
        found = bytearray()
        try:
            while (count := _libc.read(prepared, self._buffer, _BUFFER_BYTES)) > 0:
                found += self._buffer.raw[:count]
            if count < 0:
                raise BpfError(f"cannot iterate over TCP sockets: {os.strerror(ctypes.get_errno())}")
        finally:
            os.close(prepared)
        if self._ahead:
            self._listening += len(found) // _RECORD_BYTES
        return bytes(found)
