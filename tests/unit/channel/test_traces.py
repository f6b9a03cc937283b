"""Messages of traces: what is written is read, and what is malformed is rejected."""

import json
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import protocol, traces
from sopa_ryu.channel.probes import Stream
from sopa_ryu.channel.traces import Answer, Cancel, FlowLabels, FlowOf, Outcome, Request

hops, ports, numbers = st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**62)
addresses = st.integers(0x0A000000, 0x0AFFFFFF).map(IPv4Address)
streams = st.lists(st.builds(Stream, addresses, hops, hops), min_size=1, max_size=20).map(tuple)
probing = st.tuples(numbers, streams, st.integers(1, 1000), st.floats(5.0, 1000.0)).map(lambda its: Request(*its))
flow = st.builds(FlowOf, hops, ports, ports)
asking = st.tuples(numbers, addresses, flow).map(lambda its: Request(its[0], destination=its[1], flow=its[2]))
requests = probing | asking | st.builds(Cancel, numbers)
outcome = st.builds(Outcome, st.integers(0, 1023), st.integers(0, 3), st.integers(0, 2**32 - 1))
outcomes = st.lists(outcome, max_size=traces.MAX_FATES).map(tuple)
labels = st.lists(st.tuples(hops, hops), max_size=traces.MAX_LABELS).map(tuple)
flows = st.builds(FlowLabels, st.text(max_size=40), st.booleans(), st.integers(0, 8191), labels)
answers = st.builds(Answer, numbers, outcomes, st.booleans(), st.text(max_size=300), st.none() | flows)
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(requests, answers)
def test_messages_are_read_as_they_were_written(request: Request | Cancel, answer: Answer) -> None:
    assert protocol.trace_asked(traces.request_text(request)) == request
    assert protocol.trace_asked(traces.request_text(request).encode()) == request
    assert protocol.traced(traces.answer_text(answer)) == answer


@given(outcomes, st.text(alphabet='ä"\\x', max_size=400))
def test_answers_are_shorter_than_agents_may_send(found: tuple[Outcome, ...], problem: str) -> None:
    text = traces.answer_text(Answer(2**62, found, True, problem))
    assert len(text.encode()) <= protocol.MAX_ANSWER_BYTES or len(json.dumps(problem[: traces.MAX_PROBLEM])) > 1000
    most = FlowLabels("x" * 40, True, 8191, ((255, 255),) * traces.MAX_LABELS)
    assert len(traces.answer_text(Answer(2**62, done=True, flow=most)).encode()) <= protocol.MAX_ANSWER_BYTES


@given(requests, st.sampled_from(["number", "streams", "count", "interval_ms", "flow", "destination"]), junk)
def test_a_request_with_a_wrong_field_is_rejected_or_as_bounded_as_a_right_one(
    request: Any, name: str, value: Any
) -> None:
    message = json.loads(traces.request_text(request)) | {name: value}
    try:
        read = protocol.trace_asked(json.dumps(message))
    except protocol.ProtocolError:
        return
    if isinstance(read, Request):
        assert read.probes * len(read.streams) <= traces.MAX_PROBES
        assert read.interval_ms >= traces.MIN_INTERVAL_MS


@given(answers, st.sampled_from(["number", "probes", "done", "problem", "labels", "policy", "exact", "length"]), junk)
def test_an_answer_with_a_wrong_field_is_rejected_or_an_answer(answer: Answer, name: str, value: Any) -> None:
    message = json.loads(traces.answer_text(answer)) | {name: value}
    try:
        read = protocol.traced(json.dumps(message))
    except protocol.ProtocolError:
        return
    assert read is not None
    assert len(read.outcomes) <= traces.MAX_FATES


def test_fates_go_into_as_few_messages_as_have_room_and_the_last_says_that_it_is() -> None:
    found = [Outcome(at % 4, 0, at) for at in range(600)]
    messages = list(traces.in_messages(5, found, done=True, problem="why"))
    assert [(len(its.outcomes), its.done) for its in messages] == [(256, False), (256, False), (88, True)]
    assert messages[-1].problem == "why"
    assert [its for message in messages for its in message.outcomes] == found
    assert traces.in_messages(5, [], done=True) == [Answer(5, (), True)]


def test_other_messages_are_none_of_a_trace() -> None:
    for text in (protocol.PING, protocol.RESYNC, '{"type": "probes", "streams": []}'):
        assert protocol.traced(text) is protocol.trace_asked(text) is None
    with pytest.raises(protocol.ProtocolError):
        protocol.traced('{"type": "traced"')
