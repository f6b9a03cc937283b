"""For applications: tell the host's agent what a connection is going to send, so that slots are granted before it is written."""

from __future__ import annotations

import socket
import sys
from ipaddress import IPv4Address
from pathlib import Path

from sopa_ryu.agent.hint_place import connect, default_path
from sopa_ryu.agent.hint_protocol import (
    DEFAULT_WITHIN_MS,
    MAX_LINE_BYTES,
    Accepted,
    Hint,
    HintError,
    Refusal,
    read_answer,
    write_hint,
)
from sopa_ryu.agent.host_settings import STATE_DIR
from sopa_ryu.agent.kernel.netns import SO_NETNS_COOKIE

SECONDS = 10.0


def hint(connection: socket.socket, size: int, *, within_ms: int = DEFAULT_WITHIN_MS, path: Path | None = None) -> int:
    """Tell the agent that a TCP connection over IPv4 has so many bytes to send, what is written and not sent yet included.

    Parameters
    ----------
    connection : socket
        Connected, or about to be.
    size : int
    within_ms : int
        When nothing more of that is written for so many milliseconds, the rest is void.
    path : Path, optional
        The agent's socket; by default that of the connection's network namespace in ``/run/sopa``.

    Returns
    -------
    int
        The bytes that count: fewer if a link carries fewer in the arbiter's window.

    Raises
    ------
    HintError
        If the hint is refused, or there is no agent: data is sent all the same, in slots that are granted once it is written.
    """
    if path is None:
        cookie = connection.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
        path = default_path(STATE_DIR, int.from_bytes(cookie, sys.byteorder))
    address, port = connection.getpeername()[:2]
    its = Hint(IPv4Address(address.removeprefix("::ffff:")), port, connection.getsockname()[1], size, within_ms)
    return tell(path, its).size


def tell(path: Path, its: Hint) -> Accepted:
    """Give a hint to the agent that listens at a path; `HintError` if it is refused, or nobody listens."""
    try:
        with connect(path, SECONDS) as agent:
            agent.sendall(write_hint(its))
            line = b""
            while not line.endswith(b"\n") and len(line) < MAX_LINE_BYTES and (piece := agent.recv(MAX_LINE_BYTES)):
                line += piece
    except OSError as error:
        raise HintError(
            Refusal.FAILED, f"no agent with --policy cfr answers at {path}: {error.strerror or error}"
        ) from error
    return read_answer(line)
