"""The messages of the feed: the whole state of a fabric, in lists of bounded length."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from sopa_ryu.fabric.management import GRACE_SECONDS
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.runtime import clock
from sopa_ryu.web.picture import MAX_LISTED, Picture
from tests.helpers.stub_fabric import StubFabric
from tests.web.stub import CAPACITY, LoadedFabric, healthy_state
from topologies import Host, Level, Reason, Switch


def die(state: FabricState, switch: Switch) -> None:
    """Let a switch lose its channel, and all its links the carrier."""
    tree = state.tree
    for neighbour in tree.ports(switch).values():
        if isinstance(neighbour, Switch):
            state.port_changed(neighbour, tree.port(neighbour, switch), Reason.DOWN, 1)
    lose(state, switch)


def lose(state: FabricState, *switches: Switch) -> None:
    """Let switches lose their channels, as `SwitchManager.disconnected` reports it."""
    for switch in switches:
        state.management.lost(switch, 2)
        state.switch_lost(switch, 2)


def test_a_message_has_the_whole_state() -> None:
    fabric = LoadedFabric(4)
    state, tree = fabric.state, fabric.state.tree
    die(state, tree.switch("c1_1"))
    state.drain(["a0_0-c0_0"], 1)
    state.reject(7, "no switch of ours")
    told = json.loads(json.dumps(Picture(fabric).message()))
    assert (told["k"], told["version"], told["epoch"], told["settled"]) == (4, state.version, 1, True)
    assert (told["connected"], told["switches"], told["missing"]) == (19, 20, ["c1_1"])
    assert [(each["name"], each["kind"], each["reason"]) for each in told["failures"]] == [
        ("a0_0-c0_0", "link", "drained"),
        ("c1_1", "switch", "down"),
    ]
    assert told["drains"] == ["a0_0-c0_0"]
    assert told["rejected"] == [{"dpid": "0000000000000007", "reason": "no switch of ours"}]
    assert told["agents"] == {"connected": 0, "behind": 0, "lagging": [], "lagging_total": 0, "hosts": "0" * 16}
    links = list(tree.links())
    assert len(told["links"]) == len(links) == 48
    for link, traffic in zip(links, told["links"], strict=True):
        if isinstance(link.lower, Host):
            assert traffic is None
        else:
            assert traffic == [round((link.upper.index + 0.9) / 2 * CAPACITY), 1000, CAPACITY]


def test_rates_that_are_not_known_cost_nothing() -> None:
    picture = Picture(StubFabric(healthy_state(16)))
    assert picture.message()["links"] is None
    assert len(json.dumps(picture.message())) < 4000


def test_a_large_fabric_is_told_pod_by_pod_and_bounded() -> None:
    fabric = LoadedFabric(24, absent=lambda switch: bool(switch.pod % 2))
    fabric.state.drain([f"a0_0-c0_{index}" for index in range(3)], 1)
    told = Picture(fabric).message()
    assert "links" not in told
    assert len(told["pods"]) == 24
    assert told["pods"][0]["drained"] == 3
    assert told["pods"][1]["failed"] == 24  # a new fabric: what has not connected has no rules
    assert told["pods"][2] == {"failed": 0, "drained": 0, "miswired": 0, "peak": round(11.9 / 12, 3)}
    assert len(told["failures"]) == len(told["missing"]) == MAX_LISTED
    assert told["failures_total"] == told["missing_total"] + 3
    assert len(json.dumps(told)) < 64_000


def test_lost_channels_are_missing_and_only_evidence_fails() -> None:
    """Nine pods lose their channels together; of pods 1 and 3 every core switch reports the links silent."""
    fabric = LoadedFabric(24)
    state, tree, picture = fabric.state, fabric.state.tree, Picture(fabric)
    for core in tree.switches(Level.CORE):
        for pod in (1, 3):
            state.port_changed(core, pod + 1, Reason.SILENT, 1)
    lose(state, *(switch for switch in tree.switches() if switch.level is not Level.CORE and switch.pod < 9))
    links, aggregation = tree.half**2, tree.half

    def told(*failed: int) -> dict[str, Any]:
        now = picture.message()
        assert (now["missing_total"], len(now["missing"])) == (9 * tree.k, MAX_LISTED)
        assert [pod["failed"] for pod in now["pods"]] == [*failed, *[0] * (tree.k - len(failed))]
        assert now["failures_total"] == sum(failed)
        assert len(now["failures"]) == min(sum(failed), MAX_LISTED)
        return now

    assert state.management.in_grace
    # no switch is excluded meanwhile, but every link that a neighbour reports is
    assert {each["reason"] for each in told(0, links, 0, links)["failures"]} == {"silent"}
    state.tick(2 + GRACE_SECONDS)
    # edge switches have no neighbour with a channel, so nothing is known of them: their paths end at the aggregation switches
    failures = told(0, aggregation, 0, aggregation)["failures"]
    assert {(each["kind"], each["reason"], each["name"][0]) for each in failures} == {("switch", "down", "a")}


def test_agents_that_lag_are_named_the_latest_first() -> None:
    fabric = LoadedFabric(4)
    now = clock.now()

    def session(acknowledged: int, since: float | None) -> Any:
        return SimpleNamespace(acknowledged=acknowledged, behind_since=lambda: since)

    hosts = list(fabric.state.tree.hosts())
    fabric.notifier.sessions |= {
        hosts[0]: session(fabric.state.version, None),
        hosts[1]: session(0, now - 5),
        hosts[2]: session(0, now - 0.1),  # its version was sent only just now
        hosts[3]: session(0, now - 9),
    }
    fabric.notifier.tell = lambda session, version, now: {"since": session.behind_since()}  # type: ignore[method-assign,assignment,return-value]
    agents = Picture(fabric).message()["agents"]
    assert (agents["connected"], agents["behind"], agents["lagging_total"]) == (4, 3, 2)
    assert agents["lagging"] == [{"since": now - 9}, {"since": now - 5}]
    assert agents["hosts"] == "1111" + "0" * 12
