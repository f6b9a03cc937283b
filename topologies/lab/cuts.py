"""Filters that cut one machine of a management network off from others, without any end seeing a connection close. Pure."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from ipaddress import IPv4Address
from typing import NamedTuple

# Classic BPF (linux/filter.h): its instructions, and offsets behind 14 bytes of Ethernet in an IPv4 packet without options.
_LOAD_WORD, _LOAD_HALF, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x28, 0x15, 0x06
_SOURCE, _DESTINATION, _SOURCE_PORT, _DESTINATION_PORT = 26, 30, 34, 36
# A stolen packet counts as sent: a dropped one would be an error for its sender, which a distant loss is not.
_STOLEN, _NEXT_FILTER = 4, 2**32 - 1


class Way(Enum):
    """Which packets of a machine are lost."""

    SENT = "sent"
    RECEIVED = "received"


class Peer(NamedTuple):
    """What a machine is cut off from.

    Args:
        port: The machine's own TCP port that the peer connects to; None for all packets between the two.
    """

    address: IPv4Address
    port: int | None = None


def cut_bytecode(peers: Collection[Peer], way: Way) -> str:
    """Return classic BPF, as of ``tc filter ... bpf bytecode``, that loses a machine's packets to or from its peers.

    >>> cut_bytecode([], Way.SENT)
    '1,6 0 0 4294967295'
    >>> cut_bytecode([Peer(IPv4Address("192.0.2.1"))], Way.RECEIVED)
    '4,32 0 0 26,21 0 1 3221225985,6 0 0 4,6 0 0 4294967295'
    """
    address, port = (_DESTINATION, _SOURCE_PORT) if way is Way.SENT else (_SOURCE, _DESTINATION_PORT)
    code: list[tuple[int, int, int, int]] = []
    for peer in sorted(set(peers), key=lambda peer: (peer.address, peer.port or 0)):
        past = 1 if peer.port is None else 3
        code += [(_LOAD_WORD, 0, 0, address), (_JUMP_IF_EQUAL, 0, past, int(peer.address))]
        if peer.port is not None:
            code += [(_LOAD_HALF, 0, 0, port), (_JUMP_IF_EQUAL, 0, 1, peer.port)]
        code.append((_RETURN, 0, 0, _STOLEN))
    code.append((_RETURN, 0, 0, _NEXT_FILTER))
    return ",".join([str(len(code)), *(" ".join(map(str, each)) for each in code)])
