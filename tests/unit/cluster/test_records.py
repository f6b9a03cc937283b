"""The values of the engine's keys: what is written is read back, and what others write is named; its address."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sopa_ryu.cluster import records
from sopa_ryu.cluster.address import Access, AddressError, check_access
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.records import RecordError
from sopa_ryu.cluster.view import Mirror
from sopa_ryu.fabric.drain import Drain
from topologies import FatTree

TREE = FatTree(4)
RECORDS: dict[str, records.Record] = {
    "charter": records.Charter(records.FORMAT, TREE.document(), "mac"),
    "term": records.Term(1_790_000_000_000),
    "leader": records.Leader("m1", 7, "http://192.0.2.1:8080"),
    "view": records.CommittedView(7, 12, {"a0_0-c0_1": "down"}),
    "drains": records.DrainsRecord(7, ("a0_0", "e0_0-a0_1"), {"a0_0": Drain(1.0, "ann", "fan", 9.0).report()}),
    "members/m1": records.MemberRecord("m1", "http://192.0.2.1:8080", "3.0", 1, "leader", 7, 12, 20, 1_790_000_000, "ab"),
    "relays/r 1": records.RelayRecord("r 1", "http://192.0.2.4:8080", "3.0", 6912, 7, 11, 3),
}


@pytest.mark.parametrize("key", RECORDS)
def test_a_record_is_read_as_it_was_written(key: str) -> None:
    assert records.read(key, records.write(RECORDS[key])) == RECORDS[key]


def test_a_view_of_another_fabric_is_named() -> None:
    view = records.CommittedView(7, 12, {"a0_0-c0_1": "down"})
    assert view.view(TREE).failures == {"a0_0-c0_1": "down"}
    with pytest.raises(RecordError, match="the key view names what the fabric does not have"):
        records.CommittedView(7, 12, {"a9_0": "down"}).view(TREE)


@pytest.mark.parametrize("wrong", ["m\n1", "\x1b[2J", "ü", "m" * 300])
def test_what_is_shown_of_a_record_is_printable_and_short(wrong: str) -> None:
    for key, record in RECORDS.items():
        for field in (name for name in record.__struct_fields__ if name != "role" and isinstance(getattr(record, name), str)):
            with pytest.raises(RecordError, match=f"the key {key} is not as SOPA writes it: {field}: expected `str`"):
                records.read(key, records.write(replace(record, **{field: wrong})))
    for name, url in (("m1", wrong), (wrong, "http://192.0.2.1:8080")):
        with pytest.raises(RecordError, match="must be printable ASCII"):
            records.check_identity(name, url)
    with pytest.raises(RecordError, match=r"^the key [ -~]{1,64} is none of SOPA's"):
        records.read(wrong, "{}")


FIELDS = sorted({field for record in RECORDS.values() for field in record.__struct_fields__})
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(FIELDS), inner))


@settings(max_examples=40)
@given(st.sampled_from([*RECORDS, "notes", ""]), VALUES)
def test_whatever_is_in_the_engine_a_mirror_takes_it(key: str, value: object) -> None:
    its = Mirror()
    its.apply(Contents(3, {key: Kept(json.dumps(value), 1, 3, 0)}, whole=True))
    known = [its.charter, its.term, its.leader, its.view, its.drains, *its.members.values(), *its.relays.values()]
    assert (key in its.problems) != any(record is not None for record in known)


def test_what_belongs_together_is_given_together() -> None:
    file = Path("x.pem")
    for wrong in (Access(cert=file), Access(key=file), Access(user="sopa"), Access(password_file=file)):
        with pytest.raises(AddressError, match="belong together"):
            check_access(wrong)
    check_access(Access(file, file, file, "sopa", file))
    tls = [Access(ca=file), Access(cert=file, key=file), Access(user="sopa", password_file=file)]
    assert [its.tls for its in tls] == [True, True, False]
