"""The kernel's statistics of TCP: of a connection, of network namespaces, and of loss recoveries."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from sopa_ryu.agent.kernel import libbpf
from sopa_ryu.agent.kernel.build import build
from sopa_ryu.agent.kernel.netns import inside

_SOL_MPTCP = 284
_MPTCP_TCPINFO = 2
_BYTES = 248
_SUBFLOWS_HEADER = struct.Struct("=IIII")
_MAX_SUBFLOWS = 16
_libc = ctypes.CDLL(None, use_errno=True)


class TcpInfo(NamedTuple):
    """Fields of ``struct tcp_info``. With several subflows, sums of the counters and the largest round-trip time.

    Attributes:
        rtt_us: Smoothed round-trip time.
        cwnd: Congestion window in segments.
        data_in, out_of_order: Received segments with data, and those after a later one.
        spurious: Duplicates reported by the receiver (DSACK, RFC 2883).
        reorderings: Number of times the sender has detected reordering.
        timeouts: Expirations of the retransmission timer.
    """

    rtt_us: int
    cwnd: int
    retransmits: int
    segments_out: int
    segments_in: int
    data_in: int
    spurious: int
    reorderings: int
    out_of_order: int
    timeouts: int
    subflows: int = 1


def tcp_info(connection: socket.socket) -> TcpInfo | None:
    """Return the current statistics of a connection, or None if it is closed."""
    try:
        if connection.proto == socket.IPPROTO_MPTCP:
            return _of_subflows(connection)
        return _parsed(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES))
    except OSError as error:
        if error.errno in (errno.EBADF, errno.ENOTCONN, errno.ECONNRESET):
            return None
        raise


def _parsed(data: bytes) -> TcpInfo:
    data = data.ljust(_BYTES, b"\0")  # older kernels return fewer bytes
    rtt, cwnd = (struct.unpack_from("=I", data, at)[0] for at in (68, 80))
    (retransmits,) = struct.unpack_from("=I", data, 100)
    out, arrived = struct.unpack_from("=II", data, 136)
    (data_in,) = struct.unpack_from("=I", data, 152)
    spurious, reorderings, out_of_order = struct.unpack_from("=III", data, 216)
    (timeouts,) = struct.unpack_from("=H", data, 240)
    return TcpInfo(rtt, cwnd, retransmits, out, arrived, data_in, spurious, reorderings, out_of_order, timeouts)


def _of_subflows(connection: socket.socket) -> TcpInfo:
    room = _SUBFLOWS_HEADER.size + _MAX_SUBFLOWS * _BYTES
    asked = _SUBFLOWS_HEADER.pack(_SUBFLOWS_HEADER.size, 0, 0, _BYTES)
    # the buffer begins with a header that gives its capacity
    data = _getsockopt_with(connection, asked.ljust(room, b"\0"))
    _, count, _, _ = _SUBFLOWS_HEADER.unpack_from(data)
    each = [_parsed(data[_SUBFLOWS_HEADER.size + number * _BYTES :][:_BYTES]) for number in range(min(count, _MAX_SUBFLOWS))]
    if not each:
        return TcpInfo(*[0] * len(TcpInfo._fields))
    sums = [sum(one[at] for one in each) for at in range(len(TcpInfo._fields))]
    return TcpInfo(max(one.rtt_us for one in each), *sums[1:])


def _getsockopt_with(connection: socket.socket, data: bytes) -> bytes:
    """Call getsockopt with an initialized buffer, which the socket module does not support."""
    buffer, length = ctypes.create_string_buffer(data, len(data)), ctypes.c_uint32(len(data))
    if _libc.getsockopt(connection.fileno(), _SOL_MPTCP, _MPTCP_TCPINFO, buffer, ctypes.byref(length)):
        number = ctypes.get_errno()
        raise OSError(number, "MPTCP_TCPINFO")
    return buffer.raw[: length.value]


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
    """Return the sums over network namespaces, by path, of counters such as ``TcpExtTCPSackRecovery`` since their creation."""
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


OBJECT = Path(__file__).with_name("fast_recoveries.o")
_KEY = struct.Struct("=Q4sHH")


class FastRecoveries:
    """Counts the fast recoveries of every connection of this machine, as a context manager.

    Entering raises `BpfError` or `BuildError` if the kernel lacks the tracepoint, or the program cannot be compiled or loaded.
    """

    def __enter__(self) -> FastRecoveries:
        build([OBJECT])
        with ExitStack() as opened:
            program = opened.enter_context(libbpf.Object(OBJECT))
            opened.callback(os.close, program.trace("state_set"))
            self._flows = program.map_fd("flows")
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._opened.close()

    def entered(self, netns: int, source: IPv4Address, port: int | None = None) -> int:
        """Return how often a connection has entered fast recovery so far; without a port, the sum over all ports of the address.

        ``netns`` is the cookie of its network namespace.
        """
        if port is not None:
            value = libbpf.lookup(self._flows, _KEY.pack(netns, source.packed, port, 0), 8)
            return int(struct.unpack("=Q", value)[0]) if value else 0
        total = 0
        for key in set(libbpf.keys(self._flows, _KEY.size)):
            of, address, its, _ = _KEY.unpack(key)
            if (of, address) == (netns, source.packed):
                total += self.entered(netns, source, its)
        return total
