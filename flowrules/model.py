"""Flow entries and groups as plain data, named after OpenFlow 1.3 (section 5) and independent of any OpenFlow library."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple, Union


class Table(IntEnum):
    """The flow tables; a packet can only go to a table with a higher number (OpenFlow 1.3, section 5.1)."""

    INGRESS = 0
    DOWN = 1
    UP = 2
    UNLABELLED = 3
    DELIVER = 4
    LEARN = 5
    OUTSIDE = 6
    ADVERTISE = 7
    ELSEWHERE = 8


class Output(NamedTuple):
    """Action: send out of a port."""

    port: int


class ToGroup(NamedTuple):
    """Action: process by a group."""

    group: int


class ToController(NamedTuple):
    """Action: send the whole packet to the controller."""


class SendStart(NamedTuple):
    """Action: send so many bytes of the packet, at most, to the controller."""

    bytes: int


class SendNoMore(NamedTuple):
    """Action: drop what else reaches the last entry of `Table.DOWN` for a second, unless the sender's address ends in other bits.

    So a switch sends 2 to the power of ``bits`` such packets a second to the controller, and one host a single one.
    """

    bits: int


class SendNoMore6(NamedTuple):
    """Action: as `SendNoMore`, of IPv6: its senders are others."""

    bits: int


class SetField(NamedTuple):
    """Action: write a header field or a register, named as OXM names it."""

    field: str
    value: Union[int, str]  # noqa: UP007


class Choose(NamedTuple):
    """Action: write a number below ``number`` into the register ``reg1``, selected by a hash of the flow that ``basis`` seeds.

    The flow is the five-tuple, or with ``addresses`` no more of it than source and destination.
    """

    number: int
    basis: int
    addresses: bool


class ConsumeHop(NamedTuple):
    """Action: write `label.UNUSED` over the hop byte of the packet's label, 0 for up1 and 1 for up2, that the entry has matched."""

    hop: int


class OutputHop(NamedTuple):
    """Action: send out of the port whose number is the hop byte of the packet's label, 0 for up1 and 1 for up2."""

    hop: int


class AnswerArp(NamedTuple):
    """Action: turn an ARP request into its answer with this Ethernet address, and send it out of the port that it came from."""

    mac: str


class AnswerSolicitation(NamedTuple):
    """Action: turn a neighbour advertisement that was a solicitation (RFC 4861, section 4.4) into its answer, and send it back.

    It says that this Ethernet address is that of the target, a router.
    """

    mac: str


class LearnSender(NamedTuple):
    """Action: learn the ARP sender's Ethernet address as that of the host at the packet's input port.

    The learned entry is in `Table.DELIVER` and matches that port only, so that a host can misdirect its own packets at most.
    ``seconds`` is the entry's hard timeout; 0 means that it does not expire.
    """

    seconds: int


class LearnNoMore(NamedTuple):
    """Action: keep the packet's input port from learning again for a second, unless the sender's address ends in other bits.

    Learning is a change of the tables, after which Open vSwitch looks at everything again that it has cached. So a port learns at
    most 2 to the power of ``bits`` times a second, and a host whose address changes twice within a second is likely learned twice.
    """

    bits: int


class LearnNeighbour(NamedTuple):
    """Action: as `LearnSender`, from the link-layer address ``field`` of neighbour discovery: ``nd_sll`` or ``nd_tll``."""

    seconds: int
    field: str


class LearnNoNeighbour(NamedTuple):
    """Action: as `LearnNoMore`, of messages of neighbour discovery that have that field."""

    bits: int
    field: str


class LookUp(NamedTuple):
    """Action: process the packet by another table, and then go on with the next action."""

    table: Table


class HashOver(NamedTuple):
    """Action: send out of one live port of ``ports``, selected by a hash of the five-tuple that ``basis`` seeds."""

    ports: tuple[int, ...]
    basis: int


Action = Union[  # noqa: UP007
    Output,
    ToGroup,
    ToController,
    SendStart,
    SendNoMore,
    SendNoMore6,
    SetField,
    Choose,
    ConsumeHop,
    OutputHop,
    AnswerArp,
    AnswerSolicitation,
    LearnSender,
    LearnNoMore,
    LearnNeighbour,
    LearnNoNeighbour,
    LookUp,
    HashOver,
]
Field = tuple[str, Union[int, str, tuple[str, str], tuple[int, int]]]  # noqa: UP007

DESCENDING = 1
"""The metadata of a packet that came from above."""
IN_PORT = 0xFFFFFFF8
"""For `Output`: the port that the packet came by, by which it leaves no other way (OpenFlow 1.3, section 4.5)."""

IP: dict[int, Field] = {4: ("eth_type", 0x0800), 6: ("eth_type", 0x86DD)}
"""By the version of IP."""
IPV4 = IP[4]
ARP: Field = ("eth_type", 0x0806)
LLDP: Field = ("eth_type", 0x88CC)


def destined(prefix: IPv4Network | IPv6Network) -> tuple[Field, ...]:
    """Return the match of packets whose destination is within a prefix."""
    return (IP[prefix.version], (f"ipv{prefix.version}_dst", (str(prefix.network_address), str(prefix.netmask))))


class Flow(NamedTuple):
    """One flow entry.

    Args:
        match: Fields and values as OXM names and writes them, ``("ipv4_dst", ("10.0.0.0", "255.255.255.0"))``.
        apply, write: Actions to apply immediately, and actions for the action set, which is executed when the pipeline ends.
        metadata: The value to write into the packet's metadata.
        goto: The next table; without one and without an output the packet is dropped and counted by the entry.
        purpose: The reason for the entry, in a few words for the operator. It is part of the cookie.
    """

    table: Table
    priority: int
    match: tuple[Field, ...]
    purpose: str
    apply: tuple[Action, ...] = ()
    write: tuple[Action, ...] = ()
    metadata: int | None = None
    goto: Table | None = None


class Does(NamedTuple):
    """What a flow entry does with a packet; fields as of `Flow`."""

    apply: tuple[Action, ...]
    write: tuple[Action, ...]
    metadata: int | None
    goto: Table | None


def does(flow: Flow) -> Does:
    """Return what a flow entry does with a packet."""
    return Does(flow.apply, flow.write, flow.metadata, flow.goto)


class Bucket(NamedTuple):
    """A bucket of a fast-failover group: it outputs to a port and watches the same port."""

    port: int


class Group(NamedTuple):
    """A fast-failover group (OpenFlow 1.3, section 5.6.1): the first bucket whose port is live takes the packet."""

    id: int
    buckets: tuple[Bucket, ...]


class SwitchRules(NamedTuple):
    """The rules of one switch: its flow entries and groups."""

    flows: tuple[Flow, ...]
    groups: tuple[Group, ...]


@lru_cache(maxsize=1 << 14)  # entries of single hosts' ports are needed seldom, and there are many of them
def digest(flow: Flow) -> int:
    """Return 24 bits that identify a flow entry and are the same in every process: the entry's part of the cookie."""
    return int.from_bytes(blake2b(repr(tuple(flow)).encode(), digest_size=3).digest(), "big")
