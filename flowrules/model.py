"""Rules and groups as plain data, named after OpenFlow 1.3 (section 5) but independent of any OpenFlow library."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Network
from typing import NamedTuple, Union


class Table(IntEnum):
    """The flow tables; a packet only ever goes to a higher number (OpenFlow 1.3, section 5.1)."""

    INGRESS = 0
    DOWN = 1
    UP = 2
    UNLABELLED = 3
    DELIVER = 4


class Output(NamedTuple):
    """Send out of a port."""

    port: int


class ToGroup(NamedTuple):
    """Hand to a group."""

    group: int


class ToController(NamedTuple):
    """Send the whole packet to the controller."""


class SetField(NamedTuple):
    """Write a header field, named as OXM names it."""

    field: str
    value: str


class AnswerArp(NamedTuple):
    """Turn the ARP request into its answer, with this Ethernet address, and send it back where it came from."""

    mac: str


class LearnSender(NamedTuple):
    """Remember the ARP sender's Ethernet address as that of the host at the port it came in by.

    What is learned is an entry in `Table.DELIVER` for that port alone, so a host can mislead nobody but itself.
    ``seconds`` is how long it is remembered; 0 is for ever.
    """

    seconds: int


class HashOver(NamedTuple):
    """Send out of one of the live ones among ``ports``, chosen by a hash of addresses, protocol and ports; ``basis`` seeds it."""

    ports: tuple[int, ...]
    basis: int


Action = Union[Output, ToGroup, ToController, SetField, AnswerArp, LearnSender, HashOver]  # noqa: UP007
Field = tuple[str, Union[int, str, tuple[str, str], tuple[int, int]]]  # noqa: UP007

IPV4: Field = ("eth_type", 0x0800)
ARP: Field = ("eth_type", 0x0806)
LLDP: Field = ("eth_type", 0x88CC)


def destined(prefix: IPv4Network) -> tuple[Field, ...]:
    """The match of IPv4 packets whose destination lies within a prefix."""
    return (IPV4, ("ipv4_dst", (str(prefix.network_address), str(prefix.netmask))))


class Flow(NamedTuple):
    """One flow entry.

    Parameters
    ----------
    table, priority
        Where it stands.
    match : tuple of (field, value) or (field, (value, mask))
        Fields and values as OXM names and writes them, ``("ipv4_dst", ("10.0.0.0", "255.255.255.0"))``.
    apply, write : tuple of Action
        Actions to apply at once, and actions to write to the action set, which is executed when the pipeline ends.
    metadata : int or None
        What to write into the packet's metadata.
    goto : Table or None
        The next table; with none and no output the packet is dropped, and the entry's counter counts it.
    purpose : str
        Why it is there, in a few words for the operator.
    """

    table: Table
    priority: int
    match: tuple[Field, ...]
    purpose: str
    apply: tuple[Action, ...] = ()
    write: tuple[Action, ...] = ()
    metadata: int | None = None
    goto: Table | None = None


class Bucket(NamedTuple):
    """A bucket of a fast-failover group: used while its port, which it also watches, is alive."""

    port: int


class Group(NamedTuple):
    """A fast-failover group (OpenFlow 1.3, section 5.6.1): the first bucket whose port is alive takes the packet."""

    id: int
    buckets: tuple[Bucket, ...]


class SwitchRules(NamedTuple):
    """Everything that one switch should hold."""

    flows: tuple[Flow, ...]
    groups: tuple[Group, ...]


@lru_cache(maxsize=1 << 18)
def digest(flow: Flow) -> int:
    """24 bits that tell a flow entry from any other, the same in every process: what a cookie remembers of an entry."""
    return int.from_bytes(blake2b(repr(tuple(flow)).encode(), digest_size=3).digest(), "big")
