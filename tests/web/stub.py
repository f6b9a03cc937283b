"""The page and its feed over a fabric that is only a state: ``python -m tests.web.stub K|FILE PORT DIRECTORY MOST [LEADER]``.

FILE is a fabric file. With LEADER it is member c1 of a cluster that this one leads. All of it is the controller's own code but the
counters: dummy switches carry no packets, and there is traffic nevertheless.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import eventlet
from ryu.lib import hub

from sopa_ryu.channel.agent_channel import AgentChannel
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.rest import http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import Clos, FatTree, Host, Link, Switch
from topologies.fabric_file import load

CAPACITY = 10e6


class LoadedFabric(StubFabric):
    """A new fabric with load: the more, the higher the uplink's number; nothing is known of hosts' links.

    Parameters
    ----------
    fabric : Clos or int
        The fabric, or k of a fat-tree.
    absent : callable
        Whether a switch has never connected; by default all are there.
    """

    def __init__(self, fabric: Clos | int, absent: Callable[[Switch], bool] = lambda switch: False) -> None:
        super().__init__(healthy_state(fabric, absent))
        self.changed: Callable[[], None] = lambda: None

    def link_rates(self, link: Link) -> tuple[float, float] | None:
        if isinstance(link.lower, Host):
            return None
        uplinks = self.state.tree.uplink_count(link.lower.level)
        return (link.upper.index + 0.9) / uplinks * self.link_capacity(link), 1000.0

    def link_capacity(self, link: Link) -> float:
        tree = self.state.tree
        return tree.capacity(link) * 1e6 if tree.mbit else CAPACITY

    def set_drained(self, name: str, drained: bool) -> None:
        super().set_drained(name, drained)
        self.changed()


def healthy_state(fabric: Clos | int, absent: Callable[[Switch], bool] = lambda switch: False) -> FabricState:
    """The state of a new fabric whose switches are all connected, but those that are absent."""
    state = FabricState(FatTree(fabric) if isinstance(fabric, int) else fabric, epoch=1)
    for switch in state.tree.switches():
        if absent(switch):
            continue
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    state.settle(0)
    return state


def main() -> None:
    """Serve until killed."""
    eventlet.monkey_patch()
    tree, port, directory, most = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    fabric = LoadedFabric(int(tree) if tree.isdigit() else load(Path(tree)))
    if len(sys.argv) > 5:
        fabric.cluster = StubCluster(sys.argv[5])
    feed = live_feed.Live(Picture(fabric), most)
    fabric.changed = feed.changed
    agents = AgentChannel(fabric.notifier, lambda version: None)
    sockets = {live_feed.PATH: feed.serve}
    rest = RestApplication(fabric, Tokens(directory), agents.serve, pages=pages.pages(), sockets=sockets)
    hub.spawn(feed.rounds)
    http_server.serve(http_server.listen("127.0.0.1", port, None), rest)


if __name__ == "__main__":
    main()
