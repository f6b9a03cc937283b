"""Pages and their feeds over fabrics that are only states, all in one process: ``python -m tests.web.stub PORT``.

All of it is the controller's own code but the counters: states carry no packets, and there is traffic nevertheless. Who connects to
the port sends lines of JSON, ``[FABRIC, METHOD, ARGUMENTS]``, and gets one for each: `serve` of no fabric begins one, and answers
with its number and port; other methods are `LoadedFabric`'s.
"""

import json
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import eventlet
from ryu.lib import hub

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.channel.agent_channel import AgentChannel
from sopa_ryu.rest import http_server
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.web import live_feed, pages
from sopa_ryu.web.picture import Picture
from tests.helpers.stub_cluster import StubCluster
from tests.web.loaded_fabric import LoadedFabric
from topologies import Clos
from topologies.fabric_file import parse

BEGUN = "serving"


class Stub(ChildProcess):
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

    def serve(self, fabric: Clos | int, directory: Path, most: int = live_feed.MAX_CLIENTS, leader: str | None = None) -> "Stubbed":
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
    hub.spawn(agents.watch)
    hub.spawn(http_server.serve, door, rest)
    fabrics.append(fabric)
    return len(fabrics) - 1, door.getsockname()[1]


def main() -> None:
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
