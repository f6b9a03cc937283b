"""The page and its feed over a fabric that is only a state, with traffic: ``python -m tests.web.stub K PORT DIRECTORY MOST``.

All of it is the controller's own code but the counters: dummy switches carry no packets.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import eventlet
from ryu.lib import hub

from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.channel.websocket import AgentChannel
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.fabric.wiring import Wiring
from sopa_ryu.rest import http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.resources import Services
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from topologies import FatTree, Host, Link

CAPACITY = 10e6


def services_of(k: int) -> Services:
    """A healthy fabric with load: the more, the higher the uplink's number; nothing is known of hosts' links."""
    state = FabricState(FatTree(k), epoch=1)
    for switch in state.tree.switches():
        state.switch_heard(switch, {}, 0)
        state.switch_ready(switch, 0)
    state.settle(0)

    def rates(link: Link) -> tuple[float, float] | None:
        if isinstance(link.lower, Host):
            return None
        return (link.upper.index + 0.9) / state.tree.half * CAPACITY, 1000.0

    def drain(name: str, drained: bool) -> bool:
        names = state.drained | {name} if drained else state.drained - {name}
        return state.drain(names, time.monotonic())

    notifier = Notifier(state.tree, lambda: state.view)
    wiring = Wiring(state.tree, 30)
    return Services(
        state, notifier, wiring, dict, drain, lambda switch: {}, rates=rates, capacity=lambda link: CAPACITY
    )


def main() -> None:
    """Serve until killed."""
    eventlet.monkey_patch()
    k, port, directory, most = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    services = services_of(k)
    feed = live_feed.Live(Picture(services), most)
    agents = AgentChannel(services.notifier, lambda version: None)
    sockets = {live_feed.PATH: feed.serve}
    rest = RestApplication(services, Tokens(directory), agents.serve, pages=pages.pages(), sockets=sockets)
    drain = services.drain

    def drain_and_tell(name: str, drained: bool) -> object:
        changed = drain(name, drained)
        feed.changed()
        return changed

    services.drain = drain_and_tell
    hub.spawn(feed.rounds)
    http_server.serve(http_server.listen("127.0.0.1", port, None), rest)


if __name__ == "__main__":
    main()
