"""The datagrams of arbiter and agents: what is written is read, and nothing else is."""

import struct
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import slots
from sopa_ryu.channel.slots import MAX_ENTRIES, DatagramError, Demand, Grant, Granted, Wanted

HOST, PEER, TOKEN = IPv4Address("10.0.0.2"), IPv4Address("10.1.0.2"), "token"
ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
OCTETS, WORDS, LONGS = st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
WANTED = st.tuples(ADDRESSES, LONGS, LONGS).map(lambda its: Wanted(its[0], max(its[1:]), min(its[1:])))
WANTEDS = st.lists(WANTED, max_size=MAX_ENTRIES).map(tuple)
DEMANDS = st.builds(Demand, ADDRESSES, WORDS, LONGS, LONGS, LONGS, LONGS, WANTEDS)


@st.composite
def grants(draw: st.DrawFn) -> Grant:
    first, count = draw(st.integers(0, 2**63)), draw(st.integers(1, 2**16 - 1))
    granted = st.builds(Granted, st.integers(first, first + count - 1), OCTETS, OCTETS, ADDRESSES, WORDS)
    entries = tuple(draw(st.lists(granted, max_size=MAX_ENTRIES)))
    head = draw(st.tuples(ADDRESSES, WORDS, LONGS, st.integers(1, 2**32 - 1), WORDS))
    return Grant(*head, first, count, *draw(st.tuples(LONGS, LONGS, LONGS)), entries)


DEMAND = Demand(HOST, 1, 2, 3, 4, 5, (Wanted(PEER, 3000, 1500),))
GRANT = Grant(HOST, 1, 2, 3_200_000, 100, 40, 4, 5, 6, 7, (Granted(41, 1, 0, PEER, 1514),))
BOTH = [(slots.write_demand(DEMAND, TOKEN), slots.read_demand), (slots.write_grant(GRANT, TOKEN), slots.read_grant)]


def sealed(text: bytes) -> bytes:
    """Return bytes as a datagram with the right code."""
    return text + slots._mac(text, TOKEN)


@given(DEMANDS, grants())
def test_a_datagram_is_read_as_it_was_written_and_fits_into_a_packet(demand: Demand, grant: Grant) -> None:
    for its, datagram in ((demand, slots.write_demand(demand, TOKEN)), (grant, slots.write_grant(grant, TOKEN))):
        assert (slots.read_demand if its is demand else slots.read_grant)(datagram, TOKEN) == its
        assert slots.host_of(datagram) == its.host
        assert len(datagram) <= 1472


@given(st.binary(max_size=200), st.data())
def test_other_bytes_and_a_changed_or_cut_datagram_are_rejected(noise: bytes, data: st.DataObject) -> None:
    for datagram, read in BOTH:
        at = data.draw(st.integers(0, len(datagram) - 1))
        changed = bytearray(datagram)
        changed[at] ^= data.draw(st.integers(1, 255))
        for wrong in (noise, bytes(changed), datagram[:at], datagram + b"\0"):
            with pytest.raises(DatagramError):
                read(wrong, TOKEN)


def test_what_is_not_for_this_reader_or_cannot_be_is_rejected_by_its_name() -> None:
    (demand, read_demand), (grant, read_grant) = BOTH
    behind, outside = DEMAND._replace(entries=(Wanted(PEER, 1, 2),)), GRANT.entries[0]._replace(slot=44)
    wrong = [
        (read_grant, demand, "it is of kind 1, not 2"),
        (read_demand, grant, "it is of kind 2, not 1"),
        (read_demand, sealed(demand[:2] + b"\x09" + demand[3:-16]), "it is of version 9 of the protocol, not 1"),
        (read_demand, slots.write_demand(behind, TOKEN), r"it has sent 2 bytes of 1 to 10\.1\.0\.2"),
        (read_grant, slots.write_grant(GRANT._replace(entries=(outside,)), TOKEN), "not in its batch"),
        (read_grant, slots.write_grant(GRANT._replace(slot_ns=0), TOKEN), "no length"),
    ]
    for datagram, read in BOTH:
        wrong.append((read, datagram[:-16] + slots._mac(datagram[:-16], "other"), r"not made with the token of 10\.0\.0\.2"))
        for count in (0, 2, 2**16 - 1):
            counted = sealed(datagram[:4] + struct.pack("!H", count) + datagram[6:-16])
            wrong.append((read, counted, f"with {count} entries"))
    for read, datagram, said in wrong:
        with pytest.raises(DatagramError, match=said):
            read(datagram, TOKEN)
    with pytest.raises(ValueError, match="up to 64 entries, not 65"):
        slots.write_demand(DEMAND._replace(entries=DEMAND.entries * 65), TOKEN)
