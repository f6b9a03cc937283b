"""Traces over REST, against the controller's real channel without agents' processes."""

import random
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webob import Response

from sopa_ryu.agent.flow_labels import flow_labels
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel import protocol, traces
from sopa_ryu.channel.agent_session import AgentSession
from sopa_ryu.channel.trace_desk import Asked, Trace
from sopa_ryu.channel.traces import BACK, LOST, LOST_OUT, Answer, FlowLabels, FlowOf, Outcome
from sopa_ryu.rest.operations import Problem
from sopa_ryu.rest.schemas import SCHEMAS
from sopa_ryu.rest.trace_answer import tell_flow
from sopa_ryu.rest.trace_plan import planned
from sopa_ryu.runtime import clock
from tests.helpers.golden import Step, play, scripts
from tests.helpers.random_fabrics import random_fabric, some_pairs
from tests.helpers.rest import Rest, problem, refused
from topologies import Failures, FatTree, Host
from topologies.failures import Reason

SRC, DST = "h0_0_2", "10.2.1.3"


class Traced(Rest):
    """The interface, with the session of one host's agent."""

    def __init__(self, directory: Path, k: int = 4) -> None:
        super().__init__(directory, FatTree(k))
        self.session = self.connect(SRC)

    def connect(self, name: str, probes: bool = True) -> AgentSession:
        host, now = self.state.tree.host(name), clock.now()
        notifier = self.fabric.notifier
        session, _ = notifier.connected(host, "192.0.2.1", "mac", None, now, "round-robin", probes=probes)
        assert notifier.due(session, now) is not None  # its snapshot
        return session

    def begin(self, **more: Any) -> Response:
        return self.ask("POST", "traces", {"src": SRC, "dst": DST, **more})

    def look(self, number: int = 1) -> Any:
        """Return what is told of a trace, which its schema describes with no field besides."""
        body = self.get(f"traces/{number}").json
        self.check(body, "Trace")
        assert set(body) <= set(SCHEMAS["Trace"]["properties"])
        return body

    def asked(self) -> traces.Request:
        text = self.fabric.notifier.due(self.session, clock.now())
        assert text is not None
        asked = protocol.trace_asked(text)
        assert isinstance(asked, traces.Request)
        return asked

    def answer(self, its: Answer) -> None:
        self.fabric.notifier.received(self.session, traces.answer_text(its), clock.now())


@pytest.fixture
def rest(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


def test_a_trace_is_accepted_followed_and_done(rest: Traced) -> None:
    response = rest.begin(count=2)
    assert response.status_int == 202
    assert response.headers["Location"].endswith("/sopa/v1/traces/1")
    assert response.json["state"] == "running"
    assert response.json["probes"] == 8
    rest.look()
    asked = rest.asked()
    assert [(one.up1, one.up2) for one in asked.streams] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert (asked.probes, asked.interval_ms) == (2, 10.0)
    half = [Outcome(place, BACK, 80_000 + place) for place in (0, 1, 3)] + [Outcome(2, LOST_OUT)]
    rest.answer(Answer(asked.number, tuple(half)))
    body = rest.look()
    assert (body["state"], body["decided"]) == ("running", 4)
    rest.answer(Answer(asked.number, (*half[:3], Outcome(2, LOST)), done=True))
    body = rest.look()
    assert (body["state"], body["decided"], body["problem"]) == ("done", 8, None)
    third = body["paths"][2]
    assert (third["up"], third["sent"], third["lost"], third["lost_out"], third["lost_back"]) == ([0, 1], 2, 2, 1, 0)
    assert (third["min_us"], third["median_us"]) == (None, None)
    first = {"up": [0, 0], "option": "9e040000", "hops": ["e0_0", "a0_0", "c0_0", "a2_0", "e2_1"], "weight": 0.25}
    counted = {"sent": 2, "lost": 0, "lost_out": 0, "lost_back": 0, "min_us": 80.0, "median_us": 80.0, "p99_us": 80.0}
    assert body["paths"][0] == {**first, **counted}
    assert body["links"][0]["links"] == ["h0_0_2-e0_0", "h2_1_3-e2_1"]
    assert body["order"] == {"paths": [[0, 0], [1, 0], [0, 1], [1, 1]], "length": 4}
    assert rest.begin(count=1).json["id"] == 2


def test_what_a_path_loses_is_put_down_to_its_own_links(rest: Traced) -> None:
    rest.begin(count=20)
    fates = [Outcome(place, LOST if place == 2 else BACK, 0 if place == 2 else 50_000) for place in range(4)] * 20
    rest.answer(Answer(rest.asked().number, tuple(fates), done=True))
    body = rest.look()
    assert [(group["links"], group["loss"]) for group in body["links"] if group["loss"]] == [
        (["a0_0-c0_1", "a2_0-c0_1"], 1.0)
    ]


def test_a_trace_can_be_ended_by_operators_who_alone_begin_one(rest: Traced) -> None:
    refused(rest.ask("POST", "traces", {"src": SRC, "dst": DST}, authorization=None), 401)
    rest.begin()
    refused(rest.ask("DELETE", "traces/1", authorization=None), 401)
    body = rest.ask("DELETE", "traces/1").json
    assert body["state"] == rest.look()["state"] == "cancelled"


@pytest.mark.parametrize("script", scripts(__file__, "traces"), ids=lambda path: path.stem)
def test_a_request_that_is_refused_begins_nothing(rest: Traced, script: Path, request: pytest.FixtureRequest) -> None:
    def handle(step: Step) -> str:
        """Post a body as it is."""
        its = problem(rest.ask("POST", "traces", step.words[0].encode()))
        assert rest.fabric.notifier.due(rest.session, clock.now()) is None
        return f"{its['status']}: {its['detail']}"

    play(script, handle, record=request.config.option.record)
    refused(rest.ask("POST", "traces", b"[" * 60_000), 400, "no JSON")


def test_what_cannot_be_now_is_a_conflict(rest: Traced) -> None:
    rest.connect("h1_0_2", probes=False)
    refused(rest.begin(src="h1_0_2"), 409, "sends no probes")
    assert rest.begin().status_int == 202
    refused(rest.begin(), 409)
    rest.state.port_changed(rest.state.tree.switch("a0_0"), 4, Reason.DOWN, 1)
    refused(rest.begin(up=[[0, 1]]), 409, "path 0,1 is excluded (link a0_0-c0_1 down)")


@pytest.mark.parametrize("number", ["0", "2", "x", "-1", "99999999999"])
def test_a_trace_that_there_is_not_is_not_found(rest: Traced, number: str) -> None:
    rest.begin()
    for method in ("GET", "DELETE"):
        assert rest.ask(method, f"traces/{number}").status_int in (400, 404)


def test_many_paths_have_to_be_asked_for(tmp_path: Path) -> None:
    rest = Traced(tmp_path, k=24)
    refused(rest.begin(), 409, "144 paths")
    refused(rest.begin(all=True, count=200), 409)  # more probes than a trace may have
    response = rest.begin(all=True)
    assert response.status_int == 202
    assert len(response.json["paths"]) == 144
    assert len(response.json["order"]["paths"]) == 64


def test_named_paths_are_traced_once_each_in_round_robin_order(rest: Traced) -> None:
    rest.begin(up=[[1, 1], [0, 0], [1, 1]])
    assert [(one.up1, one.up2) for one in rest.asked().streams] == [(0, 0), (1, 1)]


# -- flows ----------------------------------------------------------------------------------------------------------------


def test_a_labelled_flow_takes_the_paths_that_its_agent_says(rest: Traced) -> None:
    response = rest.begin(flow={"sport": 40000, "dport": 5201})
    assert response.json["flow"] is None  # the agent has not answered yet
    asked = rest.asked()
    assert asked.flow == FlowOf(6, 40000, 5201)
    labels = ((0, 1), (1, 1), (0, 0), (1, 0))
    rest.answer(Answer(asked.number, done=True, flow=FlowLabels("round-robin", True, 4, labels)))
    body = rest.look()
    flow = body["flow"]
    assert (flow["labelled"], flow["exact"], flow["policy"]) == (True, True, "round-robin")
    assert [way["up"] for way in flow["ways"]] == [[0, 1], [1, 1], [0, 0], [1, 0]]
    assert {way["share"] for way in flow["ways"]} == {0.25}
    assert flow["ways"][0]["links"][1:3] == ["e0_0-a0_0", "a0_0-c0_1"]
    assert flow["order"] == {"ways": [0, 1, 2, 3], "length": 4}


def test_a_flow_that_the_agent_does_not_label_exactly_is_not_told_as_if_it_were(rest: Traced) -> None:
    rest.begin(flow={"sport": 1})
    rest.answer(Answer(rest.asked().number, done=True, flow=FlowLabels("mcs", False, 0, ((0, 1), (1, 1)))))
    flow = rest.look()["flow"]
    assert flow["exact"] is False
    assert "does not follow from the flow alone" in flow["why"]
    assert [way["share"] for way in flow["ways"]] == [None, None]
    assert flow["order"] == {"ways": [], "length": 0}


def test_a_flow_without_an_agent_is_hashed_by_the_switches(rest: Traced) -> None:
    response = rest.begin(src="h1_0_2", flow={"sport": 40000, "dport": 5201})
    body = response.json
    assert (response.status_int, body["state"]) == (202, "done")
    flow = body["flow"]
    assert (flow["labelled"], flow["exact"], len(flow["ways"]), len(flow["others"])) == (False, True, 1, 3)
    assert rest.look(body["id"])["flow"] == flow
    assert rest.fabric.notifier.due(rest.session, clock.now()) is None


def test_a_host_that_may_not_choose_paths_is_hashed_though_it_has_an_agent(rest: Traced) -> None:
    rest.fabric.no_label = frozenset({rest.state.tree.host(SRC)})
    flow = rest.begin(flow={"sport": 40000}).json["flow"]
    assert flow["labelled"] is False
    assert "no_label" in flow["why"]


@given(st.integers(0, 10**6), st.sampled_from(list(Policy)))
def test_an_agents_order_of_a_flow_is_that_of_its_packets(seed: int, policy: Policy) -> None:
    """On any fabric with any failures; the path table's own choice is compared with the eBPF program's in tests/bpf."""
    tree, draw = random_fabric(seed, rates=seed % 2 > 0), random.Random(seed)
    [(src, dst)] = some_pairs(tree, 1, seed)
    names = [tree.name(link) for link in tree.switch_links()]
    failures = Failures(tree, dict.fromkeys(draw.sample(names, min(2, len(names))), "down"))
    table = path_table(tree, src, failures, draw.getrandbits(32), policy)
    key = FlowKey.of(tree.ip(src), tree.ip(dst), 6, draw.randrange(65536), draw.randrange(65536))
    said = flow_labels(table, key, policy.option_name)
    candidates = table.candidates(tree.ip(dst)) or ()
    if said.exact:
        assert said.labels == tuple(table.choose(key, n) for n in range(len(said.labels)))
        if said.length:
            assert said.length <= traces.MAX_LABELS or len(said.labels) == traces.MAX_LABELS
            assert all(table.choose(key, n + said.length) == label for n, label in enumerate(said.labels))
    else:
        assert set(said.labels) == set(candidates)
    assert not flow_labels(table, key, "mcs").exact or len(candidates) == 1
    # and REST tells the same
    trace = Trace(1, src, dst, Asked(flow=FlowOf(6, 1, 2)), 1, 0.0, 0.0, labels=said)
    told = tell_flow(trace, failures, ())
    assert told is not None
    ups = [tuple(way["up"]) for way in told["ways"]]
    assert [tuple(hop for hop in label if hop != 255) for label in dict.fromkeys(said.labels)] == ups
    if said.exact and said.labels and said.length == len(said.labels):
        assert sum(way["share"] for way in told["ways"]) == pytest.approx(1, abs=0.01)


@given(st.integers(0, 10**6))
def test_a_hashed_flow_takes_a_usable_path_wherever_there_is_one(seed: int) -> None:
    tree, draw = random_fabric(seed), random.Random(seed)
    names = [tree.name(link) for link in tree.switch_links()]
    failures = Failures(tree, dict.fromkeys(draw.sample(names, min(3, len(names))), "down"))
    for src, dst in some_pairs(tree, 4, seed):
        trace = Trace(1, src, dst, Asked(flow=FlowOf(17, draw.randrange(65536), 53)), 1, 0.0, 0.0, asked_agent=False)
        told = tell_flow(trace, failures, ())
        assert told is not None
        usable = {path.up for path in failures.split(src, dst)[0]}
        ways = [*told["ways"], *told["others"]]
        assert {tuple(way["up"]) for way in ways} == usable
        assert len(told["ways"]) == (1 if usable else 0)


def test_a_plan_names_no_path_that_there_is_not() -> None:
    tree = FatTree(4)
    src, dst = Host(0, 0, 2), Host(0, 1, 2)
    assert planned({"src": "x", "dst": "y"}, Failures(tree), src, dst).ups == ((0,), (1,))
    cut = Failures(tree, {"e0_0-a0_0": "down", "e0_0-a0_1": "down"})
    with pytest.raises(Problem, match="no path is left"):
        planned({}, cut, src, dst)
    assert planned({}, cut, src, Host(0, 0, 3)).ups == ((),)
    assert IPv4Address("10.0.0.2") == tree.ip(src)
