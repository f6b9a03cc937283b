"""The program that turns probes round and takes answers, loaded: its settings, its counters, and the answers it has taken."""

from __future__ import annotations

import os
import secrets
import struct
from enum import IntEnum
from ipaddress import IPv4Address

from flowrules.label import Carrier
from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import PROBE
from sopa_ryu.agent.kernel.ring_buffer import RingBuffer
from sopa_ryu.agent.probing.frames import Ends
from sopa_ryu.agent.probing.streams import Record
from topologies.structure import FABRIC_NETWORK

MAX_OF_SOURCE = 1000
"""Probes and answers a second of one source, in the long run: several times what an agent and a trace send to one host."""
BURST = 200
_SECOND = 1_000_000_000
_ONLY = struct.pack("=I", 0)
_SETTINGS = struct.Struct("=Q4s4s4s4s4sII6s6sB7x")  # struct probe_settings of bpf/probe.h
_RECORD = struct.Struct("=Q4s24s2s2B2s6x")  # struct probe_record
_NUMBERS = struct.Struct("!6I")


class Seen(IntEnum):
    """What the program has done with a probe or an answer, by its counter numbers (bpf/probe.h)."""

    ANSWERED = 0
    TAKEN = 1
    """An answer to one of this host's probes, as it seems, or a self-probe that has come home."""
    FULL = 2
    """An answer for which the ring has no room: the agent does not run."""
    CORRUPT = 3
    """A checksum is wrong."""
    NOT_OURS = 4
    """To another host, which passes, or from none of the fabric, or from this one and no self-probe."""
    ODD = 5
    """Neither a probe nor an answer of ours; passes."""
    UNASKED = 6
    """An answer without this agent's secret."""
    TOO_MANY = 7
    """Of one source."""
    FAILED = 8
    """The kernel has no memory to write the answer."""


REFUSED = (Seen.FULL, Seen.CORRUPT, Seen.NOT_OURS, Seen.ODD, Seen.UNASKED, Seen.TOO_MANY, Seen.FAILED)


class ProbeProgram:
    """The program, loaded until `close`.

    Args:
        most: Probes and answers a second of one source that it takes, in the long run; 0 for any number.
        key: Of its hashes, odd; a random one by default, so that no host can choose whose counter it shares.

    Raises:
        BpfUnavailable, BpfLoadError, BpfMapError: If it cannot be loaded.
    """

    def __init__(self, ends: Ends, most: int = MAX_OF_SOURCE, key: int | None = None) -> None:
        self.ends = ends
        self._object = libbpf.Object(PROBE)
        self._object.load()
        self._records: RingBuffer | None = None
        try:
            self._counters = self._object.map_fd("probe_counters")
            libbpf.update(self._object.map_fd("probe_settings"), _ONLY, settings(ends, most, key or random_key()))
            self._records = RingBuffer(self._object.map_fd("probe_records"))
        except BaseException:
            self.close()
            raise

    @property
    def program_fd(self) -> int:
        """The descriptor of the program at tc ingress."""
        return self._object.program_fd("sopa_probe")

    def close(self) -> None:
        """Close its descriptors; attached it goes on answering. May be repeated."""
        if self._records is not None:
            self._records.close()
        self._object.close()

    def records(self) -> list[Record]:
        """Return the answers that have come in since the last call."""
        return [_record(data) for data in self._records.take()] if self._records is not None else []

    def seen(self) -> dict[Seen, int]:
        """Return what it has done since loading."""
        return _seen(self._counters)

    def run(self, frame: bytes, *, repeat: int = 1) -> libbpf.RunOutcome:
        """Run it on a frame without sending anything (BPF_PROG_TEST_RUN); it counts, and streams advance."""
        return libbpf.run_program(self.program_fd, frame, repeat=repeat)


def seen_by(program: int) -> dict[Seen, int]:
    """Return what the program of an id has done since any process has loaded it; `BpfError` if the kernel refuses."""
    counters = libbpf.open_program_map(program, "probe_counters")
    try:
        return _seen(counters)
    finally:
        os.close(counters)


def _seen(counters: int) -> dict[Seen, int]:
    return {what: _total(counters, what) for what in Seen}


def _total(counters: int, what: Seen) -> int:
    values = libbpf.lookup(counters, struct.pack("=I", what), 8 * libbpf.possible_cpus()) or b""
    return sum(struct.unpack(f"={len(values) // 8}Q", values))


def random_key() -> int:
    """Return a key of hashes that nobody else knows."""
    return secrets.randbits(64) | 1


def settings(ends: Ends, most: int, key: int) -> bytes:
    """Return the program's settings as its map has them."""
    pause = _SECOND // most if most else 0
    return _SETTINGS.pack(
        key,
        ends.address.packed,
        FABRIC_NETWORK.network_address.packed,
        FABRIC_NETWORK.netmask.packed,
        ends.secret.to_bytes(4, "big"),
        ends.own_secret.to_bytes(4, "big"),
        pause,
        BURST * pause,
        ends.gateway,
        ends.mac,
        ends.carrier is Carrier.OPTION,
    )


def _record(data: bytes) -> Record:
    arrived, source, numbers, ssid, up1, up2, answers = _RECORD.unpack_from(data)
    answer, number, got, got_nanos, sent, sent_nanos = _NUMBERS.unpack(numbers)
    times = got * _SECOND + got_nanos, sent * _SECOND + sent_nanos
    return Record(
        arrived, IPv4Address(source), answer, number, *times, int.from_bytes(ssid, "big"), up1, up2, int.from_bytes(answers, "big")
    )
