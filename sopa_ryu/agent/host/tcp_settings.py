"""The TCP settings of a network namespace that agents change: saved before, and put back by the last agent that leaves.

- ``tcp_reordering``: the fast-retransmit threshold in packets, 3 by default and 10 for SOPA (the paper, section 3.4), since
  packets on several paths overtake each other.
- ``tcp_min_rtt_wlen``: the seconds for which TCP remembers the shortest round trip, 300 by default and 1 for SOPA. RACK
  (RFC 8985), by which Linux detects losses, waits a quarter of it for a packet that others have overtaken. Queues make paths
  differ by more than a quarter of the shortest round trip in five minutes, which found them empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sopa_ryu.agent.host.mending import Part
from sopa_ryu.agent.host.saved_settings import State
from sopa_ryu.agent.kernel.netns import SYSCTLS

DEFAULT_THRESHOLD = 10
DEFAULT_MIN_RTT_WINDOW = 1
LINUX_MIN_RTT_WINDOW = 300
MAX_MIN_RTT_WINDOW = 86400  # the kernel's bound
TO_CHECK = "tc filters, gso_max_segs, MTU, net.ipv4.tcp_reordering and net.ipv4.tcp_min_rtt_wlen"
"""What an operator has to look at where an agent could not put everything back."""
_PARTS = (Part.REORDERING, Part.MIN_RTT)
_DIRECTORY = SYSCTLS / "ipv4"


def threshold_counts(release: str, sack: bool) -> bool:
    """Tell whether Linux detects losses by the fast-retransmit threshold at all.

    With selective acknowledgements it has gone by time alone since 6.17, which has removed the count of packets (commit
    1c120191dcec).

    >>> [threshold_counts(*host) for host in (("6.1.0-18-amd64", True), ("6.17.2", True), ("6.18.44", False))]
    [True, False, True]
    """
    major, minor = (int(number) for number in re.findall(r"\d+", release)[:2])
    return (major, minor) < (6, 17) or not sack


def maximum_threshold() -> int:
    """Return the largest fast-retransmit threshold of the calling thread's network namespace."""
    return min(300, read("tcp_max_reordering"))


class TcpSettings:
    """The settings that one agent wants in its namespace; all methods work in that of the calling thread.

    Args:
        fr_threshold: Packets.
        min_rtt_window: Seconds.
    """

    def __init__(self, fr_threshold: int, min_rtt_window: int) -> None:
        self._wanted = {Part.REORDERING: fr_threshold, Part.MIN_RTT: min_rtt_window}

    def save(self, state: State) -> None:
        """Note in the namespace's state what is to be put back: what no agent has written, or else what the first one found."""
        for name, wanted in self._wanted.items():
            now, before = read(name), _saved(state, name) or {"written": []}
            state[name] = {
                "original": before["original"] if now in before["written"] else now,
                "written": sorted({*before["written"], wanted}),
            }

    def write(self) -> None:
        """Set them."""
        for name, wanted in self._wanted.items():
            _write(name, wanted)

    def different(self) -> dict[Part, int]:
        """Return those that are not as this agent wants them, as they are. Another agent of the namespace may have set its own."""
        now = {name: read(name) for name in _PARTS}
        return {name: value for name, value in now.items() if value != self._wanted[name]}

    def foreign(self, state: State, different: Mapping[Part, int]) -> dict[Part, str]:
        """Return in words those of them that no agent has set."""
        return {
            name: f"net.ipv4.{name} was set to {value} instead of {self._wanted[name]}"
            for name, value in different.items()
            if value not in (_saved(state, name) or {"written": []})["written"]
        }


def restore(state: State) -> None:
    """Put the namespace's settings back, but for those that another program has changed since."""
    for name in _PARTS:
        saved = _saved(state, name)
        if saved and read(name) in saved["written"]:
            _write(name, saved["original"])
        state[name] = None


def _saved(state: State, name: str) -> State | None:
    saved: State | None = state.get(name)  # agents of version 1.x saved one only
    return saved


def read(name: str) -> int:
    """Return a setting of IPv4."""
    return int((_DIRECTORY / name).read_text())


def _write(name: str, value: int) -> None:
    (_DIRECTORY / name).write_text(str(value))
