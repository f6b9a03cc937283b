"""Statistics of TCP connections, also with several subflows (``TCP_INFO``, include/uapi/linux/tcp.h)."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from typing import NamedTuple

_SOL_MPTCP = 284
_MPTCP_TCPINFO = 2
_BYTES = 248
_SUBFLOWS_HEADER = struct.Struct("=IIII")
_MAX_SUBFLOWS = 16
_libc = ctypes.CDLL(None, use_errno=True)


class TcpInfo(NamedTuple):
    """Fields of ``struct tcp_info``. With several subflows, sums of the counters and the largest round-trip time.

    Attributes:
        rtt_us: Smoothed round-trip time in microseconds.
        cwnd: Congestion window in segments.
        retransmits: Retransmitted segments.
        segments_out, segments_in: Segments sent and received.
        data_in: Received segments with data.
        spurious: Duplicates reported by the receiver (DSACK, RFC 2883).
        reorderings: Number of times the sender has detected reordering.
        out_of_order: Segments received after a later one.
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
    each = [
        _parsed(data[_SUBFLOWS_HEADER.size + number * _BYTES :][:_BYTES]) for number in range(min(count, _MAX_SUBFLOWS))
    ]
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
