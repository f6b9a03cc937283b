"""Pages and their feeds over fabrics that are only states, all in one process: ``python -m tests.web.stub PORT``.

All of it is the controller's own code but the counters: states carry no packets, and there is traffic nevertheless. Who connects to
the port sends lines of JSON, ``[FABRIC, METHOD, ARGUMENTS]``, and gets one for each: `serve` of no fabric begins one, and answers
with its number and port; other methods are `LoadedFabric`'s.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import eventlet
from ryu.lib import hub

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.channel.agent_channel import AgentChannel
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.health import wire
from sopa_ryu.health.history import CELL, DELAY_UNIT, SECONDS, History
from sopa_ryu.rest import http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.runtime import clock
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from tests.helpers.stub_cluster import StubCluster
from tests.helpers.stub_fabric import StubFabric
from topologies import Clos, FatTree, Host, Link, Reason, Switch
from topologies.fabric_file import parse

CAPACITY = 10e6
BEGUN = "serving"


def healthy_state(fabric: Clos | int, absent: Callable[[Switch], bool] = lambda switch: False) -> FabricState:
    """The state of a new fabric whose switches are all connected, but those that are absent."""
    state = FabricState(FatTree(fabric) if isinstance(fabric, int) else fabric, epoch=1)
    for switch in state.tree.switches():
        if not absent(switch):
            state.switch_heard(switch, {}, 0)
            state.switch_ready(switch, 0)
    state.settle(0)
    return state


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

    # -- what tests have happen to it -------------------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """Let the upper end of a link be down."""
        link = self.state.tree.link_by_name(name)
        self.state.port_changed(link.upper, self.state.tree.port(link.upper, link.lower), Reason.DOWN, 1)
        self.changed()

    def arbiter_reports(self, report: dict[str, Any]) -> None:
        """Let an arbiter connect, and report."""
        session, _ = self.arbiter.enter("192.0.2.5", object(), 1)
        self.arbiter.received(session, json.dumps({"type": "ack", "epoch": 1, "version": 1, "report": report}), 1)
        self.changed()

    def arbiter_goes(self) -> None:
        """Let the arbiter's channel be lost."""
        for session in list(self.arbiter.sessions.values()):
            self.arbiter.closed(session)
        self.changed()

    def links_measured(self, lost: dict[str, float], delayed_us: dict[str, float]) -> None:
        """Let probes have found for some time what links lose downwards, and what they add to 10 us there and back."""
        its, tree = self.health, self.state.tree
        size, number = its.elements.links, {tree.name(link): n for n, link in its.elements.present}
        loss, delay = array("f", [0.0] * 2 * size), array("f", [10.0] * size)
        for name, share in lost.items():
            loss[size + number[name]] = share
        for name, more in delayed_us.items():
            delay[number[name]] += more
        about = {"suspects": [], "forged": {}, "plan": {}}
        its._follow(wire.read_health(wire.health(about, loss.tobytes(), delay.tobytes())[wire.HEADER.size :]))
        its.history = its.history or History(size)
        for slot in range(int(clock.now()) // SECONDS - 5, int(clock.now()) // SECONDS):
            row = its.history.begin(slot)
            for n in range(size):
                CELL.pack_into(row, CELL.size * n, 1000, loss[n], loss[size + n], delay[n] / DELAY_UNIT)
            its.history.end(slot)
        self.changed()


class Stub(ChildProcess):
    """The process, as a context manager of the tests."""

    def __init__(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        super().__init__([sys.executable, "-m", "tests.web.stub", str(self._port)], directory / "stub.log")

    def start(self) -> None:
        super().start()
        self.wait_until(lambda: BEGUN in self.log.read_text(), "it serves")
        with socket.create_connection(("127.0.0.1", self._port)) as channel:
            self._channel = channel.makefile("rw")

    def stop(self, how: int = signal.SIGTERM) -> int:
        self._channel.close()
        return super().stop(how)

    def ask(self, fabric: int, method: str, *arguments: Any) -> Any:
        """Have something happen in the process; return its answer."""
        print(json.dumps([fabric, method, arguments]), file=self._channel, flush=True)
        return json.loads(self._channel.readline())

    def serve(
        self, fabric: Clos | int, directory: Path, most: int = live_feed.MAX_CLIENTS, leader: str | None = None
    ) -> Stubbed:
        """Begin a fabric, or a fat-tree of k, with its tokens in a directory; with ``leader`` it is member c1 of a cluster."""
        its = fabric if isinstance(fabric, int) else fabric.document()
        number, port = self.ask(-1, "serve", its, str(directory), most, leader)
        return Stubbed(f"127.0.0.1:{port}", directory, partial(self.ask, number))


class Stubbed(NamedTuple):
    """A fabric of the stub: its address without the scheme, the directory of its tokens, and what is done with it."""

    where: str
    directory: Path
    ask: Callable[..., Any]

    @property
    def url(self) -> str:
        return f"http://{self.where}"

    @property
    def token(self) -> str:
        """The operator's."""
        return (self.directory / "token").read_text().strip()


def _serve(fabrics: list[LoadedFabric], its: Any, directory: str, most: int, leader: str | None) -> tuple[int, int]:
    """Begin a fabric; return its number and port."""
    fabric = LoadedFabric(its if isinstance(its, int) else parse(json.dumps(its)).fabric)  # JSON is YAML, too
    if leader is not None:
        fabric.cluster = StubCluster(leader)
    feed = live_feed.Live(Picture(fabric), most)
    fabric.changed = feed.changed
    agents = AgentChannel(fabric.notifier, lambda version: None)
    sockets = {live_feed.PATH: feed.serve}
    rest = RestApplication(fabric, Tokens(Path(directory)), agents.serve, pages=pages.pages(), sockets=sockets)
    door = http_server.listen("127.0.0.1", 0)
    hub.spawn(feed.rounds)
    hub.spawn(http_server.serve, door, rest)
    fabrics.append(fabric)
    return len(fabrics) - 1, door.getsockname()[1]


def main() -> None:
    """Do what tests ask until killed."""
    eventlet.monkey_patch()
    fabrics: list[LoadedFabric] = []
    listener = eventlet.listen(("127.0.0.1", int(sys.argv[1])))
    print(BEGUN, flush=True)
    channel = listener.accept()[0].makefile("rw")
    for line in channel:
        number, method, arguments = json.loads(line)
        do = partial(_serve, fabrics) if method == "serve" else getattr(fabrics[number], method)
        print(json.dumps(do(*arguments)), file=channel, flush=True)


if __name__ == "__main__":
    main()
