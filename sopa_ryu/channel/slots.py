"""The datagrams between the arbiter and the agents of policy ``cfr``: demands of hosts, and the slots granted to them. Pure.

An agent sends what its sockets want to send, in bytes since it started, for each destination host: a lost datagram is made good
by the next. The arbiter answers every batch of slots with those that are granted to the host. Slot n is the time from n to n + 1
slot lengths on the arbiter's monotonic clock; the times in both datagrams tell the agent how far its own clock is off (RFC 5905,
section 8).

A datagram ends with 16 bytes of HMAC-SHA256 (RFC 2104; truncated as RFC 2104, section 5, allows) under the host's token, so that
neither demands nor grants can be forged by another host. Sequence numbers grow within an agent's run (demands) and within an
arbiter's term (grants): an older one is a repetition. A term is never used twice, and a lower one is void once a higher was seen.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import NamedTuple

POLICY = "cfr"
PORT = 9160
VERSION = 1
MAX_ENTRIES = 64
"""Entries of a datagram, so that it fits into a packet of 1,500 bytes; an agent or arbiter with more sends several."""
DEMAND_NS = 1_000_000_000
"""A pair of hosts is asked for at most what the sender's link carries in this time: the arbiter's window."""
_MAGIC = b"SA"
_DEMAND, _GRANT = 1, 2
_HEADER = struct.Struct("!2sBBHIIQ")  # magic, version, kind, entries, host, sequence, term
_DEMAND_BODY = struct.Struct("!QQQ")
_WANTED = struct.Struct("!IQQ")
_GRANT_BODY = struct.Struct("!IIQHQQQ")
_GRANTED = struct.Struct("!HBBII")
_MAC_BYTES = 16


class DatagramError(ValueError):
    """A datagram that is rejected; the text says why."""


class TokenError(DatagramError):
    """A datagram that is not made with the host's token."""


class Wanted(NamedTuple):
    """What a host has to send to another one, in bytes since its agent started.

    Args:
        wanted: What its sockets have been given to send.
        sent: What of that has left the host by the end of slot `Demand.through`.
    """

    destination: IPv4Address
    wanted: int
    sent: int


class Demand(NamedTuple):
    """A host's demand. What it does not name is as it was.

    Args:
        sequence: 32 bits, one more than in the datagram before.
        term: That of the last grant; 0 if there was none.
        run: 64 bits that name the agent's run; the counters start from 0 in a new one, which has a higher number.
        sent_at: The agent's monotonic clock, in nanoseconds.
        through: The last slot whose grants are used or over: later ones are still counted on. 0 if there was none.
    """

    host: IPv4Address
    sequence: int
    term: int
    run: int
    sent_at: int
    through: int
    entries: Sequence[Wanted]


class Granted(NamedTuple):
    """A slot in which a host may send to another one.

    Args:
        slot: From `Grant.first_slot` on.
        up1, up2: The path as in a label; 0xff for a hop that is not taken.
        budget: Bytes of Ethernet frames, without preamble, checksum and gap.
    """

    slot: int
    up1: int
    up2: int
    destination: IPv4Address
    budget: int


class Grant(NamedTuple):
    """The slots of a batch that are granted to a host, maybe none.

    Args:
        sequence: 32 bits, more than in the datagram before of this term.
        slot_ns: The length of a slot in nanoseconds.
        lease_ms: The milliseconds after which the host stops waiting for slots, if no further datagram arrives.
        first_slot, slots: The batch.
        demand_sent_at: `Demand.sent_at` of the last demand that arrived; 0 if there was none.
        demand_received_at, sent_at: The arbiter's monotonic clock, in nanoseconds, when that arrived and when this was sent.
    """

    host: IPv4Address
    sequence: int
    term: int
    slot_ns: int
    lease_ms: int
    first_slot: int
    slots: int
    demand_sent_at: int
    demand_received_at: int
    sent_at: int
    entries: Sequence[Granted]


def write_demand(demand: Demand, token: str) -> bytes:
    """Return the datagram of a demand, under the host's token.

    >>> its = Demand(IPv4Address("10.0.0.2"), 7, 3, 1, 5000, 40, (Wanted(IPv4Address("10.1.0.2"), 3000, 1500),))
    >>> read_demand(write_demand(its, "token"), "token") == its
    True
    """
    body = _DEMAND_BODY.pack(demand.run, demand.sent_at, demand.through)
    entries = b"".join(_WANTED.pack(int(wanted.destination), wanted.wanted, wanted.sent) for wanted in demand.entries)
    return _write(_DEMAND, demand, body + entries, token)


def write_grant(grant: Grant, token: str) -> bytes:
    """Return the datagram of a grant, under the host's token."""
    body = _GRANT_BODY.pack(
        grant.slot_ns, grant.lease_ms, grant.first_slot, grant.slots, grant.demand_sent_at, grant.demand_received_at, grant.sent_at
    )
    entries = b"".join(
        _GRANTED.pack(slot.slot - grant.first_slot, slot.up1, slot.up2, int(slot.destination), slot.budget)
        for slot in grant.entries
    )
    return _write(_GRANT, grant, body + entries, token)


def host_of(datagram: bytes) -> IPv4Address:
    """Return the host that a datagram names, to look for its token.

    Raises:
        DatagramError: If it is no datagram of this protocol and version.
    """
    return IPv4Address(_header(datagram)[1])


def read_demand(datagram: bytes, token: str) -> Demand:
    """Read a host's demand.

    Raises:
        DatagramError: If it is malformed, no demand, or not made with the host's token.
    """
    kind, host, sequence, term, count = _checked(datagram, token)
    body = _body(datagram, kind, _DEMAND, _DEMAND_BODY, _WANTED, count)
    run, sent_at, through = _DEMAND_BODY.unpack_from(body)
    entries = tuple(
        Wanted(IPv4Address(destination), wanted, sent)
        for destination, wanted, sent in _WANTED.iter_unpack(body[_DEMAND_BODY.size :])
    )
    for entry in entries:
        if entry.sent > entry.wanted:
            raise DatagramError(f"it has sent {entry.sent} bytes of {entry.wanted} to {entry.destination}")
    return Demand(IPv4Address(host), sequence, term, run, sent_at, through, entries)


def read_grant(datagram: bytes, token: str) -> Grant:
    """Read the slots granted to a host.

    Raises:
        DatagramError: If it is malformed, no grant, not made with the host's token, or grants what is not in its batch.
    """
    kind, host, sequence, term, count = _checked(datagram, token)
    body = _body(datagram, kind, _GRANT, _GRANT_BODY, _GRANTED, count)
    slot_ns, lease_ms, first_slot, slots, asked_at, received_at, sent_at = _GRANT_BODY.unpack_from(body)
    entries = tuple(
        Granted(first_slot + offset, up1, up2, IPv4Address(destination), budget)
        for offset, up1, up2, destination, budget in _GRANTED.iter_unpack(body[_GRANT_BODY.size :])
    )
    if not slot_ns:
        raise DatagramError("its slots have no length")
    if any(entry.slot - first_slot >= slots for entry in entries):
        raise DatagramError("it grants a slot that is not in its batch")
    return Grant(IPv4Address(host), sequence, term, slot_ns, lease_ms, first_slot, slots, asked_at, received_at, sent_at, entries)


def _write(kind: int, message: Demand | Grant, rest: bytes, token: str) -> bytes:
    if len(message.entries) > MAX_ENTRIES:
        raise ValueError(f"a datagram has up to {MAX_ENTRIES} entries, not {len(message.entries)}")
    header = _HEADER.pack(_MAGIC, VERSION, kind, len(message.entries), int(message.host), message.sequence, message.term)
    return header + rest + _mac(header + rest, token)


def _mac(text: bytes, token: str) -> bytes:
    return hmac.digest(token.encode(), text, "sha256")[:_MAC_BYTES]


def _header(datagram: bytes) -> tuple[int, int, int, int, int]:
    if len(datagram) < _HEADER.size + _MAC_BYTES:
        raise DatagramError(f"it has {len(datagram)} bytes")
    magic, version, kind, count, host, sequence, term = _HEADER.unpack_from(datagram)
    if magic != _MAGIC:
        raise DatagramError("it is no datagram of an arbiter or an agent")
    if version != VERSION:
        raise DatagramError(f"it is of version {version} of the protocol, not {VERSION}")
    return kind, host, sequence, term, count


def _checked(datagram: bytes, token: str) -> tuple[int, int, int, int, int]:
    header = _header(datagram)
    if not hmac.compare_digest(_mac(datagram[:-_MAC_BYTES], token), datagram[-_MAC_BYTES:]):
        raise TokenError(f"it is not made with the token of {IPv4Address(header[1])}")
    return header


def _body(datagram: bytes, kind: int, wanted: int, body: struct.Struct, entry: struct.Struct, count: int) -> bytes:
    rest = datagram[_HEADER.size : -_MAC_BYTES]
    if kind != wanted:
        raise DatagramError(f"it is of kind {kind}, not {wanted}")
    if count > MAX_ENTRIES or len(rest) != body.size + count * entry.size:
        raise DatagramError(f"it has {len(datagram)} bytes with {count} entries")
    return rest
