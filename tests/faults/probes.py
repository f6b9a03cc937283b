"""Packets from every host to every other, labelled by its agent, labelled by hand, and unlabelled: which of them arrive."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections import Counter
from collections.abc import Sequence

from tests.helpers.frames import datagram
from tests.helpers.veth import raw_socket
from topologies.identity import Family
from topologies.lab.network import Lab
from topologies.structure import GATEWAY_MAC, Clos

PORT = 9900
QUIET_SECONDS = 0.1
LOST_SECONDS = 20.0
DESTINATIONS_AT_ONCE = 4
SOL_PACKET, PACKET_QDISC_BYPASS, PACKET_OUTGOING = 263, 20, 4
ETHERTYPES = {4: 0x0800, 6: 0x86DD}

Probe = tuple[int, str, str, str]
"""Round, sender, receiver, and the family and what kind of label it had."""


class Probes:
    """Raw sockets in every host's namespace: one that goes past the host's eBPF program, one that does not, one that listens."""

    def __init__(self, lab: Lab) -> None:
        self.tree = lab.tree
        self.hosts = [lab.tree.name(host) for host in lab.tree.hosts()]
        self._lab = lab
        self.sent = self._round = 0
        self._past: dict[str, socket.socket] = {}
        self._through: dict[str, socket.socket] = {}
        self._ears: list[tuple[str, socket.socket]] = []

    def __enter__(self) -> Probes:
        for name in self.hosts:
            place = self._lab.netns(name), self._lab.interface(self.tree.host(name), 0)
            self._past[name], self._through[name] = raw_socket(*place, 0), raw_socket(*place, 0)
            self._past[name].setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            for family in self.tree.families:
                self._ears.append((name, raw_socket(*place, ETHERTYPES[family.number])))
                self._ears[-1][1].setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self._past.values(), *self._through.values(), *(ear for _, ear in self._ears)):
            each.close()

    def lost_and_found(self, expected: set[tuple[str, str]]) -> tuple[Counter[Probe], Counter[Probe]]:
        """Send from everybody to everybody, of whom the pairs that are connected are given.

        Return the packets between connected pairs that did not arrive, and those between others that did, or twice, or elsewhere.
        """
        self._round, self.sent = self._round + 1, 0
        lost, found, waiting = Counter[Probe](), Counter[Probe](), Counter[Probe]()
        for src in self.hosts:
            others = [dst for dst in self.hosts if dst != src]
            # a few at a time: a switch that the machine has no time for keeps some 250 packets of a port
            for first in range(0, len(others), DESTINATIONS_AT_ONCE):
                for dst in others[first : first + DESTINATIONS_AT_ONCE]:
                    sent = self._send(src, dst)
                    self.sent += sent.total()
                    if (src, dst) in expected:
                        waiting.update(sent)
                if not self._collect(waiting, found, LOST_SECONDS):
                    lost.update(waiting)
                    waiting.clear()
        quiet = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < quiet:
            self._hear(waiting, found)
            time.sleep(0.002)  # between two looks, while nothing more may arrive
        return lost, found

    def _send(self, src: str, dst: str) -> Counter[Probe]:
        tree = self.tree
        mac, sent = tree.mac(tree.host(src)), Counter[Probe]()
        words = [_word(up) for up in tree.choices("inter-pod") or tree.choices("inter-rack")]
        beyond = (tree.aggregations, 0), (0, tree.cores_of_group), (255, 255)

        def send(sender: socket.socket, label: str, source: str, port: int) -> None:
            for family in tree.families:
                probe = self._round, src, dst, f"IPv{family.number}, {label}"
                try:
                    sender.send(_frame(tree, family, probe, source, port))
                except OSError as error:
                    if error.errno != errno.ENETDOWN:  # the host's own link is down
                        raise
                sent[probe] += 1

        for _ in words:  # one flow, so that each path has its turn
            send(self._through[src], "agent", mac, 7000)
        for number in range(4):
            send(self._past[src], "none", mac, 7001 + number)
        for up in () if tree.host(src) in tree.no_label else (*words, *beyond):
            send(self._past[src], f"word {up[0]},{up[1]}", _carrier_mac(up), 7000)
        return sent

    def _collect(self, waiting: Counter[Probe], found: Counter[Probe], seconds: float) -> bool:
        """Listen until all have arrived that are waited for; False if some have not in that time."""
        deadline = time.monotonic() + seconds
        while waiting:
            self._hear(waiting, found)
            if waiting and time.monotonic() > deadline:
                return False
            time.sleep(0.001)  # between two looks
        return True

    def _hear(self, waiting: Counter[Probe], found: Counter[Probe]) -> None:
        for name, ear in self._ears:
            with contextlib.suppress(OSError):  # nothing more, or its interface went down
                while True:
                    frame, address = ear.recvfrom(2000)
                    if address[2] != PACKET_OUTGOING:
                        self._sort(name, frame, waiting, found)

    def _sort(self, name: str, frame: bytes, waiting: Counter[Probe], found: Counter[Probe]) -> None:
        if frame[12:14] == b"\x08\x00":
            protocol, datagram = frame[23], frame[34:]
        else:
            protocol, datagram = frame[20], frame[54:]
        if protocol != socket.IPPROTO_UDP or datagram[2:4] != PORT.to_bytes(2):
            return
        number, src, dst, label = datagram[8:].rstrip(b"\0").decode().split(" ", 3)
        probe = int(number), src, dst, label
        if dst == name and waiting[probe] > 0:
            waiting[probe] -= 1
            if not waiting[probe]:
                del waiting[probe]
        elif int(number) == self._round:
            found[probe] += 1


def _word(up: tuple[int, ...]) -> tuple[int, int]:
    return (*up, 255) if len(up) == 1 else (up[0], up[1])  # a rack's neighbours in a leaf-spine fabric: no core switch


def _frame(tree: Clos, family: Family, probe: Probe, source: str, port: int) -> bytes:
    number, src, dst, label = probe
    payload = f"{number} {src} {dst} {label}".encode()
    packet = datagram(*(family.address(tree.host(name)) for name in (src, dst)), port, PORT, payload)
    ends = bytes.fromhex(GATEWAY_MAC.replace(":", "") + source.replace(":", ""))
    return (ends + ETHERTYPES[family.number].to_bytes(2) + packet).ljust(60, b"\0")


def _carrier_mac(up: tuple[int, int]) -> str:
    return "02:53:9e:04:{:02x}:{:02x}".format(*up)


def describe(probes: Counter[Probe], most: int = 8) -> Sequence[str]:
    """The first of them in words."""
    shown = [f"{src} to {dst}, {label}" for _, src, dst, label in sorted(probes)[:most]]
    return [*shown, f"and {len(probes) - most} more"] if len(probes) > most else shown
