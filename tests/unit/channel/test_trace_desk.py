"""Traces as the controller keeps them: who may begin one, what agents may answer, and when one ends."""

from __future__ import annotations

import json

import pytest

from sopa_ryu.channel import protocol, traces
from sopa_ryu.channel.notifier import MAX_REFUSED
from sopa_ryu.channel.trace_desk import (
    KEPT_SECONDS,
    MAX_RUNNING,
    SILENT_SECONDS,
    UNREAD_SECONDS,
    Asked,
    BusyError,
    State,
    Trace,
    TraceDesk,
    UnableError,
)
from sopa_ryu.channel.traces import (
    BACK,
    LOST,
    LOST_BACK,
    LOST_OUT,
    Answer,
    Cancel,
    FlowLabels,
    FlowOf,
    Outcome,
    Request,
)
from tests.models.push_channel import TREE, Agent, PushChannel
from topologies import Host

FIRST, SECOND, *_, LAST = list(TREE.hosts())
ENDS = FIRST, LAST
ASKED = Asked(((0, 0), (1, 0)), 3, 10.0)
FLOW = FlowOf(6, 40000, 5201)


@pytest.fixture
def channel() -> PushChannel:
    """A controller that knows what has failed, and the agents of two hosts that probe."""
    channel = PushChannel()
    channel.settle()
    for host in (FIRST, SECOND):
        connected(channel, host)
    return channel


def connected(channel: PushChannel, host: Host, probes: bool = True) -> Agent:
    agent = Agent(host)
    assert channel.claim(agent).accepted
    while agent.read() | channel.hear(agent):
        channel.carry_out([])
    session = channel.session(agent)
    assert session is not None
    session.probes = probes
    return agent


def begin(channel: PushChannel, ends: tuple[Host, Host] = ENDS, asked: Asked = ASKED) -> Trace:
    trace, effects = channel.notifier.begin_trace(ends, asked, 1, channel.now)
    channel.carry_out(effects)
    return trace


def sent(channel: PushChannel, host: Host) -> list[Request | Cancel]:
    """What the controller has sent a host's agent of traces, and is taken off here."""
    connection, texts = channel.notifier.sessions[host].connection, []
    while connection.to_agent:  # the writer waits until it is read
        texts.append(connection.to_agent.popleft())
        channel.carry_out([])
    return [asked for text in texts if (asked := protocol.trace_asked(text))]


def answer(channel: PushChannel, host: Host, its: Answer) -> int:
    """Let an agent answer; how many of its messages were rejected so far."""
    session = channel.notifier.sessions[host]
    channel.carry_out(channel.notifier.received(session, traces.answer_text(its), channel.now))
    return session.refused


def test_a_trace_asks_the_sources_agent_and_takes_its_answers(channel: PushChannel) -> None:
    trace = begin(channel)
    [request] = sent(channel, FIRST)
    assert isinstance(request, Request)
    assert (request.number, request.probes, request.interval_ms) == (trace.number, 3, 10.0)
    assert [(str(one.destination), one.up1, one.up2) for one in request.streams] == [
        (str(TREE.ip(LAST)), 0, 0),
        (str(TREE.ip(LAST)), 1, 0),
    ]
    first = (Outcome(0, BACK, 500), Outcome(1, LOST_OUT), Outcome(0, BACK, 700), Outcome(1, LOST_BACK))
    assert answer(channel, FIRST, Answer(trace.number, first)) == 0
    assert trace.state is State.RUNNING
    rest = (Outcome(0, BACK, 600), Outcome(1, LOST))
    assert answer(channel, FIRST, Answer(trace.number, rest, done=True)) == 0
    assert trace.state is State.DONE
    assert list(trace.found[0].delays) == [500, 700, 600]
    assert dict(trace.found[1].fates) == {LOST_OUT: 1, LOST_BACK: 1, LOST: 1}
    assert len(channel.notifier.traces) == 0


def test_a_host_has_one_trace_at_a_time_and_all_have_so_many(channel: PushChannel) -> None:
    begin(channel)
    with pytest.raises(UnableError, match="is running"):
        begin(channel)
    begin(channel, (SECOND, LAST))
    desk = TraceDesk()
    for number in range(MAX_RUNNING):
        session = channel.notifier.sessions[FIRST]
        desk.begin(session, (Host(number, 0, 2), LAST), TREE.ip(LAST), ASKED, 1, 0.0)
    with pytest.raises(BusyError):
        desk.begin(channel.notifier.sessions[FIRST], (Host(99, 0, 2), LAST), TREE.ip(LAST), ASKED, 1, 0.0)


def test_a_host_without_an_agent_or_probes_traces_nothing(channel: PushChannel) -> None:
    with pytest.raises(UnableError, match="no agent"):
        begin(channel, (LAST, FIRST))
    connected(channel, LAST, probes=False)
    with pytest.raises(UnableError, match="sends no probes"):
        begin(channel, (LAST, FIRST))


@pytest.mark.parametrize(
    "forged",
    [
        Answer(77, (), done=True),
        Answer(1, (Outcome(2, BACK, 5),)),
        Answer(1, (Outcome(0, BACK, 5),) * 4),
        Answer(1, (), done=True, flow=FlowLabels("hash", True, 1, ((0, 0),))),
    ],
    ids=["unknown trace", "unknown path", "more fates than probes", "a flow nobody asked for"],
)
def test_an_answer_nobody_asked_for_changes_nothing_and_is_counted(channel: PushChannel, forged: Answer) -> None:
    trace = begin(channel)
    assert trace.number == 1
    before = channel.notifier.refused["messages"]
    assert answer(channel, FIRST, forged) == 1
    assert channel.notifier.refused["messages"] == before + 1
    assert trace.state is State.RUNNING
    assert not any(found.sent for found in trace.found)


def test_another_hosts_trace_cannot_be_answered(channel: PushChannel) -> None:
    trace = begin(channel)
    assert answer(channel, SECOND, Answer(trace.number, (Outcome(0, LOST),), done=True)) == 1
    assert trace.state is State.RUNNING
    for _ in range(MAX_REFUSED):
        if SECOND in channel.notifier.sessions:
            answer(channel, SECOND, Answer(trace.number, done=True))
    assert SECOND not in channel.notifier.sessions  # it was cut off


def test_one_that_nobody_reads_ends_and_its_agent_is_told(channel: PushChannel) -> None:
    trace = begin(channel)
    sent(channel, FIRST)
    for _ in range(3):
        channel.now += UNREAD_SECONDS - 1
        assert channel.notifier.traces.find(trace.number, channel.now) is trace
        answer(channel, FIRST, Answer(trace.number, (Outcome(0, BACK, 5),)))
        channel.carry_out(channel.notifier.tick(channel.now))
    assert trace.state is State.RUNNING
    channel.now += UNREAD_SECONDS + 1
    channel.carry_out(channel.notifier.tick(channel.now))
    assert trace.state is State.CANCELLED
    assert "nobody has read it" in trace.problem
    assert sent(channel, FIRST) == [Cancel(trace.number)]
    # what was on its way is no forgery
    assert answer(channel, FIRST, Answer(trace.number, (Outcome(1, BACK, 5),))) == 0
    assert trace.found[1].sent == 0
    assert begin(channel).state is State.RUNNING


def test_one_whose_agent_is_silent_or_leaves_fails_with_what_came(channel: PushChannel) -> None:
    trace = begin(channel)
    answer(channel, FIRST, Answer(trace.number, (Outcome(0, BACK, 5),)))
    at = channel.now
    while channel.now < at + SILENT_SECONDS + 1:
        channel.now += 1
        channel.notifier.traces.find(trace.number, channel.now)
        channel.carry_out(channel.notifier.tick(channel.now))
    assert trace.state is State.FAILED
    assert "has not answered" in trace.problem
    assert trace.found[0].sent == 1
    second = begin(channel)
    channel.carry_out(channel.notifier.closed(channel.notifier.sessions[FIRST]))
    assert second.state is State.FAILED
    assert "left" in second.problem


def test_an_agents_problem_ends_a_trace(channel: PushChannel) -> None:
    trace = begin(channel)
    answer(channel, FIRST, Answer(trace.number, done=True, problem="the interface is down"))
    assert trace.state is State.FAILED
    assert trace.problem == "its agent: the interface is down"


def test_a_cancelled_one_keeps_what_came_for_a_while(channel: PushChannel) -> None:
    trace = begin(channel)
    answer(channel, FIRST, Answer(trace.number, (Outcome(0, BACK, 5),)))
    channel.carry_out(channel.notifier.cancel_trace(trace, channel.now))
    channel.carry_out(channel.notifier.cancel_trace(trace, channel.now))
    assert [type(each) for each in sent(channel, FIRST)] == [Request, Cancel]
    desk = channel.notifier.traces
    assert desk.find(trace.number, channel.now) is trace
    desk.tick(channel.now + KEPT_SECONDS + 1)
    assert desk.find(trace.number, channel.now) is None


def test_old_ones_make_room_for_new_ones(channel: PushChannel) -> None:
    desk, first = channel.notifier.traces, begin(channel)
    for _ in range(100):
        desk.cancel(desk.begin(channel.notifier.sessions[SECOND], (SECOND, LAST), TREE.ip(LAST), ASKED, 1, 0.0), 0.0)
    assert len(desk._by_number) <= 33
    assert desk.find(first.number, 0.0) is first  # it is running


def test_a_flow_is_asked_for_and_answered(channel: PushChannel) -> None:
    trace = begin(channel, asked=Asked(flow=FLOW))
    [request] = sent(channel, FIRST)
    assert isinstance(request, Request)
    assert (request.destination, request.flow) == (TREE.ip(LAST), FLOW)
    labels = FlowLabels("round-robin", True, 2, ((0, 0), (1, 0)))
    assert answer(channel, FIRST, Answer(trace.number, done=True)) == 1  # it says nothing of the flow
    answer(channel, FIRST, Answer(trace.number, done=True, flow=labels))
    assert trace.labels == labels
    assert trace.state is State.DONE


def test_acknowledgements_and_traces_go_side_by_side(channel: PushChannel) -> None:
    trace = begin(channel)
    session = channel.notifier.sessions[FIRST]
    ack = json.dumps({"type": "ack", "epoch": channel.view.epoch, "version": channel.view.version, "refused": 0})
    channel.carry_out(channel.notifier.received(session, ack, channel.now))
    assert answer(channel, FIRST, Answer(trace.number, (Outcome(0, BACK, 1),))) == 0
    assert session.acknowledged == channel.view.version
