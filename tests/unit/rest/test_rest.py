"""The REST interface, request by request, without a server: contracts of docs/architecture.md, section 7."""

import os
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from flowrules.switch_rules import switch_rules
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel.host_tokens import arbiter_token, host_token
from sopa_ryu.fabric.drains import Drains
from sopa_ryu.fabric.switch_errors import SwitchError
from sopa_ryu.health.history import CELL, SECONDS, History
from sopa_ryu.rest.access import TokenError, Tokens
from sopa_ryu.runtime import clock
from sopa_ryu.southbound import rule_audit
from tests.helpers.golden import Step, play, scripts
from tests.helpers.rest import Rest, problem, refused
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import FatTree, Level, Switch
from topologies.failures import Reason

PATHS = "paths?src=10.0.0.2&dst=10.2.0.3"


class Fabric(StubFabric):
    """A state whose drains are stored, and whose core switches are not connected."""

    drains: Drains

    def set_drained(self, name: str, drained: bool) -> None:
        self.state.drain(self.drains.add(name) if drained else self.drains.remove(name), 1)

    def switch_rules(self, switch: Switch) -> dict[str, Any]:
        if switch.level is Level.CORE:
            raise SwitchError("it is not connected")
        wanted = switch_rules(self.state.tree, switch)
        return rule_audit.rules(self.state.tree.name(switch), wanted, self.state.version, 0, [], {})


@pytest.fixture
def rest(tmp_path: Path) -> Rest:
    its = Rest(tmp_path, fabric=Fabric)
    assert isinstance(its.fabric, Fabric)
    its.fabric.drains = Drains(tmp_path, its.state.tree, its.state.drainable)
    return its


def fail(rest: Rest, switch: str = "a0_0", port: int = 4) -> None:
    assert rest.state.port_changed(rest.state.tree.switch(switch), port, Reason.DOWN, 1)


def test_fabric_has_the_contracts_fields(rest: Rest) -> None:
    response = rest.get("fabric")
    assert response.content_type == "application/json"
    body = response.json
    assert body["switches"] == {"edge": 8, "aggregation": 8, "core": 4}
    assert (body["k"], body["hosts"], body["connected"], body["version"], body["failures"]) == (4, 16, 0, 1, [])
    assert len(body["missing"]) == 20


def test_paths_has_the_contracts_fields(rest: Rest) -> None:
    body = rest.get(PATHS).json
    assert list(body) == ["src", "dst", "kind", "version", "total", "candidates", "excluded"]
    assert (body["src"], body["dst"], body["kind"], body["total"]) == ("10.0.0.2", "10.2.0.3", "inter-pod", 4)
    assert body["candidates"][2] == {
        "up": [0, 1],
        "option": "9e040001",
        "hops": ["e0_0", "a0_0", "c0_1", "a2_0", "e2_0"],
        "weight": 0.25,
    }
    near = rest.get("paths?src=10.0.0.2&dst=10.0.1.2").json
    assert (near["kind"], near["candidates"]) == (
        "inter-rack",
        [{"up": [n], "option": f"9e040{n}ff", "hops": ["e0_0", f"a0_{n}", "e0_1"], "weight": 0.5} for n in (0, 1)],
    )
    rack = rest.get("paths?src=10.0.0.2&dst=10.0.0.3").json
    alone = {"up": [], "option": "9e04ffff", "hops": ["e0_0"], "weight": 1.0}
    assert (rack["kind"], rack["candidates"]) == ("intra-rack", [alone])


def test_a_failure_excludes_paths_with_its_reason(rest: Rest) -> None:
    fail(rest)
    body = rest.get(PATHS).json
    assert [path["up"] for path in body["candidates"]] == [[0, 0], [1, 0], [1, 1]]
    assert body["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 down"}]
    assert sum(path["weight"] for path in body["candidates"]) == pytest.approx(1)
    assert (body["total"], body["version"]) == (4, 2)


@pytest.mark.parametrize("script", scripts(__file__, "refusals"), ids=lambda path: path.stem)
def test_what_is_refused_is_a_problem_document(rest: Rest, script: Path, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Send a request with the operators' token, perhaps to upgrade the connection."""
        path = "".join([*step.words, *(f"{name}={text}" for name, text in step.options.items() if "?" in name)])
        upgrade = {"Upgrade": step.options["upgrade"]} if "upgrade" in step.options else {}
        response = rest.ask(step.command, path, **upgrade)
        its = problem(response)
        assert response.headers.get("Allow", "") in its["detail"]
        return f"{its['status']} {its['title']}: {its['detail']}".replace("\0", "(NUL)")

    play(script, handle, record=request.config.option.record)
    assert rest.state.version == 1


def drained(version: int, *names: str) -> dict[str, Any]:
    return {"version": version, "total": len(names), "offset": 0, "drains": [*names]}


def test_a_drain_takes_a_link_out_of_the_candidate_paths_and_back(rest: Rest) -> None:
    assert rest.get("drains").json == drained(1)
    for _ in range(2):  # PUT and DELETE may be repeated
        response = rest.ask("PUT", "drains/a0_0-c0_1")
        assert (response.status_int, response.json) == (200, drained(2, "a0_0-c0_1"))
    assert rest.get(PATHS).json["excluded"] == [{"up": [0, 1], "reason": "link a0_0-c0_1 drained"}]
    for _ in range(2):
        assert rest.ask("DELETE", "drains/a0_0-c0_1").json == drained(3)
    assert rest.get(PATHS).json["excluded"] == []
    first, last = rest.get("changes").json["changes"][::-1]
    assert (first["version"], first["failed"], last["version"]) == (2, {"a0_0-c0_1": "drained"}, 3)


def test_a_drain_that_cannot_be_kept_is_refused(rest: Rest, tmp_path: Path) -> None:
    (tmp_path / "drains.new").mkdir()
    refused(rest.ask("PUT", "drains/c0_0"), 507, "nothing has changed")
    assert rest.state.version == 1


def test_a_drain_may_be_bound_to_what_was_seen(rest: Rest) -> None:
    seen = rest.get("drains").headers["ETag"]
    assert rest.ask("PUT", "drains/c0_0", If_Match=seen).status_int == 200
    refused(rest.ask("PUT", "drains/c0_1", If_Match=seen), 412)
    assert rest.get("drains").json["drains"] == ["c0_0"]


def test_wiring_agents_and_process_say_how_it_is(rest: Rest) -> None:
    wiring = rest.get("wiring").json
    assert wiring["links"] == wiring["right"] + wiring["unchecked"] + len(wiring["problems"]) == 32
    nobody = {"total": 0, "offset": 0, "agents": [], "refused": {"claims": 0, "messages": 0}}
    assert rest.get("agents").json == {"version": 1, "epoch": 1, "behind": 0, **nobody}
    process = rest.get("process").json
    assert process["pid"] == os.getpid()
    assert min(process["memory_mib"], process["open_files"], process["greenlets"]) > 0


def test_an_error_of_our_own_is_a_problem_document_and_in_the_log(
    rest: Rest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("the cause")

    monkeypatch.setattr(rest.state, "fabric", broken)
    refused(rest.get("fabric"), 500)
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
def test_a_change_without_the_operators_token_is_refused(rest: Rest, given: str | None) -> None:
    its = given and given.format(token=rest.secret("token"), agents=rest.secret("agent-token"))
    for method in ("PUT", "DELETE"):
        response = rest.ask(method, "drains/c0_0", authorization=its)
        refused(response, 401, str(rest.directory / "token"))
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert rest.state.version == 1


HOST, OTHER = IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3")


@pytest.mark.parametrize("only_host_tokens", [False, True])
@pytest.mark.parametrize(
    ("given", "opens"),
    [
        ("host", {"host"}),
        ("token", {"host", "arbiter", "change"}),
        ("agent-token", {"host"}),
        ("arbiter", {"arbiter"}),
        ("another host's", set()),
        ("under another secret", set()),
        ("cut short", set()),
        ("the secret", set()),
        ("", set()),
    ],
)
def test_what_each_token_opens(tmp_path: Path, given: str, opens: set[str], only_host_tokens: bool) -> None:
    rest = Rest(tmp_path, host_tokens_only=only_host_tokens)
    rest.fabric.arbiter.depose(True)  # so that who is let in is refused with 409, as is an agent of another host
    secret = rest.secret("agent-secret")
    sent = {
        "host": host_token(secret, HOST),
        "token": rest.secret("token"),
        "agent-token": rest.secret("agent-token"),
        "arbiter": arbiter_token(secret),
        "another host's": host_token(secret, OTHER),
        "under another secret": host_token(secret + "x", HOST),
        "cut short": host_token(secret, HOST)[:-1],
        "the secret": secret,
        "": "",
    }[given]
    if only_host_tokens and given == "agent-token":
        opens = set()

    def status(method: str, path: str) -> int:
        response = rest.ask(method, path, authorization=f"Bearer {sent}", peer=str(OTHER), Upgrade="websocket")
        return response.status_int

    for name in ("10.0.0.2", "h0_0_2"):
        assert status("GET", f"agents/{name}") == (409 if "host" in opens else 401)
    assert status("GET", "arbiter") == (409 if "arbiter" in opens else 401)
    assert (status("PUT", "drains/c0_0") == 401) is ("change" not in opens)


def test_an_agent_may_not_ask_for_another_host_than_its_own(rest: Rest) -> None:
    its = f"Bearer {rest.secret('agent-token')}"
    response = rest.ask("GET", "agents/10.0.0.2", authorization=its, peer="10.0.0.3", Upgrade="websocket")
    refused(response, 409, "10.0.0.3 is h0_0_3: an agent may only ask for its own host")
    assert rest.get("agents").json["refused"] == {"claims": 1, "messages": 0}


def test_the_fabric_tells_of_an_arbiter_once_there_has_been_one(rest: Rest) -> None:
    assert "arbiter" not in rest.get("fabric").json
    session, _ = rest.fabric.arbiter.enter("192.0.2.1", None, 0.0)
    its = rest.get("fabric").json["arbiter"]
    assert (its["connected"], its["peer"], its["term"]) == (True, "192.0.2.1", rest.fabric.arbiter.term)
    rest.fabric.arbiter.closed(session)
    assert rest.get("fabric").json["arbiter"]["connected"] is False


# -- parameters, pages, ETags -------------------------------------------------------------------------------------------


def test_a_number_of_very_many_digits_is_refused(rest: Rest) -> None:
    refused(rest.get(f"links?limit={'9' * 5000}"), 400)


def test_lists_longer_than_a_page_are_given_page_by_page(tmp_path: Path) -> None:
    rest = Rest(tmp_path, FatTree(16))
    names, following = [], "links"
    while following:
        response = rest.get(following)
        assert len(response.json["links"]) <= 1000
        assert response.json["total"] == 3072
        names += [link["name"] for link in response.json["links"]]
        following = response.headers.get("Link", "").partition(">")[0].removeprefix("<")
    assert names == [rest.state.tree.name(link) for link in rest.state.tree.links()]
    assert [link["name"] for link in rest.get("links?offset=7&limit=2").json["links"]] == names[7:9]


def test_an_etag_stays_until_something_changes(rest: Rest) -> None:
    for path in ("fabric", "paths?src=h0_0_2&dst=10.2.0.3", "links", "/openapi.json"):
        tag = rest.get(path).headers["ETag"]
        again = rest.get(path, If_None_Match=tag)
        assert (again.status_int, again.body, again.headers["ETag"]) == (304, b"", tag)
    before = rest.get("fabric").headers["ETag"]
    assert before.startswith('"1-1-')
    fail(rest)
    after = rest.get("fabric", If_None_Match=before)
    assert (after.status_int, after.headers["ETag"].startswith('"1-2-')) == (200, True)


def test_a_body_that_is_too_large_is_refused(rest: Rest) -> None:
    refused(rest.ask("PUT", "fabric", b"x" * 70_000), 413)


# -- resources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failed", [False, True])
def test_packets_are_told_the_paths_that_the_agents_program_gives_them(rest: Rest, failed: bool) -> None:
    if failed:  # weights are uneven then
        fail(rest, "a2_0")
    table = path_table(rest.state.tree, rest.state.tree.host("h0_0_2"), rest.state.failures, 7, Policy.ROUND_ROBIN)
    key = FlowKey.of("10.0.0.2", "10.2.0.3", 17, 7001, 9000)
    named = "paths?src=h0_0_2&dst=h2_0_3"
    assert rest.get(named).json == rest.get(PATHS).json
    body = rest.get(f"{named}&packets=11&protocol=17&sport=7001&dport=9000&seed=7").json
    assert [tuple(body["candidates"][at]["up"]) for at in body["packets"]] == [table.choose(key, n) for n in range(11)]
    assert len({path["weight"] for path in body["candidates"]}) == 1 + failed
    if not failed:
        assert rest.get(f"{named}&packets=6").json["packets"] == [0, 1, 2, 3, 0, 1]


def test_switches_links_and_hosts_are_those_of_the_plan(rest: Rest) -> None:
    fail(rest)
    switches = rest.get("switches").json["switches"]
    assert len(switches) == 20
    unheard = {"connected": False, "rules_version": None, "failure": None, "address": None}
    assert switches[0] == {"name": "e0_0", "level": "edge", "dpid": "0000000000010000", **unheard}
    links = {link["name"]: link for link in rest.get("links").json["links"]}
    assert len(links) == 48
    assert links["a0_0-c0_1"]["failure"] == "down"
    assert links["a0_0-c0_1"]["lower"] == {"name": "a0_0", "port": 4}
    assert links["a0_0-c0_1"]["upper"] == {"name": "c0_1", "port": 1}
    assert links["h0_0_2-e0_0"]["lower"] == {"name": "h0_0_2", "port": None}
    hosts = rest.get("hosts").json["hosts"]
    assert len(hosts) == 16
    where = {"address": "10.0.0.2", "mac": "02:00:0a:00:00:02", "switch": "e0_0", "port": 1}
    assert hosts[0] == {"name": "h0_0_2", **where, "agent": False}


def test_an_empty_switch_misses_all_rules(rest: Rest) -> None:
    body = rest.get("switches/e0_0/rules").json
    assert body["right"] is False
    assert [entry["state"] for entry in body["entries"]] == ["missing"] * 37


def test_every_answer_is_as_the_openapi_document_says(rest: Rest) -> None:
    document = rest.get("/openapi.json").json
    assert document["openapi"] == "3.1.0"
    rest.fabric.cluster = StubCluster()
    rest.ask("PUT", "drains/c0_0")
    fail(rest)
    for path, methods in document["paths"].items():
        if "get" not in methods or "{trace}" in path:
            continue  # traces: tests/unit/rest/test_traces.py
        named = path.replace("{name}", "e0_0-a0_0" if "health" in path else "e0_0")
        response = rest.get(named.replace("/paths", "/paths?src=h0_0_2&dst=h2_0_3&packets=3"))
        assert response.status_int == 200, path
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        rest.check(response.json, schema["$ref"].rpartition("/")[2])


def test_the_last_hour_of_a_link(rest: Rest) -> None:
    health = rest.fabric.health
    nothing = {"version": rest.state.version, "name": "a0_0-c0_1", "seconds": SECONDS, "points": []}
    assert rest.get("health/a0_0-c0_1").json == nothing
    history = health.history = History(health.elements.links)
    slot, place = int(clock.now()) // SECONDS - 1, health.elements.of(rest.state.tree.link_by_name("a0_0-c0_1"))
    history.begin(slot)[CELL.size * place :][: CELL.size] = CELL.pack(1000, 0.25, 0.0, 2.5)
    history.end(slot)
    (point,) = rest.get("health/a0_0-c0_1").json["points"]
    assert point.pop("at") == pytest.approx(time.time(), abs=30 * SECONDS)
    assert point == {"sent": 1000, "loss": {"up": 0.25, "down": 0.0}, "delay_us": 40.0}
    (other,) = rest.get("health/a0_0-c0_0").json["points"]
    assert (other["sent"], other["loss"], other["delay_us"]) == (0, {"up": None, "down": None}, None)
    history.close()
