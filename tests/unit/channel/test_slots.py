"""The datagrams of arbiter and agents: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import slots
from sopa_ryu.channel.slots import (
    MAX_ENTRIES,
    DatagramError,
    Demand,
    Grant,
    Granted,
    Wanted,
    host_of,
    read_demand,
    read_grant,
    write_demand,
    write_grant,
)

HOST, TOKEN = IPv4Address("10.0.0.2"), "token"
ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
WORDS, LONGS = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
WANTED = st.builds(
    lambda destination, numbers: Wanted(destination, max(numbers), min(numbers)), ADDRESSES, st.tuples(LONGS, LONGS)
)
DEMANDS = st.builds(
    Demand, ADDRESSES, WORDS, LONGS, LONGS, LONGS, LONGS, st.lists(WANTED, max_size=MAX_ENTRIES).map(tuple)
)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    """Draw a grant that is right."""
    first, slots = draw(st.integers(0, 2**63)), draw(st.integers(1, 2**16 - 1))
    granted = st.builds(
        Granted, st.integers(first, first + slots - 1), st.integers(0, 255), st.integers(0, 255), ADDRESSES, WORDS
    )
    entries = tuple(draw(st.lists(granted, max_size=MAX_ENTRIES)))
    numbers = [draw(LONGS) for _ in range(3)]
    return Grant(
        draw(ADDRESSES),
        draw(WORDS),
        draw(LONGS),
        draw(st.integers(1, 2**32 - 1)),
        draw(WORDS),
        first,
        slots,
        *numbers,
        entries,
    )


DEMAND = Demand(HOST, 1, 2, 3, 4, 5, (Wanted(IPv4Address("10.1.0.2"), 3000, 1500),))
GRANT = Grant(HOST, 1, 2, 3_200_000, 100, 40, 4, 5, 6, 7, (Granted(41, 1, 0, IPv4Address("10.1.0.2"), 1514),))


def sealed(text: bytes, token: str = TOKEN) -> bytes:
    """Return bytes as a datagram with the right code of a token."""
    return text + slots._mac(text, token)


@given(DEMANDS)
def test_a_demand_is_read_as_it_was_written(demand: Demand) -> None:
    datagram = write_demand(demand, TOKEN)
    assert read_demand(datagram, TOKEN) == demand
    assert host_of(datagram) == demand.host
    assert len(datagram) <= 1472  # a packet of 1,500 bytes


@given(grants())
def test_a_grant_is_read_as_it_was_written(grant: Grant) -> None:
    datagram = write_grant(grant, TOKEN)
    assert read_grant(datagram, TOKEN) == grant
    assert host_of(datagram) == grant.host
    assert len(datagram) <= 1472


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected_by_a_datagram_error(noise: bytes) -> None:
    for read in (read_demand, read_grant):
        with pytest.raises(DatagramError):
            read(noise, TOKEN)


@given(st.data())
def test_a_changed_or_cut_datagram_is_rejected(data: st.DataObject) -> None:
    for datagram, read in ((write_demand(DEMAND, TOKEN), read_demand), (write_grant(GRANT, TOKEN), read_grant)):
        at = data.draw(st.integers(0, len(datagram) - 1))
        changed = bytearray(datagram)
        changed[at] ^= data.draw(st.integers(1, 255))
        for wrong in (bytes(changed), datagram[:at], datagram + b"\0"):
            with pytest.raises(DatagramError):
                read(wrong, TOKEN)


def test_the_token_of_another_host_opens_nothing() -> None:
    with pytest.raises(DatagramError, match=r"not made with the token of 10\.0\.0\.2"):
        read_demand(write_demand(DEMAND, TOKEN), "other")
    with pytest.raises(DatagramError, match=r"not made with the token of 10\.0\.0\.2"):
        read_grant(write_grant(GRANT, TOKEN), "other")


def test_a_demand_is_no_grant() -> None:
    with pytest.raises(DatagramError, match="it is of kind 1, not 2"):
        read_grant(write_demand(DEMAND, TOKEN), TOKEN)
    with pytest.raises(DatagramError, match="it is of kind 2, not 1"):
        read_demand(write_grant(GRANT, TOKEN), TOKEN)


def test_another_version_is_named() -> None:
    text = write_demand(DEMAND, TOKEN)[:-16]
    with pytest.raises(DatagramError, match="it is of version 9 of the protocol, not 1"):
        read_demand(sealed(text[:2] + b"\x09" + text[3:]), TOKEN)


def test_more_entries_than_bytes_are_rejected_even_with_the_right_code() -> None:
    for datagram, read in ((write_demand(DEMAND, TOKEN), read_demand), (write_grant(GRANT, TOKEN), read_grant)):
        text = datagram[:-16]
        for count in (0, 2, 2**16 - 1):
            with pytest.raises(DatagramError, match=f"with {count} entries"):
                read(sealed(text[:4] + struct.pack("!H", count) + text[6:]), TOKEN)


def test_contents_that_cannot_be_are_rejected() -> None:
    with pytest.raises(DatagramError, match=r"it has sent 2 bytes of 1 to 10\.1\.0\.2"):
        read_demand(write_demand(DEMAND._replace(entries=(Wanted(IPv4Address("10.1.0.2"), 1, 2),)), TOKEN), TOKEN)
    with pytest.raises(DatagramError, match="not in its batch"):
        read_grant(write_grant(GRANT._replace(entries=(GRANT.entries[0]._replace(slot=44),)), TOKEN), TOKEN)
    with pytest.raises(DatagramError, match="no length"):
        read_grant(write_grant(GRANT._replace(slot_ns=0), TOKEN), TOKEN)


def test_too_many_entries_are_not_written() -> None:
    with pytest.raises(ValueError, match="up to 64 entries, not 65"):
        write_demand(DEMAND._replace(entries=DEMAND.entries * 65), TOKEN)
