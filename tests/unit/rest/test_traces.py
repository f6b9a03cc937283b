"""Traces of flows over REST, in any fabric; what else is traced, scripts/rest shows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.agent.label.flow_labels import flow_labels
from sopa_ryu.agent.paths.flow_hash import FlowKey
from sopa_ryu.agent.paths.path_sets import path_table
from sopa_ryu.agent.paths.path_table import Policy
from sopa_ryu.channel.messages import MAX_LABELS, FlowOf
from sopa_ryu.channel.trace_desk import Asked, Trace
from sopa_ryu.rest.trace_answer import tell_flow
from tests.helpers.random_fabrics import random_fabric, some_pairs
from topologies import Failures


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
            assert said.length <= MAX_LABELS or len(said.labels) == MAX_LABELS
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
