"""Messages of traces: what is written is read, and what is malformed is rejected."""

import json
from ipaddress import IPv4Address
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.channel import messages, protocol
from sopa_ryu.channel.messages import FlowLabels, FlowOf, Outcome, ProtocolError, Stream, TraceAnswer, TraceRequest

hops, ports, numbers = st.integers(0, 255), st.integers(0, 65535), st.integers(0, 2**62)
addresses = st.integers(0x0A000000, 0x0AFFFFFF).map(IPv4Address)
streams = st.lists(st.builds(Stream, addresses, hops, hops), min_size=1, max_size=20).map(tuple)
paths = st.builds(TraceRequest, numbers, count=st.integers(1, 1000), interval_ms=st.floats(5.0, 1000.0), streams=streams)
asking = st.builds(TraceRequest, numbers, addresses, st.builds(FlowOf, hops, ports, ports))
requests = paths | asking | st.builds(TraceRequest, numbers, cancel=st.just(True))
outcome = st.builds(Outcome, st.integers(0, 1023), st.integers(0, 3), st.integers(0, 2**32 - 1))
outcomes = st.lists(outcome, max_size=messages.MAX_FATES).map(tuple)
labels = st.lists(st.tuples(hops, hops), max_size=messages.MAX_LABELS).map(tuple)
flows = st.builds(FlowLabels, st.text("az09 -+~", max_size=40), st.booleans(), st.integers(0, 8191), labels)
several = st.builds(messages.trace_answers, numbers, outcomes, st.booleans(), st.text(max_size=300), st.none() | flows)
answers = several.map(lambda its: its[0])
junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(requests, answers, outcomes, flows)
def test_messages_are_read_as_they_were_written(
    request: TraceRequest, answer: TraceAnswer, found: tuple[Outcome, ...], labelled: FlowLabels
) -> None:
    assert messages.from_controller(messages.encode(request)) == request
    assert messages.from_controller(messages.encode(request).encode()) == request
    assert messages.from_agent(messages.encode(answer)) == answer
    [answer] = messages.trace_answers(1, found, done=True, flow=labelled)
    assert (answer.outcomes, answer.flow) == (found, labelled)


@given(outcomes, st.text(alphabet='ä"\\x', max_size=400))
def test_answers_are_shorter_than_agents_may_send(found: tuple[Outcome, ...], problem: str) -> None:
    text = messages.encode(*messages.trace_answers(2**62, found, True, problem))
    assert len(text.encode()) <= protocol.MAX_ANSWER_BYTES or len(json.dumps(problem[: messages.MAX_PROBLEM])) > 1000
    most = FlowLabels("x" * 40, True, 8191, ((255, 255),) * messages.MAX_LABELS)
    assert len(messages.encode(*messages.trace_answers(2**62, (), True, flow=most)).encode()) <= protocol.MAX_ANSWER_BYTES


@given(requests, st.sampled_from(["number", "streams", "count", "interval_ms", "flow", "destination"]), junk)
def test_a_request_with_a_wrong_field_is_rejected_or_as_bounded_as_a_right_one(request: Any, name: str, value: Any) -> None:
    message = json.loads(messages.encode(request)) | {name: value}
    try:
        read = messages.from_controller(json.dumps(message))
    except ProtocolError:
        return
    assert read.count * len(read.streams) <= messages.MAX_PROBES
    assert read.cancel or read.flow or read.interval_ms >= messages.MIN_INTERVAL_MS


@given(answers, st.sampled_from(["number", "probes", "done", "problem", "labels", "policy", "exact", "length"]), junk)
def test_an_answer_with_a_wrong_field_is_rejected_or_an_answer(answer: TraceAnswer, name: str, value: Any) -> None:
    message = json.loads(messages.encode(answer)) | {name: value}
    try:
        read = messages.from_agent(json.dumps(message))
    except ProtocolError:
        return
    assert len(read.outcomes) <= messages.MAX_FATES


def test_fates_go_into_as_few_messages_as_have_room_and_the_last_says_that_it_is() -> None:
    found = [Outcome(at % 4, 0, at) for at in range(600)]
    several = messages.trace_answers(5, found, done=True, problem="why")
    assert [(len(its.outcomes), its.done) for its in several] == [(256, False), (256, False), (88, True)]
    assert several[-1].problem == "why"
    assert [its for answer in several for its in answer.outcomes] == found
    assert messages.trace_answers(5, [], done=True) == [TraceAnswer(5, b"", done=True)]
