"""A member's own record in the engine, on real nodes of etcd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from ryu.lib import hub

from sopa_ryu.cluster.address import parse
from sopa_ryu.cluster.engine import Engine, EngineError, Kind, Written
from sopa_ryu.cluster.member import Hands, Identity, Member
from sopa_ryu.cluster.records import FORMAT, Charter
from tests.helpers.waiting import eventually
from topologies.lab.etcd import PrivateEtcd

LEASE_SECONDS = 1


class Forgetful(Engine):
    """Loses the answer to its first write, which was done."""

    lost = False

    def write(self, *values: Any, **options: Any) -> Written | None:
        written = super().write(*values, **options)
        if not self.lost:
            self.lost = True
            raise EngineError("the answer was lost", Kind.UNREACHABLE, unknown=True)
        return written


class Standing:
    """What a member asks the application for."""

    def __init__(self) -> None:
        self.version = 1

    def standing(self) -> tuple[int, int]:
        return self.version, 20


@contextmanager
def keeping_its_lease(engine: Engine, standing: Standing) -> Iterator[Member]:
    """A member that keeps its lease and its record."""
    identity = Identity("c1", "http://192.0.2.1:8080", "1", "secret")
    member = Member(engine, identity, Charter(FORMAT, {}, "mac"), LEASE_SECONDS, cast(Hands, standing))
    thread = hub.spawn(member.keep_lease)
    try:
        yield member
    finally:
        hub.kill(thread)
        engine.close()


def test_a_record_whose_first_answer_was_lost_is_kept_up_to_date(etcd: PrivateEtcd) -> None:
    reader, standing = Engine(parse(etcd.address())), Standing()

    def versions() -> list[int]:
        member.mirror.apply(reader.read())
        return [record.version for record in member.mirror.members.values()]

    with keeping_its_lease(Forgetful(parse(etcd.address())), standing) as member:
        eventually(versions, [1], sleep=hub.sleep)
        standing.version = 7
        eventually(versions, [7], sleep=hub.sleep)
    reader.close()
