"""The messages of the feed: the whole state of a fabric, in lists of bounded length."""

import json
from array import array
from types import SimpleNamespace
from typing import Any

from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.fabric.commitment import Commitment
from sopa_ryu.fabric.management import GRACE_SECONDS
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.health import wire
from sopa_ryu.runtime import clock
from sopa_ryu.web.picture import MAX_LISTED, Picture
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from tests.web.loaded_fabric import CAPACITY, LoadedFabric, healthy_state
from topologies import Clos, FatTree, Host, Level, Reason, Switch


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


def test_a_message_says_who_leads_the_cluster() -> None:
    fabric = LoadedFabric(4)
    assert "cluster" not in Picture(fabric).message()
    fabric.cluster = StubCluster("c2")
    assert Picture(fabric).message()["cluster"] == {
        "role": "standby",
        "term": 1_790_000_000_000,
        "leader": "c2",
        "away": [],
        "engine": True,
    }
    assert Picture(fabric).message()["agents"]["relayed"] == 16


def test_a_standbys_message_has_the_switches_that_it_hears_and_agents_of_relays_are_drawn() -> None:
    fabric = LoadedFabric(4)
    fabric.cluster = StubCluster("c2")
    fabric.state.connected.clear()  # as at a standby, to which no switch confirms rules
    assert Picture(fabric).message()["connected"] == 0
    fabric.state.commitment = Commitment("sopa")
    told = Picture(fabric).message()
    assert (told["connected"], told["missing"]) == (20, [])
    relay, host = Relayed("r1", "192.0.2.31", object()), next(iter(fabric.state.tree.hosts()))
    fabric.notifier.probe_lists.relays(relay, {host})
    assert Picture(fabric).message()["agents"]["hosts"] == "1" + "0" * 15


def test_a_message_says_who_grants_slots() -> None:
    fabric = LoadedFabric(4)
    assert "arbiter" not in Picture(fabric).message()
    session, _ = fabric.arbiter.enter("192.0.2.5", object(), 1)
    report = {"type": "ack", "epoch": 1, "version": 1, "report": {"participants": 3, "load": 0.25}}
    fabric.arbiter.received(session, json.dumps(report), 1)
    told = Picture(fabric).message()["arbiter"]
    assert (told["connected"], told["peer"]) == (True, "192.0.2.5")
    assert told["reports"] == {"participants": 3, "load": 0.25}


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


def test_a_message_has_the_numbers_of_any_fabric_and_its_exceptions() -> None:
    plain = Picture(LoadedFabric(4)).message()["fabric"]
    numbers = {"pods": 4, "edges": 2, "aggregations": 2, "cores": 4, "hosts_per_edge": 2}
    nothing: dict[str, Any] = {"mbit": {}, "absent": [], "rates": {}, "gateways": [], "no_label": []}
    totals = {f"{key}_total": 0 for key in ("absent", "rates", "gateways", "no_label")}
    assert plain == {**numbers, **nothing, **totals}
    uneven = Clos(
        *(1, 4, 2, 0, 2),
        mbit={"host": 1000, "edge": 10000},
        links={"e0_3-a0_1": "absent", "e0_0-a0_1": 2500},
        gateways=["h0_3_2"],
        no_label=["h0_0_3"],
    )
    told = json.loads(json.dumps(Picture(LoadedFabric(uneven)).message()))
    assert (told["k"], told["fabric"]["pods"], told["fabric"]["cores"]) == (None, 1, 0)
    assert told["fabric"]["mbit"] == {"host": 1000, "edge": 10000}
    assert (told["fabric"]["absent"], told["fabric"]["rates"]) == (["e0_3-a0_1"], {"e0_0-a0_1": 2500})
    assert (told["fabric"]["gateways"], told["fabric"]["no_label"]) == (["h0_3_2"], ["h0_0_3"])
    links = list(uneven.links())
    assert len(told["links"]) == len(links) == 8 + 7
    capacities = {uneven.name(link): each and each[2] for link, each in zip(links, told["links"], strict=True)}
    assert (capacities["e0_0-a0_0"], capacities["e0_0-a0_1"]) == (10e9, 2.5e9)


def test_a_large_fabric_of_few_pods_is_told_switch_by_switch() -> None:
    absent = {f"e0_{leaf}-a0_{spine}": "absent" for leaf in range(100) for spine in range(3)}
    tree = Clos(pods=1, edges=200, aggregations=8, cores=0, hosts=48, links=absent)
    fabric = LoadedFabric(tree)
    state = fabric.state
    state.drain(["e0_0-a0_3", "e0_0-a0_4"], 1)
    state.port_changed(tree.switch("e0_7"), 1, Reason.DOWN, 1)  # towards h0_7_2
    told = Picture(fabric).message()
    assert (len(told["pods"]), told["pods"][0]["drained"]) == (1, 2)
    its = {each["name"]: each for each in told["switch_summaries"]}
    assert len(its) == 208
    assert its["e0_0"] == {"name": "e0_0", "failed": 0, "drained": 2, "miswired": 0, "peak": 0.988}
    assert its["a0_4"]["drained"] == 1
    assert its["a0_2"]["peak"] == round(2.9 / 8, 3)
    assert sum(each["failed"] for each in its.values()) == told["pods"][0]["failed"]
    assert (len(told["fabric"]["absent"]), told["fabric"]["absent_total"]) == (MAX_LISTED, 300)
    assert len(json.dumps(told)) < 64_000
    # a fabric of more switches, or of more pods, is summarized by pods only
    for numbers in ((1, 255, 254, 254 * 8, 4), (8, 40, 8, 64, 16)):
        assert "switch_summaries" not in Picture(LoadedFabric(Clos(*numbers))).message()


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


def test_the_message_has_what_probes_say_of_links() -> None:
    fabric = StubFabric(FabricState(FatTree(4), 1, settled=True))
    assert Picture(fabric).message()["health"] == {"suspects": [], "suspects_total": 0, "links": None}
    its = fabric.health
    loss = array("f", [0.0] * 64)
    loss[3] = 0.25
    suspect = {"link": 3, "down": False, "loss": 0.25, "confidence": 1.0, "hosts": 5}
    for _ in range(2):  # what one evaluation says is not enough
        about = {"suspects": [suspect], "forged": {}, "plan": {}}
        its._follow(wire.read_health(wire.health(about, loss.tobytes(), loss[:32].tobytes())[wire.HEADER.size :]))
    health = Picture(fabric).message()["health"]
    assert health["suspects"] == [{"name": "e0_1-a0_1", "text": "25.00% lost upwards, by 5 hosts"}]
    assert health["links"][3] == [0.25, 0.0, 0.2]
    assert health["links"][4] == [0.0, 0.0, 0.0]
