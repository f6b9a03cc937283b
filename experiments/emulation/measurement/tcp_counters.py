"""The kernel's counters of TCP and of ECN per network namespace, named as by nstat (/proc/net/netstat and /proc/net/snmp)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from sopa_ryu.agent.kernel.netns import inside

KEPT = {
    "Tcp": ("RetransSegs", "OutSegs", "InSegs"),
    "TcpExt": (
        "TCPFastRetrans", "TCPSackRecovery", "TCPRenoRecovery", "TCPTimeouts", "TCPLossProbes", "TCPLossProbeRecovery",
        "TCPDSACKRecv", "TCPDSACKOldSent", "TCPDSACKOfoSent", "TCPOFOQueue", "TCPSACKReorder", "TCPTSReorder", "TCPDSACKUndo",
        "TCPFullUndo", "TCPPartialUndo", "TCPLossUndo", "TCPSlowStartRetrans", "TCPLostRetransmit", "TCPSpuriousRTOs",
    ),
    "IpExt": ("InECT0Pkts", "InECT1Pkts", "InCEPkts"),
    "MPTcpExt": ("MPJoinSynRx", "MPJoinAckRx", "MPJoinSynAckRx", "DSSNotMatching", "DuplicateData", "OFOQueue"),
}  # fmt: skip


def tcp_counters(namespaces: Iterable[str]) -> Counter[str]:
    """Return the sums of the counters over network namespaces, given by their paths.

    Returns:
        From a name such as ``TcpExtTCPSackRecovery`` to the value since creation of the namespaces.
    """
    sums: Counter[str] = Counter()
    for path in namespaces:
        with inside(path):
            texts = [Path("/proc/thread-self/net", file).read_text() for file in ("netstat", "snmp")]
        for lines in map(str.splitlines, texts):
            for names, values in zip(lines[::2], lines[1::2], strict=True):
                prefix, _, rest = names.partition(":")
                for name, value in zip(rest.split(), values.split()[1:], strict=True):
                    if name in KEPT.get(prefix, ()):
                        sums[prefix + name] += int(value)
    return sums
