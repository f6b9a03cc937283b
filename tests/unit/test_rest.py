"""The REST interface, request by request, without a server: contracts of DESIGN, section 6."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from webob import Request, Response

from sopa_ryu.drains import Drains
from sopa_ryu.notify import Notifier
from sopa_ryu.rest import RestApplication
from sopa_ryu.state import DOWN, FabricState
from sopa_ryu.wiring import Wiring
from topologies import FatTree


@pytest.fixture
def state() -> FabricState:
    state = FabricState(FatTree(4), epoch=1)
    for switch in state.tree.switches():
        state.switch_heard(switch, {}, 0)
    state.settle(0)
    return state


@pytest.fixture
def rest(state: FabricState, tmp_path: Path) -> RestApplication:
    drains = Drains(tmp_path, state.tree, state.drainable)
    notifier = Notifier(state.tree, lambda: state.view, lambda version: None)

    def drain(name: str, drained: bool) -> bool:
        return state.drain(drains.add(name) if drained else drains.remove(name), 1)

    return RestApplication(state, notifier, Wiring(state.tree, 30), dict, drain)


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
    }


@pytest.mark.parametrize(
    ("dst", "kind", "candidates"),
    [
        (
            "10.0.1.2",
            "inter-rack",
            [{"up": [n], "option": f"9e040{n}ff"[:4] + f"0{n}ff", "hops": ["e0_0", f"a0_{n}", "e0_1"]} for n in (0, 1)],
        ),
        ("10.0.0.3", "intra-rack", [{"up": [], "option": "9e04ffff", "hops": ["e0_0"]}]),
    ],
)
def test_shorter_paths_have_fewer_hops(rest: RestApplication, dst: str, kind: str, candidates: list[Any]) -> None:
    body = get(rest, f"/sopa/v1/paths?src=10.0.0.2&dst={dst}").json
    assert (body["kind"], body["candidates"]) == (kind, candidates)


def test_a_failure_excludes_paths_with_its_reason(rest: RestApplication, state: FabricState) -> None:
    assert state.port_changed(state.tree.switch("a0_0"), 4, DOWN, 1)
    body = get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    assert [path["up"] for path in body["candidates"]] == [[0, 0], [1, 0], [1, 1]]
    assert body["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 down"}]
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


def test_a_drain_takes_a_link_out_of_the_candidate_paths_and_back(rest: RestApplication) -> None:
    assert get(rest, "/sopa/v1/drains").json == {"version": 1, "drains": []}
    for _ in range(2):  # PUT and DELETE may be repeated
        response = get(rest, "/sopa/v1/drains/a0_0-c0_1", method="PUT")
        assert (response.status_int, response.json) == (200, {"version": 2, "drains": ["a0_0-c0_1"]})
    body = get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json
    assert body["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 drained"}]
    for _ in range(2):
        assert get(rest, "/sopa/v1/drains/a0_0-c0_1", method="DELETE").json == {"version": 3, "drains": []}
    assert get(rest, "/sopa/v1/paths?src=10.0.0.2&dst=10.2.0.3").json["excluded"] == []


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize(
    ("name", "status"), [("a0_0-c1_1", 404), ("banana", 404), ("c0_1-a0_0", 404), ("h0_0_2-e0_0", 409)]
)
def test_what_cannot_be_drained_is_refused(
    rest: RestApplication, state: FabricState, method: str, name: str, status: int
) -> None:
    response = get(rest, f"/sopa/v1/drains/{name}", method=method)
    assert name in problem(response)["detail"]
    assert response.status_int == status
    assert state.version == 1


def test_a_drain_that_cannot_be_kept_is_refused(rest: RestApplication, state: FabricState, tmp_path: Path) -> None:
    (tmp_path / "drains.new").mkdir()
    response = get(rest, "/sopa/v1/drains/c0_0", method="PUT")
    assert (problem(response)["status"], state.version) == (507, 1)
    assert "nothing has changed" in problem(response)["detail"]


def test_a_drain_is_put_or_deleted_not_read(rest: RestApplication) -> None:
    assert get(rest, "/sopa/v1/drains/c0_0").headers["Allow"] == "PUT, DELETE"


def test_changes_are_the_versions_the_latest_first(rest: RestApplication) -> None:
    for name in ("c0_0", "c0_1"):
        get(rest, f"/sopa/v1/drains/{name}", method="PUT")
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
        "agents": [],
        "refused": {"claims": 0, "messages": 0},
    }


def test_process_says_what_the_controller_holds(rest: RestApplication) -> None:
    body = get(rest, "/sopa/v1/process").json
    assert body["pid"] == os.getpid()
    assert min(body["memory_mib"], body["open_files"], body["greenlets"]) > 0


@pytest.mark.parametrize(("address", "status"), [("10.0.0.2", 426), ("10.9.0.2", 404), ("banana", 400)])
def test_the_push_channel_is_a_websocket_of_a_host(rest: RestApplication, address: str, status: int) -> None:
    assert problem(get(rest, f"/sopa/v1/agents/{address}"))["status"] == status


def test_an_agent_may_not_ask_for_another_host_than_its_own(rest: RestApplication) -> None:
    asking = {"headers": {"Upgrade": "websocket", "Connection": "Upgrade"}, "environ": {"REMOTE_ADDR": "10.0.0.3"}}
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
