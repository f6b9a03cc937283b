"""An agent of a cluster and two relays that follow the leaders' views late: what it has in force never goes back.

The leaders' views are a list that only grows: versions rise, over terms, too. Each relay is a real notifier somewhere in the list.
"""

import random

import pytest

from sopa_ryu.fabric.view import View
from tests.models.push_channel import TREE, Agent, PushChannel
from tests.models.relayed_channels import follow
from topologies import Failures

HOST = next(TREE.hosts())
NAMES = ["a0_0", "c0_1", "a0_0-c0_0"]


def move(agent: Agent, relays: list[PushChannel], to: PushChannel) -> None:
    for each in relays:
        if each.session(agent) is not None:
            each.leave(agent)
    agent.failed = False  # a snapshot comes first
    to.claim(agent)


@pytest.mark.parametrize("seed", range(12))
def test_an_agent_that_moves_between_relays_never_goes_back(seed: int) -> None:
    draw, views = random.Random(seed), [View(1_000, 1, Failures(TREE), "sopa")]
    relays, known, agent = [PushChannel(), PushChannel()], [0, 0], Agent(HOST)
    for each in relays:
        each.follow(views[0])
    for _ in range(400):
        number, before = draw.randrange(2), agent.view
        relay = relays[number]
        match draw.choice(("commit", "learn", "learn", "move", "read", "read")):
            case "commit":
                for _ in range(draw.choice((1, 2, 30))):
                    failed = dict.fromkeys(draw.sample(NAMES, 2), draw.choice(("down", "drained")))
                    term = views[-1].epoch + draw.choice((0,) * 20 + (1, 10**6))
                    views.append(View(term, views[-1].version + 1, Failures(TREE, failed), "sopa"))
            case "learn" if known[number] < len(views) - 1:
                known[number] = min(len(views) - 1, known[number] + draw.choice((1, 1, 3, 1000)))
                relay.follow(views[known[number]])
            case "move":
                move(agent, relays, relay)
            case "read" if relay.session(agent) is not None:
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
    relays[0].follow(views[-1])
    move(agent, relays, relays[0])
    follow(relays[0], agent)
    assert agent.view == views[-1]
    assert relays[0].notifier.behind(views[-1].version) == 0
    assert [each.notifier.refused["messages"] for each in relays] == [0, 0]
