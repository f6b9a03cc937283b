"""The kernel's double buffer of path tables: packets are labelled by the active one, the other is filled for the next swap.

Replacing a map inside a map makes the kernel wait until no program can still be reading the old one, 10 to 20 ms. Writing the
active index needs no such wait before the new table is in force, only before the old one is filled again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.paths.path_table import WORD_BYTES, PathTable

BUFFERS = 2
MIN_WORDS = 64
_VERSIONS = 1 << 27
_SPREADS = 6  # in place of a policy
_ONLY = struct.pack("=I", 0)


def _packed(index: int) -> bytes:
    return struct.pack("=I", index)


def _in_force(index: int, policy: int, version: int) -> int:
    """Return what bpf/maps.h calls ``turn``; flows take a table of another version for another one."""
    return (version % (_VERSIONS - 1) + 1) << 4 | policy << 1 | index


class PathTables:
    """Both path tables of one program, for one thread at a time.

    Args:
        tables: Descriptor of the program's array of tables (map ``path_tables``), which stays the caller's.
        active: Descriptor of the array whose one element is the active index (map ``turn``), which stays the caller's.
        before_swap: Called with each table before it is put in force; an error keeps the old one in force.
    """

    def __init__(self, tables: int, active: int, before_swap: Callable[[PathTable], None] = lambda table: None) -> None:
        self._tables_fd, self._active_fd, self._before_swap = tables, active, before_swap
        self._active = 0
        self._version = 0
        self._maps: list[int | None] = [None] * BUFFERS
        self._words = [0] * BUFFERS
        self._old_in_use = False

    def close(self) -> None:
        """Close the descriptors; the kernel keeps the tables for as long as the program is attached."""
        for index, fd in enumerate(self._maps):
            if fd is not None:
                os.close(fd)
                self._maps[index] = None

    def ready_for(self, table: PathTable) -> bool:
        """Return True if `swap` will put this table in force without waiting for the kernel."""
        return not self._old_in_use and table.words <= self._words[1 - self._active]

    def swap(self, table: PathTable) -> None:
        """Put a table in force in one step: no packet sees parts of two, and every packet after the return sees this one.

        Raises:
            ValueError: If the table cannot be encoded.
            BpfMapError: If the kernel has no room for it; the old table stays in force.
        """
        data = table.encode()
        self._before_swap(table)
        self._wait_for_readers()
        spare = 1 - self._active
        fd = self._make_room(spare, len(data) // WORD_BYTES)
        libbpf.fill_array(fd, data, WORD_BYTES)
        self._version += 1
        libbpf.update(self._active_fd, _ONLY, _packed(_in_force(spare, _SPREADS if table.spreads else table.policy, self._version)))
        self._active, self._old_in_use = spare, True

    def settle(self) -> None:
        """Wait until no packet can still be reading the old table, and make it as large as the active one.

        After that a table of this size is swapped in without waiting.

        Raises:
            BpfMapError: If the kernel has no room; the next `swap` tries again.
        """
        self._wait_for_readers()
        self._make_room(1 - self._active, self._words[self._active])

    def _wait_for_readers(self) -> None:
        """Update the old table's place without changing it.

        The kernel ends any update of an array of maps only when no program can be reading what was there
        (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
        """
        fd = self._maps[1 - self._active]
        if self._old_in_use and fd is not None:
            libbpf.update(self._tables_fd, _packed(1 - self._active), _packed(fd))
        self._old_in_use = False

    def _make_room(self, index: int, words: int) -> int:
        """Return the descriptor of a table with room for so many words, a new one if that is necessary."""
        old = self._maps[index]
        if old is not None and words <= self._words[index]:
            return old
        room = max(MIN_WORDS, 1 << (words - 1).bit_length())
        fd = libbpf.create_inner_array("path_table", room, WORD_BYTES)
        try:
            libbpf.update(self._tables_fd, _packed(index), _packed(fd))
        except BaseException:
            os.close(fd)
            raise
        self._maps[index], self._words[index] = fd, room
        if old is not None:
            os.close(old)
        return fd
