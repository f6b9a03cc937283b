"""Agents connected to the controller itself: their sessions, the links they avoid, and the events of connecting and leaving."""

from dataclasses import replace

from sopa_ryu.channel.connected import ConnectedAgent, ConnectedAgents
from sopa_ryu.events.event import Event, EventKind
from topologies import FatTree, Host

TREE = FatTree(4)
HOST, *_ = TREE.hosts()
AGENT = ConnectedAgent(TREE.name(HOST), "192.0.2.1", "mac", "round-robin", "all", 1, 2.0, None, 0.0, 0, 0, traces=True)


def test_a_disconnected_agent_is_forgotten_with_the_links_that_it_avoided() -> None:
    its, events, departed = ConnectedAgents(TREE), list[Event](), list[tuple[Host, tuple[str, ...]]]()
    its.note, its.departed = events.extend, lambda *what: departed.append(what)
    its.change({HOST: AGENT}, (), 1.0)
    its.change({HOST: replace(AGENT, left=("a0_0-c0_0",))}, (), 2.0)
    assert [(each.name, each.left) for each in its.behind(2)] == [(AGENT.name, ("a0_0-c0_0",))]
    for _ in range(2):  # the second time nobody is there
        its.change({}, [HOST], 3.0)
        assert its.behind(2) == []
    assert departed == [(HOST, ("a0_0-c0_0",)), (HOST, ())]
    assert [(each.kind, each.element, each.actor) for each in events] == [
        (kind, AGENT.name, AGENT.peer) for kind in (EventKind.AGENT, EventKind.AGENT_LEFT)
    ]
