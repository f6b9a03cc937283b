"""``sopa trace`` as it is typed: what it asks for, what it shows and how it ends, with answers of the controller's own code."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sopa_ryu.channel.trace_desk import Asked, Found, State, Trace
from sopa_ryu.channel.traces import BACK, LOST, LOST_BACK, FlowLabels, FlowOf
from sopa_ryu.cli import controller_options, main, trace
from sopa_ryu.rest.trace_answer import tell
from topologies import Failures, FatTree, Host

TREE = FatTree(4)
HEALTHY = Failures(TREE)
SRC, DST = Host(0, 0, 2), Host(2, 1, 3)
UPS = TREE.choices_between(SRC, DST)


def found(fates: dict[int, int], delay: int = 80_000) -> Found:
    its = Found()
    its.fates.update(fates)
    its.delays.extend([delay] * fates.get(BACK, 0))
    return its


def body(
    state: State = State.DONE, problem: str = "", fates: dict[int, dict[int, int]] | None = None
) -> dict[str, Any]:
    """The answer about a trace of all four paths with 20 probes each; ``fates`` of the paths that are not clean."""
    made = Trace(7, SRC, DST, Asked(UPS, 20, 10.0), 3, 0.0, 0.0)
    made.found = [found((fates or {}).get(place, {BACK: 20}), 80_000 + 1000 * place) for place in range(4)]
    made.end(state, problem)
    return tell(made, HEALTHY, ())


def flow_body(labels: FlowLabels | None) -> dict[str, Any]:
    made = Trace(
        7, SRC, DST, Asked(flow=FlowOf(6, 40000, 5201)), 3, 0.0, 0.0, labels=labels, asked_agent=labels is not None
    )
    made.end(State.DONE)
    return tell(made, HEALTHY, ())


class Answers:
    """A controller that gives prepared answers."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies = iter(bodies)
        self.asked: list[tuple[str, str, Any]] = []

    def __call__(self, url: str, *_files: object) -> Answers:
        return self

    def send(self, method: str, path: str, given: Any = None) -> Any:
        self.asked.append((method, path, given))
        return self._next()

    def get(self, path: str, **_params: object) -> Any:
        self.asked.append(("GET", path, None))
        return {"k": 4} if path == "/fabric" else self._next()

    def close(self) -> None:
        """Nothing is open."""

    def _next(self) -> Any:
        answer = next(self.bodies)
        if isinstance(answer, BaseException):
            raise answer
        return answer


Run = Callable[..., tuple[Result, Answers]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(trace, "LOOK_SECONDS", 0.0)
    monkeypatch.setenv("OVS_RUNDIR", "/nowhere")

    def run(*words: str, answers: tuple[Any, ...] = ()) -> tuple[Result, Answers]:
        controller = Answers(*answers)
        monkeypatch.setattr(controller_options, "Controller", controller)
        return CliRunner().invoke(main, ["trace", *words]), controller

    return run


def test_it_asks_for_what_is_typed_and_shows_paths_links_and_the_order(run: Run) -> None:
    done, controller = run("h0_0_2", "h2_1_3", answers=(body(State.RUNNING), body()))
    assert done.exit_code == 0, done.output
    asked = {"src": "h0_0_2", "dst": "h2_1_3", "all": False, "count": 20, "interval_ms": 10.0}
    assert controller.asked[0] == ("POST", "/traces", asked)
    assert controller.asked[1][:2] == ("GET", "/traces/7")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        "h0_0_2 to h2_1_3: inter-pod, 80 of 80 probes on 4 paths, version 3; delays in microseconds"
    )
    assert lines[3].split() == ["0,0", "20", "0", "0", "0", "80", "80", "80", "e0_0", "a0_0", "c0_0", "a2_0", "e2_1"]
    shared = next(line for line in lines if "h0_0_2-e0_0 h2_1_3-e2_1" in line)
    assert shared.split() == ["4", "80", "0", "-", "80", "80", "80", "h0_0_2-e0_0", "h2_1_3-e2_1"]
    slower = next(line for line in lines if "e0_0-a0_1 e2_1-a2_1" in line)
    assert slower.split()[4:7] == ["+1", "+1", "+1"]
    assert lines[-1].endswith("from a start of its own: 0,0 1,0 0,1 1,1")


def test_options_reach_the_controller(run: Run) -> None:
    words = ("h0_0_2", "h2_1_3", "--up", "0,1", "--up", "1,1", "--count", "7", "--interval", "5")
    _, controller = run(*words, answers=(body(),))
    asked = {"src": "h0_0_2", "dst": "h2_1_3", "all": False, "count": 7, "interval_ms": 5.0, "up": [[0, 1], [1, 1]]}
    assert controller.asked[0][2] == asked
    _, controller = run("--all", "h0_0_2", "h2_1_3", answers=(body(),))
    assert controller.asked[0][2]["all"] is True
    done, _ = run("h0_0_2", "h2_1_3", "--json", answers=(body(),))
    assert json.loads(done.stdout) == body()


@pytest.mark.parametrize(
    ("fates", "status", "shown"),
    [
        ({2: {LOST: 20}}, 1, "100.0%"),
        ({2: {LOST_BACK: 10, BACK: 10}}, 3, "50.0%"),
        ({2: {LOST: 1, BACK: 19}}, 0, "1 lost probes are too few to say which links lost them"),
        ({0: {LOST: 20}, 2: {LOST: 20}}, 1, "100.0%"),
    ],
    ids=["all of a path", "half", "one", "two paths"],
)
def test_the_exit_status_says_whether_probes_are_lost(run: Run, fates: Any, status: int, shown: str) -> None:
    done, _ = run("h0_0_2", "h2_1_3", answers=(body(fates=fates),))
    assert done.exit_code == status, done.output
    assert shown in done.stdout


def test_ctrl_c_ends_the_trace_and_shows_what_came(run: Run) -> None:
    half = {place: {BACK: 5} for place in range(4)}
    answers = (body(State.RUNNING), KeyboardInterrupt(), body(State.CANCELLED, fates=half))
    done, controller = run("h0_0_2", "h2_1_3", answers=answers)
    assert controller.asked[-1][:2] == ("DELETE", "/traces/7")
    assert "20 of 80 probes" in done.stdout
    assert done.exit_code == 0


def test_one_that_ends_early_shows_what_came_and_why(run: Run) -> None:
    done, _ = run("h0_0_2", "h2_1_3", answers=(body(State.FAILED, "its agent has left", {0: {BACK: 3}}),))
    assert done.exit_code == 1
    assert "63 of 80 probes" in done.stdout
    assert "the trace has ended early: its agent has left" in done.stderr


def test_a_labelled_flows_order_and_shares_are_shown(run: Run) -> None:
    labels = FlowLabels("round-robin", True, 4, ((0, 1), (1, 1), (0, 0), (1, 0)))
    done, controller = run("--flow", "h0_0_2:40000", "h2_1_3:5201", answers=(flow_body(labels),))
    assert done.exit_code == 0, done.output
    assert controller.asked[0][2]["flow"] == {"protocol": 6, "sport": 40000, "dport": 5201}
    assert "inter-pod, labelled, version 3. The host's agent labels packets by the policy round-robin." in done.stdout
    assert "Its packets take the ways in this order: 0 1 2 3, and again after 4 packets" in done.stdout
    assert " 25.0%   h0_0_2-e0_0 e0_0-a0_0 a0_0-c0_1" in done.stdout


def test_what_is_not_known_for_sure_ends_with_3(run: Run) -> None:
    labels = FlowLabels("mcs", False, 0, ((0, 1), (1, 1)))
    done, _ = run("--flow", "h0_0_2:40000", "h2_1_3:5201", answers=(flow_body(labels),))
    assert done.exit_code == 3
    assert "does not follow from the flow alone" in done.stdout


def test_a_hashed_flow_needs_no_switches_here_and_those_that_do_otherwise_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = run("--flow", "h0_0_2:40000", "h2_1_3:5201", answers=(flow_body(None),))
    assert done.exit_code == 0, done.output
    assert "inter-pod, hashed, version 3. No agent of the host is connected" in done.stdout
    assert "3 other ways" in done.stdout
    way = ["e0_0", "a0_0", "c0_0", "a2_0", "e2_1", "h2_1_3"]
    monkeypatch.setattr(trace, "way_of", lambda *_: way)
    done, _ = run("--flow", "h0_0_2:40000", "h2_1_3:5201", answers=(flow_body(None),))
    assert done.exit_code == 3
    assert "says otherwise: e0_0 a0_0 c0_0 a2_0 e2_1 (ofproto/trace)" in done.stdout
