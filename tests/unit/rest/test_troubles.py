"""What is not well with a fabric: each kind alone, and that ``sopa status`` ends with 3 for it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sopa_ryu.cli import main, query
from sopa_ryu.cli.client import Controller
from sopa_ryu.fabric.suspects import Suspected
from sopa_ryu.rest.resources import Resources
from sopa_ryu.runtime import clock
from tests.helpers.rest import Rest
from tests.helpers.stub_cluster import StubCluster
from topologies.fabric_file import parse
from topologies.failures import Reason

GATEWAY = "pods: 1\nedges: 2\naggregations: 2\ncores: 0\nhosts: 2\ngateways: [h0_0_2]\n"


def port(rest: Rest, switch: str = "a0_0") -> None:
    rest.state.port_changed(rest.state.tree.switch(switch), 1, Reason.DOWN, 1)


def suspect(rest: Rest) -> None:
    found = [Suspected("e0_0-a0_1", down, 0.05, 1.0, 3) for down in (True, False)]
    rest.fabric.health.caretaker.confirmed = lambda: found  # type: ignore[method-assign]


def leave(rest: Rest) -> None:
    rest.fabric.agents.change({}, [rest.state.tree.host("h0_1_3")], 1)


def lose_arbiter(rest: Rest) -> None:
    session, _ = rest.fabric.arbiter.enter("192.0.2.1", None, 0.0)
    rest.fabric.arbiter.closed(session)


def lag(rest: Rest, seconds: float = 2.0) -> None:
    host, agent = next(iter(rest.fabric.agents.sessions.items()))
    since = clock.now() - seconds
    rest.fabric.agents.sessions[host] = replace(agent, acknowledged=rest.state.version - 1, behind_since=since)


def lead(leader: str | None, waiting: int = 0) -> Callable[[Rest], None]:
    def inside(rest: Rest) -> None:
        rest.fabric.cluster = its = StubCluster(leader)
        its.waiting = waiting

    return inside


TROUBLES: dict[str, tuple[Callable[[Rest], object], str]] = {
    "nothing": (lambda rest: None, ""),
    "a link": (port, "1 failed: sopa failures"),
    "a drain": (lambda rest: rest.fabric.set_drained("a0_0", True), "1 drained: sopa failures"),
    "a switch": (lambda rest: rest.state.switch_lost(rest.state.tree.switch("a0_0"), 1), "1 switches not connected"),
    "another switch": (lambda rest: rest.state.rejected.update({9: "none of the plan"}), "1 switches ignored"),
    "a suspect": (suspect, "1 links lose packets: sopa health --suspects"),
    "the gateway": (lambda rest: port(rest, "e0_0"), "1 failed: sopa failures; 1 gateways away"),
    "the arbiter": (lose_arbiter, "1 arbiter gone"),
    "an agent": (leave, "1 hosts without an agent: sopa agents --missing"),
    "an agent's lag": (lag, "1 agents behind: sopa agents"),
    "a moment's lag": (lambda rest: lag(rest, 0.1), ""),
    "a relay's lag": (lead("c1", 2), "2 agents behind: sopa agents"),
    "a leader": (lead("c1"), ""),
    "the leader": (lead(None), "1 no member of the cluster leads"),
}  # fmt: skip


@pytest.mark.parametrize(("happens", "text"), TROUBLES.values(), ids=TROUBLES)
def test_status_ends_with_3_for_each_trouble_alone(
    happens: Callable[[Rest], object], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = Rest(tmp_path, parse(GATEWAY).fabric)
    for switch in rest.state.tree.switches():
        rest.state.switch_ready(switch, 0)
    for host in set(rest.state.tree.hosts()) - set(rest.state.tree.gateways):
        rest.fabric.connect(host, rest.state.version)
    happens(rest)
    monkeypatch.setattr(Controller, "get", lambda _its, path, **_: getattr(Resources(rest.fabric), path[1:])())
    monkeypatch.setattr(query, "_health", lambda _controller: None)
    done = CliRunner().invoke(main, ["status"])
    told = [line.partition("not well")[2].strip() for line in done.output.splitlines() if line.startswith("not well")]
    assert ("; ".join(told), done.exit_code) == (text, 3 if text else 0), done.output


def test_a_fabric_in_which_no_agent_has_ever_connected_needs_none(tmp_path: Path) -> None:
    assert "agents" not in {each["kind"] for each in Rest(tmp_path).get("fabric").json["troubles"]}
