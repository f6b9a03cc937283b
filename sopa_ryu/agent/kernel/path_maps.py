"""The kernel's two path tables of one program: packets are labelled by the one in force, the other is filled for the next swap.

Replacing a map inside a map makes the kernel wait until no program can still be reading the old one, 10 to 20 ms. Turning an index
from one table to the other needs no such wait before the new table is in force, only before the old one is filled anew.
"""

from __future__ import annotations

import os
import struct

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.paths.path_table import WORD_BYTES, PathTable

__all__ = ["PathTables", "read_in_force"]

SLOTS = 2
MIN_WORDS = 64
_TURN = struct.pack("=I", 0)


def _slot(number: int) -> bytes:
    return struct.pack("=I", number)


class PathTables:
    """Both tables of one program, which only one thread may use at a time.

    Parameters
    ----------
    slots : int
        Descriptor of the program's array of tables (``path_tables``), which stays the caller's.
    turn : int
        Descriptor of the array whose one element is the number of the table in force (``turn``), which stays the caller's.
    """

    def __init__(self, slots: int, turn: int) -> None:
        self._slots, self._turn = slots, turn
        self._in_force = 0
        self._maps: list[int | None] = [None] * SLOTS
        self._words = [0] * SLOTS
        self._old_in_use = False

    def close(self) -> None:
        """Close the descriptors; the kernel keeps the tables for as long as the program is attached."""
        for number, fd in enumerate(self._maps):
            if fd is not None:
                os.close(fd)
                self._maps[number] = None

    def ready_for(self, table: PathTable) -> bool:
        """Whether `swap` will put this table in force without waiting for the kernel."""
        return not self._old_in_use and table.words <= self._words[1 - self._in_force]

    def swap(self, table: PathTable) -> None:
        """Put a table in force in one step: no packet sees parts of two, and whichever begins after the return sees this one.

        Raises
        ------
        ValueError
            If the table cannot be encoded.
        BpfMapError
            If the kernel has no room for it; the old table stays.
        """
        data = table.encode()
        self._wait_for_readers()
        spare = 1 - self._in_force
        self._make_room(spare, len(data) // WORD_BYTES)
        fd = self._maps[spare]
        assert fd is not None
        libbpf.fill_array(fd, data, WORD_BYTES)
        libbpf.update(self._turn, _TURN, _slot(spare))
        self._in_force, self._old_in_use = spare, True

    def settle(self) -> None:
        """Wait until no packet can still be reading the old table, and give it as much room as the one in force has: after that, a
        table of this size is swapped in without waiting.

        Raises
        ------
        BpfMapError
            If the kernel has no room; the next `swap` will try again.
        """
        self._wait_for_readers()
        self._make_room(1 - self._in_force, self._words[self._in_force])

    def read(self) -> PathTable | None:
        """The table in force; None before the first `swap`."""
        return read_in_force(self._slots, self._turn)

    def _wait_for_readers(self) -> None:
        """Any update of an array of maps ends only when no program can be reading what was there (kernel/bpf/syscall.c,
        maybe_wait_bpf_programs): this one changes nothing."""
        fd = self._maps[1 - self._in_force]
        if self._old_in_use and fd is not None:
            libbpf.update(self._slots, _slot(1 - self._in_force), _slot(fd))
        self._old_in_use = False

    def _make_room(self, number: int, words: int) -> None:
        if words <= self._words[number]:
            return
        room = max(MIN_WORDS, 1 << (words - 1).bit_length())
        fd = libbpf.create_inner_array("path_table", room, WORD_BYTES)
        try:
            libbpf.update(self._slots, _slot(number), _slot(fd))
        except BaseException:
            os.close(fd)
            raise
        old, self._maps[number], self._words[number] = self._maps[number], fd, room
        if old is not None:
            os.close(old)


def read_in_force(slots: int, turn: int) -> PathTable | None:
    """The table by which a program labels at present, whichever agent swapped it in; None before the first.

    Parameters
    ----------
    slots, turn : int
        Descriptors of the program's maps ``path_tables`` and ``turn``.

    Raises
    ------
    BpfMapError
        If it cannot be read.
    """
    number = libbpf.lookup(turn, _TURN, 4)
    inner = None if number is None else libbpf.lookup(slots, number, 4)
    if inner is None:
        return None
    fd = libbpf.open_map(int(struct.unpack("=I", inner)[0]))
    try:
        words = (libbpf.lookup(fd, _slot(at), WORD_BYTES) for at in range(libbpf.map_entries(fd)))
        return PathTable.decode(b"".join(word or b"" for word in words))
    finally:
        os.close(fd)
