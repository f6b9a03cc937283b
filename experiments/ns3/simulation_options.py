"""Options of the simulator for ``--set NAME=VALUE``: names, units, ranges and defaults. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType

from experiments.suggestions import unknown
from topologies import Clos

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds per unit of time."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)")


class SimulationOptionError(ValueError):
    """An option of the simulator is unknown, or its value is invalid. The message lists what is possible."""


@dataclass(frozen=True)
class Option:
    """One option: its default as written by a user, and a line for ``sopa experiment list``.

    It is a whole number or a ``time`` with a unit, with a range (in nanoseconds for times), or one of several ``words``.
    """

    default: str
    description: str
    minimum: int = 1
    maximum: int = 2**31 - 1
    time: bool = False
    words: tuple[str, ...] = ()

    def parse(self, text: str) -> int | str:
        """Return the value as the simulator reads it: nanoseconds, a whole number or a word. Raises `SimulationOptionError`."""
        if self.words:
            if text not in self.words:
                raise SimulationOptionError(f"one of {', '.join(self.words)}")
            return text
        if self.time:
            found = _TIME.fullmatch(text)
            value = round(float(found[1]) * UNITS[found[2]]) if found else -1
            if not self.minimum <= value <= self.maximum:
                raise SimulationOptionError(
                    f"a time from {_time_text(self.minimum)} to {_time_text(self.maximum)}, as in {self.default}"
                )
            return value
        if not text.isascii() or not text.isdecimal() or not self.minimum <= int(text) <= self.maximum:
            raise SimulationOptionError(f"a whole number from {self.minimum} to {self.maximum}")
        return int(text)


def _time_text(nanoseconds: int) -> str:
    for unit, size in reversed(UNITS.items()):
        if nanoseconds >= size and nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"


SIZES = "sizes"
DEFAULT_QUEUE = 100
"""Capacity of a link's queue in packets."""
LINK_DELAY_NS = 25
PACKET_BYTES = 1500
_ACK_BYTES = 52
MARK_ABOVE = 20
"""Packets in a queue above which it marks, at least."""
_MAX_TIME = 100 * UNITS["s"]

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "spread": Option("0ns", "interval over which simultaneous starts of flows are spread randomly", 0, _MAX_TIME, True),
        "first-path": Option(
            "sender",
            "first candidate path of a flow: by position of the sender or receiver, by the agent's hash, random, or one for all",
            words=("sender", "receiver", "hash", "random", "zero"),
        ),
        "order": Option(
            "aggregation",
            "hop that changes with every packet in the round-robin of senders over paths between pods of an even fabric",
            words=("aggregation", "core"),
        ),
        "initial-window": Option("10", "initial congestion window in segments", 1, 1000),
        "slow-start-threshold": Option("4294967295", "initial slow-start threshold in bytes", 1460, 2**32 - 1),
        "hash": Option(
            "own", "hash of ecmp and hedera: one per switch, or the same in all, which uses only few paths", words=("own", "same")
        ),
        "congestion": Option(
            "NewReno",
            "congestion control; that of per-packet and mptcp is Dctcp unless this is set",
            words=("NewReno", "LinuxReno", "Cubic", "Vegas", "Bic", "Dctcp", "Swift"),
        ),
        "loss-recovery": Option(
            "ns-3.37",
            "loss recovery of senders: that of ns-3 3.37, or the legacy NewReno of ns-3 3.20 without SACK",
            words=("ns-3.37", "ns-3.20"),
        ),
        "burst-wait": Option(
            "500us", "maximum time that a sender with +segments=N waits for the rest of a burst", 1, UNITS["s"], True
        ),
        "pacing": Option("0", "maximum payload rate of a connection in Mbit/s (paced); 0: limited by the window only", 0, 10**6),
        "receive-buffer": Option("131072", "receive buffer of a connection in bytes", 2_000),
        "send-buffer": Option("131072", "send buffer of a connection in bytes", 2_000),
        "ecn": Option(
            "65",
            "packets in a queue above which it marks (ECN), 0: none; unless this is set 65 from 10 Gbit/s on, 20 below, and with "
            "schemes that answer marks only",
            0,
        ),
        "ecn-at-hosts": Option("0", "the queues of hosts mark, too: 1 or 0", 0, 1),
        "acks-first": Option("0", "what has no data does not wait for data in a host's own queue, as with Linux' fq: 1 or 0", 0, 1),
        "trim": Option(
            "0",
            "packets in a switch's queue above which it cuts data to headers, which overtake data; receivers report them, 0: none",
            0,
        ),
        "trim-repair": Option("1", "senders send what was cut again at once, or TCP finds the losses by itself: 1 or 0", 0, 1),
        "failure-notice": Option("1", "hosts and switches exclude a failed element immediately: 1 or 0", 0, 1),
        "ping": Option(
            "0ns",
            "mean gap between pings of 64 bytes from the source to the destination of each transfer without a size; 0ns: none",
            0,
            _MAX_TIME,
            True,
        ),
        "series": Option("0ns", "interval of the throughput over time in results; 0ns: none", 0, _MAX_TIME, True),
        SIZES: Option(
            "gigabit",
            "what is not set of --queue, ecn, initial-window, buffers, resequencing and timers: for 1 Gbit/s, or by the round trip "
            "and bandwidth-delay product of the fabric",
            words=("gigabit", "fabric"),
        ),
        "timestamps": Option("0", "TCP timestamps: 1 or 0", 0, 1),
        "delayed-ack": Option("1ms", "maximum delay of an acknowledgement", 1, _MAX_TIME, True),
        "least-timeout": Option("200ms", "minimum retransmission timeout", UNITS["us"], _MAX_TIME, True),
        "packet": Option("1500", "packet size in bytes, including IP and TCP headers", 100, 65_000),
        "delay": Option("25ns", "latency of each link", 0, UNITS["s"], True),
        "host-queue": Option("1000", "capacity of the queue of a host in packets"),
        "patience": Option("2", "multiple of the duration after which transfers with a size are aborted", 1, 10_000),
        "all-transfers": Option("0", "start following transfers even after the duration of the run: 1 or 0", 0, 1),
        "resequencing": Option(
            "200us",
            "maximum resequencing delay at receivers of drb, per-packet, reps, drill, adaptive, and of presto in the beginning; "
            "0ns: none",
            0,
            _MAX_TIME,
            True,
        ),
        "flowlet-gap": Option("500us", "gap in a flow after which switches of letflow take another uplink", 0, _MAX_TIME, True),
        "drill-samples": Option("2", "queues that a switch of drill looks at (its paper's d)", 1, 1000),
        "drill-memory": Option("1", "queues that a switch of drill remembers (its paper's m)", 0, 1000),
        "flowcell": Option("65536", "bytes after which senders of flowcell and presto take the next path"),
        "hedera-period": Option("0ns", "polling interval of the Hedera controller; 0ns is a tenth of the run", 0, _MAX_TIME, True),
    }
)


def parse(words: Iterable[str]) -> dict[str, int | str]:
    """Return the values of ``NAME=VALUE`` words. Raises `SimulationOptionError` for an unknown or repeated name, or a bad value."""
    found: dict[str, int | str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in OPTIONS:
            raise SimulationOptionError(unknown("option of the simulator", name, OPTIONS))
        if not equals:
            raise SimulationOptionError(f"--set {word}: write {name}=VALUE")
        if name in found:
            raise SimulationOptionError(f"--set gives {name} twice")
        try:
            found[name] = OPTIONS[name].parse(text)
        except SimulationOptionError as error:
            raise SimulationOptionError(f"--set {word}: {name} is {error}") from None
    for name in ("hedera-period", "ping", "series"):
        if found.get(name) == 0:
            del found[name]
    _check_buffers(found)
    if found.get("loss-recovery") == "ns-3.20" and found.get("congestion", "NewReno") != "NewReno":
        raise SimulationOptionError(f"loss-recovery ns-3.20 requires congestion NewReno, not {found['congestion']}")
    return found


def sized(options: Mapping[str, int | str], tree: Clos, rate_mbit: float, queue: int | None) -> tuple[dict[str, int | str], int]:
    """Return options without `SIZES`, with what it stands for, and the capacity of a link's queue in packets.

    A queue has five bandwidth-delay products and marks above half of one; the first window has one, buffers sixteen. Packets that
    overtake each other are waited for over one and a half round trips, an acknowledgement waits for half of one. A timeout takes at
    least a round trip with one full queue. Windows, queues, marks and buffers are not smaller than the defaults.

    Args:
        rate_mbit: Of the hosts' links.
        queue: What the user wants; None for the default.

    Raises:
        SimulationOptionError: If a receive buffer of the options is too small for the send buffer.
    """
    found = {name: value for name, value in options.items() if name != SIZES}
    if options.get(SIZES) != "fabric":
        return found, queue or DEFAULT_QUEUE
    links = 6 if tree.cores else 4 if tree.edges > 1 else 2  # of the longest path
    packet = int(found.get("packet", PACKET_BYTES))
    ns = 8e3 / rate_mbit  # of a byte
    trip = links * (2 * int(found.get("delay", LINK_DELAY_NS)) + (packet + _ACK_BYTES) * ns)
    product = ceil(trip / (packet * ns))
    room = queue or max(DEFAULT_QUEUE, 5 * product)
    buffers = 1 << (16 * product * packet - 1).bit_length()
    sizes = {"initial-window": product, "ecn": product // 2, "receive-buffer": buffers, "send-buffer": buffers}
    times = {"resequencing": 1.5 * trip, "delayed-ack": trip / 2, "least-timeout": trip + room * packet * ns}
    least = {name: MARK_ABOVE if name == "ecn" else int(OPTIONS[name].default) for name in sizes}
    fitted: dict[str, int | str] = {name: max(least[name], size) for name, size in sizes.items()}
    fitted |= {name: round(time) for name, time in times.items()}
    fitted |= found
    _check_buffers(fitted)
    return fitted, room


def _check_buffers(options: Mapping[str, int | str]) -> None:
    receive, send = (int(options.get(name, OPTIONS[name].default)) for name in ("receive-buffer", "send-buffer"))
    if receive < send:
        raise SimulationOptionError(f"receive-buffer, {receive}, must not be below send-buffer, {send}, or ns-3 3.37 crashes")
