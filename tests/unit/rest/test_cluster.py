"""The REST interface of a cluster's member: what it tells of the cluster, and what it leaves to the leader."""

from pathlib import Path
from typing import Any

import pytest
from webob import Request, dec

from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.rest.cluster import UndecidedError
from sopa_ryu.rest.controller_metrics import ControllerMetrics
from sopa_ryu.southbound.port_stats import PortStatsPoller
from tests.helpers.rest import Rest, refused
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import FatTree

WRITES = [
    ("PUT", "drains/c0_0", b""),
    ("DELETE", "drains/c0_0", b""),
    ("POST", "traces", {"src": "h0_0_2", "dst": "h2_1_3"}),
    ("DELETE", "traces/7", b""),
    ("POST", "cluster/step-down", b""),
]
CHANNELS = ["agents/10.0.0.2?carrier=mac", "arbiter"]


def member_of(directory: Path, cluster: StubCluster | None) -> Rest:
    """Return a member's REST interface."""
    its = Rest(directory)
    its.fabric.cluster = cluster
    return its


def valid(member: Rest, path: str, schema: str) -> Any:
    body = member.get(path).json
    member.check(body, schema)
    return body


def test_the_cluster_is_as_the_contract_says(tmp_path: Path) -> None:
    body = valid(member_of(tmp_path, StubCluster()), "cluster", "Cluster")
    assert list(body) == ["name", "term", "leader", "members", "relays", "engine"]
    told = [(one["name"], one["role"], one["lag"]) for one in body["members"]]
    assert told == [("c1", "leader", 0), ("c2", "standby", 2), ("c3", "standby", 2)]


@pytest.mark.parametrize(("leader", "role"), [("c1", "leader"), ("c2", "standby"), (None, "standby")])
def test_the_fabric_says_who_leads(tmp_path: Path, leader: str | None, role: str) -> None:
    body = valid(member_of(tmp_path, StubCluster(leader)), "fabric", "Fabric")
    assert body["cluster"] == {"role": role, "term": 1_790_000_000_000, "leader": leader}


def test_agents_of_relays_are_counted_and_their_hosts_have_one(tmp_path: Path) -> None:
    member = member_of(tmp_path, StubCluster())
    body = valid(member, "agents", "Agents")
    assert (body["total"], body["relays"]) == (0, member.get("cluster").json["relays"])
    hosts = list(member.state.tree.hosts())
    member.fabric.notifier.probe_lists.relays(Relayed("r1", "192.0.2.31", object()), set(hosts[3:5]))
    found = valid(member, "hosts", "Hosts")["hosts"]
    assert [host["agent"] for host in found] == [3 <= place < 5 for place in range(16)]


def test_without_a_cluster_everything_is_as_before_and_says_why_there_is_none(tmp_path: Path) -> None:
    member = member_of(tmp_path, None)
    assert "cluster" not in valid(member, "fabric", "Fabric")
    assert "relays" not in valid(member, "agents", "Agents")
    for answer in (member.get("cluster"), member.ask("POST", "cluster/step-down")):
        refused(answer, 404, "started without --sopa-cluster")
    assert member.ask("PUT", "drains/c0_0").json["drains"] == ["c0_0"]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_standby_leaves_every_change_to_the_leader(tmp_path: Path, method: str, path: str, body: Any) -> None:
    cluster = StubCluster("c2")
    member = member_of(tmp_path, cluster)
    answer = member.ask(method, f"{path}?a=b%20c", body)
    refused(answer, 307, "http://192.0.2.2:8080")
    assert answer.headers["Location"] == f"http://192.0.2.2:8080/sopa/v1/{path}?a=b%20c"
    refused(member.ask(method, path, body, authorization="Bearer wrong"), 401)
    cluster.leader = None
    answer = member.ask(method, path, body)
    refused(answer, 503, "no member leads")
    assert answer.headers["Retry-After"] == "1"
    assert (member.state.drained, cluster.stepped_down) == (frozenset(), 0)


def test_all_operations_that_change_something_are_among_them(tmp_path: Path) -> None:
    its = [one for one in member_of(tmp_path, None).application.operations if one.method != "GET"]
    assert all(one.token for one in its)
    written = {(way, path.replace("/c0_0", "/{name}").replace("/7", "/{trace}")) for way, path, _ in WRITES}
    assert {(one.method, one.path.removeprefix("/sopa/v1/")) for one in its} == written


def test_a_standby_answers_reads(tmp_path: Path) -> None:
    member = member_of(tmp_path, StubCluster("c2"))
    for path in ("fabric", "cluster", "failures", "links", "drains", "agents", "paths?src=h0_0_2&dst=h2_1_3"):
        assert member.get(path).status_int == 200


@pytest.mark.parametrize("path", CHANNELS)
def test_a_standby_rejects_channels_and_names_the_leader_who_takes_them(tmp_path: Path, path: str) -> None:
    cluster = StubCluster("c3")
    member = member_of(tmp_path, cluster)
    refused(member.ask("GET", path, authorization="Bearer wrong", Upgrade="websocket"), 401)
    for leader, url, text in (
        ("c3", "http://192.0.2.3:8080", "this controller stands by: the leader is at http://192.0.2.3:8080"),
        (None, "", "this controller stands by: no member leads the cluster now"),
    ):
        cluster.leader = leader
        answer = member.ask("GET", path, Upgrade="websocket")
        refused(answer, 409, text)
        assert answer.headers[LEADER_HEADER] == url
    cluster.leader = "c1"
    for notifier in (member.fabric.notifier, member.fabric.arbiter):
        notifier.depose(True)  # its answer shows that the claim has got there
    answer = member.ask("GET", path, Upgrade="websocket")
    refused(answer, 409, "another controller is the switches' master")
    assert LEADER_HEADER not in answer.headers


def test_the_leader_steps_down_when_told(tmp_path: Path) -> None:
    cluster = StubCluster()
    member = member_of(tmp_path, cluster)
    answer = member.ask("POST", "cluster/step-down")
    assert (answer.status_int, answer.json["leader"]) == (202, None)
    assert "Location" not in answer.headers
    assert cluster.stepped_down == 1
    assert member.ask("POST", "cluster/step-down").status_int == 503
    refused(member.get("cluster/step-down"), 405)


def test_a_leader_that_has_just_been_deposed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_its: StubCluster) -> None:
        raise UndecidedError("this member does not lead any more")

    monkeypatch.setattr(StubCluster, "step_down", refuse)
    refused(member_of(tmp_path, StubCluster()).ask("POST", "cluster/step-down"), 503, "does not lead any more")


def test_a_drain_that_the_engine_does_not_take_is_503(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_its: object) -> None:
        raise UndecidedError("the engine does not answer")

    monkeypatch.setattr(StubFabric, "set_drained", refuse)
    answer = member_of(tmp_path, StubCluster()).ask("PUT", "drains/c0_0")
    refused(answer, 503, "nothing has changed: the engine does not answer; try again")
    assert answer.headers["Retry-After"] == "1"


# -- metrics ----------------------------------------------------------------------------------------------------------


def scraped(cluster: StubCluster | None, commits: int = 0) -> dict[str, float]:
    state = FabricState(FatTree(4), epoch=1)
    notifier, poller = StubFabric(state).notifier, PortStatsPoller(state, {}, 0)
    metrics = ControllerMetrics(state, SwitchManager(state), notifier, poller, "mac", cluster=cluster)
    for _ in range(commits):
        assert metrics.committed is not None
        metrics.committed.observe(0.004)
    text = Request.blank("/metrics").get_response(dec.wsgify(metrics.page)).text
    samples = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("sopa_cluster_"))
    return {name: float(value) for name, value in samples}


def test_metrics_tell_of_the_cluster() -> None:
    cluster = StubCluster("c2")
    cluster.away.add("c3")
    found = scraped(cluster, commits=3)
    assert {
        "sopa_cluster_leader": 0,
        "sopa_cluster_has_leader": 1,
        "sopa_cluster_term": 1_790_000_000_000,
        "sopa_cluster_engine_reachable": 1,
        **{f'sopa_cluster_members{{role="{role}"}}': 1 for role in ("leader", "standby", "away")},
        'sopa_cluster_member_lag_versions{member="c1"}': 2,
        "sopa_cluster_relays": 1,
        "sopa_cluster_relay_agents": 16,
        "sopa_cluster_commit_seconds_count": 3,
    }.items() <= found.items()
    assert 'sopa_cluster_member_lag_versions{member="c3"}' not in found
    cluster.leader, cluster.engine = None, {"reachable": False, "problem": "no quorum"}
    found = scraped(cluster)
    assert (found["sopa_cluster_has_leader"], found["sopa_cluster_engine_reachable"]) == (0, 0)
    assert scraped(None) == {}
