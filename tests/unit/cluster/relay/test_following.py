"""What a relay makes of the engine's keys."""

import logging

import pytest

from sopa_ryu.cluster import records
from sopa_ryu.cluster.gateway import Contents, Kept
from sopa_ryu.cluster.relay.following import Following, News
from topologies import FatTree

CHARTER = records.write(records.Charter(records.FORMAT, FatTree(4).document(), "option"))


class Engine:
    def __init__(self, name: str) -> None:
        self.following, self._revision = Following(name), 1

    def put(self, **values: str | None) -> News:
        self._revision = now = self._revision + 1
        kept = {key: None if value is None else Kept(value, now, now, 0) for key, value in values.items()}
        return self.following.take(Contents(now, kept))


def view(term: int, version: int, *failed: str) -> str:
    return records.write(records.CommittedView(term, version, dict.fromkeys(failed, "down")))


@pytest.fixture
def engine() -> Engine:
    its = Engine("fabric-b")
    assert its.put(charter=CHARTER) == News(fabric=True)
    return its


def test_a_view_is_taken_with_the_clusters_name(engine: Engine) -> None:
    assert engine.put(view=view(5, 1, "a0_0-c0_1")) == News(view=True)
    its = engine.following
    assert its.view is not None
    assert its.view[:2] == (5, 1)
    assert (dict(its.view.failures), its.view.cluster) == ({"a0_0-c0_1": "down"}, "fabric-b")
    assert (its.tree, its.carrier) == (FatTree(4), "option")


def test_a_view_before_the_charter_waits_for_it() -> None:
    its = Engine("sopa")
    assert its.put(view=view(5, 1)) == News()
    assert its.put(charter=CHARTER) == News(fabric=True, view=True)


@pytest.mark.parametrize("lower", [(4, 9), (5, 1), (5, 2)])
def test_a_lower_view_is_never_taken(engine: Engine, lower: tuple[int, int], caplog: pytest.LogCaptureFixture) -> None:
    engine.put(view=view(5, 2))
    assert engine.put(view=view(*lower, "a0_0-c0_1")) == News()
    assert engine.following.refused == 1
    assert "it is not taken; agents keep the later one" in caplog.text
    assert engine.put(view=view(6, 1)) == News(view=True)  # a higher term may count from anywhere


def test_the_same_view_again_is_no_news(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.put(view=view(5, 2, "a0_0-c0_1"))
    assert engine.put(view=None) == News()  # data lost: the last view goes on being sent
    assert engine.put(view=view(5, 2, "a0_0-c0_1")) == News()
    assert engine.following.refused == 0
    assert caplog.text == ""


def test_a_view_of_another_fabric_is_not_taken(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    engine.put(view=view(5, 1))
    other = records.write(records.Charter(records.FORMAT, FatTree(6).document(), "mac"))
    assert engine.put(charter=other, view=view(5, 2)) == News()
    assert "describes another fabric than before" in caplog.text
    assert engine.put(charter=CHARTER) == News(view=True)
    assert engine.following.tree == FatTree(4)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("charter", "[]", "the key charter is not as SOPA writes it"),
        ("charter", CHARTER.replace('"format":1', '"format":2'), "has format 2"),
        ("charter", CHARTER.replace('"pods":4', '"pods":0'), "describes no fabric"),
        ("view", "nothing", "the key view is not as SOPA writes it"),
        ("view", view(5, 1, "a9_9"), "names what the fabric does not have"),
        ("leader", "{}", "the key leader is not as SOPA writes it"),
    ],
)
def test_what_is_malformed_is_said_once_alone(
    key: str, value: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    its = Engine("sopa")
    if key != "charter":
        its.put(charter=CHARTER)
    assert its.put(**{key: value}) == its.put(**{key: value}) == News()
    assert caplog.text.count(said) == 1
    assert its.following.view is None


def test_controllers_are_the_leader_and_then_the_members(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sopa.relay")

    def member(name: str) -> str:
        return records.write(records.MemberRecord(name, f"http://{name}", "0.1.0", 1, "standby", 5, 1, 0, 0, ""))

    engine.put(**{"members/m1": member("m1"), "members/m2": member("m2")})
    assert engine.following.controllers == ["http://m1", "http://m2"]
    assert engine.put(leader=records.write(records.Leader("m2", 5, "http://m2"))) == News(leader=True)
    assert engine.following.controllers == ["http://m2", "http://m1"]
    assert engine.put(leader=None) == News(leader=True)
    assert (engine.following.leader, engine.following.controllers) == (None, ["http://m1", "http://m2"])
    assert "leader is away" in caplog.text
