"""Pages and their feeds over fabrics that are only states, each with a front: ``python -m tests.web.stub PORT``.

All of it is the controller's own code but the counters: states carry no packets, and there is traffic nevertheless. Who connects to
the port sends lines of JSON, ``[FABRIC, METHOD, ARGUMENTS]``, and gets one for each: `serve` of no fabric begins one, and answers
with its number and port; other methods are `LoadedFabric`'s.
"""

import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import eventlet

from experiments.emulation.processes import ChildProcess, free_ports
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.front import wire
from sopa_ryu.front.arbiter_channel import ArbiterChannel
from sopa_ryu.front.controller_side import FrontProcess
from sopa_ryu.front.relay_channel import RelayChannel
from sopa_ryu.rest.access import Tokens
from sopa_ryu.rest.application import RestApplication
from sopa_ryu.runtime.library import hub
from sopa_ryu.runtime.listeners import listening
from sopa_ryu.web import live_feed
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

    def serve(
        self,
        fabric: Clos | int,
        directory: Path,
        most: int = live_feed.MAX_CLIENTS,
        leader: str | None = None,
        read_token: bool = False,
    ) -> "Stubbed":
        """Begin a fabric, or a fat-tree of k, with its tokens in a directory; with ``leader`` it is member c1 of a cluster."""
        its = fabric if isinstance(fabric, int) else {**fabric.document(), **fabric.aliases.document()}
        number, port = self.ask(-1, "serve", its, str(directory), most, leader, read_token)
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
        return (self.directory / "token").read_text().strip()


def _serve(
    fabrics: list[LoadedFabric], its: Any, directory: str, most: int, leader: str | None, read_token: bool
) -> tuple[int, int]:
    fabric = LoadedFabric(its if isinstance(its, int) else parse(json.dumps(its)).fabric)  # JSON is YAML, too
    cluster = fabric.cluster = None if leader is None else StubCluster(leader)
    standing = wire.Standing(False, None, cluster is None or cluster.is_leader, cluster and cluster.leader_url())
    tree, agents = fabric.state.tree, fabric.agents
    feed = live_feed.Live(Picture(fabric), lambda text: front.show(text))
    answer, ignore = RestApplication(fabric, Tokens(Path(directory))).respond, lambda *numbers: None
    hands: Any = SimpleNamespace(answer=answer, standing=lambda: standing, sent=ignore, completed=ignore, watched=feed.watched)
    of_tokens = directory, False, read_token
    config = wire.Config(tree.document(), "mac", leader is not None, (), 128, (), (), (), *of_tokens, most, logging.INFO)
    door, desk = listening("127.0.0.1", 0, 128), RelayDesk(tree, agents.probe_lists)
    owners = ArbiterChannel(fabric.arbiter), RelayChannel(desk)
    front = FrontProcess(tree, config, door, agents, desk, lambda: fabric.state.view, hands, owners)
    fabric.changed = lambda: [front.broadcast(), feed.changed()]
    hub.spawn(feed.rounds)
    hub.spawn(front.run)
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
