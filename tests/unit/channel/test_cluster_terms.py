"""An agent of a cluster and two relays that follow the leaders' views late: what it has in force never goes back.

The leaders' views are a list that only grows: versions rise, over terms, too. Each relay is a real notifier somewhere in the list.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, PushChannel
from tests.models.relayed_channels import follow
from topologies import Failures

HOST = next(TREE.hosts())
FAILED = st.dictionaries(st.sampled_from(["a0_0", "c0_1", "a0_0-c0_0"]), st.sampled_from(["down", "drained"]))
VIEWS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 10**6]), FAILED), min_size=1, max_size=40)
STEPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 1, 3, 40]), st.booleans()), max_size=40)


@settings(max_examples=60)
@given(VIEWS, STEPS)
def test_an_agent_that_moves_between_relays_never_goes_back(
    more: list[tuple[int, dict[str, str]]], steps: list[tuple[int, int, bool]]
) -> None:
    views = [View(1_000, 1, Failures(TREE), "sopa")]
    for terms, failed in more:
        views.append(View(views[-1].epoch + terms, views[-1].version + 1, Failures(TREE, failed), "sopa"))
    relays, known, agent = [PushChannel(), PushChannel()], [0, 0], Agent(HOST)
    for relay in relays:
        relay.follow(views[0])
    # each step: a relay learns of so many views, or the agent goes to it, and reads what is there or one message
    for number, count, reads in [*steps, (0, len(views), True), (1, len(views), True), (0, 0, True)]:
        relay = relays[number]
        if not count:
            for each in relays:
                if each.session(agent) is not None:
                    each.leave(agent)
            agent.failed = False  # a snapshot comes first
            relay.claim(agent)
        known[number] = min(len(views) - 1, known[number] + count)
        if relay.view != views[known[number]]:
            relay.follow(views[known[number]])
        before = agent.view
        if reads:
            follow(relay, agent)
        elif relay.session(agent) is not None:
            agent.read()
            relay.carry_out([])
        if agent.leaves:
            assert agent.view is before is not None, "a lower term changes nothing"
            relay.leave(agent)
        assert agent.refused == agent.leaves, "nothing but lower terms is refused"
        agent.leaves, agent.refused = False, 0
        if before is not None and agent.view is not None:
            assert (agent.view.epoch, agent.view.version) >= (before.epoch, before.version)
        assert agent.view is None or agent.view in views
        assert all(each.notifier.refused["messages"] == 0 for each in relays)
    assert agent.view == views[-1]
    assert relays[0].notifier.behind(views[-1].version) == 0
