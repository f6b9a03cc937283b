"""What CFR needs besides its program at tc: the gate, the ring of granted slots, and the iterators over TCP's sockets."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address

from sopa_ryu.agent.kernel import cgroup, libbpf
from sopa_ryu.agent.kernel.iterators import SocketIterator
from sopa_ryu.agent.kernel.netns import cookie, inside
from sopa_ryu.agent.slots.cfr_demand import Unsent
from sopa_ryu.agent.slots.cfr_grants import Gate
from sopa_ryu.channel.slots import Granted

SLOTS = 1024
"""As SLOTS of bpf/cfr.h: grants of so many slots are kept."""
_ONLY = struct.pack("=I", 0)
_SETTINGS = struct.Struct("=QqQQQQQII")  # struct cfr_settings
_SLOT = struct.Struct("=QIIIBBH")  # struct cfr_slot
_KEY, _BYTES = struct.Struct("=I"), struct.Struct("=Q")
_UNSENT = struct.Struct("=II")  # struct cfr_unsent


class CfrPrograms:
    """The programs of an object that is loaded, apart from the one at tc.

    Args:
        loaded: Its descriptors stay the caller's.
        netns: Path of the interface's network namespace, whose sockets alone are gated.
        every_socket: Gate the packets of all namespaces: for tests that run the program on frames, which have no socket.
    """

    def __init__(self, loaded: libbpf.Object, netns: str | None, *, every_socket: bool = False) -> None:
        self.netns = netns
        self._settings, self._slots, self._sent = map(loaded.map_fd, ("cfr_settings", "cfr_slots", "cfr_sent"))
        self.gate_fd = loaded.program_fd("sopa_cfr_gate")
        with inside(netns):
            self._cookie = 0 if every_socket else cookie()
        self._link = -1
        self._unsent = SocketIterator(loaded.program_fd("sopa_cfr_unsent"))
        self.sender = SocketIterator(loaded.program_fd("sopa_cfr_send"), ahead=True)

    def attach(self) -> None:
        """Let data pass the gate, which is open until slots are granted. The kernel ends this with the process. May be repeated."""
        if self._link < 0:
            self._link = cgroup.attach_egress(self.gate_fd)

    def detach(self) -> None:
        """End that: TCP sends as ever. May be repeated."""
        if self._link >= 0:
            os.close(self._link)
            self._link = -1

    def close(self) -> None:
        """Detach the gate, and close the iterators. May be repeated."""
        self.detach()
        self._unsent.close()
        self.sender.close()

    def set_gate(self, host: IPv4Address, gate: Gate) -> None:
        """Put a clock, a lease and the first slot of the grants in force.

        Raises:
            BpfMapError: If the kernel refuses.
        """
        libbpf.update(self._settings, _ONLY, _SETTINGS.pack(*gate, self._cookie, int(host), 0))

    def grant(self, slots: Iterable[Granted]) -> None:
        """Write granted slots, none of which has begun."""
        for slot in slots:
            entry = _SLOT.pack(slot.slot, int(slot.destination), slot.budget, 0, slot.up1, slot.up2, 0)
            libbpf.update(self._slots, _KEY.pack(slot.slot % SLOTS), entry)

    def forget(self) -> None:
        """Remove all granted slots."""
        libbpf.fill_array(self._slots, bytes(SLOTS * _SLOT.size), _SLOT.size)

    def used(self, slot: int) -> int:
        """Return the bytes of frames that were sent in a granted slot."""
        entry = libbpf.lookup(self._slots, _KEY.pack(slot % SLOTS), _SLOT.size) or bytes(_SLOT.size)
        number, _, _, used, *_ = _SLOT.unpack(entry)
        return int(used) if number == slot else 0

    def sent(self, destinations: Iterable[IPv4Address]) -> dict[IPv4Address, int]:
        """Return the bytes of frames with data that have been sent since the start, for those of the destinations that got any."""
        found = {}
        for destination in destinations:
            value = libbpf.lookup(self._sent, _KEY.pack(int(destination)), _BYTES.size)
            if value:
                found[destination] = int(_BYTES.unpack(value)[0])
        return found

    def unsent(self) -> list[Unsent]:
        """Return the connections to hosts of the fabric that have something to send.

        Raises:
            BpfError, NetnsError: If the kernel refuses.
        """
        with inside(self.netns):
            prepared = self._unsent.prepare()
        return list(map(Unsent._make, _UNSENT.iter_unpack(self._unsent.run(prepared))))
