"""The REST interface of a cluster's member: what it tells of the cluster, and what it leaves to the leader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from webob import Request, Response, dec

from sopa_ryu.channel.agent_channel import AgentChannel, ArbiterChannel
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.protocol import LEADER_HEADER
from sopa_ryu.channel.relayed import Relayed
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_manager import SwitchManager
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.cluster import UndecidedError
from sopa_ryu.rest.controller_metrics import ControllerMetrics
from sopa_ryu.rest.schemas import SCHEMAS
from sopa_ryu.southbound.port_stats import PortStatsPoller
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import FatTree

TRACE = json.dumps({"src": "h0_0_2", "dst": "h2_1_3"}).encode()
WRITES = [
    ("PUT", "/sopa/v1/drains/c0_0", b""),
    ("DELETE", "/sopa/v1/drains/c0_0", b""),
    ("POST", "/sopa/v1/traces", TRACE),
    ("DELETE", "/sopa/v1/traces/7", b""),
    ("POST", "/sopa/v1/cluster/step-down", b""),
]
CHANNELS = ["/sopa/v1/agents/10.0.0.2?carrier=mac", "/sopa/v1/arbiter"]


class Fabric(StubFabric):
    """A fabric whose drains the engine may refuse."""

    problem = ""

    def set_drained(self, name: str, drained: bool) -> None:
        if self.problem:
            raise UndecidedError(self.problem)
        super().set_drained(name, drained)


class Member:
    """A member's REST interface, and requests to it."""

    def __init__(self, directory: Path, cluster: StubCluster | None) -> None:
        state = FabricState(FatTree(4), epoch=1)
        state.settle(0)
        self.fabric = Fabric(state)
        self.fabric.cluster = cluster
        agents, arbiter = AgentChannel(self.fabric.notifier, lambda version: None), ArbiterChannel(self.fabric.arbiter)
        self.rest = RestApplication(self.fabric, Tokens(directory), agents.serve, arbiter=arbiter.attend)
        self._token = (directory / "token").read_text().strip()

    def ask(self, method: str, path: str, body: bytes = b"", token: str | None = None, **headers: str) -> Response:
        headers["Authorization"] = f"Bearer {self._token if token is None else token}"
        request = Request.blank(path, method=method, headers=headers, body=body, environ={"REMOTE_ADDR": "192.0.2.9"})
        return request.get_response(self.rest)

    def valid(self, path: str, schema: str) -> Any:
        body = self.ask("GET", path).json
        everything = {"$id": "urn:sopa", "components": {"schemas": SCHEMAS}}
        registry: Any = Registry().with_resource("urn:sopa", DRAFT202012.create_resource(everything))
        Draft202012Validator({"$ref": f"urn:sopa#/components/schemas/{schema}"}, registry=registry).validate(body)
        return body


def test_the_cluster_is_as_the_contract_says(tmp_path: Path) -> None:
    member = Member(tmp_path, StubCluster())
    body = member.valid("/sopa/v1/cluster", "Cluster")
    assert list(body) == ["name", "term", "leader", "members", "relays", "engine"]
    assert [(one["name"], one["role"], one["lag"]) for one in body["members"]] == [
        ("c1", "leader", 0),
        ("c2", "standby", 2),
        ("c3", "standby", 2),
    ]


@pytest.mark.parametrize(("leader", "role"), [("c1", "leader"), ("c2", "standby"), (None, "standby")])
def test_the_fabric_says_who_leads(tmp_path: Path, leader: str | None, role: str) -> None:
    body = Member(tmp_path, StubCluster(leader)).valid("/sopa/v1/fabric", "Fabric")
    assert body["cluster"] == {"role": role, "term": 1_790_000_000_000, "leader": leader}


def test_agents_of_relays_are_counted_and_their_hosts_have_one(tmp_path: Path) -> None:
    member = Member(tmp_path, StubCluster())
    body = member.valid("/sopa/v1/agents", "Agents")
    assert (body["total"], body["relays"]) == (0, member.ask("GET", "/sopa/v1/cluster").json["relays"])
    hosts = list(member.fabric.state.tree.hosts())
    member.fabric.notifier.probe_lists.relays(Relayed("r1", "192.0.2.31", object()), set(hosts[3:5]))
    found = member.valid("/sopa/v1/hosts", "Hosts")["hosts"]
    assert [host["agent"] for host in found] == [3 <= place < 5 for place in range(16)]


def test_without_a_cluster_everything_is_as_before_and_says_why_there_is_none(tmp_path: Path) -> None:
    member = Member(tmp_path, None)
    assert "cluster" not in member.valid("/sopa/v1/fabric", "Fabric")
    assert "relays" not in member.valid("/sopa/v1/agents", "Agents")
    for answer in (member.ask("GET", "/sopa/v1/cluster"), member.ask("POST", "/sopa/v1/cluster/step-down")):
        assert answer.status_int == 404
        assert "started without --sopa-cluster" in answer.json["detail"]
    assert member.ask("PUT", "/sopa/v1/drains/c0_0").json["drains"] == ["c0_0"]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_standby_leaves_every_change_to_the_leader(tmp_path: Path, method: str, path: str, body: bytes) -> None:
    cluster = StubCluster("c2")
    member = Member(tmp_path, cluster)
    answer = member.ask(method, f"{path}?a=b%20c", body)
    assert answer.status_int == 307
    assert answer.headers["Location"] == f"http://192.0.2.2:8080{path}?a=b%20c"
    assert answer.content_type == "application/problem+json"
    assert "http://192.0.2.2:8080" in answer.json["detail"]
    assert member.ask(method, path, body, token="wrong").status_int == 401
    cluster.leader = None
    answer = member.ask(method, path, body)
    assert (answer.status_int, answer.headers["Retry-After"]) == (503, "1")
    assert "no member leads" in answer.json["detail"]
    assert member.fabric.state.drained == frozenset()
    assert cluster.stepped_down == 0


def test_all_operations_that_change_something_are_among_them(tmp_path: Path) -> None:
    its = Member(tmp_path, None).rest.operations
    changing = {(one.method, one.path) for one in its if one.method != "GET"}
    assert all(one.token for one in its if one.method != "GET")
    assert changing == {(way, path.replace("/c0_0", "/{name}").replace("/7", "/{trace}")) for way, path, _ in WRITES}


def test_a_standby_answers_reads(tmp_path: Path) -> None:
    member = Member(tmp_path, StubCluster("c2"))
    for path in ("fabric", "cluster", "failures", "links", "drains", "agents", "paths?src=h0_0_2&dst=h2_1_3"):
        assert member.ask("GET", f"/sopa/v1/{path}").status_int == 200


@pytest.mark.parametrize("path", CHANNELS)
def test_a_standby_rejects_channels_and_names_the_leader(tmp_path: Path, path: str) -> None:
    cluster = StubCluster("c3")
    member = Member(tmp_path, cluster)
    answer = member.ask("GET", path, Upgrade="websocket")
    assert answer.status_int == 409
    assert answer.json["detail"] == "this controller stands by: the leader is at http://192.0.2.3:8080"
    assert answer.headers[LEADER_HEADER] == "http://192.0.2.3:8080"
    assert member.ask("GET", path, token="wrong", Upgrade="websocket").status_int == 401
    cluster.leader = None
    answer = member.ask("GET", path, Upgrade="websocket")
    assert answer.json["detail"] == "this controller stands by: no member leads the cluster now"
    assert answer.headers[LEADER_HEADER] == ""


@pytest.mark.parametrize("path", CHANNELS)
def test_a_leader_takes_channels_as_ever(tmp_path: Path, path: str) -> None:
    member = Member(tmp_path, StubCluster("c1"))
    for notifier in (member.fabric.notifier, member.fabric.arbiter):
        assert isinstance(notifier, Notifier)
        notifier.depose(True)  # its answer shows that the claim has got there
    answer = member.ask("GET", path, Upgrade="websocket")
    assert answer.status_int == 409
    assert LEADER_HEADER not in answer.headers
    assert "another controller is the switches' master" in answer.json["detail"]


def test_the_leader_steps_down_when_told(tmp_path: Path) -> None:
    cluster = StubCluster()
    member = Member(tmp_path, cluster)
    answer = member.ask("POST", "/sopa/v1/cluster/step-down")
    assert answer.status_int == 202
    assert answer.json["leader"] is None
    assert "Location" not in answer.headers
    assert cluster.stepped_down == 1
    assert member.ask("POST", "/sopa/v1/cluster/step-down").status_int == 503
    assert member.ask("GET", "/sopa/v1/cluster/step-down").status_int == 405


def test_a_leader_that_has_just_been_deposed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StubCluster, "is_leader", True)
    answer = Member(tmp_path, StubCluster("c1")).ask("POST", "/sopa/v1/cluster/step-down")
    assert answer.status_int == 202
    monkeypatch.setattr(StubCluster, "step_down", _refuse)
    answer = Member(tmp_path, StubCluster("c1")).ask("POST", "/sopa/v1/cluster/step-down")
    assert answer.status_int == 503
    assert "does not lead any more" in answer.json["detail"]


def _refuse(_its: StubCluster) -> None:
    raise UndecidedError("this member does not lead any more")


def test_a_drain_that_the_engine_does_not_take_is_503(tmp_path: Path) -> None:
    member = Member(tmp_path, StubCluster())
    member.fabric.problem = "the engine does not answer"
    answer = member.ask("PUT", "/sopa/v1/drains/c0_0")
    assert (answer.status_int, answer.headers["Retry-After"]) == (503, "1")
    assert answer.json["detail"] == "nothing has changed: the engine does not answer; try again"


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
    assert found["sopa_cluster_leader"] == 0
    assert found["sopa_cluster_has_leader"] == 1
    assert found["sopa_cluster_term"] == 1_790_000_000_000
    assert found["sopa_cluster_engine_reachable"] == 1
    assert {role: found[f'sopa_cluster_members{{role="{role}"}}'] for role in ("leader", "standby", "away")} == {
        "leader": 1,
        "standby": 1,
        "away": 1,
    }
    assert found['sopa_cluster_member_lag_versions{member="c1"}'] == 2
    assert 'sopa_cluster_member_lag_versions{member="c3"}' not in found
    assert found["sopa_cluster_relays"] == 1
    assert found["sopa_cluster_relay_agents"] == 16
    assert found["sopa_cluster_commit_seconds_count"] == 3
    cluster.leader, cluster.engine = None, {"reachable": False, "problem": "no quorum"}
    found = scraped(cluster)
    assert (found["sopa_cluster_has_leader"], found["sopa_cluster_engine_reachable"]) == (0, 0)


def test_metrics_have_nothing_of_a_cluster_without_one() -> None:
    assert scraped(None) == {}
