"""The spreader of an edge switch's host ports, for the ``id`` carrier: each packet of a burst gets a candidate path of its own.

It is an XDP program of the ports, with the path table of the switch's rack. The table expires `LEASE_SECONDS` after it was
confirmed last; then the flows whose bursts ask to be spread are hashed by the switch.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import SPREAD
from sopa_ryu.agent.kernel.counters import Counters
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.kernel.path_maps import PathTables
from sopa_ryu.agent.label import edge_parser
from sopa_ryu.agent.paths.path_table import PathTable

PROGRAM = "sopa_spread"
LEASE_SECONDS = 30.0
"""Longer than a controller takes to start again. Labels of paths that fail meanwhile are steered by the switches."""
_ONLY = struct.pack("=I", 0)


class Spreader:
    """The spreader of one rack, loaded for as long as the context lasts; its ports are freed at its end.

    Raises:
        BpfUnavailable, BpfLoadError: On entering, if it cannot be loaded.

    Attributes:
        counted: The packets that asked to be spread, by what became of them, and by the label that they got.
    """

    counted: Counters

    def __init__(self, ports: Sequence[Interface]) -> None:
        self._ports = ports
        self._attached: list[Interface] = []
        self._object = libbpf.Object(SPREAD, {"flows": 1})

    def __enter__(self) -> Spreader:
        try:
            self._object.load()
            self._tables = PathTables(self._object.map_fd("path_tables"), self._object.map_fd("turn"))
            self.counted = Counters(self._object.map_fd("counters"), self._object.map_fd("path_packets"))
        except BaseException:
            self.close()
            raise
        return self

    def attach(self) -> None:
        """Attach to the ports, in place of a predecessor that was killed; ports that have it already stay as they are.

        Raises:
            AttachError: If a port does not exist, or has another XDP program.
            NetnsError
        """
        for port in self._ports:
            if port not in self._attached:
                edge_parser.attach_program(port, self.program_fd)
                self._attached.append(port)

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the ports; one that is gone is left out."""
        while self._attached:
            try:
                edge_parser.detach(self._attached.pop())
            except libbpf.AttachError:
                continue
        if self._object.loaded:
            self._tables.close()
            self._object.close()

    @property
    def program_fd(self) -> int:
        """The descriptor of the program."""
        return self._object.program_fd(PROGRAM)

    def swap(self, table: PathTable) -> None:
        """Put a path table in force (`PathTables.swap`), and confirm it."""
        self._tables.swap(table)
        self.confirm()

    def confirm(self) -> None:
        """Have the table in force count for another `LEASE_SECONDS`."""
        expiry = time.monotonic_ns() + int(LEASE_SECONDS * 1e9)
        libbpf.update(self._object.map_fd("expiry"), _ONLY, struct.pack("=Q", expiry))

    def run(self, frame: bytes) -> libbpf.RunOutcome:
        """Run the program on a frame without receiving it (BPF_PROG_TEST_RUN); it counts."""
        return libbpf.run_program(self.program_fd, frame)
