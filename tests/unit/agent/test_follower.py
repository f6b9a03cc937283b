"""The effect of each message of the controller, one by one; test_agent_properties.py has the sequences."""

from __future__ import annotations

import json
import logging
from ipaddress import IPv4Address

import pytest

from sopa_ryu.agent.follower import (
    LOAD_RETRY_SECONDS,
    MAX_REPORTED,
    Answer,
    Follower,
    Hosts,
    Load,
    Probe,
    Trace,
)
from sopa_ryu.agent.mcs_peers import McsPeers, Use
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel import mcs, protocol, traces
from sopa_ryu.channel.addresses import MAX_RETRY_SECONDS, MIN_RETRY_SECONDS
from sopa_ryu.channel.mcs import ChannelKind, HostList
from sopa_ryu.channel.probes import Assignment, Stream, assignment_text
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

ADDRESS = IPv4Address("10.0.0.2")
TREE = FatTree(4)
FIRST = View(7, 3, Failures(TREE))
LINK_DOWN = View(7, 4, Failures(TREE, {"a0_0-c0_1": "down"}))
FAR_HOST_DOWN = View(7, 4, Failures(TREE, {"h2_0_2-e2_0": "down"}))


@pytest.fixture
def follower() -> Follower:
    """A follower with nothing received, whose program labels already."""
    made = Follower(ADDRESS, ("http://192.0.2.1:8080",), seed=1)
    assert made.start(inherited=False)
    return made


def load(follower: Follower, view: View) -> Load:
    """Give a snapshot that changes the path table."""
    todo = follower.receive(protocol.snapshot(view, ADDRESS))
    assert isinstance(todo, Load)
    return todo


def acknowledged(answer: object) -> tuple[int, int]:
    assert isinstance(answer, Answer)
    ack = protocol.answer(answer.text, LINK_DOWN)
    assert ack is not None
    return ack.version, ack.refused


def test_a_snapshot_is_acknowledged_after_its_table_is_in_force(follower: Follower) -> None:
    todo = load(follower, FIRST)
    assert todo.table == path_table(TREE, TREE.host_by_ip(ADDRESS), FIRST.failures, 1, Policy.ROUND_ROBIN)
    assert not todo.attach
    assert follower.view is None
    answer = follower.loaded(todo)
    assert acknowledged(answer) == (3, 0)
    assert answer.settle
    assert (follower.view, follower.swaps) == (todo.view, 1)


def test_the_program_takes_a_killed_ones_place_with_the_first_table() -> None:
    follower = Follower(ADDRESS, ("http://192.0.2.1:8080",))
    assert not follower.start(inherited=True)
    for _ in range(2):  # as long as none has been loaded
        todo = load(follower, FIRST)
        assert todo.attach
        follower.not_loaded(RuntimeError("no memory"))
    follower.loaded(todo)
    assert not load(follower, LINK_DOWN).attach


def test_a_change_that_touches_no_path_is_acknowledged_without_a_load(follower: Follower) -> None:
    follower.loaded(load(follower, FIRST))
    answer = follower.receive(protocol.delta(FIRST, FAR_HOST_DOWN))
    assert acknowledged(answer) == (4, 0)
    assert follower.swaps == 1


def test_a_refused_table_is_asked_for_again_in_full(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    follower.loaded(load(follower, FIRST))
    todo = follower.receive(protocol.delta(FIRST, LINK_DOWN))
    assert isinstance(todo, Load)
    assert follower.not_loaded(RuntimeError("no memory")) == (protocol.RESYNC, LOAD_RETRY_SECONDS, False)
    assert "no memory; the old ones stay in force" in caplog.text
    assert follower.view is not None
    assert follower.view.version == 3
    assert load(follower, LINK_DOWN).table == todo.table


def test_a_gap_leads_to_a_request_for_a_snapshot(follower: Follower) -> None:
    for _ in range(2):
        assert follower.receive(protocol.delta(FIRST, LINK_DOWN)) == (protocol.RESYNC, 0, False)
    assert follower.refused == 0


@pytest.mark.parametrize("change", [{"host": "10.0.0.3"}, {"version": 2}, {"k": 5}, {"failures": {"a9_9": "down"}}])
def test_a_wrong_snapshot_is_refused_counted_and_logged(
    follower: Follower, change: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    follower.loaded(load(follower, FIRST))
    wrong = json.dumps({**json.loads(protocol.snapshot(FIRST, ADDRESS)), **change})
    for number in (1, 2):
        assert acknowledged(follower.receive(wrong)) == (3, number)
        assert f"refused ({number} so far)" in caplog.text


def test_a_ping_is_answered_by_the_version_in_force(follower: Follower) -> None:
    assert json.loads(follower.receive(protocol.PING).text)["version"] == 0  # type: ignore[union-attr]
    follower.loaded(load(follower, FIRST))
    assert acknowledged(follower.receive(protocol.PING)) == (3, 0)


def test_racks_without_a_path_are_counted_and_logged_once_healed(
    follower: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sopa.agent")  # whatever level an earlier test left at the logger
    follower.loaded(load(follower, FIRST._replace(failures=Failures(TREE, {"e2_0": "down"}))))
    assert follower.cut_off == 1
    assert "no path is left to 1 racks" in caplog.text
    assert "paths to every rack again" not in caplog.text
    follower.loaded(load(follower, LINK_DOWN))
    assert follower.cut_off == 0
    assert "paths to every rack again" in caplog.text


def test_retries_come_later_and_later_and_early_again_after_a_connection(follower: Follower) -> None:
    limit = MIN_RETRY_SECONDS
    for _ in range(8):
        assert limit / 2 <= follower.disconnect("refused") <= limit <= MAX_RETRY_SECONDS
        limit = min(2 * limit, MAX_RETRY_SECONDS)
    follower.connect()
    assert follower.connected
    assert follower.disconnect("closed") <= MIN_RETRY_SECONDS
    assert not follower.connected


def test_each_problem_of_an_outage_is_logged_once(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    follower.connect()
    for problem in ("closed", "Connection refused", "the token is not accepted", "Connection refused", "closed"):
        follower.disconnect(problem)
    assert caplog.text.count("no controller at") == 3
    assert "the token is not accepted" in caplog.text
    for number in range(100):  # whatever varies in them
        follower.disconnect(f"refused from port {number}")
    assert caplog.text.count("no controller at") == MAX_REPORTED
    follower.connect()
    follower.disconnect("closed")
    assert caplog.text.count("no controller at") == MAX_REPORTED + 1


def test_a_missing_controller_is_logged_once_per_outage(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        follower.disconnect("Connection refused")
    assert caplog.text.count("no controller at http://192.0.2.1:8080: Connection refused") == 1
    assert "packets go unlabelled until it answers" in caplog.text
    follower.connect()
    follower.loaded(load(follower, FIRST))
    caplog.clear()
    follower.disconnect("closed")
    assert "its last path sets stay in force" in caplog.text


# -- hosts that run MCS -----------------------------------------------------------------------------------------------

OTHER = IPv4Address("10.2.1.3")
NOBODY, BOTH = HostList(1, frozenset(), 1, True), HostList(2, frozenset([ADDRESS, OTHER]), 2, True)


def scattering() -> Follower:
    made = Follower(ADDRESS, ("http://192.0.2.1:8080",), seed=1, peers=McsPeers(ADDRESS, ChannelKind.PATHS))
    made.start(inherited=True)
    return made


def test_hosts_of_a_snapshot_are_put_in_force_before_the_programs_are_attached() -> None:
    follower = scattering()
    todo = follower.receive(protocol.snapshot(FIRST, ADDRESS, BOTH))
    assert isinstance(todo, Load)
    assert (todo.attach, todo.hosts) == (True, True)
    assert follower.peers is not None
    assert follower.peers.uses() == {OTHER: Use.SCATTERS}
    assert json.loads(follower.loaded(todo).text)["mcs"] == 2


def test_a_change_of_hosts_is_acknowledged_with_the_version_that_is_in_force() -> None:
    follower = scattering()
    todo = follower.receive(protocol.snapshot(FIRST, ADDRESS, NOBODY))
    assert isinstance(todo, Load)
    follower.loaded(todo)
    change = follower.receive(mcs.change(NOBODY, BOTH))
    assert isinstance(change, Hosts)
    assert json.loads(change.answer.text) == {"type": "ack", "epoch": 7, "version": 3, "refused": 0, "mcs": 2}
    assert follower.view == FIRST


def test_hosts_that_cannot_be_noted_are_asked_for_again_and_not_acknowledged() -> None:
    follower = scattering()
    todo = follower.receive(protocol.snapshot(FIRST, ADDRESS, BOTH))
    assert isinstance(todo, Load)
    assert follower.not_noted(RuntimeError("no memory")) == Answer(protocol.RESYNC, delay=LOAD_RETRY_SECONDS)
    assert follower.view is None
    assert follower.peers is not None
    assert follower.peers.number == 0


def test_an_agent_of_another_policy_and_an_older_one_take_no_notice_of_hosts(follower: Follower) -> None:
    todo = follower.receive(protocol.snapshot(FIRST, ADDRESS, BOTH))
    assert isinstance(todo, Load)
    assert not todo.hosts
    assert "mcs" not in json.loads(follower.loaded(todo).text)


def test_a_malformed_list_of_hosts_is_refused_with_its_message() -> None:
    follower = scattering()
    message = json.loads(protocol.snapshot(FIRST, ADDRESS, BOTH)) | {"mcs": ["nowhere"]}
    assert acknowledged(follower.receive(json.dumps(message))) == (0, 1)
    assert follower.view is None


ASSIGNED = assignment_text(Assignment(7, 20.0, (Stream(IPv4Address("10.2.1.3"), 0, 1),)))


def test_an_assignment_of_probes_is_followed_and_acknowledged() -> None:
    follower = Follower(ADDRESS, ("http://192.0.2.1:8080",), probes=True)
    todo = follower.receive(ASSIGNED)
    assert isinstance(todo, Probe)
    assert todo.assignment == Assignment(7, 20.0, (Stream(IPv4Address("10.2.1.3"), 0, 1),))
    assert acknowledged(todo.answer) == (0, 0)
    assert isinstance(follower.receive(ASSIGNED.encode()), Probe)


def test_an_agent_that_does_not_probe_acknowledges_an_assignment_without_following_it(follower: Follower) -> None:
    assert acknowledged(follower.receive(ASSIGNED)) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("20.0", "0.1", "interval_ms is no number"),
        ("20.0", "true", "interval_ms is no number"),
        ("7,", "-7,", "-7 is no number"),
        ('"streams"', '"stream"', "streams is no list"),
        ("10.2.1.3", "10.2.1.300", "10.2.1.300"),
        ("10.2.1.3", "11.2.1.3", "11.2.1.3 is no other host to probe"),
        ("10.2.1.3", "10.0.0.2", "10.0.0.2 is no other host to probe"),
        ("0, 1]", "0, 256]", "is no stream"),
        ("0, 1]", "255, 1]", "255, 1 are no hops of a path"),
    ],
)
def test_a_malformed_assignment_is_refused(old: str, new: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(ADDRESS, ("http://192.0.2.1:8080",), probes=True)
    assert acknowledged(follower.receive(ASSIGNED.replace(old, new))) == (0, 1)
    assert why in caplog.text


# -- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_is_begun_and_ended_and_acknowledged_meanwhile(follower: Follower) -> None:
    follower.loaded(load(follower, FIRST))
    request = traces.Request(3, (Stream(IPv4Address("10.2.1.3"), 0, 1),), 20, 10.0)
    for asked in (request, traces.Cancel(3)):
        todo = follower.receive(traces.request_text(asked))
        assert isinstance(todo, Trace)
        assert todo.asked == asked
        assert acknowledged(todo.answer) == (3, 0)


def test_a_flow_is_answered_by_the_table_in_force(follower: Follower) -> None:
    flow = traces.Request(4, destination=IPv4Address("10.2.1.3"), flow=traces.FlowOf(6, 40000, 5001))

    def said() -> traces.Answer:
        todo = follower.receive(traces.request_text(flow))
        assert isinstance(todo, Answer)
        answer = protocol.traced(todo.text)
        assert answer is not None
        return answer

    assert said().problem == "it has no paths yet"
    follower.loaded(load(follower, FIRST))
    healthy = said()
    assert (healthy.number, healthy.done) == (4, True)
    assert healthy.flow is not None
    assert healthy.flow.labels == ((0, 1), (1, 1), (0, 0), (1, 0))
    todo = follower.receive(protocol.delta(FIRST, LINK_DOWN))
    assert isinstance(todo, Load)
    assert said().flow == healthy.flow  # the new table is not loaded yet
    follower.loaded(todo)
    after = said().flow
    assert after is not None
    assert (0, 1) not in after.labels


def test_a_malformed_request_for_a_trace_is_refused(follower: Follower) -> None:
    follower.loaded(load(follower, FIRST))
    assert acknowledged(follower.receive('{"type": "trace", "number": 3, "streams": []}')) == (3, 1)
