"""What of the simulator can be set otherwise, ``--set NAME=VALUE``: names, units and defaults, told in one place. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from experiments.names import unknown

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds of each unit of time."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s)")


class OptionError(ValueError):
    """No option of the simulator, or no value of it; the text says what there is."""


@dataclass(frozen=True)
class Option:
    """One of them.

    Attributes
    ----------
    default : str
        As a user would write it.
    description : str
        One line for a reader of ``sopa experiment list``.
    minimum, maximum : int
        What a whole number may be, or nanoseconds.
    time : bool
        Whether it has a unit of time.
    words : tuple of str
        What it may be, if it is no number.
    """

    default: str
    description: str
    minimum: int = 1
    maximum: int = 2**31 - 1
    time: bool = False
    words: tuple[str, ...] = ()

    def parse(self, text: str) -> int | str:
        """The value as the simulator reads it: nanoseconds, a whole number or a word. `OptionError` says what it may be."""
        if self.words:
            if text not in self.words:
                raise OptionError(f"one of {', '.join(self.words)}")
            return text
        if self.time:
            found = _TIME.fullmatch(text)
            value = round(float(found[1]) * UNITS[found[2]]) if found else -1
            if not self.minimum <= value <= self.maximum:
                raise OptionError(
                    f"a time from {_time_text(self.minimum)} to {_time_text(self.maximum)}, as in {self.default}"
                )
            return value
        if not text.isascii() or not text.isdecimal() or not self.minimum <= int(text) <= self.maximum:
            raise OptionError(f"a whole number from {self.minimum} to {self.maximum}")
        return int(text)


def _time_text(nanoseconds: int) -> str:
    for unit, size in reversed(UNITS.items()):
        if nanoseconds >= size and nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"


_MAX_TIME = 100 * UNITS["s"]

OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        "spread": Option(
            "0ns", "over how long the starts of flows that begin together are spread at random", 0, _MAX_TIME, True
        ),
        "first-path": Option(
            "sender",
            "where a flow begins on its candidate paths: by its sender's or receiver's place, at random, or all on the first",
            words=("sender", "receiver", "random", "zero"),
        ),
        "initial-window": Option("10", "segments of a connection's first window", 1, 1000),
        "slow-start-threshold": Option(
            "4294967295", "bytes of the window at which a new connection leaves slow start", 1460, 2**32 - 1
        ),
        "hash": Option(
            "own",
            "how ecmp's and hedera's switches hash: each in its own way, or all in the same, which uses few of the paths",
            words=("own", "same"),
        ),
        "congestion": Option(
            "NewReno",
            "congestion control",
            words=("NewReno", "LinuxReno", "Cubic", "Vegas", "Bic"),
        ),
        "loss-recovery": Option(
            "ns-3.37",
            "how a sender recovers from a loss: as ns-3 3.37 does, or as NewReno of ns-3 3.20 did, without SACK",
            words=("ns-3.37", "ns-3.20"),
        ),
        "pacing": Option(
            "0", "Mbit/s of payload that a connection sends at most, evenly; 0: as fast as its window lets it", 0, 10**6
        ),
        "receive-buffer": Option("131072", "bytes of a connection's receive buffer", 2_000),
        "send-buffer": Option("131072", "bytes of its send buffer", 2_000),
        "timestamps": Option("0", "whether packets carry TCP timestamps: 1 or 0", 0, 1),
        "delayed-ack": Option("1ms", "how long a receiver delays an acknowledgement", 1, _MAX_TIME, True),
        "least-timeout": Option("200ms", "least retransmission timeout", UNITS["us"], _MAX_TIME, True),
        "packet": Option("1500", "bytes of a packet with its IP and TCP headers", 100, 65_000),
        "delay": Option("25ns", "latency of each link", 0, UNITS["s"], True),
        "host-queue": Option("1000", "packets that a host's own queue holds"),
        "patience": Option("2", "times the run's seconds, until transfers with a size are given up", 1, 10_000),
        "all-transfers": Option(
            "0", "whether transfers that follow others do so after the run's seconds, too: 1 or 0", 0, 1
        ),
        "resequencing": Option("200us", "how long drb's receiver keeps a packet back", 1, _MAX_TIME, True),
        "hedera-period": Option(
            "0ns", "from one look of Hedera's controller to the next; 0ns is a tenth of the run", 0, _MAX_TIME, True
        ),
    }
)


def parse(words: Iterable[str]) -> dict[str, int | str]:
    """The values of ``NAME=VALUE`` words.

    Raises
    ------
    OptionError
        For a name that is not there or is given twice, or a value that it cannot have.
    """
    found: dict[str, int | str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if name not in OPTIONS:
            raise OptionError(unknown("option of the simulator", name, OPTIONS))
        if not equals:
            raise OptionError(f"--set {word}: write {name}=VALUE")
        if name in found:
            raise OptionError(f"--set gives {name} twice")
        try:
            found[name] = OPTIONS[name].parse(text)
        except OptionError as error:
            raise OptionError(f"--set {word}: {name} is {error}") from None
    if found.get("hedera-period") == 0:
        del found["hedera-period"]
    receive, send = (int(found.get(name, OPTIONS[name].default)) for name in ("receive-buffer", "send-buffer"))
    if receive < send:
        raise OptionError(f"receive-buffer, {receive}, must not be below send-buffer, {send}: ns-3 3.37 crashes then")
    if found.get("loss-recovery") == "ns-3.20" and found.get("congestion", "NewReno") != "NewReno":
        raise OptionError(f"loss-recovery ns-3.20 is NewReno's, not that of {found['congestion']}")
    return found
