"""The REST interface, request by request, without a server: contracts of docs/architecture.md, section 7."""

import json
import os
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, cast

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from webob import Request, Response

from flowrules.switch_rules import switch_rules
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel.agent_channel import AgentChannel, ArbiterChannel
from sopa_ryu.channel.host_tokens import arbiter_token, host_token
from sopa_ryu.fabric.drains import Drains
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.switch_errors import SwitchError
from sopa_ryu.health.history import CELL, SECONDS, History
from sopa_ryu.rest.access import TokenError, Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.runtime import clock
from sopa_ryu.southbound import rule_audit
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import FatTree, Level, Switch
from topologies.failures import Reason


class Fabric(StubFabric):
    """A state whose drains are stored, and whose core switches are not connected."""

    def __init__(self, state: FabricState, directory: Path) -> None:
        super().__init__(state)
        self.drains = Drains(directory, state.tree, state.drainable)

    def set_drained(self, name: str, drained: bool) -> None:
        self.state.drain(self.drains.add(name) if drained else self.drains.remove(name), 1)

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        if switch.level is Level.CORE:
            raise SwitchError("it is not connected")
        wanted = switch_rules(self.state.tree, switch)
        return rule_audit.rules(self.state.tree.name(switch), wanted, self.state.version, 0, [], {})


@pytest.fixture
def state() -> FabricState:
    state = FabricState(FatTree(4), epoch=1)
    for switch in state.tree.switches():
        state.switch_heard(switch, {}, 0)
    state.settle(0)
    return state


@pytest.fixture
def rest(state: FabricState, tmp_path: Path) -> RestApplication:
    fabric = Fabric(state, tmp_path)
    return RestApplication(fabric, Tokens(tmp_path), AgentChannel(fabric.notifier, lambda version: None).serve)


def change(rest: RestApplication, path: str, method: str, **headers: str) -> Response:
    """A PUT or DELETE with the operators' token."""
    token = (rest._tokens.directory / "token").read_text().strip()
    return Request.blank(path, method=method, headers={"Authorization": f"Bearer {token}", **headers}).get_response(
        rest
    )


def get(rest: RestApplication, path: str, **options: Any) -> Response:
    return Request.blank(path, **options).get_response(rest)


def problem(response: Response) -> dict[str, Any]:
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = json.loads(response.body)
    assert body["status"] == response.status_int
    assert set(body) == {"type", "title", "status", "detail"}
    return body


def test_fabric_has_the_contracts_fields(rest: RestApplication) -> None:
    response = get(rest, "/sopa/v1/fabric")
    assert response.content_type == "application/json"
    body = response.json
    assert body["k"] == 4
    assert body["hosts"] == 16
    assert body["switches"] == {"edge": 8, "aggregation": 8, "core": 4}
    assert body["connected"] == 0
    assert body["version"] == 1
    assert body["failures"] == []
    assert len(body["missing"]) == 20


def test_paths_has_the_contracts_fields(rest: RestApplication) -> None:
    body = get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    assert list(body) == ["src", "dst", "kind", "version", "total", "candidates", "excluded"]
    assert (body["src"], body["dst"], body["kind"], body["total"]) == ("10.0.0.2", "10.2.0.3", "inter-pod", 4)
    assert body["candidates"][2] == {
        "up": [0, 1],
        "option": "9e040001",
        "hops": ["e0_0", "a0_0", "c0_1", "a2_0", "e2_0"],
        "weight": 0.25,
    }


@pytest.mark.parametrize(
    ("dst", "kind", "candidates"),
    [
        (
            "10.0.1.2",
            "inter-rack",
            [{"up": [n], "option": f"9e040{n}ff", "hops": ["e0_0", f"a0_{n}", "e0_1"], "weight": 0.5} for n in (0, 1)],
        ),
        ("10.0.0.3", "intra-rack", [{"up": [], "option": "9e04ffff", "hops": ["e0_0"], "weight": 1.0}]),
    ],
)
def test_shorter_paths_have_fewer_hops(rest: RestApplication, dst: str, kind: str, candidates: list[Any]) -> None:
    body = get(rest, f"/sopa/v1/paths?src=10.0.0.2&dst={dst}").json
    assert (body["kind"], body["candidates"]) == (kind, candidates)


def test_a_failure_excludes_paths_with_its_reason(rest: RestApplication, state: FabricState) -> None:
    assert state.port_changed(state.tree.switch("a0_0"), 4, Reason.DOWN, 1)
    body = get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    assert [path["up"] for path in body["candidates"]] == [[0, 0], [1, 0], [1, 1]]
    assert body["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 down"}]
    assert sum(path["weight"] for path in body["candidates"]) == pytest.approx(1)
    assert (body["total"], body["version"]) == (4, 2)


@pytest.mark.parametrize(
    "query",
    ["", "?src=10.0.0.2", "?dst=10.0.0.2", "?src=&dst=10.0.0.2", "?src=10.0.0.2&dst=banana", "?src=10.0.0&dst=10.0.0.2",
     "?src=10.0.0.2&dst=10.0.0.2.3", "?src=::1&dst=10.0.0.2", "?src=10.0.0.256&dst=10.0.0.2", "?src=%00&dst=10.0.0.2"],
)  # fmt: skip
def test_a_malformed_or_missing_address_is_a_bad_request(rest: RestApplication, query: str) -> None:
    response = get(rest, "/sopa/v1/paths" + query)
    assert response.status_int == 400
    assert problem(response)["title"] == "Bad Request"


@pytest.mark.parametrize("address", ["10.4.0.2", "10.0.2.2", "10.0.0.1", "10.0.0.4", "192.168.0.1", "0.0.0.0"])
@pytest.mark.parametrize("query", ["?src={}&dst=10.0.0.2", "?src=10.0.0.2&dst={}"])
def test_an_address_outside_the_fabric_is_not_found(rest: RestApplication, query: str, address: str) -> None:
    response = get(rest, "/sopa/v1/paths" + query.format(address))
    assert response.status_int == 404
    assert address in problem(response)["detail"]


@pytest.mark.parametrize("path", ["/", "/sopa/v1", "/sopa/v1/nothing", "/sopa/v1/fabric/x", "/sopa/v1/agents/"])
def test_what_is_not_there_is_a_problem_document(rest: RestApplication, path: str) -> None:
    assert problem(get(rest, path))["status"] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused_and_told_which_there_are(rest: RestApplication, method: str) -> None:
    response = get(rest, "/sopa/v1/fabric", method=method)
    assert problem(response)["status"] == 405
    assert response.headers["Allow"] == "GET, HEAD"


def drained(version: int, *names: str) -> dict[str, Any]:
    return {"version": version, "total": len(names), "offset": 0, "drains": [*names]}


def test_a_drain_takes_a_link_out_of_the_candidate_paths_and_back(rest: RestApplication) -> None:
    assert get(rest, "/sopa/v1/drains").json == {"version": 1, "total": 0, "offset": 0, "drains": []}
    for _ in range(2):  # PUT and DELETE may be repeated
        response = change(rest, "/sopa/v1/drains/a0_0-c0_1", "PUT")
        assert (response.status_int, response.json) == (200, drained(2, "a0_0-c0_1"))
    body = get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    assert body["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 drained"}]
    for _ in range(2):
        assert change(rest, "/sopa/v1/drains/a0_0-c0_1", "DELETE").json == drained(3)
    assert get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json["excluded"] == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    ("name", "status"), [("a0_0-c1_1", 404), ("banana", 404), ("c0_1-a0_0", 404), ("h0_0_2-e0_0", 409)]
)
def test_what_cannot_be_drained_is_refused(
    rest: RestApplication, state: FabricState, method: str, name: str, status: int
) -> None:
    response = change(rest, f"/sopa/v1/drains/{name}", method)
    assert name in problem(response)["detail"]
    assert response.status_int == status
    assert state.version == 1


def test_a_drain_that_cannot_be_kept_is_refused(rest: RestApplication, state: FabricState, tmp_path: Path) -> None:
    (tmp_path / "drains.new").mkdir()
    response = change(rest, "/sopa/v1/drains/c0_0", "PUT")
    assert (problem(response)["status"], state.version) == (507, 1)
    assert "nothing has changed" in problem(response)["detail"]


def test_a_drain_is_put_or_deleted_not_read(rest: RestApplication) -> None:
    assert get(rest, "/sopa/v1/drains/c0_0").headers["Allow"] == "PUT, DELETE"


def test_changes_are_the_versions_the_latest_first(rest: RestApplication) -> None:
    for name in ("c0_0", "c0_1"):
        change(rest, f"/sopa/v1/drains/{name}", "PUT")
    body = get(rest, "/sopa/v1/changes").json
    assert [change["version"] for change in body["changes"]] == [3, 2]
    assert body["changes"][0]["failed"] == {"c0_1": "drained"}


def test_wiring_says_of_every_link_whether_it_is_where_it_should_be(rest: RestApplication) -> None:
    body = get(rest, "/sopa/v1/wiring").json
    assert body["links"] == body["right"] + body["unchecked"] + len(body["problems"]) == 32


def test_agents_says_who_is_there_and_what_was_refused(rest: RestApplication) -> None:
    assert get(rest, "/sopa/v1/agents").json == {
        "version": 1,
        "epoch": 1,
        "behind": 0,
        "refused": {"claims": 0, "messages": 0},
        "total": 0,
        "offset": 0,
        "agents": [],
    }


def test_process_says_what_the_controller_holds(rest: RestApplication) -> None:
    body = get(rest, "/sopa/v1/process").json
    assert body["pid"] == os.getpid()
    assert min(body["memory_mib"], body["open_files"], body["greenlets"]) > 0


@pytest.mark.parametrize(("address", "status"), [("10.0.0.2", 426), ("10.9.0.2", 404), ("banana", 400)])
def test_the_push_channel_is_a_websocket_of_a_host(rest: RestApplication, address: str, status: int) -> None:
    assert problem(get(rest, f"/sopa/v1/agents/{address}"))["status"] == status


def test_an_agent_may_not_ask_for_another_host_than_its_own(rest: RestApplication) -> None:
    token = (rest._tokens.directory / "agent-token").read_text().strip()
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Authorization": f"Bearer {token}"}
    asking = {"headers": headers, "environ": {"REMOTE_ADDR": "10.0.0.3"}}
    response = get(rest, "/sopa/v1/agents/10.0.0.2", **asking)
    assert problem(response)["status"] == 409
    assert "10.0.0.3 is h0_0_3: an agent may only ask for its own host" in problem(response)["detail"]
    assert get(rest, "/sopa/v1/agents").json["refused"] == {"claims": 1, "messages": 0}


def test_an_error_of_our_own_is_a_problem_document_and_in_the_log(
    rest: RestApplication, state: FabricState, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(state, "fabric", broken)
    assert problem(get(rest, "/sopa/v1/fabric"))["status"] == 500
    assert "the cause" in caplog.text


# -- access -------------------------------------------------------------------------------------------------------------


def test_tokens_are_made_at_the_first_start_readable_by_the_owner_only(tmp_path: Path) -> None:
    Tokens(tmp_path)
    kept = {name: (tmp_path / name).read_text() for name in ("token", "agent-token", "agent-secret")}
    assert len({*kept.values()}) == 3
    assert all(len(token.strip()) >= 43 for token in kept.values())
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o600 for name in kept)
    Tokens(tmp_path)
    assert {name: (tmp_path / name).read_text() for name in kept} == kept


@pytest.mark.parametrize(("content", "mode", "problem"), [("x\n", 0o640, "chmod 600"), ("\n", 0o600, "is empty")])
def test_a_token_that_cannot_be_relied_on_is_refused(tmp_path: Path, content: str, mode: int, problem: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(TokenError, match=problem):
        Tokens(tmp_path)


@pytest.mark.parametrize(
    "given", [None, "", "Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {agents}", "Bearer é"]
)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_without_the_operators_token_is_refused(
    rest: RestApplication, state: FabricState, method: str, given: str | None
) -> None:
    directory = rest._tokens.directory
    tokens = {
        "token": (directory / "token").read_text().strip(),
        "agents": (directory / "agent-token").read_text().strip(),
    }
    headers = {} if given is None else {"Authorization": given.format(**tokens)}
    response = get(rest, "/sopa/v1/drains/c0_0", method=method, headers=headers)
    assert problem(response)["status"] == 401
    assert str(directory / "token") in problem(response)["detail"]
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert state.version == 1


@pytest.mark.parametrize(("file", "status"), [("token", 409), ("agent-token", 409), (None, 401)])
def test_the_agents_channel_opens_for_either_token_and_for_nobody_else(
    rest: RestApplication, file: str | None, status: int
) -> None:
    headers = {"Upgrade": "websocket"}
    if file:
        headers["Authorization"] = f"Bearer {(rest._tokens.directory / file).read_text().strip()}"
    # 409: let in, and then refused as another host
    response = get(rest, "/sopa/v1/agents/10.0.0.2", headers=headers, environ={"REMOTE_ADDR": "10.0.0.3"})
    assert problem(response)["status"] == status


@pytest.mark.parametrize("only_host_tokens", [False, True])
@pytest.mark.parametrize(
    ("given", "status", "status_if_only"),
    [
        ("own", 409, 409),
        ("another host's", 401, 401),
        ("under another secret", 401, 401),
        ("cut short", 401, 401),
        ("the secret", 401, 401),
        ("agent-token", 409, 401),
        ("token", 409, 409),
        ("", 401, 401),
    ],
)
def test_a_hosts_token_opens_the_channel_of_that_host_only(
    state: FabricState, tmp_path: Path, given: str, status: int, status_if_only: int, only_host_tokens: bool
) -> None:
    fabric, tokens = Fabric(state, tmp_path), Tokens(tmp_path, host_tokens_only=only_host_tokens)
    rest = RestApplication(fabric, tokens, AgentChannel(fabric.notifier, lambda version: None).serve)
    secret, address = (tmp_path / "agent-secret").read_text().strip(), IPv4Address("10.0.0.2")
    sent = {
        "own": host_token(secret, address),
        "another host's": host_token(secret, IPv4Address("10.0.0.3")),
        "under another secret": host_token(secret + "x", address),
        "cut short": host_token(secret, address)[:-1],
        "the secret": secret,
        "agent-token": (tmp_path / "agent-token").read_text().strip(),
        "token": (tmp_path / "token").read_text().strip(),
        "": "",
    }[given]
    headers = {"Upgrade": "websocket", "Authorization": f"Bearer {sent}"}
    # 409: let in, and then refused as another host
    for name in ("10.0.0.2", "h0_0_2"):
        response = get(rest, f"/sopa/v1/agents/{name}", headers=headers, environ={"REMOTE_ADDR": "10.0.0.3"})
        assert problem(response)["status"] == (status_if_only if only_host_tokens else status)
    # and it is no operator's
    response = get(rest, "/sopa/v1/drains/c0_0", method="PUT", headers=headers)
    assert (response.status_int == 401) is (given != "token")


@pytest.mark.parametrize(
    ("given", "status"),
    [("arbiter", 409), ("token", 409), ("host", 401), ("agent-token", 401), ("secret", 401), ("", 401)],
)
def test_the_arbiters_channel_opens_for_its_token_and_the_operators(
    state: FabricState, tmp_path: Path, given: str, status: int
) -> None:
    fabric, tokens = Fabric(state, tmp_path), Tokens(tmp_path)
    agents, arbiters = AgentChannel(fabric.notifier, lambda version: None), ArbiterChannel(fabric.arbiter)
    fabric.arbiter.depose(True)  # 409: let in, and then refused
    rest = RestApplication(fabric, tokens, agents.serve, arbiter=arbiters.attend)
    secret = (tmp_path / "agent-secret").read_text().strip()
    sent = {
        "arbiter": arbiter_token(secret),
        "token": (tmp_path / "token").read_text().strip(),
        "host": host_token(secret, IPv4Address("10.0.0.2")),
        "agent-token": (tmp_path / "agent-token").read_text().strip(),
        "secret": secret,
        "": "",
    }[given]
    headers = {"Upgrade": "websocket", "Authorization": f"Bearer {sent}"}
    assert problem(get(rest, "/sopa/v1/arbiter", headers=headers))["status"] == status
    assert problem(get(rest, "/sopa/v1/arbiter"))["status"] == 426
    assert problem(get(rest, "/sopa/v1/arbiter", method="POST", headers=headers))["status"] == 405
    # and the arbiter's opens no host's
    response = get(rest, "/sopa/v1/agents/10.0.0.2", headers=headers, environ={"REMOTE_ADDR": "10.0.0.3"})
    assert (problem(response)["status"] == 401) is (given not in ("token", "host", "agent-token"))


def test_the_fabric_tells_of_an_arbiter_once_there_has_been_one(state: FabricState, tmp_path: Path) -> None:
    fabric = Fabric(state, tmp_path)
    rest = RestApplication(fabric, Tokens(tmp_path), AgentChannel(fabric.notifier, lambda version: None).serve)
    assert "arbiter" not in get(rest, "/sopa/v1/fabric").json
    session, _ = fabric.arbiter.enter("192.0.2.1", None, 0.0)
    its = get(rest, "/sopa/v1/fabric").json["arbiter"]
    assert (its["connected"], its["peer"], its["term"]) == (True, "192.0.2.1", fabric.arbiter.term)
    fabric.arbiter.closed(session)
    assert get(rest, "/sopa/v1/fabric").json["arbiter"]["connected"] is False


# -- parameters, pages, ETags -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "limit=-1", "offset=-1", "offset=1.0", "limit=", "limit=1&limit=2", "banana=1",
     "offset=%D9%A1", "limit=" + "9" * 5000],
)  # fmt: skip
def test_a_parameter_that_is_malformed_unknown_or_given_twice_is_refused(rest: RestApplication, query: str) -> None:
    assert problem(get(rest, f"/sopa/v1/links?{query}"))["status"] == 400


def test_lists_longer_than_a_page_are_given_page_by_page(tmp_path: Path) -> None:
    tree = FatTree(16)
    fabric = StubFabric(FabricState(tree, epoch=1))
    rest = RestApplication(fabric, Tokens(tmp_path), AgentChannel(fabric.notifier, lambda version: None).serve)
    names, following = [], "/sopa/v1/links"
    while following:
        response = get(rest, following)
        assert len(response.json["links"]) <= 1000
        assert response.json["total"] == 3072
        names += [link["name"] for link in response.json["links"]]
        link = response.headers.get("Link", "")
        following = link.partition(">")[0].removeprefix("<")
    assert names == [tree.name(link) for link in tree.links()]
    assert [link["name"] for link in get(rest, "/sopa/v1/links?offset=7&limit=2").json["links"]] == names[7:9]


def test_an_etag_stays_until_something_changes(rest: RestApplication, state: FabricState) -> None:
    for path in ("/sopa/v1/fabric", "/sopa/v1/paths?src=h0_0_2&dst=10.2.0.3", "/sopa/v1/links", "/openapi.json"):
        first = get(rest, path)
        again = get(rest, path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_int, again.body, again.headers["ETag"]) == (304, b"", first.headers["ETag"])
    before = get(rest, "/sopa/v1/fabric").headers["ETag"]
    assert before.startswith('"1-1-')
    state.port_changed(state.tree.switch("a0_0"), 4, Reason.DOWN, 1)
    after = get(rest, "/sopa/v1/fabric", headers={"If-None-Match": before})
    assert after.status_int == 200
    assert after.headers["ETag"].startswith('"1-2-')


def test_a_drain_may_be_bound_to_what_was_seen(rest: RestApplication) -> None:
    seen = get(rest, "/sopa/v1/drains").headers["ETag"]
    assert change(rest, "/sopa/v1/drains/c0_0", "PUT", **{"If-Match": seen}).status_int == 200
    stale = change(rest, "/sopa/v1/drains/c0_1", "PUT", **{"If-Match": seen})
    assert problem(stale)["status"] == 412
    assert get(rest, "/sopa/v1/drains").json["drains"] == ["c0_0"]


def test_a_body_that_is_too_large_is_refused(rest: RestApplication) -> None:
    response = get(rest, "/sopa/v1/fabric", method="PUT", body=b"x" * 70_000)
    assert problem(response)["status"] == 413


@pytest.mark.parametrize("path", ["/sopa/v1/%ff", "/sopa/v1/drains/%ff", "/sopa/v1/paths?src=%ff&dst=10.0.0.2"])
def test_an_address_that_is_no_utf8_is_refused(rest: RestApplication, path: str) -> None:
    assert problem(get(rest, path))["status"] in (400, 404)


# -- resources ----------------------------------------------------------------------------------------------------------


def test_paths_are_found_by_names_as_by_addresses(rest: RestApplication) -> None:
    named = get(rest, "/sopa/v1/paths?src=h0_0_2&dst=h2_0_3").json
    assert named == get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    for wrong in ("h9_0_2", "h0_0_1", "h0_0_9"):
        assert problem(get(rest, f"/sopa/v1/paths?src={wrong}&dst=10.0.0.2"))["status"] == 404
    for wrong in ("e0_0", "h0_0", "hello", "h0_0_2222"):
        assert problem(get(rest, f"/sopa/v1/paths?src={wrong}&dst=10.0.0.2"))["status"] == 400


@pytest.mark.parametrize("failed", [False, True])
def test_packets_are_told_the_paths_that_the_agents_program_gives_them(
    rest: RestApplication, state: FabricState, failed: bool
) -> None:
    if failed:  # weights are uneven then
        assert state.port_changed(state.tree.switch("a2_0"), 4, Reason.DOWN, 1)
    src, dst = state.tree.host("h0_0_2"), state.tree.host("h2_0_3")
    table = path_table(state.tree, src, state.failures, 7, Policy.ROUND_ROBIN)
    key = FlowKey.of("10.0.0.2", "10.2.0.3", 17, 7001, 9000)
    query = "src=h0_0_2&dst=h2_0_3&packets=11&protocol=17&sport=7001&dport=9000&seed=7"
    body = get(rest, f"/sopa/v1/paths?{query}").json
    assert [tuple(body["candidates"][at]["up"]) for at in body["packets"]] == [table.choose(key, n) for n in range(11)]
    assert len({path["weight"] for path in body["candidates"]}) == 1 + failed
    if not failed:
        assert get(rest, "/sopa/v1/paths?src=h0_0_2&dst=h2_0_3&packets=6").json["packets"] == [0, 1, 2, 3, 0, 1]
    assert dst is not None
    for wrong in ("packets=0", "packets=10001", "packets=5&dport=70000&sport=1"):
        assert problem(get(rest, f"/sopa/v1/paths?src=h0_0_2&dst=h2_0_3&{wrong}"))["status"] == 400


def test_switches_links_and_hosts_are_those_of_the_plan(rest: RestApplication, state: FabricState) -> None:
    state.port_changed(state.tree.switch("a0_0"), 4, Reason.DOWN, 1)
    switches = get(rest, "/sopa/v1/switches").json["switches"]
    assert len(switches) == 20
    assert switches[0] == {
        "name": "e0_0",
        "level": "edge",
        "dpid": "0000000000010000",
        "connected": False,
        "rules_version": None,
        "failure": None,
        "address": None,
    }
    links = {link["name"]: link for link in get(rest, "/sopa/v1/links").json["links"]}
    assert len(links) == 48
    assert links["a0_0-c0_1"]["failure"] == "down"
    assert links["a0_0-c0_1"]["lower"] == {"name": "a0_0", "port": 4}
    assert links["a0_0-c0_1"]["upper"] == {"name": "c0_1", "port": 1}
    assert links["h0_0_2-e0_0"]["lower"] == {"name": "h0_0_2", "port": None}
    hosts = get(rest, "/sopa/v1/hosts").json["hosts"]
    assert len(hosts) == 16
    assert hosts[0] == {
        "name": "h0_0_2",
        "address": "10.0.0.2",
        "mac": "02:00:0a:00:00:02",
        "switch": "e0_0",
        "port": 1,
        "agent": False,
    }


def test_an_empty_switch_misses_all_rules_and_an_absent_one_is_an_error(
    rest: RestApplication,
) -> None:
    body = get(rest, "/sopa/v1/switches/e0_0/rules").json
    assert body["right"] is False
    assert {entry["state"] for entry in body["entries"]} == {"missing"}
    assert len(body["entries"]) == 37
    assert problem(get(rest, "/sopa/v1/switches/c0_0/rules"))["status"] == 503
    assert problem(get(rest, "/sopa/v1/switches/h0_0_2/rules"))["status"] == 404


def test_every_answer_is_as_the_openapi_document_says(rest: RestApplication, state: FabricState) -> None:
    document = get(rest, "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    cast("StubFabric", rest._fabric).cluster = StubCluster()
    change(rest, "/sopa/v1/drains/c0_0", "PUT")
    state.port_changed(state.tree.switch("a0_0"), 4, Reason.DOWN, 1)
    registry: Registry[Any] = Registry().with_resource("urn:sopa", DRAFT202012.create_resource(document))
    examples = {"{name}": "e0_0", "paths": "paths?src=h0_0_2&dst=h2_0_3&packets=3"}
    for path, methods in document["paths"].items():
        if "get" not in methods:
            continue
        if "{trace}" in path:
            continue  # tests/unit/rest/test_traces.py
        name = "e0_0-a0_0" if "health" in path else "e0_0"
        response = get(rest, path.replace("{name}", name).replace("/paths", f"/{examples['paths']}"))
        assert response.status_int == 200, path
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({"$ref": "urn:sopa" + schema["$ref"]}, registry=registry).validate(response.json)


def test_the_last_hour_of_a_link_and_what_has_none(state: FabricState, tmp_path: Path) -> None:
    fabric = StubFabric(state)
    rest = RestApplication(fabric, Tokens(tmp_path), lambda *_: None)
    body = get(rest, "/sopa/v1/health/a0_0-c0_1").json
    assert body == {"version": state.version, "name": "a0_0-c0_1", "seconds": SECONDS, "points": []}
    link = fabric.state.tree.link_by_name("a0_0-c0_1")
    history = fabric.health.history = History(fabric.health.elements.links)
    slot, place = int(clock.now()) // SECONDS - 1, fabric.health.elements.of(link)
    history.begin(slot)[CELL.size * place :][: CELL.size] = CELL.pack(1000, 0.25, 0.0, 2.5)
    history.end(slot)
    (point,) = get(rest, "/sopa/v1/health/a0_0-c0_1").json["points"]
    assert point.pop("at") == pytest.approx(time.time(), abs=3 * SECONDS)
    assert point == {"sent": 1000, "loss": {"up": 0.25, "down": 0.0}, "delay_us": 40.0}
    (other,) = get(rest, "/sopa/v1/health/a0_0-c0_0").json["points"]
    assert (other["sent"], other["loss"], other["delay_us"]) == (0, {"up": None, "down": None}, None)
    for name, words in (("h0_0_2-e0_0", "host's link"), ("c0_0", "not a link"), ("e0_0-a1_0", "not a link")):
        response = get(rest, f"/sopa/v1/health/{name}")
        assert (response.status_int, words in response.json["detail"]) == (404, True)
    history.close()
